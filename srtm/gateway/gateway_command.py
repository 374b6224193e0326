"""`srtm gateway`."""

import asyncio
import os
import select
import selectors
import signal

import click

from srtm.gateway.options import GatewayOptions
from srtm.gateway.reactor import Reactor
from srtm.gateway.server import Gateway
from srtm.options.logs import log_to_stderr
from srtm.options.model import add_options, read_options

_EVENTS = 16
"""of asyncio's at a time, of 0.1 ms each; then the reactor has its turn. Of 500 connections that
ended at once each was seen in one turn, for which all messages waited 44 ms."""


@click.command("gateway", context_settings={"auto_envvar_prefix": "SRTM_GATEWAY"})
@add_options(GatewayOptions)
@click.pass_context
def gateway(context: click.Context, /, **_: object) -> None:
    """Run a gateway in front of an nsqd that is already running.

    Publishers connect to the gateway as they would to nsqd. Each topic with a contract has a token
    bucket: the gateway delays or refuses messages over it and passes all others. nsqd stays
    unmodified.

    \b
      srtm gateway --tcp-address=0.0.0.0:4150 --http-address=0.0.0.0:4151 \\
        --nsqd-tcp-address=127.0.0.1:5150 --nsqd-http-address=127.0.0.1:5151 \\
        --topic sensors,rate=1100,burst=40,slo=0.99@5ms

    After SIGTERM the gateway finishes messages in hand for at most --drain-timeout. SIGHUP reads
    the contracts of --config again.
    """
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can be heeded
    options = read_options(GatewayOptions, context)
    log_to_stderr(options.log_level, quiet=())
    reactor = Reactor()
    with asyncio.Runner(
        loop_factory=lambda: asyncio.SelectorEventLoop(HotSelector(reactor))
    ) as runner:
        runner.run(_serve(options, reactor, context))
    reactor.close()


async def _serve(options: GatewayOptions, reactor: Reactor, context: click.Context) -> None:
    await Gateway(options, reactor, lambda: read_options(GatewayOptions, context)).run()


class HotSelector(selectors.EpollSelector):
    """asyncio's selector with the reactor inside: while asyncio waits, the reactor serves."""

    def __init__(self, reactor: Reactor) -> None:
        super().__init__()
        self._reactor = reactor
        self._same = select.epoll.fromfd(os.dup(self.fileno()))
        reactor.watch(self.fileno(), reactor.let_asyncio_run)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        self._reactor.serve(None if timeout is None else max(timeout, 0.0))
        ready = []
        for fd, mask in self._same.poll(0, _EVENTS):
            key = self.get_map()[fd]
            events = selectors.EVENT_WRITE if mask & ~select.EPOLLIN else 0
            events |= selectors.EVENT_READ if mask & ~select.EPOLLOUT else 0
            ready.append((key, events & key.events))
        return ready

    def close(self) -> None:
        self._reactor.forget(self.fileno())
        self._same.close()
        super().close()
