"""What a run showed: the total, each broker's share, and what went wrong."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from srtm.host.clock import NS
from srtm.limits.slo import SLO
from srtm.load.latency import Latencies
from srtm.load.moves import Move
from srtm.load.record import Record
from srtm.load.schedule import Ints
from srtm.load.settings import LoadSettings
from srtm.load.share import Messages, Share


@dataclass(frozen=True, slots=True)
class Account:
    """What the loop knows beside the record.

    closed_*: indexes of connections that the other side closed
    errors:   error frames by code
    foreign:  messages of other runs that stood in the channel
    cpu_seconds: of this process, user and system, while the loop ran
    publish_addresses, consume_addresses: those of the settings, and what moves added
    moves:    of publishers to other brokers, in their order; move_problems: lines for a person
    """

    start_ns: int
    end_ns: int
    closed_publishers: tuple[int, ...]
    closed_consumers: tuple[int, ...]
    errors: dict[str, int]
    foreign: int
    cpu_seconds: float
    interrupted: bool
    publish_addresses: tuple[str, ...] = ()
    consume_addresses: tuple[str, ...] = ()
    moves: tuple[Move, ...] = ()
    move_problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadResult:
    """brokers: by publish address. send_lag: actual minus intended time of sending, the
    generator's own lateness. problems: lines for a person, empty when all went well."""

    settings: LoadSettings
    total: Share
    brokers: dict[str, Share]
    send_lag: Latencies
    latencies_ns: Ints
    """End to end, of every message intended in the window; int64's maximum: never received."""
    since_sent_ns: Ints
    """The latency of the same messages from the actual time of sending: without the generator's own
    lateness."""
    account: Account
    problems: tuple[str, ...]

    @property
    def cpu_us_per_message(self) -> float:
        """CPU time of the generator for each message sent, in microseconds."""
        return self.account.cpu_seconds * 1e6 / max(self.total.counts.sent, 1)

    def late_share(self, slo: SLO) -> float:
        """The share that came later than the SLO's target, or never; 1 without any message."""
        if not len(self.latencies_ns):
            return 1.0
        return float(np.mean(self.latencies_ns > slo.target_seconds * NS))

    def meets(self, slo: SLO) -> bool:
        return self.late_share(slo) <= slo.allowed_late_share

    def document(self, slo: SLO | None = None) -> dict[str, Any]:
        """Everything, for JSON: latencies in ms, rates in messages/s."""
        account = self.account
        return {
            "settings": self.settings.document(),
            **self.total.document(),
            "send_lag": self.send_lag.document(),
            "brokers": {address: share.document() for address, share in self.brokers.items()},
            "errors": account.errors,
            "connections_closed": len(account.closed_publishers) + len(account.closed_consumers),
            "foreign_messages": account.foreign,
            "moves": len(account.moves),
            "generator": {
                "seconds": (account.end_ns - account.start_ns) / NS,
                "cpu_seconds": account.cpu_seconds,
                "cpu_us_per_message": self.cpu_us_per_message,
            },
            "slo": None
            if slo is None
            else {"slo": str(slo), "late_share": self.late_share(slo), "met": self.meets(slo)},
            "problems": list(self.problems),
        }


def summarise(settings: LoadSettings, record: Record, account: Account) -> LoadResult:
    """The result of a finished run."""
    from_ns = account.start_ns + int(settings.warmup_seconds * NS)
    to_ns = account.start_ns + int(settings.seconds * NS)
    if account.interrupted:
        to_ns = min(to_ns, account.end_ns)
    messages = Messages(record, from_ns, to_ns)
    total = messages.share(np.ones(record.messages, dtype=np.bool_))
    addresses = account.publish_addresses or settings.publish_addresses
    brokers = {addresses[0]: total}
    if len(addresses) > 1:
        of_publisher = np.array([settings.address_index(p) for p in range(settings.publishers)])
        publisher = record.by_message(record.publisher)
        broker = of_publisher[publisher]
        _follow(broker, publisher, messages.sent, account.moves)
        brokers = {at: messages.share(broker == index) for index, at in enumerate(addresses)}
    return LoadResult(
        settings,
        total,
        brokers,
        messages.send_lag(),
        messages.window_latencies_ns(messages.intended),
        messages.window_latencies_ns(messages.sent),
        account,
        tuple(_problems(settings, total, account)),
    )


def _follow(broker: Ints, publisher: Ints, sent: Ints, moves: Sequence[Move]) -> None:
    """The number of the broker of each message, after the moves of its publisher."""
    if not moves:
        return
    order = np.argsort(publisher, kind="stable")
    bounds = np.searchsorted(publisher[order], np.arange(publisher.max(initial=0) + 2))
    for move in moves:
        if move.publisher + 1 < len(bounds):
            own = order[bounds[move.publisher] : bounds[move.publisher + 1]]
            broker[own[sent[own] >= move.at_ns]] = move.address


def _problems(settings: LoadSettings, total: Share, account: Account) -> list[str]:
    lines = []
    if account.interrupted:
        seconds = (account.end_ns - account.start_ns) / NS
        lines.append(f"interrupted after {seconds:.1f} s of {settings.seconds:g} s")
    addresses = account.publish_addresses or settings.publish_addresses
    at = {p: settings.address_index(p) for p in range(settings.publishers)}
    at |= {move.publisher: move.address for move in account.moves}
    publishers = Counter(at.values())
    closed = Counter(at[p] for p in account.closed_publishers)
    for index, count in sorted(closed.items()):
        lines.append(
            f"{addresses[index]} closed {count} of its {publishers[index]} publisher connections"
        )
    for index in account.closed_consumers:
        consumed = account.consume_addresses or settings.consume_addresses
        lines.append(f"{consumed[index]} closed the consumer's connection")
    lines += account.move_problems
    for code, count in sorted(account.errors.items()):
        lines.append(f"{count} x {code}")
    counts = total.counts
    if counts.sent < counts.planned:
        lines.append(f"{counts.planned - counts.sent} planned messages were not sent")
    if counts.unanswered:
        lines.append(f"{counts.unanswered} messages were sent and not answered")
    if counts.lost:
        lines.append(
            f"{counts.lost} acknowledged messages were not received: none came for "
            f"{settings.drain_seconds:g} s"
        )
    return lines
