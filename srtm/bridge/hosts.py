"""The nsqds of a channel: who they are, and how many messages each may have under way."""

import selectors
import time
from collections.abc import Iterator, Sequence
from typing import Any

from srtm.bridge.figures import Figures
from srtm.bridge.nsq_source import Host
from srtm.bridge.wire import Broken, frames_of
from srtm.nsq.connection import Features
from srtm.nsq.frames import MESSAGE

_LEAVE_SECONDS = 2.0


class Hosts:
    """The nsqds of a channel, by address. Those of the file stay; those of nsqlookupd go when they
    break and nsqlookupd names them no more."""

    def __init__(
        self,
        nsqd: Sequence[str],
        topic: str,
        channel: str,
        identity: dict[str, Any],
        features: Features,
        figures: Figures,
        selector: selectors.BaseSelector,
    ) -> None:
        """identity, features: of each connection (IDENTIFY)"""
        self._of_each = topic, channel, identity, features, figures, selector
        self._selector = selector
        self._all: dict[str, Host] = {}
        for address in nsqd:
            self._add(address)

    def __len__(self) -> int:
        return len(self._all)

    def document(self) -> dict[str, str]:
        return {host.address: host.reason or "subscribed" for host in list(self._all.values())}

    def __iter__(self) -> Iterator[Host]:
        return iter(list(self._all.values()))

    @property
    def subscribed(self) -> bool:
        """Is anyone?"""
        return any(host.subscribed for host in self._all.values())

    @property
    def reason(self) -> str:
        """Why the first of them is not connected."""
        return next(iter(self._all.values())).reason

    def _add(self, address: str) -> None:
        if address in self._all:
            self._all[address].listed = True
            return
        self._all[address] = Host(address, *self._of_each)

    def follow(self, found: frozenset[str] | None) -> None:
        """nsqds that nsqlookupd names; one that it names no more stays until it breaks."""
        if found is None:
            return
        for address in found:
            self._add(address)
        for host in self._all.values():
            host.listed = host.address in found

    def tick(self, now: float) -> None:
        """Connect, beat, touch."""
        for host in list(self._all.values()):
            try:
                host.connect(now)
                if host.link is not None:
                    host.link.beat(now)
                    host.touch(now)
            except Broken as error:
                host.broken(str(error), now)
            if not host.listed and host.link is None and not host.waiting:
                del self._all[host.address]

    def share_ready(self, total: int, shut: bool, trial: bool, full: bool, now: float) -> None:
        """RDY: `total` messages over all of them; none when shut; one for a trial. Full: nothing is
        read, whatever nsqd still sends."""
        joined = [host for host in self._all.values() if host.subscribed]
        shares = shares_of(
            total,
            [host.held for host in joined],
            sum(len(host.waiting) for host in self._all.values()),
        )
        for number, (host, share) in enumerate(zip(joined, shares, strict=True)):
            link = host.link
            assert link is not None
            ready = min(share, link.max_rdy)
            if shut:
                ready = 0
            elif trial:
                ready = 1 if number == 0 else 0
            try:
                link.set_rdy(ready)
                link.pause(full)
            except Broken as error:
                host.broken(str(error), now)

    def finish(self, now: float) -> None:
        """FIN what Kafka has reported."""
        for host in self._all.values():
            if host.link is not None and host.link.finished:
                try:
                    host.link.finish()
                except Broken as error:
                    host.broken(str(error), now)

    def leave(self, now: float) -> None:
        """Leave every nsqd, so that each FIN reaches it before the connection ends."""
        self.finish(now)
        for host in self._all.values():
            try:
                host.leave()
            except Broken as error:
                host.broken(str(error), now)
        until = time.monotonic() + _LEAVE_SECONDS
        while time.monotonic() < until:
            links = [each.link for each in self._all.values() if each.subscribed]
            if all(link is None or link.left for link in links):
                break
            for key, events in self._selector.select(0.1):
                link = key.data
                try:
                    if events & selectors.EVENT_WRITE:
                        link.flush()
                    if events & selectors.EVENT_READ:
                        link.read(_answers)
                except Broken as error:
                    link.host.broken(str(error), now)

    def close(self) -> None:
        for host in self._all.values():
            if host.link is not None:
                host.link.close()
                host.link = None


def shares_of(total: int, held: Sequence[int], waiting: int) -> list[int]:
    """RDY of each host, so that no more than `total` messages wait, or one of each host.

    held: of each, by the connection that it has; waiting: all of them. An nsqd that comes back
    knows nothing of the deliveries before, and takes RDY as a number of new ones.
    """
    if not held:
        return []
    orphans = waiting - sum(held)
    if orphans >= total:
        return [0] * len(held)  # their reports make room, whatever nsqd does
    share = max((total - orphans) // len(held), 1)
    over = sum(max(each - share, 0) for each in held)
    return [share if each > share else max(share - over, 0) for each in held]


def _answers(raw: bytes, ends: list[int]) -> list[tuple[int, bytes]]:
    """Frames that are no messages: those go back to nsqd by themselves."""
    return [each for each in frames_of(raw, ends) if each[0] != MESSAGE]
