"""A plan made in a process of its own, while this one goes on measuring."""

import asyncio
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection
from typing import Any

from srtm.journey.plan import JourneyPlan, planned
from srtm.text.errors import UnavailableError

_NICE = 10


async def planned_apart(given: dict[str, Any]) -> JourneyPlan:
    """`planned` of these arguments. The process ends with the call, also with one that is
    cancelled. Raises UnavailableError where it ends before."""
    spawn = multiprocessing.get_context("spawn")
    receiving, sending = spawn.Pipe(duplex=False)
    child = spawn.Process(target=_plan, args=(sending, given), daemon=True)
    child.start()
    sending.close()
    try:
        plan: JourneyPlan = await asyncio.get_running_loop().run_in_executor(None, receiving.recv)
        return plan
    except EOFError:
        raise UnavailableError("the process that simulates has ended; it is tried again") from None
    finally:
        child.kill()
        child.join()  # then nothing comes any more, and whoever waits for it is told so
        receiving.close()


def _plan(sending: Connection, given: dict[str, Any]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for who asked
    os.nice(_NICE)
    sending.send(planned(**given))
