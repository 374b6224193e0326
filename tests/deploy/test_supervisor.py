"""Order of starting and stopping, deaths and restarts, with shell scripts for children."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from srtm.deploy.process import GRACE_SECONDS, Child, ChildSpec, Stage, describe_exit, telling_line
from srtm.deploy.restarts import Restarts
from srtm.deploy.supervisor import NotTrusted, StopRequested, Supervisor
from srtm.host.clock import NS
from srtm.text.errors import SrtmError

SERVE = "trap 'echo {name} ends >> order; exit 0' TERM; echo {name} starts >> order; touch {name}.up; while :; do sleep 0.02; done"  # noqa: E501
DEAF = "trap '' TERM; touch {name}.up; while :; do sleep 0.02; done"
DYING = "touch {name}.up; while [ ! -e may_die ]; do sleep 0.02; done; echo no more; exit 4"
FAST_GRACE = {**GRACE_SECONDS, Stage.NSQD: 0.3}


class Stand:
    """Children that are shell scripts in one folder; ready when they touched NAME.up."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.said: list[str] = []
        self.supervisor: Supervisor | None = None

    def spec(
        self, name: str, stage: Stage = Stage.NSQD, script: str = SERVE, needs: str | None = None
    ) -> ChildSpec:
        text = f"cd {self.folder}; " + script.format(name=name)
        return ChildSpec(
            name=name,
            stage=stage,
            command=lambda: ["sh", "-c", text],
            ping=name,
            log=self.folder / f"{name}.log",
            sockets=(self.folder / f"{name}.up",),
            needs=needs,
        )

    def supervise(self, *specs: ChildSpec, ready_timeout_seconds: float = 20.0) -> Supervisor:
        self.supervisor = Supervisor(
            specs,
            self.said.append,
            ready=lambda spec: (self.folder / f"{spec.ping}.up").exists(),
            ready_timeout_seconds=ready_timeout_seconds,
            grace_seconds=FAST_GRACE,
        )
        return self.supervisor

    def watch_until(self, condition: Callable[[], object]) -> None:
        """Watch in this thread, which owns the children, until the condition holds."""
        supervisor = self.supervisor
        assert supervisor
        happened: list[bool] = []

        def wait() -> None:
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline and not happened:
                if condition():
                    happened.append(True)
                time.sleep(0.01)
            supervisor.ask_stop()

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            supervisor.watch()
        finally:
            thread.join()
        assert happened

    def may_die(self) -> None:
        """From here on, what runs DYING dies at once."""
        (self.folder / "may_die").touch()

    def order(self) -> list[str]:
        return (self.folder / "order").read_text().splitlines()


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    stand = Stand(tmp_path)
    yield stand
    if stand.supervisor:
        stand.supervisor.stop()
        assert not stand.supervisor.pids


def test_starts_in_order_and_stops_in_reverse(stand: Stand) -> None:
    supervisor = stand.supervise(
        stand.spec("admin", Stage.NSQADMIN),
        stand.spec("gateway", Stage.GATEWAY),
        stand.spec("nsqd", Stage.NSQD),
        stand.spec("distributor", Stage.DISTRIBUTOR),
        stand.spec("lookupd", Stage.LOOKUPD),
    )
    supervisor.start()
    assert list(supervisor.pids) == ["admin", "gateway", "nsqd", "distributor", "lookupd"]
    supervisor.stop()
    names = ["lookupd", "distributor", "nsqd", "gateway", "admin"]
    assert stand.order() == [f"{name} starts" for name in names] + [
        f"{name} ends" for name in reversed(names)
    ]
    assert stand.said == []


def test_the_children_of_a_stage_start_together(stand: Stand) -> None:
    first = "while [ ! -e b.up ]; do sleep 0.01; done; touch {name}.up; sleep 60"
    stand.supervise(stand.spec("a", script=first), stand.spec("b")).start()


def test_a_child_that_dies_at_start_is_one_line_and_ends_the_others(stand: Stand) -> None:
    supervisor = stand.supervise(
        stand.spec("lookupd", Stage.LOOKUPD),
        stand.spec("nsqd", script="echo first; echo port is taken; exit 3"),
    )
    with pytest.raises(SrtmError) as caught:
        supervisor.start()
    assert str(caught.value) == (
        f"nsqd ended with exit code 3: port is taken (log: {stand.folder}/nsqd.log)"
    )


def test_a_peer_that_dies_is_named_rather_than_the_one_that_waits(stand: Stand) -> None:
    supervisor = stand.supervise(
        stand.spec("slow", script="sleep 60"), stand.spec("dead", script="exit 1")
    )
    with pytest.raises(SrtmError, match="dead ended with exit code 1: it wrote nothing"):
        supervisor.start()


def test_a_child_that_is_never_ready_is_given_up(stand: Stand) -> None:
    supervisor = stand.supervise(
        stand.spec("nsqd", script="echo thinking; sleep 60"), ready_timeout_seconds=0.3
    )
    with pytest.raises(SrtmError, match=r"nsqd is not ready after 0\.3 s: thinking"):
        supervisor.start()


