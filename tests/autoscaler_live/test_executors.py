"""What every executor owes, and what each has of its own: this machine, Kubernetes (the real client
against a played API server), KEDA (a real gRPC client)."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from srtm.autoscaler.executors.executor import Executor, Fleet, Wanted, ordinal
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


class Driven:
    """An executor as a controller drives it: all that is wanted is said again each time."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.launches: list[str] = []
        self.leavers: set[str] = set()
        self.at = 0.0

    def look(self, at: float | None = None) -> Fleet:
        self.at = self.at + 0.6 if at is None else at
        wanted = Wanted(tuple(self.launches), frozenset(self.leavers), 3, 1)
        self.executor.want(self.at, wanted)
        return self.executor.seen()

    def launch(self, count: int) -> list[str]:
        number = self.executor.seen().next_number
        self.launches = self.executor.abilities.names(count, number)
        assert len(set(self.launches)) == count
        self.look()
        return self.launches

    def wait(self, fulfilled: Callable[[Fleet], object], what: str) -> Fleet:
        wait_for(lambda: fulfilled(self.look()), what, 20)
        return self.executor.seen()

    def start(self, count: int) -> list[str]:
        """Who runs, once so many do; all have joined."""
        ids = self.launch(count)
        if not self.executor.abilities.blind:
            fleet = self.wait(lambda fleet: len(fleet.running) == count, f"{count} run")
            ids = sorted(fleet.running, key=ordinal)
        self.launches = []
        self.look()
        return ids

    def end(self, ids: Iterable[str]) -> None:
        self.leavers |= set(ids)
        self.look()


ALL = ["local", "deployments", "statefulsets", "keda"]
LIVE = ["local", "deployments", "statefulsets"]


@pytest.mark.parametrize("kind", LIVE)
def test_consumers_are_launched_and_end(kind: str, stages: Callable[[str], Stage]) -> None:
    driven = Driven(stages(kind).executor())
    running = driven.start(3)
    assert not driven.look().died
    (stays,) = driven.executor.abilities.staying(running, 1)
    driven.end(each for each in running if each != stays)
    driven.wait(lambda fleet: not fleet.leaving and fleet.running == {stays}, "who stays does")
    driven.end([stays])
    driven.wait(lambda fleet: not fleet.leaving and not fleet.running, "all are gone")


@pytest.mark.parametrize("kind", ALL)
def test_a_launch_that_does_not_come_is_told_why_and_called_off(
    kind: str, stages: Callable[[str], Stage]
) -> None:
    stage = stages(kind)
    if stage.api:
        stage.api.ready = False
    driven = Driven(stage.executor())
    ids = driven.launch(2)
    fleet = driven.look()
    assert not fleet.died
    assert set(fleet.starting) == set(ids)
    assert all("within the time that startup gives it" in why for why in fleet.starting.values())
    driven.launches, driven.leavers = [], set(ids)
    driven.wait(lambda fleet: not (fleet.running or fleet.leaving or fleet.starting), "gone")
    if stage.api:
        wait_for(lambda: stage.api.replicas == 0, "no pod is left waiting", 10)  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", LIVE)
def test_the_next_controller_finds_who_is_there(kind: str, stages: Callable[[str], Stage]) -> None:
    stage = stages(kind)
    first = Driven(stage.executor())
    running = first.start(2)
    first.executor.close()
    second = Driven(stage.executor())
    assert second.executor.seen().running == second.look().running == set(running)
    second.end(running)
    second.wait(lambda fleet: not fleet.running and not fleet.leaving, "gone")


@pytest.mark.parametrize("kind", LIVE)
def test_what_starts_for_the_controller_before_is_not_launched_again(
    kind: str, stages: Callable[[str], Stage]
) -> None:
    stage = stages(kind)
    first = Driven(stage.executor())
    running = first.start(2)
    first.executor.close()
    second = Driven(stage.executor())
    second.look()
    second.launches = [*running]
    for _ in range(3):
        second.look()
    assert set(second.executor.seen().starting) == set(running)
    second.launches, second.leavers = running[:1], {running[1]}
    second.wait(lambda fleet: not fleet.leaving and fleet.running == {running[0]}, "one stays")
    if stage.api:
        assert stage.api.replicas == 1


