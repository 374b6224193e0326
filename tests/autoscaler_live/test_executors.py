"""What every executor owes, and what each has of its own: this machine, Kubernetes (the real client
against a played API server), KEDA (a real gRPC client)."""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from srtm.autoscaler.executors.executor import Executor
from srtm.autoscaler.executors.keda import Keda
from srtm.autoscaler.executors.kubernetes import Kubernetes
from srtm.autoscaler.executors.local import Local
from srtm.consumer.file import ExecutorTable
from srtm.text.errors import UnavailableError, UsageError
from tests.support.api_server import ApiServer, serving, status
from tests.support.servers import free_port, wait_for

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)")


class Stage:
    """One executor and what it works on."""

    def __init__(self, kind: str, folder: Path, stack: ExitStack) -> None:
        self.kind = kind
        self.folder = folder
        self.stack = stack
        self.api = ApiServer(kind) if kind in ("deployments", "statefulsets") else None
        if self.api:
            stack.enter_context(serving(self.api))

    def table(self, **keys: Any) -> ExecutorTable:
        if self.kind == "local":
            return ExecutorTable(**{"command": SLEEPER, "grace": "1s", **keys})
        if self.kind == "keda":
            port = free_port()
            return ExecutorTable(kind="keda", grpc_address=f"127.0.0.1:{port}", **keys)
        assert self.api is not None
        target = f"{self.kind.removesuffix('s')}/{self.api.name}"
        config = self.api.kubeconfig(self.folder)
        return ExecutorTable(kind="kubernetes", target=target, kubeconfig=config, **keys)

    def executor(self, **keys: Any) -> Executor:
        kinds: dict[str, Callable[..., Executor]] = {"local": Local, "keda": Keda}
        made = kinds.get(self.kind, Kubernetes)(self.table(**keys), self.folder / "x.toml")
        self.stack.callback(made.close)
        return made


@pytest.fixture
def stages(tmp_path: Path) -> Iterator[Callable[[str], Stage]]:
    with ExitStack() as stack:
        yield lambda kind: Stage(kind, tmp_path, stack)


def joined(executor: Executor, ids: list[str], count: int) -> list[str]:
    """Who runs, once so many do; all have joined."""

    def running() -> list[str]:
        found = executor.running()
        return ids if found is None else list(found)

    wait_for(lambda: len(running()) == count, f"{count} run", 20)
    executor.joined(ids)
    return running()


ALL = ["local", "deployments", "statefulsets", "keda"]
LIVE = ["local", "deployments", "statefulsets"]


@pytest.mark.parametrize("kind", ALL)
def test_consumers_are_launched_and_end(kind: str, stages: Callable[[str], Stage]) -> None:
    executor = stages(kind).executor()
    ids = executor.names(3)
    assert len(set(ids)) == 3
    assert executor.launch(0.0, ids) == []
    running = joined(executor, ids, 3)
    assert list(executor.failed(1.0)) == []
    assert executor.backing_off(1.0) == ""
    staying = executor.staying(running, 1)
    assert len(staying) == 1
    executor.end(2.0, [each for each in running if each not in staying])
    if executor.chooses:
        wait_for(lambda: not list(executor.failed(2.5)) and not executor.leaving(), "gone", 20)
        wait_for(lambda: executor.running() == tuple(staying), "who stays does", 20)
    executor.end(3.0, staying)
    wait_for(lambda: not list(executor.failed(5.0)) and not executor.running(), "all gone", 20)


@pytest.mark.parametrize("kind", ALL)
def test_a_launch_that_does_not_come_backs_off_and_is_given_up(
    kind: str, stages: Callable[[str], Stage]
) -> None:
    stage = stages(kind)
    if stage.api:
        stage.api.ready = False
    executor = stage.executor(startup="5s")
    ids = executor.names(1)
    executor.launch(0.0, ids)
    assert list(executor.failed(4.0)) == []
    assert list(executor.failed(6.0)) == ids
    assert "within the time that startup gives it" in executor.backing_off(6.1)
    assert executor.backing_off(8.0) == ""
    executor.launch(8.0, executor.names(1))
    assert len(list(executor.failed(14.0))) == 1
    assert executor.backing_off(14.9)  # longer than before
    executor.joined(executor.names(1))
    assert not executor.backing_off(14.9)
    if stage.api:
        wait_for(lambda: stage.api.replicas == 0, "no pod is left waiting", 10)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", LIVE)
