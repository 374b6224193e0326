"""The limit in force for a topic: a Load Distributor's share, its own contract, or the default."""

from collections.abc import Mapping

from srtm.audit.blocks import Rule, Word
from srtm.gateway.lease import Known, Unplaced
from srtm.limits.contract import Limit


class Limits:
    """own:    contracts of options, state file and admin socket
    leased: shares of a Load Distributor, which stand over those
    """

    def __init__(self, default: Limit | None) -> None:
        self.own: dict[bytes, Limit] = {}
        self.leased: dict[bytes, Limit] = {}
        self.default = default
        self._known = Known()

    def know(self, known: Known) -> bool:
        """Which topics the distributor names, and what becomes of those without a share here. True
        when that is news."""
        before, self._known = self._known, known
        return (before.names, before.unplaced, before.suspended) != (
            known.names,
            known.unplaced,
            known.suspended,
        )

    def is_shut(self, name: bytes) -> bool:
        """Does the distributor know it, and give no share of it here?"""
        if name in self.leased:
            return False
        known, text = self._known, name.decode()
        return text in known.suspended or (
            known.unplaced is not Unplaced.PASS and text in known.names
        )

    def refuses(self, name: bytes) -> bool:
        """Are messages of a topic that is shut refused, or do they wait?"""
        known = self._known
        return known.unplaced is Unplaced.REJECT and name.decode() not in known.suspended

    def is_leased(self, name: bytes) -> bool:
        """Does the distributor give its limit?"""
        return name in self.leased or self.is_shut(name)

    def is_given(self, name: bytes) -> bool:
        """Has it a limit of its own, or a share?"""
        return name in self.own or name in self.leased

    def without_share(self, name: bytes) -> Limit | None:
        return self.own.get(name, self.default)

    def word(
        self,
        name: bytes,
        limit: Limit | None,
        contracts: Mapping[str, tuple[float, float]],
        epoch: int,
    ) -> Word:
        """What the admission log says of it. limit: that is in force; contracts: whole ones"""
        if self.is_shut(name):
            return Word(Rule.SHUT, epoch=epoch)
        if limit is None:
            return Word(Rule.NONE)
        if name in self.leased:
            whole = contracts.get(name.decode(), (0.0, 0.0))
            rule = Rule.FLOOR if limit.burst <= limit.least_burst else Rule.SHARE
            return Word(rule, limit.rate, limit.burst, *whole, epoch)
        return Word(Rule.OWN, limit.rate, limit.burst)