@pytest.mark.parametrize("kind", LIVE)
def test_what_is_said_again_is_done_once(kind: str, stages: Callable[[str], Stage]) -> None:
    driven = Driven(stages(kind).executor())
    running = driven.start(2)
    driven.end(running[1:])
    driven.wait(lambda fleet: not fleet.leaving, "one is gone")
    for _ in range(5):
        assert driven.look().running == {running[0]}
    driven.leavers.clear()
    driven.launch(1)
    driven.wait(lambda fleet: len(fleet.running) == 2, "the one that stayed, and one more")
    for _ in range(5):
        assert len(driven.look().running) == 2


# --- this machine -------------------------------------------------------------------------------


def test_who_does_not_leave_within_the_grace_is_killed(stages: Callable[[str], Stage]) -> None:
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); "
    command = [sys.executable, "-c", f"{stubborn} time.sleep(600)"]
    stage = stages("local")
    driven = Driven(stage.executor(command=command, log_folder="logs"))
    (id_,) = driven.launch(1)
    wait_for(lambda: (stage.folder / "logs" / f"{id_}.log").read_text(), "it runs")
    driven.launches, driven.leavers = [], {id_}
    driven.look(10.0)
    assert driven.look(10.5).leaving == {id_}
    wait_for(lambda: not driven.look(11.5).leaving, "killed")


def test_a_wrapper_takes_its_child_along(stages: Callable[[str], Stage]) -> None:
    script = f"{sys.executable} -c 'import time; time.sleep(600)'; true"
    driven = Driven(stages("local").executor(command=["sh", "-c", script]))
    driven.end(driven.start(1))
    wait_for(lambda: not driven.look(driven.at).leaving, "both are gone")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        pytest.param(["/nonexistent/consumer"], "No such file", id="no-command"),
        pytest.param([sys.executable, "-c", "raise SystemExit(7)"], "with code 7", id="it-ends"),
    ],
)
def test_a_launch_that_comes_to_nothing(
    command: list[str], why: str, stages: Callable[[str], Stage]
) -> None:
    driven = Driven(stages("local").executor(command=command))
    ids = driven.launch(2)
    driven.wait(lambda fleet: set(fleet.died) == set(ids), "both have died")
    assert all(why in each for each in driven.look().died.values()), (
        "for as long as they are wanted"
    )
    driven.launches = []
    assert not driven.look().died


def test_what_a_launch_that_died_has_begun_ends_with_it(stages: Callable[[str], Stage]) -> None:
    stage = stages("local")
    driven = Driven(stage.executor(command=["sh", "-c", "sleep 600 & exit 3"]))
    (id_,) = driven.launch(1)
    fleet = driven.wait(lambda fleet: fleet.died and not fleet.leaving, "it has died")
    assert fleet.died == {id_: f"{id_} ended with code 3 before it joined"}
    wait_for(lambda: not stage.executor().seen().running, "what it has begun has ended too")


def test_a_consumer_that_dies_is_gone_though_its_child_lives(
    stages: Callable[[str], Stage],
) -> None:
    executor = stages("local").executor(command=())
    assert isinstance(executor, Local)
    child = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    executor._command = (sys.executable, "-c", child)
    driven = Driven(executor)
    (id_,) = driven.start(1)
    wait_for(lambda: len(executor._processes()[id_]) == 2, "it has its child")
    executor._children[id_].kill()
    fleet = driven.wait(lambda fleet: not fleet.running and not fleet.leaving, "both are gone")
    assert fleet.died == {}
    assert not executor._processes()


def test_a_launch_for_the_controller_before_that_dies_is_told(
    stages: Callable[[str], Stage],
) -> None:
    stage = stages("local")
    command = [sys.executable, "-c", "import time; print('begun', flush=True); time.sleep(600)"]
    first = Driven(stage.executor(command=command, log_folder="logs"))
    (id_,) = first.start(1)
    log = stage.folder / "logs" / f"{id_}.log"
    wait_for(lambda: log.read_text() == "begun\n", "it runs")
    second = Driven(stage.executor())
    second.launches = [id_]
    assert not second.look().died
    first.end([id_])
    first.wait(lambda fleet: not fleet.leaving, "it has ended")
    fleet = second.wait(lambda fleet: fleet.died, "and is missed")
    assert fleet.died == {id_: f"{id_} ended before it joined"}
    second.look()
    assert log.read_text() == "begun\n"


# --- Kubernetes -----------------------------------------------------------------------------------


