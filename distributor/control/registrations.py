"""Registration of publishers, thousands at once: all that wait are written in one transaction."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence

from distributor.api_fields import PublisherAsked
from distributor.control.state import ControlState
from distributor.control.watches import Watches
from distributor.store import PublisherRow, Statement
from distributor.store.statements import put_publishers
from srtm.text.errors import UsageError


class Registrations:
    """changing: the lock of all changes of topics and publishers; commit: writes to the store."""

    def __init__(
        self,
        state: ControlState,
        changing: asyncio.Lock,
        commit: Callable[[Sequence[Statement]], Awaitable[None]],
        watches: Watches,
    ) -> None:
        self._state = state
        self._changing = changing
        self._commit = commit
        self._watches = watches
        self._waiting: list[_Registration] = []
        self.newcomers: set[str] = set()
        """topics with publishers that have registered and that no placement has considered yet"""

    async def register(self, topic: str, asked: Sequence[PublisherAsked]) -> int:
        """Raises UsageError for an id given twice or a key that the topic does not know, NotFound,
        StoreError."""
        require_once(topic, asked)
        mine = _Registration(topic, asked)
        self._waiting.append(mine)
        async with self._changing:
            if not mine.done:
                await self._register_all()
        if mine.error:
            raise mine.error
        return len(asked)

    async def _register_all(self) -> None:
        """Register all that wait, in one transaction. What is wrong with one is no fault of the
        others."""
        taken, self._waiting = self._waiting, []
        good: list[tuple[_Registration, list[PublisherRow]]] = []
        for each in taken:
            each.done = True
            try:
                good.append((each, self._rows(each)))
            except Exception as error:
                each.error = error
        try:
            await self._commit([put_publishers([row for _, rows in good for row in rows])])
        except Exception as error:
            for each, _ in good:
                each.error = error
            return
        for each, rows in good:
            self.take(each.topic, rows)

    def take(self, name: str, rows: Sequence[PublisherRow]) -> None:
        """These publishers of topic `name` have been written."""
        topic = self._state.topic(name)
        topic.register(rows)
        if any(row.id not in topic.places for row in rows):
            self.newcomers.add(name)
        self._watches.notify(name, (row.id for row in rows))

    def _rows(self, asked: "_Registration") -> list[PublisherRow]:
        return rows_of(asked.topic, asked.publishers, self._state.topic(asked.topic).keys)


class _Registration:
    """One request, until it is written."""

    def __init__(self, topic: str, publishers: Sequence[PublisherAsked]) -> None:
        self.topic = topic
        self.publishers = publishers
        self.done = False
        self.error: Exception | None = None


def require_once(topic: str, asked: Sequence[PublisherAsked]) -> None:
    """Raises UsageError for an id given twice."""
    seen = set()
    for each in asked:
        if each.id in seen:
            raise UsageError(
                f"topic {topic}: publisher {each.id} is given twice; each id may stand once"
            )
        seen.add(each.id)


def rows_of(
    topic: str, asked: Sequence[PublisherAsked], keys: frozenset[str] | None
) -> list[PublisherRow]:
    """keys: the only ones that they may have. Raises UsageError for another one."""
    if keys is not None:
        for each in asked:
            check_key(topic, each.id, each.key, keys)
    return [PublisherRow(topic, each.id, each.key, each.rate, None) for each in asked]


def check_key(topic: str, publisher: str, key: str | None, keys: frozenset[str]) -> None:
    """Raises UsageError for a key that is none of the topic's."""
    if key is not None and key not in keys:
        raise UsageError(
            f"publisher {publisher}: key {json.dumps(key)} is none of the {len(keys)} that topic "
            f"{topic} registers; add it to the topic's keys, or correct it"
        )