def test_a_program_that_is_not_there(stand: Stand, tmp_path: Path) -> None:
    spec = ChildSpec("nsqd", Stage.NSQD, lambda: ["/no/nsqd"], "", tmp_path / "nsqd.log")
    with pytest.raises(SrtmError, match=r"nsqd cannot be started: .*/no/nsqd"):
        stand.supervise(spec).start()


def test_a_stop_that_is_asked_for_during_the_start(stand: Stand) -> None:
    supervisor = stand.supervise(stand.spec("nsqd", script="sleep 60"))
    supervisor.ask_stop()
    with pytest.raises(StopRequested):
        supervisor.start()


def test_a_child_that_dies_is_restarted_and_said(stand: Stand) -> None:
    supervisor = stand.supervise(stand.spec("nsqd"), stand.spec("other"))
    supervisor.start()
    first = supervisor.pids
    os.kill(first["nsqd"], signal.SIGKILL)
    stand.watch_until(lambda: "nsqd is back (restart 1)" in stand.said)
    assert supervisor.pids["nsqd"] != first["nsqd"]
    assert supervisor.pids["other"] == first["other"]
    assert "nsqd was ended by SIGKILL (log: " in stand.said[0]
    assert "restart 1 in 0.1 s" in stand.said[0]


def test_a_restart_waits_for_the_child_that_it_needs(stand: Stand) -> None:
    supervisor = stand.supervise(
        stand.spec("nsqd", script="sleep 0.5; " + SERVE),
        stand.spec("gateway", Stage.GATEWAY, needs="nsqd"),
    )
    supervisor.start()
    for pid in supervisor.pids.values():
        os.kill(pid, signal.SIGKILL)
    stand.watch_until(lambda: len([line for line in stand.said if "is back" in line]) == 2)
    assert stand.order() == ["nsqd starts", "gateway starts"] * 2


def test_a_child_that_keeps_dying_is_said_once_and_tried_again(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srtm.deploy.restarts.DELAY_FACTOR", 1.0)
    supervisor = stand.supervise(
        stand.spec("nsqd", script=DYING),
        stand.spec("other"),
    )
    supervisor.start()
    stand.may_die()
    other = supervisor.pids["other"]
    stand.watch_until(lambda: any("restart 7 in" in line for line in stand.said))
    assert supervisor.pids["other"] == other
    deaths = [line for line in stand.said if "ended with exit code 4: no more" in line]
    assert [f"restart {n} in 0.1 s" in line for n, line in enumerate(deaths, 1)] == [True] * 7
    assert ["keeps dying" in line for line in deaths] == [n == 5 for n in range(1, 8)]
    assert "nsqd keeps dying (5 deaths, never ready for 60 s between them)" in deaths[4]
    assert "all others go on" in deaths[4]


def test_all_keep_dying_and_a_signal_ends_it(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srtm.deploy.restarts.DELAY_FACTOR", 1.0)
    stand.supervise(stand.spec("a", script=DYING), stand.spec("b", script=DYING)).start()
    stand.may_die()
    stand.watch_until(
        lambda: all(any(f"{n} keeps dying" in line for line in stand.said) for n in "ab")
    )


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        pytest.param(["/no/nsqd"], "/no/nsqd", id="its-program-is-gone"),
        pytest.param(SrtmError("topics.json: no JSON"), "topics.json: no JSON", id="its-file"),
    ],
)
def test_a_child_that_cannot_be_started_again_ends_nobody_else(
    stand: Stand, broken: list[str] | SrtmError, said: str
) -> None:
    spec = stand.spec("nsqd")
    works = [spec.command]

    def command() -> Sequence[str]:
        if works:
            return works.pop()()
        if isinstance(broken, SrtmError):
            raise broken
        return broken

    supervisor = stand.supervise(replace(spec, command=command), stand.spec("other"))
    supervisor.start()
    os.kill(supervisor.pids["nsqd"], signal.SIGTERM)
    spec.log.unlink()  # nor does a log that is gone
    stand.watch_until(lambda: any("restart 2" in line for line in stand.said))
    assert "no log to read" in stand.said[0]
    assert stand.said[1].startswith("nsqd cannot be started: ")
    assert said in stand.said[1]
    assert list(supervisor.pids) == ["other"]


def test_a_restarted_child_that_is_never_ready_is_killed_and_counted(stand: Stand) -> None:
    second = "[ -e once ] && sleep 60; touch once {name}.up; sleep 60"
    supervisor = stand.supervise(stand.spec("nsqd", script=second), ready_timeout_seconds=0.5)
    supervisor.start()
    os.kill(supervisor.pids["nsqd"], signal.SIGKILL)
    stand.watch_until(lambda: any("restart 2" in line for line in stand.said))
    assert "nsqd is not ready after 0.5 s" in stand.said[1]


def test_a_child_that_is_deaf_to_sigterm_is_killed_after_its_grace(stand: Stand) -> None:
    supervisor = stand.supervise(stand.spec("nsqd", script=DEAF))
    supervisor.start()
    supervisor.stop()
    assert supervisor.pids == {}
    assert stand.said == ["nsqd did not end within 0.3 s of SIGTERM: killed"]


