"""Time as observations bring it: a clock that goes back, and observations that stop coming."""

from dataclasses import dataclass

_MISSED = 5
"""Decision intervals without an observation that count as a gap: one or two are jitter."""


@dataclass(slots=True)
class Timeline:
    """`at` of the last observation, in seconds on the caller's clock.

    start:     of what is remembered: the first observation, or the one after the clock went back
    went_back: did it, just now? Then what was remembered lies in the future and has to go
    """

    decision_seconds: float
    start: float | None = None
    last: float | None = None
    went_back: bool = False

    def step(self, at: float) -> tuple[str, ...]:
        """Take the next observation's time; notes for a person on what is odd about it."""
        last, self.last = self.last, at
        self.went_back = last is not None and at < last
        if last is None or self.went_back:
            self.start = at
        if last is None:
            return ()
        if self.went_back:
            return (
                f"the clock went back by {last - at:g} s: windows and cooldowns begin anew; use a "
                "monotonic clock",
            )
        if at - last > _MISSED * self.decision_seconds:
            return (
                f"no observation for {at - last:g} s (one every {self.decision_seconds:g} s is "
                "expected): decided on the newest alone where a window is empty",
            )
        return ()


@dataclass(slots=True)
class Cooldown:
    """No action for `seconds` after one."""

    seconds: float
    since: float | None = None

    def begin(self, at: float) -> None:
        self.since = at

    def left(self, at: float) -> float:
        """Seconds; 0 when it is over, which it is `seconds` after its begin."""
        return 0.0 if self.since is None else max(0.0, self.since + self.seconds - at)
