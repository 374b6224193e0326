"""Consumers that are killed, or frozen for a while, as their group works."""

import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

import psutil

Trouble = Literal["", "kill", "freeze"]

_EVERY_SECONDS = {"kill": 15.0, "freeze": 30.0}
_FROZEN_SECONDS = 45.0
"""longer than a share group's lock of 30 s"""


@contextmanager
def troubled(controller: int, trouble: Trouble, seed: int) -> Iterator[None]:
    """One of the controller's consumers, drawn by the seed, is killed every 15 s, or frozen every
    30 s for longer than a lock. All go on at the end."""
    if not trouble:
        yield
        return
    over, frozen = threading.Event(), list[psutil.Process]()
    thread = threading.Thread(target=_make, args=(controller, trouble, seed, over, frozen))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for each in frozen:
            _send(each, signal.SIGCONT)


def _make(
    controller: int,
    trouble: Trouble,
    seed: int,
    over: threading.Event,
    frozen: list[psutil.Process],
) -> None:
    draw = random.Random(seed)
    thaws: list[threading.Timer] = []
    while not over.wait(_EVERY_SECONDS[trouble]):
        consumers = [
            each
            for each in psutil.Process(controller).children()
            if each.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED)
        ]
        if not consumers:
            continue
        chosen = draw.choice(consumers)
        if trouble == "kill":
            _send(chosen, signal.SIGKILL)
            continue
        frozen.append(chosen)
        _send(chosen, signal.SIGSTOP)
        thaws.append(threading.Timer(_FROZEN_SECONDS, _send, (chosen, signal.SIGCONT)))
        thaws[-1].start()
    for each in thaws:
        each.cancel()


def _send(process: psutil.Process, number: int) -> None:
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
