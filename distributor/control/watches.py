"""Which clients watch which publishers. A watch holds the ids that changed since its client last
looked, so its memory is bounded by what the client asked for, however slowly it reads."""

import asyncio
from collections.abc import Iterable

from distributor.errors import TooMany

MOST_WATCHES = 20_000
MOST_WATCHED = 1_000_000
"""publishers over all watches; about 100 bytes each"""


class Watch:
    """Publishers of one topic that one client asks for."""

    def __init__(self, topic: str, ids: Iterable[str]) -> None:
        self.topic = topic
        self.ids = tuple(dict.fromkeys(ids))
        self._changed = dict.fromkeys(self.ids)  # at first all of them
        self._wake = asyncio.Event()
        self._wake.set()
        self.ended = False

    def mark(self, publisher: str) -> None:
        self._changed[publisher] = None
        self._wake.set()

    def end(self) -> None:
        self.ended = True
        self._wake.set()

    def take(self, most: int) -> list[str]:
        """Up to `most` ids whose place may have changed since they were taken last."""
        taken: list[str] = []
        while self._changed and len(taken) < most:
            taken.append(next(iter(self._changed)))
            del self._changed[taken[-1]]
        if not self._changed:
            self._wake.clear()
        return taken

    async def wait(self, seconds: float) -> bool:
        """True where there is something to take, or the watch has ended; False after `seconds`."""
        try:
            await asyncio.wait_for(self._wake.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Watches:
    """All watches, by topic and id."""

    def __init__(self) -> None:
        self._by_id: dict[tuple[str, str], set[Watch]] = {}
        self._all: set[Watch] = set()
        self.watched = 0

    def __len__(self) -> int:
        return len(self._all)

    def add(self, topic: str, ids: Iterable[str]) -> Watch:
        """Raises TooMany."""
        watch = Watch(topic, ids)
        if len(self._all) >= MOST_WATCHES or self.watched + len(watch.ids) > MOST_WATCHED:
            raise TooMany(
                f"{len(self._all):,} watches of {self.watched:,} publishers are open, and one "
                f"distributor serves {MOST_WATCHES:,} of {MOST_WATCHED:,}; share one watch for "
                "all publishers of a process"
            )
        self._all.add(watch)
        self.watched += len(watch.ids)
        for each in watch.ids:
            self._by_id.setdefault((topic, each), set()).add(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        if watch not in self._all:
            return
        self._all.discard(watch)
        self.watched -= len(watch.ids)
        for each in watch.ids:
            watches = self._by_id[watch.topic, each]
            watches.discard(watch)
            if not watches:
                del self._by_id[watch.topic, each]

    def notify(self, topic: str, ids: Iterable[str]) -> None:
        for each in ids:
            for watch in self._by_id.get((topic, each), ()):
                watch.mark(each)

    def end_all(self) -> None:
        for watch in self._all:
            watch.end()
