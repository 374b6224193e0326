"""Consumers as pods of a Deployment or a StatefulSet, by its scale subresource.

A thread asks the API server and writes what is wanted: the controller never waits for it. A
StatefulSet removes its highest ordinals, so those are the ones that go; of a Deployment's pods
those go first that are marked (pod-deletion-cost), which Kubernetes promises only as a preference.
"""

import json
import logging
import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from srtm.autoscaler.executors.executor import Abilities, Fleet, Wanted
from srtm.autoscaler.executors.pods import Pod, Scale, pods_of, refusal_of, scale_of
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

    def __init__(self, table: ExecutorTable, file: Path) -> None:
        """Raises UnavailableError without the client, UsageError for a kubeconfig that is none."""
        require_kubernetes()
        kind, _, self._name = table.target.partition("/")
        self._kind = {"deployment": "deployment", "statefulset": "stateful_set"}[kind]
        anonymous = kind == "deployment"
        self.abilities = Abilities(
            restarts=True, anonymous=anonymous, numbered="" if anonymous else self._name
        )
        self._target = table.target
        self._namespace = table.namespace
        self._apps, self._core = _apis(table, file)
        self._lock = threading.Lock()
        self._scale: Scale | None = None
        self._pods: tuple[Pod, ...] = ()
        self._refusal = ""
        self._fault = f"{self._target}: not asked yet"
        self._replicas: int | None = None
        self._begun: dict[str, None] = {}
        self._died: dict[str, str] = {}
        self._accepted: set[str] | None = None
        self._ended: set[str] = set()
        self._marked: set[str] = set()
        self._failures = 0
        self._ending = threading.Event()
        self._wake = threading.Event()
        self._looked = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kubernetes", daemon=True)
        self._thread.start()
        self._looked.wait(_FIRST_SECONDS)
        with self._lock:
            self._accept()

    def close(self) -> None:
        self._ending.set()
        self._wake.set()
        self._thread.join(sum(_TIMEOUT_SECONDS))

    # --- what is wanted ---------------------------------------------------------------------------

    def want(self, at: float, wanted: Wanted) -> None:
        with self._lock:
            left_out = self._begun.keys() - set(wanted.launches)
            self._begin(wanted.launches)
            self._change(-len(left_out & wanted.leavers))
            there = {each.name for each in self._pods}
            leavers = (wanted.leavers & there) - self._ended - left_out
            self._ended |= wanted.leavers
            self._change(-len(leavers))
            self._accept()
            self._give_up()

    def _begin(self, launches: Sequence[str]) -> None:
        self._died = {id_: why for id_, why in self._died.items() if id_ in launches}
        fresh = [id_ for id_ in launches if id_ not in self._begun and id_ not in self._died]
        self._begun = {id_: None for id_ in launches if id_ in self._begun}
        if self._scale is None:
            self._died.update(dict.fromkeys(fresh, self._fault))
            return
        self._begun.update(dict.fromkeys(fresh))
        there = self._running().intersection(fresh)  # begun for the controller before
        self._accepted = (self._accepted or set()) - there
        self._ended.difference_update(fresh)
        self._change(len(fresh) - len(there))

    def _base(self) -> int:
        if self._replicas is not None:
            return self._replicas
        return self._scale.replicas if self._scale else 0

    def _change(self, by: int) -> None:
        if by:
            self._replicas = max(self._base() + by, 0)
            self._wake.set()

    def _accept(self) -> None:
        """Take for consumers the pods that are there at the beginning, those that have become
        ready, and those that were not launched here: Kubernetes replaces what it has lost."""
        if self._scale is None:
            return
        live = [each for each in self._pods if not each.terminating]
        names = {each.name for each in self._pods}
        first = self._accepted is None
        accepted = (self._accepted or set()) & names
        accepted |= {each.name for each in live if first or each.ready}
        self._ended &= names
        if self._replicas is None and len(live) <= self._scale.replicas:
            self._ended -= {each.name for each in live}  # another one went instead
        self._marked &= self._ended
        new = sorted(
            (each for each in live if each.name not in accepted | self._begun.keys()),
            key=lambda each: (each.created, each.name),
        )
        surplus = len(new) - (len(self._begun) if self.abilities.anonymous else 0)
        self._accepted = accepted | {each.name for each in new[: max(surplus, 0)]}

    def _give_up(self) -> None:
        """Give up launches that cannot come to anything."""
        starting = self._starting()
        hopeless = [each for each in starting if each.hopeless]
        begun = len(self._begun)
        for id_ in list(self._begun):
            pod = next((each for each in hopeless if self._may_be(each, id_)), None)
            if pod is not None:
                hopeless.remove(pod)
                self._died[id_] = f"pod {pod.name}: {pod.hopeless}"
            elif self._refusal and len(starting) < begun:
                self._died[id_] = f"{self._target}: {self._refusal}"
            else:
                continue
            del self._begun[id_]
            self._change(-1)

    # --- what is there ----------------------------------------------------------------------------

    def _starting(self) -> list[Pod]:
        accepted = self._accepted or set()
        return [each for each in self._pods if not each.terminating and each.name not in accepted]

    def _may_be(self, pod: Pod, id_: str) -> bool:
        return self.abilities.anonymous or pod.name == id_

    def _late(self, id_: str) -> str:
        waits = next((p.waits for p in self._starting() if p.waits and self._may_be(p, id_)), "")
        why = waits or self._fault or "no reason is known"
        return f"{id_} was not ready within the time that startup gives it ({why})"

    def _running(self) -> set[str]:
        live = {each.name for each in self._pods if not each.terminating}
        return (live & (self._accepted or set())) - self._ended

    def seen(self) -> Fleet:
        with self._lock:
            there = {each.name for each in self._pods}
            accepted = self._accepted or set()
            bad = [each for each in self._pods if each.hopeless and each.name in accepted]
            return Fleet(
                running=frozenset(self._running()),
                starting={id_: self._late(id_) for id_ in self._begun},
                leaving=frozenset(self._ended & there),
                died=dict(self._died),
                next_number=self._base(),
                fault=self._fault or (f"pod {bad[0].name}: {bad[0].hopeless}" if bad else ""),
            )

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
        if self.abilities.anonymous and self._begun:
            refusal = refusal_of(self._ask(self._apps, "read_namespaced_deployment_status"))
        with self._lock:
            self._scale, self._pods, self._refusal = scale, pods, refusal
            wanted = self._replicas
            if wanted == scale.replicas:
                wanted = self._replicas = None
            victims = sorted(self._ended & {each.name for each in pods if not each.terminating})
        if wanted is None:
            return False
        if self.abilities.anonymous and wanted < scale.replicas:
            self._mark(victims)
        self._write(scale, wanted)
        return True

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
