"""asyncio's selector with the reactor inside."""

import selectors

from srtm.gateway.reactor import Reactor


class HotSelector(selectors.EpollSelector):
    """What asyncio waits on; while it waits, the reactor serves."""

    def __init__(self, reactor: Reactor) -> None:
        super().__init__()
        self._reactor = reactor
        reactor.watch(self.fileno(), reactor.let_asyncio_run)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._reactor.serve(None if timeout is None else max(timeout, 0.0))
        return super().select(0)

    def close(self) -> None:
        self._reactor.forget(self.fileno())
        super().close()
