"""Arrivals of one topic as the Load Distributor asks for them, kept until they are reported."""

from collections.abc import Iterable

from srtm.gateway.run import Run

_MOST_TIMES = 5_000
"""milliseconds that are kept; what comes later is left out"""
_MOST_SENDERS = 5_000
"""publishers that are counted by name; the others are nobody's"""


class Observed:
    """times:   messages by millisecond of arrival; None: nobody asks
    batches: those of them that wait for all of their tokens, as (millisecond, messages)
    senders: messages by publisher; None: nobody asks
    """

    def __init__(self) -> None:
        self.times: dict[int, int] | None = None
        self.batches: list[tuple[int, int]] = []
        self.senders: dict[str, int] | None = None

    def want_times(self, wanted: bool) -> None:
        """Begin, go on, or end."""
        if not wanted:
            self.times, self.batches = None, []
        elif self.times is None:
            self.times = {}

    def want_senders(self, wanted: bool) -> None:
        """Begin, go on, or end."""
        if not wanted:
            self.senders = None
        elif self.senders is None:
            self.senders = {}

    def keep_times(self, arrivals: Iterable[Run]) -> None:
        times, batches = self.times, self.batches
        assert times is not None
        for run in arrivals:
            at, count = run.stamp // 1_000_000, run.count
            if at not in times and len(times) >= _MOST_TIMES:
                continue
            if count > 1 and run.atomic:
                if len(batches) >= _MOST_TIMES:
                    continue
                batches.append((at, count))
            times[at] = times.get(at, 0) + count

    def count_senders(self, arrivals: Iterable[Run]) -> None:
        senders = self.senders
        assert senders is not None
        for run in arrivals:
            name = run.owner.publisher
            if name not in senders and len(senders) >= _MOST_SENDERS:
                name = ""
            senders[name] = senders.get(name, 0) + run.count
