"""Consumers as pods of a Deployment or a StatefulSet, by its scale subresource.

A thread asks the API server and writes what is wanted: the controller never waits for it. A
StatefulSet removes its highest ordinals, so those are the ones that `staying` gives up; of a
Deployment's pods those go first that are marked (pod-deletion-cost), which Kubernetes promises only
as a preference.
"""

import json
import logging
import os
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from srtm.autoscaler.executors.executor import Backoff
from srtm.autoscaler.executors.pods import Pod, Scale, ordinal, pods_of, refusal_of, scale_of
from srtm.consumer.file import ExecutorTable
from srtm.consumer.required import require_kubernetes
from srtm.host.backoff import backoff_seconds
from srtm.text.errors import UsageError

log = logging.getLogger("srtm.autoscale")

_LOOK_SECONDS = 1.0
_TIMEOUT_SECONDS = (3.0, 5.0)
"""to connect, and to answer"""
_MOST_BACKOFF_SECONDS = 30.0
_MOST_BYTES = 32 << 20
_MOST_PODS = 1000
_COST = "controller.kubernetes.io/pod-deletion-cost"
_FIRST_SECONDS = 5.0


class Kubernetes:
    """Ids are names of pods; those of a Deployment are known once they are there."""

    restarts = True
    chooses = True

    def __init__(self, table: ExecutorTable, file: Path) -> None:
        """Raises UnavailableError without the client, UsageError for a kubeconfig that is none."""
        require_kubernetes()
        kind, _, self._name = table.target.partition("/")
        self._kind = {"deployment": "deployment", "statefulset": "stateful_set"}[kind]
        self._target = table.target
        self._namespace = table.namespace
        self._startup = table.startup
        self._apps, self._core = _apis(table, file)
        self._lock = threading.Lock()
        self._scale: Scale | None = None
        self._pods: tuple[Pod, ...] = ()
        self._refusal = ""
        self._fault = f"{self._target}: not asked yet"
        self._wanted: int | None = None
        self._begun: dict[str, float] = {}
        self._accepted: set[str] = set()
        self._ended: set[str] = set()
        self._marked: set[str] = set()
        self._backoff = Backoff()
        self._failures = 0
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)
        self._thread.start()
        self._looked.wait(_FIRST_SECONDS)

    @property
    def anonymous(self) -> bool:
        return self._kind == "deployment"

    def close(self) -> None:
        self._ending.set()
        self._wake.set()
        self._thread.join(sum(_TIMEOUT_SECONDS))

    # --- what is wanted ---------------------------------------------------------------------------

    def names(self, count: int) -> list[str]:
        if self.anonymous:
            return [f"launch-{uuid.uuid4().hex[:8]}" for _ in range(count)]
        with self._lock:
            first = self._base()
        return [f"{self._name}-{first + n}" for n in range(count)]

    def _base(self) -> int:
        if self._wanted is not None:
            return self._wanted
        return self._scale.replicas if self._scale else 0

    def _change(self, by: int) -> None:
        with self._lock:
            self._wanted = max(self._base() + by, 0)
        self._wake.set()

    def launch(self, at: float, ids: Sequence[str]) -> list[str]:
        if not ids:
            return []
        if self._scale is None:
            self._backoff.fail(at, self._fault)
            return list(ids)
        with self._lock:
            self._begun.update(dict.fromkeys(ids, at))
            self._ended.difference_update(ids)
        self._change(len(ids))
        return []

    def joined(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        self._backoff.succeed()
        with self._lock:
            for id_ in ids:
                if id_ in self._begun:
                    del self._begun[id_]
                elif self.anonymous and self._begun:
                    del self._begun[next(iter(self._begun))]

    def called_off(self, ids: Sequence[str]) -> None:
        self._give_up([id_ for id_ in ids if id_ in self._begun])

    def _give_up(self, ids: Sequence[str]) -> None:
        if ids:
            with self._lock:
                for id_ in ids:
                    self._begun.pop(id_, None)
            self._change(-len(ids))

    def end(self, at: float, ids: Sequence[str]) -> None:
        with self._lock:
            new = [id_ for id_ in ids if id_ not in self._ended]
            self._ended.update(new)
        if new:
            self._change(-len(new))

    def staying(self, ids: Sequence[str], count: int) -> list[str]:
        if self.anonymous:
            return list(ids[:count])
        return sorted(ids, key=ordinal)[:count]

    # --- what is there ----------------------------------------------------------------------------

    def running(self) -> tuple[str, ...]:
        with self._lock:
            there = {each.name for each in self._pods if not each.terminating}
            return tuple(sorted((self._accepted & there) - self._ended))

    def leaving(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(sorted(self._ended & {each.name for each in self._pods}))

    def failed(self, at: float) -> Iterator[str]:
        with self._lock:
            begun, refusal = dict(self._begun), self._refusal
            starting = [
                each
                for each in self._pods
                if not each.terminating and each.name not in self._accepted
            ]
        hopeless = [each for each in starting if each.hopeless]
        for id_, since in begun.items():
            why = ""
            mine = [each for each in starting if self.anonymous or each.name == id_]
            if any(each in hopeless for each in mine):
                pod = next(each for each in mine if each in hopeless)
                hopeless.remove(pod)
                why = f"pod {pod.name}: {pod.hopeless}"
            elif refusal and len(starting) < len(begun):
                why = f"{self._target}: {refusal}"
            elif at - since > self._startup:
                waits = next((each.waits for each in mine if each.waits), "")
                why = f"{id_} was not ready within the time that startup gives it"
                why += f" ({waits or self._fault or 'no reason is known'})"
            if why:
                self._backoff.fail(at, why)
                self._give_up([id_])
                yield id_

    def want(self, wanted: int, there: int) -> None:
        return None

    def backing_off(self, at: float) -> str:
        return self._backoff.told(at)

    def fault(self) -> str:
        with self._lock:
            bad = [each for each in self._pods if each.hopeless and each.name in self._accepted]
            return self._fault or (f"pod {bad[0].name}: {bad[0].hopeless}" if bad else "")

    # --- its own thread ---------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending.is_set():
            self._wake.clear()
            try:
                again = self._turn()
            except Exception as error:
                wait = self._failed(error)
            else:
                if self._fault:
                    log.info("%s: the API server answers", self._target)
                self._fault, self._failures = "", 0
                wait = 0.05 if again else _LOOK_SECONDS
            self._looked.set()
            if self._fault:  # a change that is wanted does not make it answer sooner
                self._ending.wait(wait)
            else:
                self._wake.wait(wait)

    def _failed(self, error: Exception) -> float:
        """Seconds until it is tried again."""
        fault = f"{self._target}: {_sentence(error, self._namespace)}"
        if fault != self._fault:
            log.warning("%s", fault)
        self._fault = fault
        wait = backoff_seconds(self._failures + 2, 0.5, _MOST_BACKOFF_SECONDS)
        self._failures += 1
        return wait

    def _turn(self) -> bool:
        """True: look again at once."""
        scale = scale_of(self._ask(self._apps, f"read_namespaced_{self._kind}_scale"))
        listed = self._asked(
            self._core.list_namespaced_pod,
            self._namespace,
            label_selector=scale.selector,
            limit=_MOST_PODS,
        )
        pods = pods_of(listed)
        refusal = ""
        if self.anonymous and self._begun:
            refusal = refusal_of(self._ask(self._apps, "read_namespaced_deployment_status"))
        with self._lock:
            first = self._scale is None
            self._scale, self._pods, self._refusal = scale, pods, refusal
            self._accept(first)
            wanted = self._wanted
            if wanted == scale.replicas:
                wanted = self._wanted = None
            victims = sorted(self._ended & {each.name for each in pods if not each.terminating})
        if wanted is None:
            return False
        if self.anonymous and wanted < scale.replicas:
            self._mark(victims)
        self._write(scale, wanted)
        return True

    def _accept(self, first: bool) -> None:
        """Pods that are there at the beginning, those that have become ready, and those that were
        not launched here: Kubernetes replaces what it has lost."""
        live = [each for each in self._pods if not each.terminating]
        self._accepted &= {each.name for each in self._pods}
        self._accepted |= {each.name for each in live if first or each.ready}
        self._ended &= {each.name for each in self._pods}
        if self._wanted is None and self._scale and len(live) <= self._scale.replicas:
            self._ended -= {each.name for each in live}  # another one went instead
        self._marked &= self._ended
        new = sorted(
            (each for each in live if each.name not in self._accepted | self._begun.keys()),
            key=lambda each: (each.created, each.name),
        )
        surplus = len(new) - (len(self._begun) if self.anonymous else 0)
        self._accepted |= {each.name for each in new[: max(surplus, 0)]}

    def _mark(self, victims: Sequence[str]) -> None:
        body = {"metadata": {"annotations": {_COST: "-1000"}}}
        for name in victims:
            if name not in self._marked:
                self._asked(self._core.patch_namespaced_pod, name, self._namespace, body)
                self._marked.add(name)

    def _write(self, scale: Scale, replicas: int) -> None:
        """Refused (409) where somebody has changed it meanwhile: it is read and written again."""
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": self._name,
                "namespace": self._namespace,
                "resourceVersion": scale.version,
            },
            "spec": {"replicas": replicas},
        }
        try:
            self._ask(self._apps, f"replace_namespaced_{self._kind}_scale", body)
        except Exception as error:
            if getattr(error, "status", None) != 409:
                raise
            log.info("%s was changed by somebody else; it is read again", self._target)
            return
        log.info("%s: %d replicas", self._target, replicas)

    def _ask(self, api: Any, name: str, *body: object) -> object:
        return self._asked(getattr(api, name), self._name, self._namespace, *body)

    @staticmethod
    def _asked(call: Callable[..., Any], *arguments: object, **options: object) -> object:
        answer = call(
            *arguments, **options, _preload_content=False, _request_timeout=_TIMEOUT_SECONDS
        )
        try:
            data = answer.read(_MOST_BYTES + 1)
        finally:
            answer.release_conn()
        if len(data) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES} bytes")
        found: object = json.loads(data)
        return found


