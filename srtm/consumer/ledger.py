"""What a reader of the group's partition knows: who leads, who was told what, who may have what.

Controllers and consumers of a group speak by records of one compacted partition, and each reads all
of them. A member reports what it has with every beat; the leader commands what it is to have; who
is silent for too long is fenced, and is out for good once its end is written:

              command                      report of its version
    has A ───────────────▶ may have A or B ──────────────────────▶ has B
      │                          │                                   │
      └── fenced (a command too): may have all of it until its lease is over ──▶ ended

What a member "may have" is what it reported last, with what it can have read of commands since. The
leader grants a partition only when nobody else may have it. The ledger is a fold over the records
in order, so every reader comes to the same. Only who has the largest epoch leads, and of two who
claim the same one the first in the partition; what anybody else commands is nothing, for every
reader alike, so two controllers never fight. Pure.
"""

from dataclasses import dataclass, field
from typing import TypeVar

from srtm.consumer.wire import Command, Ended, Leader, Memory, Note, PartitionPlan, Report, Word

_NOTES = 200
_MEMORIES = 400
_FURTHEST = 2**32
"""A record whose epoch or version is further on than this is nobody's who could lead: it counts for
nothing, or one record would use up all numbers."""

T = TypeVar("T", Note, Memory)


@dataclass(slots=True)
class Ledger:
    """stale: members whose last command in the partition is a deposed leader's: it says again"""

    epoch: int = 0
    leader: str = ""
    leader_beats: int = 0
    version: int = 0
    members: dict[str, Report] = field(default_factory=dict)
    commands: dict[str, Command] = field(default_factory=dict)
    ended: dict[str, None] = field(default_factory=dict)
    stale: set[str] = field(default_factory=set)
    notes: dict[str, Note] = field(default_factory=dict)
    memories: dict[str, Memory] = field(default_factory=dict)
    plan: PartitionPlan | None = None

    def apply(self, word: Word) -> bool:
        """False where it counts for nothing: it comes from who does not lead, or who is out."""
        match word:
            case Leader():
                return self._lead(word)
            case Command():
                return self._command(word)
            case Report():
                return self._report(word)
            case Ended():
                return self._end(word.name)
            case PartitionPlan():
                return self._plan(word)
            case Note():
                return _keep(self.notes, word, _NOTES)
            case Memory():
                return _keep(self.memories, word, _MEMORIES)

    def _is_led_by(self, name: str, epoch: int) -> bool:
        """Is `name` with `epoch` the leader that is known, or a later one?"""
        if epoch - self.epoch > _FURTHEST:
            return False
        return epoch > self.epoch or (epoch == self.epoch and name == self.leader)

    def _lead(self, word: Leader) -> bool:
        if not self._is_led_by(word.name, word.epoch):
            return False
        self.epoch, self.leader = word.epoch, word.name
        self.leader_beats += 1
        return True

    def _command(self, word: Command) -> bool:
        if word.version - self.version > _FURTHEST or not self._is_led_by(word.leader, word.epoch):
            self.stale.add(word.name)
            return False
        # A claim may be compacted away; its leader's words are not, and nobody commands unclaimed.
        self.epoch, self.leader = word.epoch, word.leader
        self.version = max(self.version, word.version)
        self.stale.discard(word.name)
        if word.name not in self.ended:
            self.commands[word.name] = word
        return True

    def _plan(self, word: PartitionPlan) -> bool:
        if word.version - self.version > _FURTHEST or not self._is_led_by(word.name, word.epoch):
            return False
        self.epoch, self.leader = word.epoch, word.name
        self.version = max(self.version, word.version)
        self.plan = word
        return True

    def _report(self, word: Report) -> bool:
        if max(word.epoch - self.epoch, word.version - self.version) > _FURTHEST:
            return False
        if word.epoch > self.epoch:  # the partition was lost, and members remember a later leader
            self.epoch, self.leader = word.epoch, ""
        self.version = max(self.version, word.version)
        if word.name in self.ended or self.fenced(word.name):
            return False
        if word.gone:
            return self._end(word.name)
        self.members[word.name] = word
        return True

    def _end(self, member: str) -> bool:
        self.members.pop(member, None)
        self.commands.pop(member, None)
        self.stale.discard(member)
        self.ended[member] = None
        while len(self.ended) > 10_000:
            del self.ended[next(iter(self.ended))]
        return True

    def fenced(self, member: str) -> bool:
        command = self.commands.get(member)
        return command is not None and command.fence

    def may_hold(self, member: str) -> frozenset[int]:
        """Every partition that the member can have now, whatever of its commands it has read."""
        report, command = self.members.get(member), self.commands.get(member)
        holds = frozenset(report.holds) if report else frozenset()
        if command is None or (report and report.version >= command.version and not command.fence):
            return holds
        return holds | frozenset(command.start) | frozenset(command.stop)

    def holders(self) -> dict[int, set[str]]:
        """partition -> who may have it; in a hand-over that can be two on paper, never in fact."""
        found: dict[int, set[str]] = {}
        for member in self.members.keys() | self.commands.keys():
            for partition in self.may_hold(member):
                found.setdefault(partition, set()).add(member)
        return found


def _keep(kept: dict[str, T], word: T, most: int) -> bool:
    kept.pop(word.name, None)
    kept[word.name] = word
    while len(kept) > most:
        del kept[next(iter(kept))]
    return True
