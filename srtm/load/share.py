"""Counts, rates and latencies of a set of messages: the whole load, or one broker's part."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from srtm.host.clock import NS
from srtm.load.latency import Latencies
from srtm.load.record import REFUSED, Record
from srtm.load.schedule import Ints

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages of the whole run, warmup included.

    planned:      in the schedule; at maximum speed what was sent
    acknowledged: OK came; refused: an error came; unanswered: sent, outcome unknown
    received:     at least once; duplicates: received again
    lost:         acknowledged and never received (0 without consumers)
    """

    planned: int
    sent: int
    acknowledged: int
    refused: int
    unanswered: int
    received: int
    duplicates: int
    lost: int


@dataclass(frozen=True, slots=True)
class Rates:
    """messages/s in the measured window, from the end of the warmup to the end of sending.

    offered counts intended times; the others count what happened meanwhile, to any message.
    """

    offered: float
    acknowledged: float
    received: float


@dataclass(frozen=True, slots=True)
class Share:
    """publish: intended time to OK; end_to_end: intended time to receipt; of the window only."""

    counts: Counts
    rates: Rates
    publish: Latencies
    end_to_end: Latencies

    def document(self) -> dict[str, Any]:
        return {
            "counts": asdict(self.counts),
            "rates_per_second": asdict(self.rates),
            "publish_latency": self.publish.document(),
            "end_to_end_latency": self.end_to_end.document(),
        }


class Messages:
    """A record with one row for each message, and the window [from_ns, to_ns) to measure."""

    __slots__ = (
        "answered",
        "consumed",
        "first",
        "from_ns",
        "intended",
        "received",
        "sent",
        "to_ns",
    )

    def __init__(self, record: Record, from_ns: int, to_ns: int) -> None:
        self.intended = record.by_message(record.intended_ns)
        self.sent = record.by_message(record.sent_ns)
        self.answered = record.by_message(record.answered_ns)
        self.first, self.received = record.receipts()
        self.consumed = bool(record.received)
        self.from_ns, self.to_ns = from_ns, to_ns

    @property
    def in_window(self) -> Mask:
        return (self.intended >= self.from_ns) & (self.intended < self.to_ns)

    def window_latencies_ns(self, since: Ints) -> Ints:
        """The latencies from the times `since` to receipt, of all messages intended in the window;
        the longest there is for those never received."""
        first, since = self.first[self.in_window], since[self.in_window]
        never = np.iinfo(np.int64).max
        return np.where(first > 0, first - since, never)

    def send_lag(self) -> Latencies:
        chosen = self.in_window & (self.sent > 0)
        return Latencies(self.sent[chosen] - self.intended[chosen])

    def share(self, chosen: Mask) -> Share:
        """The share of the chosen messages."""
        acknowledged = chosen & (self.answered > 0)
        received = chosen & (self.first > 0)
        window = self.in_window
        published, delivered = acknowledged & window, received & window
        return Share(
            self._counts(chosen, acknowledged, received),
            Rates(
                offered=self._rate(self.intended[chosen]),
                acknowledged=self._rate(self.answered[acknowledged]),
                received=self._rate(self.first[received]),
            ),
            Latencies(self.answered[published] - self.intended[published]),
            Latencies(self.first[delivered] - self.intended[delivered]),
        )

    def _counts(self, chosen: Mask, acknowledged: Mask, received: Mask) -> Counts:
        sent = np.count_nonzero(chosen & (self.sent > 0))
        answered = np.count_nonzero(acknowledged)
        refused = np.count_nonzero(chosen & (self.answered == REFUSED))
        lost = np.count_nonzero(acknowledged & (self.first == 0)) if self.consumed else 0
        return Counts(
            planned=int(np.count_nonzero(chosen)),
            sent=int(sent),
            acknowledged=int(answered),
            refused=int(refused),
            unanswered=int(sent - answered - refused),
            received=int(np.count_nonzero(received)),
            duplicates=int(np.maximum(self.received[chosen] - 1, 0).sum()),
            lost=int(lost),
        )

    def _rate(self, times_ns: Ints) -> float:
        if self.to_ns <= self.from_ns:
            return 0.0
        inside = np.count_nonzero((times_ns >= self.from_ns) & (times_ns < self.to_ns))
        return float(inside) * NS / (self.to_ns - self.from_ns)
