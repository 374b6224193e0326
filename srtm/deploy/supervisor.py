"""Starts children in order, keeps them running, and stops them in reverse.

A start that fails ends all of them. Later no death does: whoever keeps dying is started again ever
more seldom, while the others go on.
Stop order (SIGTERM, then SIGKILL after a grace period): bridge, nsqadmin, gateways, nsqds,
distributor, nsqlookupd.
All from one thread: a child gets SIGTERM when the thread that started it ends.
"""

import signal
import time
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

from srtm.deploy.process import GRACE_SECONDS, Child, ChildSpec, Stage
from srtm.deploy.restarts import CURED_SECONDS, KEEPS_DYING, Restarts
from srtm.host.clock import NS, monotonic_ns
from srtm.http.client import TlsFailed, request
from srtm.text.errors import SrtmError, UnavailableError, UsageError

READY_TIMEOUT_SECONDS = 60.0
"""nsqd reads its metadata and Python its modules; a shared CI machine can be 50 times slower"""
_PING_TIMEOUT_SECONDS = 1.0
_TICK_SECONDS = 0.05


class Phase(StrEnum):
    """What one child is doing, while the deployment runs."""

    READY = "ready"
    STARTING = "starting"
    WAITING = "waiting"  # for its next start


class StopRequested(Exception):
    """Someone asked to stop while children were being started."""


class NotTrusted(Exception):
    """A child is there, and TLS with it fails: waiting does not help. The text says why."""


def answers_ping(spec: ChildSpec) -> bool:
    """Does it say that it is ready, where it is asked? Raises NotTrusted."""
    try:
        where = spec.ping if spec.reach is None else spec.reach()
        answer = request(where, "GET", spec.path, timeout_seconds=_PING_TIMEOUT_SECONDS)
        return answer.status in spec.statuses and spec.agrees(answer)
    except TlsFailed as error:
        if 0 in spec.statuses:  # it is there, and takes only clients with a certificate
            return True
        raise NotTrusted(str(error)) from None
    except (UnavailableError, UsageError):  # a file that is being renewed is wrong for a moment
        return False


