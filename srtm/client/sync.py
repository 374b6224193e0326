"""The publisher for scripts without an event loop: one runs in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from srtm.client.publisher import Publisher
from srtm.text.errors import UsageError

T = TypeVar("T")


class SyncPublisher:
    """A `Publisher` for code that does not use asyncio, with the same arguments; every call blocks,
    from any thread.

    with SyncPublisher("sensors", nsqd="127.0.0.1:4150") as p:
        p.publish(b"...")
    """

    def __init__(self, topic: str, key: str | None = None, **options: Any) -> None:
        """Raises UsageError."""
        self._publisher = Publisher(topic, key, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name=f"srtm-{topic}", daemon=True)
        self._started = threading.Event()

    def __enter__(self) -> "SyncPublisher":
        self._thread.start()
        self._started.wait()
        try:
            self._do(self._publisher.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._do(self._publisher.close())
        finally:
            self._stop()

    def publish(self, body: bytes) -> None:
        """Raises Refused, OutcomeUnknown, NotSent."""
        self._do(self._publisher.publish(body))

    def publish_many(self, bodies: Sequence[bytes]) -> None:
        """Publish all bodies as one MPUB. Raises as `publish`."""
        self._do(self._publisher.publish_many(bodies))

    def send(self, body: bytes) -> "Future[None]":
        """Publish without waiting for the OK, only for room among the unanswered; the future
        ends as `publish` does."""
        done: Future[None] = Future()
        receipt = self._do(self._publisher.send(body))
        receipt.get_loop().call_soon_threadsafe(
            receipt.add_done_callback, lambda ended: _copy(ended, done)
        )
        return done

    def flush(self) -> None:
        """Wait until every message so far has its outcome."""
        self._do(self._publisher.flush())

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._loop
        if loop is None:
            work.close()
            raise UsageError("a SyncPublisher is used inside its `with` block")
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            self._loop.call_soon(self._started.set)
            self._loop.run_forever()

    def _stop(self) -> None:
        loop, self._loop = self._loop, None
        if loop is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()


def _copy(ended: "asyncio.Future[None]", done: "Future[None]") -> None:
    error = None if ended.cancelled() else ended.exception()
    if ended.cancelled():
        done.cancel()
    elif error is not None:
        done.set_exception(error)
    else:
        done.set_result(None)