def test_the_next_controller_finds_who_is_there(kind: str, stages: Callable[[str], Stage]) -> None:
    stage = stages(kind)
    first = stage.executor()
    ids = first.names(2)
    first.launch(0.0, ids)
    running = joined(first, ids, 2)
    first.close()
    second = stage.executor()
    assert list(second.running() or ()) == running
    second.end(0.0, running)
    wait_for(lambda: not list(second.failed(2.0)) and not second.running(), "gone", 20)


@pytest.mark.parametrize("kind", ALL)
def test_a_launch_that_is_called_off(kind: str, stages: Callable[[str], Stage]) -> None:
    stage = stages(kind)
    if stage.api:
        stage.api.ready = False
    executor = stage.executor(startup="5s")
    ids = executor.names(2)
    executor.launch(0.0, ids)
    executor.called_off(ids)
    wait_for(lambda: not executor.running(), "gone", 20)
    assert list(executor.failed(100.0)) == []


# --- this machine -------------------------------------------------------------------------------


def test_who_does_not_leave_within_the_grace_is_killed(stages: Callable[[str], Stage]) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); "
    command = [sys.executable, "-c", f"{stubborn} time.sleep(600)"]
    stage = stages("local")
    executor = stage.executor(command=command, log_folder="logs")
    ids = executor.names(1)
    executor.launch(0.0, ids)
    wait_for(lambda: (stage.folder / "logs" / f"{ids[0]}.log").read_text(), "it runs")
    executor.joined(ids)
    executor.end(0.0, ids)
    assert list(executor.failed(0.5)) == []
    assert executor.leaving() == tuple(ids)
    wait_for(lambda: not list(executor.failed(1.5)) and not executor.leaving(), "killed")


def test_a_wrapper_takes_its_child_along(stages: Callable[[str], Stage]) -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(600)'; true"
    executor = stages("local").executor(command=["sh", "-c", script])
    ids = executor.names(1)
    executor.launch(0.0, ids)
    wait_for(lambda: executor.running() == tuple(ids), "it runs")
    executor.end(0.0, ids)
    wait_for(lambda: not list(executor.failed(0.5)) and not executor.leaving(), "both are gone")


# --- Kubernetes -----------------------------------------------------------------------------------


def test_a_statefulset_gives_up_its_highest_ordinals(stages: Callable[[str], Stage]) -> None:
    executor = stages("statefulsets").executor()
    assert executor.staying(["w-11", "w-2", "w-10"], 2) == ["w-2", "w-10"]
    assert executor.names(2) == ["workers-0", "workers-1"]


def test_a_deployment_ends_the_pod_that_is_marked(stages: Callable[[str], Stage]) -> None:
    stage = stages("deployments")
    executor = stage.executor()
    ids = executor.names(3)
    executor.launch(0.0, ids)
    running = joined(executor, ids, 3)
    executor.end(1.0, [running[0]])
    wait_for(lambda: executor.running() == tuple(running[1:]), "gone", 20)


def test_a_deployment_that_ends_another_pod_gives_the_first_back(
    stages: Callable[[str], Stage],
) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    api = stage.api
    executor = stage.executor()
    ids = executor.names(3)
    executor.launch(0.0, ids)
    running = joined(executor, ids, 3)
    mark = "/api/v1/namespaces/default/pods/"
    api.fault = lambda method, path: (200, {}) if path.startswith(mark) else None  # not obeyed
    executor.end(1.0, [running[0]])
    wait_for(lambda: len(api.pods) == 2, "one is gone", 20)
    wait_for(lambda: sorted(executor.running() or ()) == sorted(api.pods), "the others work", 20)
    assert running[0] in (executor.running() or ())


@pytest.mark.parametrize("kind", ["deployments", "statefulsets"])
def test_a_crash_loop_is_told_at_once(kind: str, stages: Callable[[str], Stage]) -> None:
    stage = stages(kind)
    assert stage.api is not None
    stage.api.waiting = "CrashLoopBackOff"
    executor = stage.executor()
    ids = executor.names(1)
    executor.launch(0.0, ids)
    wait_for(lambda: stage.api and stage.api.pods, "the pod is there", 10)
    wait_for(lambda: list(executor.failed(0.1)) == ids, "it is given up", 10)
    assert "CrashLoopBackOff" in executor.backing_off(0.2)
    wait_for(lambda: not stage.api.pods, "and gone", 10)  # type: ignore[union-attr]


def test_a_quota_is_told_at_once(stages: Callable[[str], Stage]) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    stage.api.refusal = "pods is forbidden: exceeded quota: compute, requested: pods=1"
    executor = stage.executor()
    ids = executor.names(2)
    executor.launch(0.0, ids)
    wait_for(lambda: sorted(executor.failed(0.1)) == sorted(ids), "given up", 10)
    assert "exceeded quota" in executor.backing_off(0.2)