class _Member:
    """A child and what is known of it."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self.child = Child(spec)
        self.restarts = Restarts()
        self.phase = Phase.WAITING
        self.until_ns = 0  # STARTING: ready by then; WAITING: no start before
        self.not_trusted = ""  # why TLS with it fails


class Supervisor:
    """Owns the children. Call start, watch and stop from one thread."""

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        say: Callable[[str], None],
        *,
        keep_open: Sequence[int] = (),
        ready: Callable[[ChildSpec], bool] = answers_ping,
        ready_timeout_seconds: float = READY_TIMEOUT_SECONDS,
        grace_seconds: dict[Stage, float] = GRACE_SECONDS,
    ) -> None:
        self._members = {spec.name: _Member(spec) for spec in specs}
        self._say = say
        self._keep_open = keep_open
        self._ready = ready
        self._ready_timeout_seconds = ready_timeout_seconds
        self._grace_seconds = grace_seconds
        self._stop_asked = False

    def ask_stop(self) -> None:
        """Ask for a stop, from a signal handler or another thread: `start` or `watch` ends soon."""
        self._stop_asked = True

    @property
    def pids(self) -> dict[str, int]:
        """The pids of the children that are alive, by name."""
        return {name: pid for name, each in self._members.items() if (pid := each.child.pid)}

    def start(self) -> None:
        """Start stage by stage, each ready before the next. Raises SrtmError, StopRequested."""
        for stage in Stage:
            members = self._of(stage)
            for member in members:
                self._launch(member)
            for member in members:
                self._await_ready(member, members)

    def watch(self) -> None:
        """Attend to the children until a stop is asked for, whatever becomes of them."""
        while not self._stop_asked:
            for member in self._members.values():
                self._attend(member)
            time.sleep(_TICK_SECONDS)

    def stop(self) -> None:
        """End every child that runs, in order."""
        for stage in reversed(Stage):
            members = self._of(stage)
            for member in members:
                member.child.signal(signal.SIGTERM)
            drain = max((each.spec.drain_seconds for each in members), default=0.0)
            grace = self._grace_seconds[stage] + drain
            if self._await_end(members, grace):
                continue
            for member in members:
                if member.child.alive:
                    self._say(
                        f"{member.spec.name} did not end within {grace:g} s of SIGTERM: killed"
                    )
                    member.child.signal(signal.SIGKILL)
            self._await_end(members, _FOREVER_SECONDS)

    def _of(self, stage: Stage) -> list[_Member]:
        return [each for each in self._members.values() if each.spec.stage == stage]

    def _launch(self, member: _Member) -> None:
        member.child.launch(self._keep_open)
        member.phase = Phase.STARTING
        member.until_ns = monotonic_ns() + int(self._ready_timeout_seconds * NS)

    def _await_ready(self, member: _Member, peers: Iterable[_Member]) -> None:
        while not self._answers(member):
            for each in peers:  # a peer's death explains more than our own timeout
                if not each.child.alive:
                    raise SrtmError(f"{each.spec.name} {each.child.exit_line()}")
            if member.not_trusted:
                raise SrtmError(f"{member.spec.name} is not reached: {member.not_trusted}")
            if monotonic_ns() > member.until_ns:
                raise SrtmError(self._late(member))
            if self._stop_asked:
                raise StopRequested
            time.sleep(_TICK_SECONDS)
        if not member.child.alive:  # someone else answered at its address
            raise SrtmError(f"{member.spec.name} {member.child.exit_line()}")
        self._is_ready(member)

    def _answers(self, member: _Member) -> bool:
        member.not_trusted = ""
        try:
            return self._ready(member.spec)
        except NotTrusted as error:
            member.not_trusted = str(error)
            return False

    def _is_ready(self, member: _Member) -> None:
        member.phase = Phase.READY
        member.restarts.ready(monotonic_ns())

    def _late(self, member: _Member) -> str:
        why = member.not_trusted or member.child.last_line()
        return (
            f"{member.spec.name} is not ready after {self._ready_timeout_seconds:g} s: {why} "
            f"(log: {member.spec.log})"
        )

    def _attend(self, member: _Member) -> None:
        """One look at a child, and what follows from it."""
        if member.phase is Phase.WAITING:
            if monotonic_ns() >= member.until_ns and self._may_start(member):
                self._restart(member)
        elif not member.child.alive:
            self._ended(member, member.child.exit_line())
        elif member.phase is Phase.STARTING:
            if self._answers(member):
                self._is_ready(member)
                self._say(f"{member.spec.name} is back (restart {member.restarts.total})")
            elif monotonic_ns() > member.until_ns:
                late = self._late(member)
                member.child.signal(signal.SIGKILL)
                self._await_end([member], _FOREVER_SECONDS)
                self._ended(member, late.removeprefix(f"{member.spec.name} "))

    def _may_start(self, member: _Member) -> bool:
        needed = self._members.get(member.spec.needs or "")
        return needed is None or needed.phase is Phase.READY

    def _restart(self, member: _Member) -> None:
        try:
            self._launch(member)
        except SrtmError as error:  # its program is gone, or a file that its command is made from
            cannot = "cannot be started: "
            self._ended(member, cannot + str(error).removeprefix(f"{member.spec.name} {cannot}"))

    def _ended(self, member: _Member, how: str) -> None:
        now_ns = monotonic_ns()
        restarts = member.restarts
        delay_seconds = restarts.died(now_ns)
        line = f"{member.spec.name} {how}; restart {restarts.total} in {delay_seconds:g} s"
        if restarts.in_a_row == KEEPS_DYING:
            line += (
                f". {member.spec.name} keeps dying ({KEEPS_DYING} deaths, never ready for "
                f"{CURED_SECONDS:g} s between them): it is started again every {delay_seconds:g} s "
                "until that works, and all others go on"
            )
        self._say(line)
        member.phase = Phase.WAITING
        member.until_ns = now_ns + int(delay_seconds * NS)

    def _await_end(self, members: Iterable[_Member], seconds: float) -> bool:
        deadline_ns = monotonic_ns() + int(seconds * NS)
        while any(each.child.alive for each in members):
            if monotonic_ns() > deadline_ns:
                return False
            time.sleep(_TICK_SECONDS / 5)
        return True


_FOREVER_SECONDS = 1e6
"""after SIGKILL: the kernel ends it, sooner or later"""
