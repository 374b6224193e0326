"""A batch's debt is on disk before the batch goes to nsqd, with as few writes as there can be."""

import asyncio
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from srtm.gateway.state import Kept, SavedState
from srtm.gateway.state_writer import StateWriter
from srtm.gateway.topic import Topic
from srtm.limits.contract import Limit


class Indebted:
    """What a writer needs of a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.most_owed = 0.0
        self.awaits_disk = False


class World:
    """Two topics, and a disk on which each write waits for `let`."""

    def __init__(self, file: Path | None) -> None:
        self.t, self.u = Indebted("t"), Indebted("u")
        self.pumped: list[str] = []
        self.let = threading.Semaphore(0)
        self._file = file
        self._started = threading.Semaphore(0)
        self._pumps = asyncio.Event()
        state = SavedState.read("" if file is None else str(file))
        make = state.writer
        state.writer = lambda *given: self._held(make(*given))  # type: ignore[method-assign]
        self.writer = StateWriter(state, self._kept, self._pump)

    def _held(self, write: Callable[[], None]) -> Callable[[], None]:
        def held() -> None:
            self._started.release()
            self.let.acquire()
            write()

        return held

    def _kept(self, clean: bool) -> dict[str, Kept]:
        limit = Limit(rate=1, burst=5)
        return {each.name: Kept(limit, -each.most_owed) for each in (self.t, self.u)}

    def _pump(self, topic: Topic, now: int) -> None:
        assert not topic.awaits_disk
        self.pumped.append(cast(Any, topic).name)
        self._pumps.set()

    def owe(self, topic: Indebted, debt: float) -> None:
        self.writer.owe(cast(Topic, topic), debt)
        self.writer.write_debts()

    async def started(self) -> None:
        """One more write is under way."""
        await asyncio.to_thread(self._started.acquire)

    async def pumps(self) -> None:
        await self._pumps.wait()
        self._pumps.clear()

    def tokens(self) -> dict[str, float]:
        """In the file."""
        assert self._file is not None
        topics = json.loads(self._file.read_text())["topics"]
        return {name: kept["tokens"] for name, kept in topics.items()}


def test_debts_that_come_during_a_write_go_together_with_the_next_one(tmp_path: Path) -> None:
    async def work() -> None:
        world = World(tmp_path / "state")
        world.owe(world.t, 8)
        await world.started()
        world.owe(world.u, 8)
        world.owe(world.t, 80)
        world.let.release()
        await world.started()
        assert world.tokens() == {"t": -10, "u": 0}
        assert world.pumped == [], "the debt of t has grown meanwhile"
        assert world.t.awaits_disk
        assert world.u.awaits_disk
        world.let.release()
        await world.pumps()
        assert world.tokens() == {"t": -100, "u": -10}
        assert sorted(world.pumped) == ["t", "u"]
        world.writer.close()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_debt_that_the_file_covers_waits_for_no_write(tmp_path: Path) -> None:
    async def work() -> None:
        world = World(tmp_path / "state")
        world.owe(world.t, 8)
        await world.started()
        world.let.release()
        await world.pumps()
        world.owe(world.t, 10)
        assert not world.t.awaits_disk
        world.owe(world.t, 10.1)
        assert world.t.awaits_disk
        world.let.release()
        await world.pumps()
        world.writer.close()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_without_a_file_there_is_nothing_to_wait_for() -> None:
    async def work() -> None:
        world = World(None)
        world.owe(world.t, 8)
        assert not world.t.awaits_disk
        world.writer.close()

    asyncio.run(work())
