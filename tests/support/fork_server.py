"""Starts `srtm` by forking a process that has imported it: 0.01 s of CPU, not 0.4.

A request is a JSON document and four descriptors: standard input, output and error, and the write
end of a pipe that is told the pid, and the exit code when it has ended. tests/support/programs.py
is the other side.
"""

import atexit
import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import threading
import traceback
from typing import Any

REQUEST_BYTES = 128 * 1024
_LATER = {
    "gateway": ("srtm.gateway.server", "kernel"),
    "distributor": ("distributor.http.server",),
}
"""modules that a command imports only as it runs"""


class ForkServer:
    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._told: dict[int, int] = {}  # by pid: the pipe that hears of it
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(wake)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def serve(self) -> None:
        """Until the other side has gone."""
        while True:
            ready, _, _ = select.select([self._control, self._wake], [], [])
            if self._wake in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake, 4096)
                self._reap()
            if self._control in ready:
                data, passed, _, _ = socket.recv_fds(self._control, REQUEST_BYTES, 4)
                if not data:
                    return
                self._start(json.loads(data), passed)

    def _start(self, request: dict[str, Any], passed: list[int]) -> None:
        *standard, told = passed
        _import(request["arguments"])
        pid = os.fork()
        if pid == 0:
            self._control.close()
            for other in self._told.values():
                os.close(other)
            os.close(told)
            os.close(self._wake)
            _become(request, standard)
        for descriptor in standard:
            os.close(descriptor)
        os.write(told, b"%d\n" % pid)
        self._told[pid] = told

    def _reap(self) -> None:
        while self._told:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            told = self._told.pop(pid)
            with contextlib.suppress(BrokenPipeError):
                os.write(told, b"%d\n" % os.waitstatus_to_exitcode(status))
            os.close(told)


def _import(arguments: list[str]) -> None:
    """What the command needs, once for all that come after it."""
    from srtm.cli.main import COMMANDS

    name = arguments[0] if arguments else ""
    if name in COMMANDS:
        for module in (COMMANDS[name][0].partition(":")[0], *_LATER.get(name, ())):
            importlib.import_module(module)
        gc.collect()
        gc.freeze()


def _become(request: dict[str, Any], standard: list[int]) -> None:
    """The child: `python -m srtm` with these arguments, until its end."""
    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if request["session"]:
            os.setsid()
        os.chdir(request["folder"])
        os.environ.clear()
        os.environ.update(request["environment"])
        sys.path[:1] = [
            request["folder"],
            *filter(None, os.environ.get("PYTHONPATH", "").split(":")),
        ]
        for place, descriptor in enumerate(standard):
            os.dup2(descriptor, place)
            os.close(descriptor)
        sys.stdin = open(0, closefd=False)  # noqa: SIM115
        sys.stdout, sys.stderr = (
            open(each, "w", 1 if os.isatty(each) or each == 2 else -1, closefd=False)  # noqa: SIM115
            for each in (1, 2)
        )
        sys.argv = ["srtm", *request["arguments"]]
        runpy.run_module("srtm", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if isinstance(stop.code, str):
            print(stop.code, file=sys.stderr)
    except KeyboardInterrupt:
        code = 130
    except BaseException:
        traceback.print_exc()
    finally:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):
                stream.flush()
        os._exit(code)


if __name__ == "__main__":
    ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
