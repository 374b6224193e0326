"""Splits that stay."""

from collections.abc import Mapping

from tb_adaptor.policies.policy import Rescale
from tb_adaptor.share import Part
from tb_adaptor.window import Seen


class Fixed:
    """A policy that never rescales."""

    acts_early = False

    def rescale(self, contract: Part, seen: Mapping[str, Seen], now: float) -> Rescale | None:
        return None
