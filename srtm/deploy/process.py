"""One child process of `srtm up`: started so that it can neither outlive us nor end before us."""

import ctypes
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from srtm.http.client import Answer, Endpoint
from srtm.text.errors import SrtmError

MAX_LOG_BYTES = 64 << 20
"""a log that is longer when its child starts is put aside (as .1, over the last one put aside)"""
_TAIL_BYTES = 16 << 10
"""nsqd's usage text, printed after the line that says which flag is wrong, has 8 kB"""
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_PING = "GET /ping"  # nsqd logs every one of them
_TELLING = ("FATAL", "flag provided but not defined", "invalid value", "flag needs an argument")

# looked up before any fork: the child of a fork may neither import nor take a lock
_prctl = getattr(ctypes.CDLL(None), "prctl", None)
if _prctl is not None:
    _prctl.argtypes = [ctypes.c_int, *[ctypes.c_ulong] * 4]


class Stage(IntEnum):
    """The order of starting; stopping goes the other way."""

    LOOKUPD = 0
    DISTRIBUTOR = 1
    NSQD = 2
    GATEWAY = 3
    NSQADMIN = 4
    BRIDGE = 5


GRACE_SECONDS = {
    Stage.LOOKUPD: 5.0,
    Stage.DISTRIBUTOR: 10.0,  # what it acknowledged is on disk: it only closes
    Stage.NSQD: 60.0,  # it writes its messages to disk; killed, it loses those in memory
    Stage.GATEWAY: 10.0,  # after its drain: held messages, answers that are still owed
    Stage.NSQADMIN: 5.0,
    Stage.BRIDGE: 20.0,  # it drains, while the gateways still answer it
}
"""from SIGTERM to SIGKILL"""


@dataclass(frozen=True)
class ChildSpec:
    """What to run. `command` is asked at every start: topics may have changed since the last."""

    name: str
    stage: Stage
    command: Callable[[], Sequence[str]]
    ping: str  # host:port or socket path whose GET of `path` says 200 once it is ready
    log: Path
    path: str = "/ping"
    statuses: tuple[int, ...] = (200,)  # of the answer that says it is ready; 0: a refusal by TLS
    reach: Callable[[], Endpoint] | None = None  # where more than its address is needed
    agrees: Callable[[Answer], bool] = lambda _: True  # where 200 does not say it yet
    sockets: tuple[Path, ...] = ()  # stale ones are removed before a start: nsqd does not
    drain_seconds: float = 0.0  # that it was told to take after SIGTERM
    needs: str | None = None  # the child that must be ready before this one is restarted
    environment: Mapping[str, str] = field(default_factory=dict)  # beside ours


class Child:
    """The process of a spec; it can be launched again after it ended."""

    def __init__(self, spec: ChildSpec) -> None:
        self.spec = spec
        self._process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    def launch(self, keep_open: Sequence[int] = ()) -> None:
        """Start it; descriptors of `keep_open` are inherited. Raises SrtmError.

        It gets SIGTERM when the thread that calls this ends (which kill -9 of us implies), and a
        session of its own: the Ctrl-C of a terminal reaches us alone, and we stop them in order.
        """
        spec = self.spec
        command = spec.command()
        try:
            for path in spec.sockets:
                path.unlink(missing_ok=True)
            if spec.log.exists() and spec.log.stat().st_size > MAX_LOG_BYTES:
                spec.log.replace(spec.log.with_suffix(".log.1"))
            with spec.log.open("ab") as log:
                self._log_start = log.tell()
                self._process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    env={**_plain_environment(), **spec.environment},
                    pass_fds=keep_open,
                    preexec_fn=_end_with(os.getpid()),
                )
        except (OSError, subprocess.SubprocessError) as error:
            raise SrtmError(f"{spec.name} cannot be started: {error}") from None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self.alive and self._process else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # polls first, so never a pid that was reused

    def exit_line(self) -> str:
        """`ended with exit code 1: its last line (log: PATH)`."""
        code = self._process.returncode if self._process else None
        how = "did not start" if code is None else describe_exit(code)
        if code != -signal.SIGKILL:  # of that nobody has a last word
            how += f": {self.last_line()}"
        return f"{how} (log: {self.spec.log})"

    def last_line(self) -> str:
        """The line of its log, since this start, that says most."""
        try:
            with self.spec.log.open("rb") as log:
                size = log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, size - _TAIL_BYTES))
                return telling_line(log.read().decode(errors="replace"))
        except OSError:  # someone tidied up
            return "no log to read"


def telling_line(text: str) -> str:
    """The last line, unless one says outright what is wrong: Go prints its usage after that."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and _PING not in line]
    telling = [line for line in lines if any(word in line for word in _TELLING)]
    return (telling or lines or ["it wrote nothing"])[-1][:500]


def describe_exit(code: int) -> str:
    """How a process ended, in words. code: as subprocess counts, where a negative one is a
    signal."""
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _plain_environment() -> dict[str, str]:
    """Ours without the variables that are flags of children: the file alone has a say in those."""
    own = ("SRTM_GATEWAY_", "SRTM_DISTRIBUTOR_")
    return {name: value for name, value in os.environ.items() if not name.startswith(own)}


def _end_with(parent: int) -> Callable[[], None]:
    """Runs in the child between fork and exec: only calls that need no lock and no import."""

    def prepare() -> None:
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
        if os.getppid() != parent:  # it died before prctl: nobody would tell us any more
            os._exit(1)

    return prepare
