"""The world of a controller: a Kafka group, or a pool of an NSQ channel. The world knows how load
is measured, which consumers there are, and how they get work; the controller decides their number.
"""

from collections.abc import Mapping
from typing import Protocol

from srtm.autoscaler.decision import Decision
from srtm.autoscaler.executors.executor import Fleet
from srtm.autoscaler.live.diary import Diary
from srtm.autoscaler.live.memory import Recalled
from srtm.autoscaler.live.monitor import Reading
from srtm.autoscaler.live.observe import Phases
from srtm.autoscaler.live.roster import Roster
from srtm.autoscaler.live.states import Event
from srtm.autoscaler.observation import Observation
from srtm.limits.rolling import RollingBudget
from srtm.limits.slo import SLO


class World(Protocol):
    """`now_ns` is of a clock that goes on in sleep; consumers go by the ids of their launches."""

    @property
    def diary(self) -> Diary:
        """The last decisions, for `srtm autoscale explain`."""

    @property
    def fault(self) -> str:
        """Why this controller does not lead, or what cannot be seen; "" while all is well."""

    # --- who leads --------------------------------------------------------------------------------

    def lead(self, now_ns: int) -> Event | None:
        """Look after who leads, often. What has happened: CLAIMED, SYNCHRONIZED or DEPOSED."""

    def may_act(self, now_ns: int) -> bool:
        """Is it sure that no other controller acts? Nobody is launched twice, so nobody is launched
        or ended in doubt."""

    # --- who is there -----------------------------------------------------------------------------

    def take_over(self, roster: Roster) -> None:
        """Enter the consumers that are there already as a controller begins to lead."""

    def members(self, fleet: Fleet, roster: Roster) -> Mapping[str, str]:
        """Consumer -> its name here, of all that have joined, those that leave among them."""

    def may_end(self, id_: str, roster: Roster) -> bool:
        """Is this consumer, which is to leave, to be ended by the executor now?"""

    def is_empty(self, roster: Roster) -> bool:
        """Has everybody left who had joined?"""

    # --- what is seen -----------------------------------------------------------------------------

    def observe(self, reading: Reading, roster: Roster, phases: Phases) -> tuple[Observation, str]:
        """What a policy is shown, and why nothing can be decided by it; "" where it can."""

    def recall(self, at: float, slo: SLO) -> Recalled:
        """What the controller before this one kept; nothing from the second call on."""

    # --- what is done -----------------------------------------------------------------------------

    def answered(
        self, seen: Observation, decision: Decision, budget: RollingBudget
    ) -> tuple[str, ...]:
        """Keep what was seen for the next controller. What the policy warns of here."""

    def adopt(self, seen: Observation, decision: Decision) -> Decision:
        """The policy's decision, or another one where it leaves something alone for too long."""

    def fitted(self, seen: Observation, decision: Decision) -> Decision:
        """The decision, which is within bounds, as it can be carried out here."""

    def assign(self, roster: Roster, now_ns: int) -> tuple[float, ...] | None:
        """Give work to who has joined, as the roster says; called often. None where not everybody
        has what is wanted; then for how many seconds each partition stood still that has moved."""
