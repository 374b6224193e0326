"""The latency SLO, one type for broker, distributor and autoscaler."""

from dataclasses import dataclass

from srtm.text.duration import format_duration, parse_duration

NEAR = 0.8
"""The part of the target from which on a p99 is near it: a p99 between this part and the target
ends a search (SRTM section 6.5, footnote 11)."""


@dataclass(frozen=True, slots=True)
class SLO:
    """`percentile` of the messages take no longer than `target_seconds`, e.g. 0.99 within 1 ms.

    window_seconds: of every stretch of so long; None: of all that somebody looks at. The
                    autoscaler spends by it what may be late, and the simulator judges by it
    """

    percentile: float
    target_seconds: float
    window_seconds: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.percentile < 1:
            raise ValueError(
                f"SLO percentile {self.percentile} is not between 0 and 1; write 0.99 for p99"
            )
        if not 0 < self.target_seconds < float("inf"):
            raise ValueError(f"SLO target {self.target_seconds} s must be more than 0")
        window = self.window_seconds
        if window is not None and not self.target_seconds < window < float("inf"):
            raise ValueError(
                f"SLO window {window} s must be longer than the target {self.target_seconds} s; "
                "write 0.99@500ms over 1h"
            )

    @classmethod
    def parse(cls, text: str) -> "SLO":
        """Read `0.99@1ms`, or `0.99@1ms over 1h`. Raises ValueError."""
        percentile, at, rest = text.partition("@")
        target, over, window = rest.partition(" over ")
        try:
            share = float(percentile)
        except ValueError:
            at = ""
        if not at:
            raise ValueError(f"{text!r} is not an SLO; write PERCENTILE@DURATION, such as 0.99@1ms")
        return cls(share, parse_duration(target), parse_duration(window) if over else None)

    def __str__(self) -> str:
        kept = f"{self.percentile:.15g}@{format_duration(self.target_seconds)}"
        over = self.window_seconds
        return kept if over is None else f"{kept} over {format_duration(over)}"

    @property
    def allowed_late_share(self) -> float:
        return 1.0 - self.percentile

    def met_by(self, latency_seconds: float) -> bool:
        """Is the SLO kept when its percentile of latency is `latency_seconds`?"""
        return latency_seconds <= self.target_seconds