def test_a_statefulset_gives_up_its_highest_ordinals(stages: Callable[[str], Stage]) -> None:
    driven = Driven(stages("statefulsets").executor())
    assert driven.executor.abilities.staying(["w-11", "w-2", "w-10"], 2) == ["w-2", "w-10"]
    assert driven.launch(2) == ["workers-0", "workers-1"]
    assert driven.executor.seen().next_number == 2


def test_a_deployment_ends_the_pod_that_is_marked(stages: Callable[[str], Stage]) -> None:
    driven = Driven(stages("deployments").executor())
    first, *others = driven.start(3)
    driven.end([first])
    driven.wait(lambda fleet: fleet.running == set(others), "gone")


def test_a_deployment_that_ends_another_pod_gives_the_first_back(
    stages: Callable[[str], Stage],
) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    api = stage.api
    driven = Driven(stage.executor())
    running = driven.start(3)
    mark = "/api/v1/namespaces/default/pods/"
    api.fault = lambda method, path: (200, {}) if path.startswith(mark) else None  # not obeyed
    driven.end([running[0]])
    driven.leavers.clear()  # a controller sees that it does not leave
    wait_for(lambda: len(api.pods) == 2, "one is gone", 20)
    fleet = driven.wait(lambda fleet: fleet.running == set(api.pods), "the others work")
    assert running[0] in fleet.running


@pytest.mark.parametrize("kind", ["deployments", "statefulsets"])
def test_a_crash_loop_is_told_at_once(kind: str, stages: Callable[[str], Stage]) -> None:
    stage = stages(kind)
    assert stage.api is not None
    stage.api.waiting = "CrashLoopBackOff"
    driven = Driven(stage.executor())
    (id_,) = driven.launch(1)
    wait_for(lambda: stage.api and stage.api.pods, "the pod is there", 10)
    fleet = driven.wait(lambda fleet: fleet.died, "it is given up")
    assert "CrashLoopBackOff" in fleet.died[id_]
    wait_for(lambda: not stage.api.pods, "and gone", 10)  # type: ignore[union-attr]


def test_a_quota_is_told_at_once(stages: Callable[[str], Stage]) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    stage.api.refusal = "pods is forbidden: exceeded quota: compute, requested: pods=1"
    driven = Driven(stage.executor())
    ids = driven.launch(2)
    fleet = driven.wait(lambda fleet: set(fleet.died) == set(ids), "given up")
    assert all("exceeded quota" in why for why in fleet.died.values())


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
    driven = Driven(stage.executor())
    driven.start(1)
    assert meddled
    assert api.writes == [1]
    assert driven.look().fault == ""


def test_a_pod_that_is_lost_is_replaced_and_nobody_is_launched(
    stages: Callable[[str], Stage],
) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    driven = Driven(stage.executor())
    running = driven.start(2)
    stage.api.remove(running[0])
    fleet = driven.wait(lambda fleet: running[0] not in fleet.running, "it is missed")
    assert len(fleet.running) == 2
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
    driven = Driven(stage.executor())
    assert says in driven.look().fault
    (id_,) = driven.launch(1)
    assert says in driven.look().died[id_]
    stage.api.fault = lambda method, path: None
    driven.wait(lambda fleet: fleet.fault == "", "it is well again")


def test_an_api_server_that_is_away(stages: Callable[[str], Stage]) -> None:
    stage = stages("deployments")
    assert stage.api is not None
    stage.api.port = free_port()
    assert "cannot be reached" in stage.executor().seen().fault


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
    assert "a pod has no name" in stage.executor().seen().fault


# --- KEDA: what it asks is in test_keda.py --------------------------------------------------------


def test_a_port_that_is_taken(stages: Callable[[str], Stage]) -> None:
    stage = stages("keda")
    first = stage.executor()
    assert isinstance(first, Keda)
    table = ExecutorTable(kind="keda", grpc_address=f"127.0.0.1:{first.server.port}")
    with pytest.raises(UnavailableError, match="cannot be listened on"):
        Keda(table, stage.folder / "x.toml")


def test_advice_where_a_step_would_be_swallowed(stages: Callable[[str], Stage]) -> None:
    keda = stages("keda").executor()

    def advice(at: float, count: int, there: int) -> str:
        keda.want(at, Wanted(count=count, there=there))
        return keda.seen().fault

    assert "within the HPA's tolerance of 10%" in advice(0.0, 11, 10)
    assert advice(1.0, 12, 10) == ""
    advice(2.0, 2, 3)
    assert "stabilizationWindowSeconds" in advice(70.0, 2, 3)
