"""Kubernetes' API server, played: one workload with its scale and its pods, with the shapes that
the real one answers with. Pods are made and removed as a Deployment's or a StatefulSet's are."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COST = "controller.kubernetes.io/pod-deletion-cost"
Answer = tuple[int, Any]


@dataclass
class ApiServer:
    """ready: do new pods become ready? waiting: why their containers wait; refusal: why none is
    made; fault: an answer in place of all others (status and document), by method and path"""

    kind: str
    name: str = "workers"
    replicas: int = 0
    ready: bool = True
    waiting: str = ""
    refusal: str = ""
    fault: Callable[[str, str], Answer | None] = lambda method, path: None
    writes: list[int] = field(default_factory=list)
    pods: dict[str, dict[str, Any]] = field(default_factory=dict)
    version: int = 1
    port: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)
    made: int = 0

    def __post_init__(self) -> None:
        self.follow()

    # --- what controllers of the cluster do -------------------------------------------------------

    def follow(self) -> None:
        """As many pods as replicas."""
        with self.lock:
            while len(self.pods) > self.replicas:
                del self.pods[self._victim()]
            while len(self.pods) < self.replicas and not self.refusal:
                self._make()

    def _victim(self) -> str:
        if self.kind == "statefulsets":
            return max(self.pods, key=lambda name: int(name.rpartition("-")[2]))

        def rank(name: str) -> tuple[bool, int, int]:
            pod = self.pods[name]
            cost = int(pod["metadata"].get("annotations", {}).get(COST, 0))
            ready = pod["status"]["conditions"][1]["status"] == "True"
            return ready, cost, -int(pod["metadata"]["creationTimestamp"])

        return min(self.pods, key=rank)

    def _make(self) -> None:
        self.made += 1
        number = next(n for n in range(1000) if f"{self.name}-{n}" not in self.pods)
        name = f"{self.name}-{number}"
        if self.kind == "deployments":
            name = f"{self.name}-5d4f-{self.made:04}"
        state: dict[str, Any] = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        if self.waiting:
            state = {"waiting": {"reason": self.waiting, "message": "back-off 10s"}}
        self.pods[name] = {
            "metadata": {"name": name, "creationTimestamp": f"{self.made:020}"},
            "status": {
                "phase": "Running",
                "conditions": [
                    {"type": "PodScheduled", "status": "True"},
                    {"type": "Ready", "status": str(self.ready and not self.waiting)},
                ],
                "containerStatuses": [{"name": "consumer", "state": state}],
            },
        }

    def remove(self, name: str) -> None:
        """The pod is lost, and replaced."""
        with self.lock:
            del self.pods[name]
            self.follow()

    # --- what is asked of it ----------------------------------------------------------------------

    def answer(self, method: str, path: str, body: bytes) -> Answer:
        with self.lock:
            odd = self.fault(method, path)
            if odd is not None:
                return odd
            workload = f"/apis/apps/v1/namespaces/default/{self.kind}/{self.name}"
            if path == f"{workload}/scale":
                return self._scale(method, body)
            if path == f"{workload}/status":
                failing = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}
                conditions = [{**failing, "message": self.refusal}] if self.refusal else []
                return 200, {"kind": "Deployment", "status": {"conditions": conditions}}
            pods = "/api/v1/namespaces/default/pods"
            if path == pods:
                return 200, {"kind": "PodList", "items": list(self.pods.values())}
            if method == "PATCH" and path.removeprefix(f"{pods}/") in self.pods:
                pod = self.pods[path.removeprefix(f"{pods}/")]
                pod["metadata"].setdefault("annotations", {}).update(
                    json.loads(body)["metadata"]["annotations"]
                )
                return 200, pod
            return status(404, f"{self.kind} {path} not found")

    def _scale(self, method: str, body: bytes) -> Answer:
        if method == "PUT":
            asked = json.loads(body)
            if asked["metadata"]["resourceVersion"] != str(self.version):
                return status(409, "the object has been modified")
            self.set(asked["spec"]["replicas"])
            self.writes.append(self.replicas)
        return 200, {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {"name": self.name, "resourceVersion": str(self.version)},
            "spec": {"replicas": self.replicas} if self.replicas else {},
            "status": {"replicas": len(self.pods), "selector": "app=workers"},
        }

    def set(self, replicas: int) -> None:
        with self.lock:
            self.version += 1
            self.replicas = replicas
            self.follow()

    def kubeconfig(self, folder: Path) -> str:
        path = folder / "kubeconfig"
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.port}"}}],
            "users": [{"name": "u", "user": {"token": "secret"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        path.write_text(json.dumps(document))
        return str(path)


def status(code: int, message: str) -> Answer:
    return code, {"kind": "Status", "status": "Failure", "message": message, "code": code}


@contextmanager
def serving(api: ApiServer) -> Iterator[ApiServer]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _handle(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(size)
            code, found = api.answer(self.command, self.path.partition("?")[0], body)
            data = found if isinstance(found, bytes) else json.dumps(found).encode()
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_PUT = do_PATCH = _handle

        def log_message(self, *_: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    api.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
