"""The latency SLO, one type for broker, distributor and autoscaler."""

from dataclasses import dataclass

from srtm.duration import format_duration, parse_duration

NEAR = 0.8
"""Of the target: a p99 between it and the target ends a search (SRTM section 6.5, footnote 11)."""


@dataclass(frozen=True, slots=True)
class SLO:
    """`percentile` of the messages take no longer than `target_seconds`, e.g. 0.99 within 1 ms."""

    percentile: float
    target_seconds: float

    def __post_init__(self) -> None:
        if not 0 < self.percentile < 1:
            raise ValueError(
                f"SLO percentile {self.percentile} is not between 0 and 1; write 0.99 for p99"
            )
        if not 0 < self.target_seconds < float("inf"):
            raise ValueError(f"SLO target {self.target_seconds} s must be more than 0")

    @classmethod
    def parse(cls, text: str) -> "SLO":
        """Read `0.99@1ms`. Raises ValueError."""
        percentile, at, target = text.partition("@")
        try:
            share = float(percentile)
        except ValueError:
            at = ""
        if not at:
            raise ValueError(f"{text!r} is not an SLO; write PERCENTILE@DURATION, such as 0.99@1ms")
        return cls(share, parse_duration(target))

    def __str__(self) -> str:
        return f"{self.percentile:.15g}@{format_duration(self.target_seconds)}"

    @property
    def allowed_late_share(self) -> float:
        return 1.0 - self.percentile

    def met_by(self, latency_seconds: float) -> bool:
        """Is the SLO kept when its percentile of latency is `latency_seconds`?"""
        return latency_seconds <= self.target_seconds
