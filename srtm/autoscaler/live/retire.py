"""Consumers of a group that leave, where their executor would start again who ends by itself.

They are ended from outside once they have given everything up. An executor that ended another one
instead gives them back: they work on.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from srtm.autoscaler.executors.executor import Executor
from srtm.autoscaler.live.roster import Roster
from srtm.consumer.wire import Report


@dataclass(slots=True)
class Retire:
    executor: Executor
    _told: set[str] = field(default_factory=set)

    def step(self, at: float, roster: Roster, live: Mapping[str, Report], assigns: bool) -> None:
        """assigns: does the controller say who has what? The broker takes partitions away only when
        their consumer ends."""
        spared = self._told - set(self.executor.leaving())
        roster.leaving -= spared
        self._told -= spared
        for id_ in sorted(roster.leaving):
            report = live.get(roster.members.get(id_, ""))
            if id_ in self._told or (assigns and report is not None and report.holds):
                continue
            self.executor.end(at, [id_])
            self._told.add(id_)