def test_a_child_has_a_session_of_its_own_and_no_terminal(stand: Stand) -> None:
    supervisor = stand.supervise(stand.spec("nsqd"))
    supervisor.start()
    pid = supervisor.pids["nsqd"]
    assert os.getsid(pid) == pid != os.getsid(0)
    assert os.readlink(f"/proc/{pid}/fd/0") == os.devnull


def test_a_child_outlives_neither_kill_9_of_its_parent_nor_its_thread(tmp_path: Path) -> None:
    script = f"""
import sys, time
from pathlib import Path
from srtm.deploy.process import Child, ChildSpec, Stage
child = Child(ChildSpec("c", Stage.NSQD, lambda: ["sleep", "60"], "", Path({str(tmp_path)!r}, "l")))
child.launch()
print(child.pid, flush=True)
time.sleep(60)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline())
        assert _runs(pid)
        parent.kill()
    deadline = time.monotonic() + 10
    while _runs(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not _runs(pid)


def test_a_long_log_is_put_aside_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srtm.deploy.process.MAX_LOG_BYTES", 3)
    child = Child(ChildSpec("c", Stage.NSQD, lambda: ["echo", "word"], "", tmp_path / "c.log"))
    for _ in range(2):
        child.launch()
        while child.alive:
            time.sleep(0.01)
    assert (tmp_path / "c.log").read_text() == (tmp_path / "c.log.1").read_text() == "word\n"
    assert child.last_line() == "word"


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("a\nb\n\n", "b", id="last-line"),
        pytest.param(
            "flag provided but not defined: -foo\nUsage of nsqd:\n -version\n",
            "flag provided but not defined: -foo",
            id="go's-usage-comes-after-the-fault",
        ),
        pytest.param("[nsqd] FATAL: bind\nINFO: bye\n", "[nsqd] FATAL: bind", id="fatal"),
        pytest.param("x\n[nsqd] INFO: 200 GET /ping (@) 2us\n", "x", id="pings-say-nothing"),
        pytest.param("", "it wrote nothing", id="empty"),
    ],
)
def test_the_line_of_a_log_that_says_most(text: str, line: str) -> None:
    assert telling_line(text) == line


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (0, "ended with exit code 0"),
        (2, "ended with exit code 2"),
        (-9, "was ended by SIGKILL"),
        (-99, "was ended by signal 99"),
    ],
)
def test_exit_codes_in_words(code: int, said: str) -> None:
    assert describe_exit(code) == said


LONGER = [0.1, 0.5, 2.5, 12.5, 60, 60, 60]


@pytest.mark.parametrize(
    ("events", "delays"),
    [
        pytest.param([("died", n) for n in range(7)], LONGER, id="each-waits-longer-to-a-minute"),
        pytest.param([("died", 100 * n) for n in range(7)], LONGER, id="never-ready-is-no-cure"),
        pytest.param(
            [(what, 100 * n) for n in range(7) for what in ("ready", "died")],
            LONGER,
            id="ready-for-a-moment-is-none-either",
        ),
        pytest.param(
            [
                *(("ready", 0), ("died", 59), ("ready", 60), ("died", 119)),
                *(("ready", 120), ("died", 180), ("died", 181)),
            ],
            [0.1, 0.5, 0.1, 0.5],
            id="a-minute-of-being-ready-is",
        ),
        pytest.param(
            [("ready", 0), ("died", 60), ("died", 200), ("died", 300)],
            [0.1, 0.5, 2.5],
            id="of-each-start-anew",
        ),
    ],
)
def test_restart_delays(events: list[tuple[str, int]], delays: list[float]) -> None:
    restarts = Restarts()
    found = [getattr(restarts, what)(second * NS) for what, second in events]
    assert [delay for delay in found if delay is not None] == delays
    assert restarts.total == len(delays)


def test_one_that_tls_does_not_reach_is_not_waited_for(stand: Stand) -> None:
    def not_trusted(spec: ChildSpec) -> bool:
        raise NotTrusted("its certificate is not accepted: why")

    supervisor = Supervisor([stand.spec("d")], stand.said.append, ready=not_trusted)
    with pytest.raises(SrtmError, match="d is not reached: its certificate is not accepted: why"):
        supervisor.start()
    supervisor.stop()


def test_one_that_tls_does_not_reach_after_its_death_is_asked_again(stand: Stand) -> None:
    """Its certificate may be in renewal."""
    refusals = iter([False, False])

    def ready(spec: ChildSpec) -> bool:
        there = (stand.folder / f"{spec.ping}.up").exists()
        if there and len(stand.said) == 1 and next(refusals, True) is False:
            raise NotTrusted("its certificate is not accepted: why")
        return there

    supervisor = stand.supervisor = Supervisor([stand.spec("d")], stand.said.append, ready=ready)
    supervisor.start()
    os.kill(supervisor.pids["d"], signal.SIGKILL)
    stand.watch_until(lambda: stand.said[-1:] == ["d is back (restart 1)"])
    assert next(refusals, None) is None
