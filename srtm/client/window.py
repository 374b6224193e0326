"""A bound on what is unanswered: who comes first gets room first."""

import asyncio
from collections import deque


class Window:
    """`size` messages at once. A batch of more than that goes when nothing else is there, so that
    it is late rather than stuck for ever."""

    def __init__(self, size: int) -> None:
        if size < 1:
            raise ValueError(f"{size} messages in flight: at least one is needed")
        self.size = size
        self.used = 0
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    def _fits(self, count: int) -> bool:
        return self.used == 0 or self.used + count <= self.size

    async def enter(self, count: int) -> None:
        """Wait for room for `count` messages, in order of the calls, and take it."""
        if not self._waiters and self._fits(count):
            self.used += count
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((count, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.leave(count)  # it had its turn already
            else:
                self._next()
            raise

    def leave(self, count: int) -> None:
        """`count` messages are answered."""
        self.used -= count
        self._next()

    def _next(self) -> None:
        while self._waiters:
            count, turn = self._waiters[0]
            if not turn.done():
                if not self._fits(count):
                    return
                self.used += count
                turn.set_result(None)
            self._waiters.popleft()
