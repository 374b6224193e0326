"""What is done to a deployment under load, drawn by a seed."""

import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil

from benchmarks.soak.world import World
from srtm.text.errors import SrtmError

_FREEZE_SECONDS = (0.5, 3.0)
_SECOND_GATEWAY_SECONDS = 10.0
"""it starts, and is refused or not"""


class Faults:
    """Each fault is a method that returns when it is done; `log` has what it was, and
    when it began in seconds since 1970."""

    def __init__(self, world: World, seed: int) -> None:
        self._world = world
        self._random = random.Random(seed)
        self._copy: Path | None = None
        self.log: list[tuple[float, str]] = []
        self._all: list[Callable[[], str]] = [
            self.kill,
            self.kill,
            self.kill,
            self.freeze,
            self.freeze,
            self.copy_store,
            self.put_old_store_back,
            self.lose_store,
            self.unlink_store,
            self.second_gateway,
            self.place,
        ]

    def one(self) -> None:
        """Draw one and do it."""
        began_at = time.time()
        what = self._random.choice(self._all)()
        self.log.append((began_at, what))

    # --- processes ------------------------------------------------------------------------------

    def _victim(self) -> tuple[str, psutil.Process] | None:
        children = self._world.children()
        if not children:
            return None
        return self._random.choice(sorted(children.items(), key=lambda each: each[0]))

    def kill(self) -> str:
        victim = self._victim()
        if victim is None:
            return "nobody to kill"
        with suppress(psutil.Error):
            victim[1].kill()
        return f"kill -9 {victim[0]}"

    def freeze(self) -> str:
        victim = self._victim()
        if victim is None:
            return "nobody to freeze"
        seconds = self._random.uniform(*_FREEZE_SECONDS)
        with suppress(psutil.Error):
            victim[1].suspend()
            time.sleep(seconds)
            victim[1].resume()
        return f"SIGSTOP {victim[0]} for {seconds:.1f} s"

    def second_gateway(self) -> str:
        """One more of broker b1's name, before b1's own nsqd."""
        tcp, http = self._world.second_addresses
        command = [
            *(sys.executable, "-m", "srtm", "gateway"),
            f"--tcp-address={tcp}",
            f"--http-address={http}",
            f"--nsqd-tcp-address={self._world.nsqd_tcp('b1')}",
            f"--nsqd-http-address={self._world.nsqd_http('b1')}",
            f"--distributor-address={self._world.distributor}",
            "--broker-name=b1",
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as it:
            try:
                return f"a second gateway b1: exit {it.wait(_SECOND_GATEWAY_SECONDS)}"
            except subprocess.TimeoutExpired:
                return "a second gateway b1: it came in"
            finally:
                it.kill()

    # --- the store ------------------------------------------------------------------------------

    def copy_store(self) -> str:
        copied = self._world.folder / "copy.db"
        with suppress(sqlite3.Error):
            with (
                closing(sqlite3.connect(self._world.store)) as source,
                closing(sqlite3.connect(copied)) as target,
            ):
                source.backup(target)
            self._copy = copied
        return "the store is copied"

    def _remove_store(self) -> None:
        for each in self._world.store.parent.glob(f"{self._world.store.name}*"):
            each.unlink(missing_ok=True)

    def unlink_store(self) -> str:
        """Under the leader that runs."""
        self._remove_store()
        return "the store's files are unlinked"

    def lose_store(self) -> str:
        self._remove_store()
        self._kill_distributor()
        return "the store is lost, the distributor killed"

    def put_old_store_back(self) -> str:
        if self._copy is None:
            return self.copy_store()
        fresh = self._world.store.with_suffix(".old")
        shutil.copy(self._copy, fresh)
        self._remove_store()
        fresh.rename(self._world.store)
        self._kill_distributor()
        return "an older copy of the store, the distributor killed"

    def _kill_distributor(self) -> None:
        found = self._world.children().get("distributor")
        if found is not None:
            with suppress(psutil.Error):
                found.send_signal(signal.SIGKILL)

    # --- decisions ------------------------------------------------------------------------------

    def place(self) -> str:
        """Over one broker or both."""
        drained = self._random.choice(["", "", "b1", "b2"])
        done = "placed"
        try:
            for name in ("b1", "b2"):
                body = {"drain": name == drained}
                self._world.remote.call("POST", "brokers", name, "drain", body=body)
            self._world.remote.call("POST", "topics", "t", "placements", body={"policy": "lb"})
        except SrtmError as error:
            done = f"not placed: {error}"
        return f"place without {drained or 'nobody'}: {done}"