def test_a_change_by_somebody_else_is_not_undone(stages: Callable[[str], Stage]) -> None:
    """409: it is read again, and what is wanted is written on top of it."""
    stage = stages("statefulsets")
    assert stage.api is not None
    api, meddled = stage.api, list[int]()

    def meddle(method: str, path: str) -> Any:
        if method == "PUT" and not meddled:
            meddled.append(1)
            api.version += 1
        return None

    api.fault = meddle
    executor = stage.executor()
    ids = executor.names(1)
    executor.launch(0.0, ids)
    joined(executor, ids, 1)
    assert meddled
    assert api.writes == [1]
    assert executor.fault() == ""


def test_a_pod_that_is_lost_is_replaced_and_nobody_is_launched(
    stages: Callable[[str], Stage],
) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    executor = stage.executor()
    ids = executor.names(2)
    executor.launch(0.0, ids)
    running = joined(executor, ids, 2)
    stage.api.remove(running[0])
    wait_for(lambda: running[0] not in (executor.running() or ()), "it is missed", 10)
    assert len(executor.running() or ()) == 2
    assert stage.api.writes == [2]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param(status(403, "cannot get scale"), "forbidden (403): cannot get", id="403"),
        pytest.param(status(401, "no"), "does not know who asks (401)", id="401"),
        pytest.param(status(404, "gone"), "not in namespace default (404)", id="404"),
        pytest.param(status(503, "busy"), "answers 503: busy", id="503"),
        pytest.param((500, b"<html>"), "answers 500", id="no-json"),
        pytest.param((200, b"[]"), "makes no sense", id="list"),
        pytest.param((200, {"spec": {"replicas": "9"}}), "makes no sense", id="text"),
        pytest.param((200, {"spec": {"replicas": -1}}), "makes no sense", id="negative"),
        pytest.param((200, b"[" * 100_000), "makes no sense", id="deep"),
        pytest.param((200, b"{" + b" " * (33 << 20)), "makes no sense", id="huge"),
    ],
)
def test_an_api_server_that_refuses_or_lies(
    answer: Any, says: str, stages: Callable[[str], Stage]
) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    stage.api.fault = lambda method, path: answer
    executor = stage.executor()
    assert says in executor.fault()
    assert executor.launch(0.0, ["x"]) == ["x"]
    assert executor.backing_off(0.1)
    stage.api.fault = lambda method, path: None
    wait_for(lambda: executor.fault() == "", "it is well again", 20)


def test_an_api_server_that_is_away(stages: Callable[[str], Stage]) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    stage.api.port = free_port()
    assert "cannot be reached" in stage.executor().fault()


def test_a_kubeconfig_that_is_none(tmp_path: Path) -> None:
    table = ExecutorTable(kind="kubernetes", target="deployment/w", kubeconfig="nowhere")
    with pytest.raises(UsageError, match="kubeconfig nowhere is not there"):
        Kubernetes(table, tmp_path / "x.toml")
    (tmp_path / "nowhere").touch()
    with pytest.raises(UsageError, match="no cluster is known"):
        Kubernetes(table, tmp_path / "x.toml")


def test_pods_that_make_no_sense(stages: Callable[[str], Stage]) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    odd: Any = {"items": [{"metadata": {"name": 7}}, None, 3]}
    stage.api.fault = lambda method, path: (200, odd) if path.endswith("/pods") else None
    assert "a pod has no name" in stage.executor().fault()


# --- KEDA: what it asks is in test_keda.py --------------------------------------------------------


def test_a_port_that_is_taken(stages: Callable[[str], Stage]) -> None:
    stage = stages("keda")
    first = stage.executor()
    assert isinstance(first, Keda)
    table = ExecutorTable(kind="keda", grpc_address=f"127.0.0.1:{first.server.port}")
    with pytest.raises(UnavailableError, match="cannot be listened on"):
        Keda(table, stage.folder / "x.toml")


def test_advice_where_a_step_would_be_swallowed(stages: Callable[[str], Stage]) -> None:
    executor = stages("keda").executor()
    executor.want(11, 10)
    list(executor.failed(0.0))
    assert "within the HPA's tolerance of 10%" in executor.fault()
    executor.want(12, 10)
    list(executor.failed(1.0))
    assert executor.fault() == ""
    executor.want(2, 3)
    list(executor.failed(2.0))
    list(executor.failed(70.0))
    assert "stabilizationWindowSeconds" in executor.fault()
