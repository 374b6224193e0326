"""The policies by name."""

from collections.abc import Callable
from dataclasses import dataclass

from tb_adaptor.policies.fixed import Fixed
from tb_adaptor.policies.least_wait import LeastWait
from tb_adaptor.policies.policy import Policy
from tb_adaptor.policies.proportional import Proportional


@dataclass(frozen=True)
class Entry:
    """shows: what it is; starts_even: whatever the placement's shares are"""

    make: Callable[[], Policy]
    shows: str
    starts_even: bool = False


POLICIES = {
    "srtm": Entry(LeastWait, "ours: the split with the least token wait for what came lately"),
    "paper": Entry(
        lambda: Proportional(moves_bursts=True),
        "SRTM section 5.4: r by the offered rate, b by the maximum backlog",
    ),
    "rate-only": Entry(
        lambda: Proportional(moves_bursts=False), "r by the offered rate (PIP-82, Doorman)"
    ),
    "static": Entry(Fixed, "shares as they were placed"),
    "even": Entry(Fixed, "the same for each broker (Envoy)", starts_even=True),
}
