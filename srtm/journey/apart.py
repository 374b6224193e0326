"""A plan made in a process of its own, while this one goes on measuring."""

import asyncio
import multiprocessing
import os
import signal
import threading
from multiprocessing.connection import Connection, wait
from typing import Any

from srtm.journey.plan import JourneyPlan, planned
from srtm.text.errors import UnavailableError

_NICE = 10
_MOST_SECONDS = 900.0
"""A plan takes a minute or a few; longer than this takes only a process that was stopped."""


async def planned_apart(given: dict[str, Any]) -> JourneyPlan:
    """`planned` of these arguments. The process ends with the call, also with one that is
    cancelled. Raises UnavailableError where it ends before, or takes too long."""
    spawn = multiprocessing.get_context("spawn")
    receiving, sending = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_plan, args=(sending, given), daemon=True)
    child.start()
    sending.close()
    try:
        answer = asyncio.get_running_loop().run_in_executor(None, receiving.recv)
        plan: JourneyPlan = await asyncio.wait_for(answer, _MOST_SECONDS)
        return plan
    except TimeoutError:
        raise UnavailableError(
            f"the process that simulates took more than {_MOST_SECONDS:g} s; it is tried again"
        ) from None
    except EOFError:
        raise UnavailableError("the process that simulates has ended; it is tried again") from None
    finally:
        child.kill()
        child.join()  # then nothing comes any more, and whoever waits for it is told so
        receiving.close()


def _plan(sending: Connection, given: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked
    os.nice(_NICE)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    sending.send(planned(**given))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    os._exit(1)
