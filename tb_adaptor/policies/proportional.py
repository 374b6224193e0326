"""The paper's rule, and its half that other systems have: shares in proportion to what came."""

from collections.abc import Mapping

from tb_adaptor.policies.policy import RATE_FLOOR, Rescale, is_negligible
from tb_adaptor.share import Part, divide
from tb_adaptor.window import Seen


class Proportional:
    """r by the average offered rate; b by the maximum of the messages that waited for tokens, at
    the r_l in force (SRTM section 5.4), or as it is (`rate-only`: PIP-82, Doorman)."""

    acts_early = False

    def __init__(self, moves_bursts: bool) -> None:
        self._moves_bursts = moves_bursts

    def rescale(self, contract: Part, seen: Mapping[str, Seen], now: float) -> Rescale | None:
        messages = {name: each.messages for name, each in seen.items()}
        if not any(messages.values()):
            return None  # nothing came: every split is as good
        bursts = {name: each.part.burst for name, each in seen.items()}
        waited = {name: float(each.step_waiting.max(initial=0.0)) for name, each in seen.items()}
        moves_bursts = self._moves_bursts and any(waited.values())
        split = divide(contract, messages, waited if moves_bursts else bursts, RATE_FLOOR)
        if is_negligible(seen, split):
            return None
        reasons = ["r in proportion to the messages that came in the window"]
        if moves_bursts:
            reasons.append("b in proportion to the most messages that waited")
        return Rescale(split, tuple(reasons))
