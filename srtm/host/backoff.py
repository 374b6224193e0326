"""How long to wait before the next attempt at something that is away."""

FIRST_SECONDS = 0.1
"""A process that is started again needs a little longer; a connection that broke does not."""


def backoff_seconds(attempt: int, jitter: float, most_seconds: float) -> float:
    """Seconds to wait after the failed attempt number `attempt` (0: the first).

    The bound doubles each time, up to `most_seconds`; `jitter` in [0, 1) picks a point in its upper
    half, so that many who lost the same server do not come back together. Raises ValueError.
    """
    if attempt < 0 or not 0 <= jitter <= 1 or not most_seconds > 0:
        raise ValueError(
            f"attempt {attempt}, jitter {jitter}, at most {most_seconds} s: attempts count from 0, "
            "jitter is between 0 and 1, and the bound is more than 0"
        )
    doublings = min(attempt, 30)  # more is past any bound, and no float
    bound: float = min(FIRST_SECONDS * 2**doublings, most_seconds)
    return bound * (0.5 + 0.5 * jitter)