def _apis(table: ExecutorTable, file: Path) -> tuple[Any, Any]:
    """Raises UsageError."""
    from kubernetes import client, config  # an extra

    settings = client.Configuration()
    if table.kubeconfig and not (file.parent / table.kubeconfig).exists():
        raise UsageError(f"{file}: [executor]: kubeconfig {table.kubeconfig} is not there")
    try:
        if not table.kubeconfig and os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            where = str(file.parent / table.kubeconfig) if table.kubeconfig else None
            config.load_kube_config(where, client_configuration=settings)  # type: ignore[no-untyped-call]
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise UsageError(
            f"{file}: [executor]: no cluster is known: {said}; give kubeconfig, or run it in one"
        ) from None
    settings.retries = False
    api = client.ApiClient(settings)
    return client.AppsV1Api(api), client.CoreV1Api(api)


def _sentence(error: Exception, namespace: str) -> str:
    """What the API server, or the way to it, says; and the remedy."""
    status = getattr(error, "status", None)
    said = ""
    if isinstance(status, int):
        try:
            found = json.loads(getattr(error, "body", "") or "{}")
            said = " ".join(str(found.get("message", "")).split())[:300]
        except (ValueError, AttributeError, TypeError):
            said = ""
    match status:
        case 401:
            return "the API server does not know who asks (401): the token or certificate is wrong"
        case 403:
            return f"forbidden (403): {said}; give the service account a Role for it"
        case 404:
            return f"not in namespace {namespace} (404)"
        case int():
            return f"the API server answers {status}: {said}"
        case _:
            pass
    if isinstance(error, ValueError | RecursionError):
        return f"the API server's answer makes no sense: {str(error)[:200]}"
    return f"the API server cannot be reached: {type(error).__name__}: {str(error)[:200]}"
