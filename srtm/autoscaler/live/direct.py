"""Direct hand-over (Landau, section 4.4.7): stop, acknowledge, start. Pure: records and time
come in, records go out.

A partition is granted to a member only when nobody else may have it: not by what they report, nor
by any command that they can have read. Who is silent is fenced, and what it had is free when its
lease must be over (srtm/consumer/lease.py), or at once where its process is surely dead. A new
leader knows of all that stands in the group's partition; in case that was lost it grants what
nobody has only after a lease. All commands are whole states, so it does not matter which of them
were read.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from srtm.consumer.lease import take_over_seconds
from srtm.consumer.ledger import Ledger
from srtm.consumer.process import Process
from srtm.consumer.wire import Command, Ended, Leader, PartitionPlan, Report, Word
from srtm.host.clock import NS

SILENT_LEASES = 1.0
"""without a beat, after which a member is fenced: five of its beats. It is safe with any number."""
_SAY_AGAIN_NS = NS
"""A command that has not come back by then is lost, or Kafka is away: it is written again."""


@dataclass(slots=True)
class Direct:
    """One leader's view. wanted: member -> the partitions that it is to have; who is not in it
    gives everything up, and ends where it is in `leaving`."""

    assigns: ClassVar[bool] = True
    """Does it say who has which partition?"""

    name: str
    lease_seconds: float
    epoch: int
    granted_from_ns: int
    ledger: Ledger
    wanted: dict[str, frozenset[int]] = field(default_factory=dict)
    leaving: set[str] = field(default_factory=set)
    stops: list[float] = field(default_factory=list)
    """Seconds that each partition stood still in hand-overs that are complete."""
    _heard_ns: dict[str, int] = field(default_factory=dict)
    _fenced_ns: dict[str, int] = field(default_factory=dict)
    _unread: dict[str, list[Command]] = field(default_factory=dict)
    _written_ns: dict[str, int] = field(default_factory=dict)
    _version: int = 0
    _freed_ns: dict[int, int] = field(default_factory=dict)
    _synced_ns: int = 0
    _read_ns: int = 0
    _ending_ns: dict[str, int] = field(default_factory=dict)
    _beats: dict[int, int] = field(default_factory=dict)

    # --- what is read -----------------------------------------------------------------------------

    @property
    def leads(self) -> bool:
        return self.ledger.epoch == self.epoch and self.ledger.leader == self.name

    def synced(self, now_ns: int) -> bool:
        """Did it read a beat of its own that it wrote within a lease?"""
        return now_ns - self._synced_ns < self.lease_seconds * NS

    def beat(self, number: int, now_ns: int) -> None:
        """Call it before the leader's own beat is written."""
        self._beats[number] = now_ns

    def see(self, word: Word, now_ns: int) -> None:
        before = self.ledger.holders() if self._changes(word) else None
        counts = self.ledger.apply(word)
        match word:
            case Report() if counts and not word.gone:
                self._heard_ns[word.name] = now_ns
            case Command() if counts:
                self._read_back(word, now_ns)
            case Leader(name=self.name):
                self._sync(word.beat, now_ns)
            case Ended() | Report(gone=True):
                self._forget(word.name)
            case _:
                pass
        if before is not None:
            self._time(before, now_ns)

    def _changes(self, word: Word) -> bool:
        """Who has what? Most reports say the same as the one before."""
        if not isinstance(word, Report):
            return isinstance(word, Ended)
        last = self.ledger.members.get(word.name)
        return last is None or word.gone or (last.holds, last.version) != (word.holds, word.version)

    def _read_back(self, word: Command, now_ns: int) -> None:
        left = [each for each in self._unread.get(word.name, []) if each.version > word.version]
        self._unread[word.name] = left
        if not left:
            self._unread.pop(word.name)
        if word.fence:
            self._fenced_ns.setdefault(word.name, now_ns)

    def _sync(self, beat: int, now_ns: int) -> None:
        """Note that all that was written before that beat was sent has been read by now."""
        sent = self._beats.get(beat, 0)
        if now_ns - self._read_ns > self.lease_seconds / 2 * NS:
            # Kafka was away, or this process: nobody was silent by his own fault meanwhile.
            self._heard_ns = dict.fromkeys(self._heard_ns, now_ns)
        self._read_ns = now_ns
        self._synced_ns = max(self._synced_ns, sent)
        self._beats = {number: at for number, at in self._beats.items() if number > beat}

    def _forget(self, member: str) -> None:
        for times in (self._heard_ns, self._fenced_ns, self._written_ns, self._ending_ns):
            times.pop(member, None)
        self._unread.pop(member, None)
        self.wanted.pop(member, None)
        self.leaving.discard(member)

    def _time(self, before: Mapping[int, set[str]], now_ns: int) -> None:
        """How long partitions stand still: from when one is free to when its next owner has it."""
        after = {p for report in self.ledger.members.values() for p in report.holds}
        for partition in before.keys() - self.ledger.holders().keys():
            self._freed_ns[partition] = now_ns
        for partition in [p for p in self._freed_ns if p in after]:
            self.stops.append((now_ns - self._freed_ns.pop(partition)) / NS)

    # --- what is known ----------------------------------------------------------------------------

    def live(self) -> dict[str, Report]:
        """Members that are not fenced."""
        members = self.ledger.members
        return {name: report for name, report in members.items() if not self._is_fenced(name)}

    def _is_fenced(self, member: str) -> bool:
        unread = self._unread.get(member, [])
        return self.ledger.fenced(member) or any(each.fence for each in unread)

    def told(self) -> dict[str, frozenset[int]]:
        """Member -> what it was told last, or has."""
        commands = self.ledger.commands
        return {
            name: frozenset(commands[name].start if name in commands else report.holds)
            for name, report in self.live().items()
        }

    def may_hold(self, member: str) -> frozenset[int]:
        """Every partition that the member may hold, with those of commands that it can have read
        and that this leader has not read back."""
        found = self.ledger.may_hold(member)
        for each in self._unread.get(member, []):
            found = found | frozenset(each.start) | frozenset(each.stop)
        return found

    def _holders(self) -> dict[int, set[str]]:
        found: dict[int, set[str]] = {}
        for member in {*self.ledger.members, *self.ledger.commands, *self._unread}:
            for partition in self.may_hold(member):
                found.setdefault(partition, set()).add(member)
        return found

    def settled(self) -> bool:
        """Has everybody what is wanted, and nobody else anything?"""
        for member, report in self.ledger.members.items():
            if frozenset(report.holds) != self.wanted.get(member, frozenset()):
                return False
            command = self.ledger.commands.get(member)
            if member in self._unread or (command and command.version > report.version):
                return False
            if member in self.leaving:
                return False
        return self.wanted.keys() <= self.ledger.members.keys()

    # --- what is said -----------------------------------------------------------------------------

    def step(
        self, now_ns: int, dead: Callable[[Process], bool]
    ) -> tuple[list[Command | PartitionPlan], list[str]]:
        """Words to be written now, and members that are no more."""
        if not self.leads:
            return [], []
        members = sorted(self.ledger.members)
        ended = [name for name in members if self._has_ended(name, now_ns, dead)]
        out = [name for name in sorted(self.live()) if self._is_silent(name)]
        said = [self._fence(name) for name in (*out, *self._lost_fences(now_ns))]
        plan = self._plan(now_ns) if self.synced(now_ns) else None
        if self.synced(now_ns):
            holders = self._holders()
            for member in sorted(self.live().keys() - ended):
                command = self._command(member, holders, now_ns)
                if command is not None:
                    said.append(command)
        for each in said:
            self._unread.setdefault(each.name, []).append(each)
            self._written_ns[each.name] = now_ns
        new = [
            name
            for name in ended
            if now_ns - self._ending_ns.get(name, -_SAY_AGAIN_NS) >= _SAY_AGAIN_NS
        ]
        self._ending_ns.update(dict.fromkeys(new, now_ns))
        return [*said, plan] if plan else list(said), new

    def _lost_fences(self, now_ns: int) -> list[str]:
        """Members whose fence was written and never read back: Kafka was away."""
        return [
            name
            for name, unread in self._unread.items()
            if any(each.fence for each in unread)
            and now_ns - self._written_ns[name] > _SAY_AGAIN_NS
        ]

    def _plan(self, now_ns: int) -> PartitionPlan | None:
        """Where members subscribe."""
        return None

    def _has_ended(self, member: str, now_ns: int, dead: Callable[[Process], bool]) -> bool:
        report = self.ledger.members[member]
        if dead(Process(report.place, report.pid, report.begun)):
            return True
        fenced = self._fenced_ns.get(member)
        if fenced is None and self.ledger.fenced(
            member
        ):  # by the leader before; when, nobody knows
            fenced = self._fenced_ns[member] = now_ns
        return fenced is not None and now_ns - fenced > take_over_seconds(self.lease_seconds) * NS

    def _is_silent(self, member: str) -> bool:
        heard = self._heard_ns.setdefault(member, self._synced_ns)
        return self._synced_ns - heard > SILENT_LEASES * self.lease_seconds * NS

    def _next_version(self) -> int:
        self._version = max(self._version, self.ledger.version) + 1
        return self._version

    def _fence(self, member: str) -> Command:
        return Command(
            name=member,
            leader=self.name,
            epoch=self.epoch,
            version=self._next_version(),
            stop=tuple(sorted(self.may_hold(member))),
            fence=True,
        )

    def _command(self, member: str, holders: Mapping[int, set[str]], now_ns: int) -> Command | None:
        """The next command for the member; None where what it was told last is still right."""
        last = self._last(member)
        has = self.may_hold(member)
        start: dict[int, int] = {}
        version = max(self._version, self.ledger.version) + 1
        for partition in sorted(self.wanted.get(member, frozenset())):
            if holders.get(partition, set()) - {member}:
                continue
            if partition not in has and now_ns < self.granted_from_ns:
                continue
            start[partition] = self._token(member, last, partition, version)
        leave = member in self.leaving
        before = last.start if last else {}
        if last is None and not start and not leave and not has:
            return None
        same = last is not None and start == before and leave == last.leave
        if same and not self._again(member, now_ns):
            return None
        stop = tuple(sorted(has - start.keys()))
        return Command(
            name=member,
            leader=self.name,
            epoch=self.epoch,
            version=self._next_version(),
            start=start,
            stop=stop,
            leave=leave,
        )

    def _only_leave(self, member: str, now_ns: int) -> Command | None:
        """A command to leave or to stay, where partitions are given out in another way; None where
        what the member was told last is still right."""
        last = self._last(member)
        leave = member in self.leaving
        if leave == (last is not None and last.leave) and not self._again(member, now_ns):
            return None
        return Command(
            name=member,
            leader=self.name,
            epoch=self.epoch,
            version=self._next_version(),
            leave=leave,
        )

    def _last(self, member: str) -> Command | None:
        """What it was told last, read back or not."""
        unread = self._unread.get(member)
        return unread[-1] if unread else self.ledger.commands.get(member)

    def _again(self, member: str, now_ns: int) -> bool:
        """Is the last command to be written once more?"""
        late = member in self._unread and now_ns - self._written_ns[member] > _SAY_AGAIN_NS
        return late or member in self.ledger.stale

    def _token(self, member: str, last: Command | None, partition: int, version: int) -> int:
        """The token of `partition` at `member`: it stays for as long as the owner does."""
        if last is not None and partition in last.start:
            return last.start[partition]
        report = self.ledger.members.get(member)
        if report is not None and partition in report.holds:
            return report.holds[partition]
        return version
