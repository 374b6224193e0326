"""Does what comes keep to the group's contract? Pure."""

from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies.contract.backlog import slots_of
from srtm.limits.ceiling import EXCEEDED, Ceiling, Level


class ContractBounds:
    """contract: of the group; None: nothing bounds what comes, so nothing is ever noted"""

    def __init__(self, contract: Ceiling | None) -> None:
        self._level = Level(contract)
        self._before: float | None = None

    def notes(self, seen: Observation) -> tuple[str, ...]:
        """A note while more comes than the contract allows. Call it with each observation."""
        before, self._before = self._before, seen.at
        if before is None or seen.at <= before:
            return ()
        slots = slots_of(seen, seen.at - before)
        self._level.see(slots.sum(axis=1).tolist(), (seen.at - before) / len(slots))
        return (EXCEEDED,) if self._level.exceeded else ()
