"""What brokers measure in a round."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from distributor.fitting.late_share import Counts


@dataclass(frozen=True, slots=True)
class Sample:
    """One broker's messages of one topic in one slot of time, counted by its probe.

    epoch:             number of the round that the broker was in; others are left out
    began_at, ended_at: seconds, the distributor's clock
    late:              messages slower than the topic's SLO target
    late_at_broker:    those slower than it even without their token wait
    near:              messages slower than limits.slo.NEAR of the target, the late ones with them
    """

    broker: str
    topic: str
    epoch: int
    began_at: float
    ended_at: float
    messages: int
    late: int
    late_at_broker: int
    near: int

    def __post_init__(self) -> None:
        if not 0 <= self.late_at_broker <= self.late <= self.near <= self.messages:
            raise ValueError(
                f"broker {self.broker}, topic {self.topic}: late_at_broker {self.late_at_broker}, "
                f"late {self.late}, near {self.near}, messages {self.messages} must not decrease "
                "in this order"
            )
        if not self.began_at < self.ended_at:
            raise ValueError(
                f"broker {self.broker}, topic {self.topic}: a slot from {self.began_at} to "
                f"{self.ended_at} s has no length"
            )


@dataclass(frozen=True, slots=True, eq=False)
class Slots:
    """Counts of samples in order of time, each of shape (n,)."""

    messages: Counts
    late: Counts
    late_at_broker: Counts
    near: Counts

    @property
    def late_share(self) -> float:
        return share(self.late, self.messages)

    @property
    def near_share(self) -> float:
        return share(self.near, self.messages)


def share(part: Counts, messages: Counts) -> float:
    """0 without messages."""
    total = float(messages.sum())
    return float(part.sum()) / total if total else 0.0


def slots(samples: Iterable[Sample], since: float) -> Slots:
    """The samples of one broker and topic that began at `since` or later, in order of time."""
    rows = [
        (each.messages, each.late, each.late_at_broker, each.near)
        for each in sorted(samples, key=lambda each: each.began_at)
        if each.began_at >= since
    ]
    table = np.array(rows, dtype=np.float64).reshape(len(rows), 4)
    return Slots(table[:, 0], table[:, 1], table[:, 2], table[:, 3])
