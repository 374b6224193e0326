"""A broker in trouble, and who leaves it.

One topic's publishers where that is enough, so that one topic has a cold start; several topics'
where it is not. Topics whose moves nobody has to allow come first.
"""

from collections.abc import Collection, Mapping, Sequence
from math import fsum

from distributor.migration.memory import Memory
from distributor.migration.selection import Candidate, fewest
from distributor.migration.settings import HEADROOM, MOST_SHARE
from distributor.migration.values import Decision, Move, Sender, Source, Target, TopicSeen
from srtm.text.words import counted, number, rate, some

Chosen = Sequence[tuple[Sender, str]]
"""with their targets"""


def relieve(
    source: Source,
    targets: Sequence[Target],
    topics: Mapping[str, TopicSeen],
    memory: Memory,
    now: float,
) -> Decision:
    """The fewest publishers, or why there are none. topics: those of which publishers may move."""
    asked = _Asked(source, targets, topics, memory, now)
    own = sorted({each.topic for each in source.senders if each.topic in topics})
    alone = [name for name in own if topics[name].by_itself]
    for among in ([[name] for name in alone], [alone], [[name] for name in own], [own]):
        found = [chosen for names in among if (chosen := asked.chosen(names)) is not None]
        if found:
            return asked.decision(min(found, key=len))
    return Decision((), (source.trouble.reason, *asked.why_none(own)))


class _Asked:
    def __init__(
        self,
        source: Source,
        targets: Sequence[Target],
        topics: Mapping[str, TopicSeen],
        memory: Memory,
        now: float,
    ) -> None:
        self._source = source
        self._topics = topics
        self._memory = memory
        self._now = now
        self._need = source.trouble.excess(HEADROOM)
        self._targets = targets
        self._rooms = {
            each.name: HEADROOM * memory.holds(each.name, each.capacity) - each.load
            for each in targets
            if not each.why_not and not memory.recovers(each.name, now)
        }
        self._rooms = {name: room for name, room in self._rooms.items() if room > 0}
        self._open = {name: self._allowed(its) for name, its in topics.items()}

    def _allowed(self, topic: TopicSeen) -> frozenset[str]:
        """Brokers that b allows it: those that serve it, and of the others those with most room."""
        new = sorted(self._rooms.keys() - topic.brokers, key=lambda n: (-self._rooms[n], n))
        spare = max(0, topic.most_brokers - len(topic.brokers))
        return (topic.brokers & self._rooms.keys()) | frozenset(new[:spare])

    # --- who goes -----------------------------------------------------------------------------

    def chosen(self, names: Collection[str]) -> Chosen | None:
        """The fewest publishers of these topics that relieve the broker, and where each goes; None
        where they do not suffice."""
        senders = self._movable(names)
        candidates = [Candidate(each.rate, self._ranks(each)) for each in senders]
        found = fewest(candidates, self._rooms, self._need)
        if found is None:
            return None
        return [(senders[at], target) for at, target in found.items()]

    def _movable(self, names: Collection[str]) -> list[Sender]:
        """The publishers of these topics that may move now: first who has most of its group beside
        it, which decides between those of one rate."""
        there = [each for each in self._source.senders if each.topic in names and each.rate > 0]
        return sorted(
            (each for each in there if not self._memory.rests(each.topic, each.id, self._now)),
            key=lambda each: (-self._spread(each, self._source.name), each.topic, each.id),
        )

    def _ranks(self, sender: Sender) -> dict[str, float]:
        """Brokers that serve its topic before others; then where least of its group is."""
        topic = self._topics[sender.topic]
        return {
            name: (name not in topic.brokers) + self._spread(sender, name) / 2
            for name in self._open[sender.topic]
            if self._memory.may_go(sender.topic, sender.id, name, self._now)
        }

    def _spread(self, sender: Sender, broker: str) -> float:
        return self._topics[sender.topic].spread(broker, sender.key)

    # --- what becomes of it -------------------------------------------------------------------

    def decision(self, chosen: Chosen) -> Decision:
        """The decision to move as many of those chosen as the budget allows, the heaviest first."""
        allowed, left = [], self._memory.moves_left(self._now)
        shares = {
            name: max(1, int(MOST_SHARE * its.publishers)) for name, its in self._topics.items()
        }
        for sender, target in sorted(chosen, key=lambda each: -each[0].rate):
            if left and shares[sender.topic]:
                left, shares[sender.topic] = left - 1, shares[sender.topic] - 1
                allowed.append((sender, target))
        source = self._source
        reasons = [f"broker {source.name}: {source.trouble.reason}"]
        gone = fsum(sender.rate for sender, _ in allowed)
        reasons.append(
            f"{rate(self._need)} have to leave {source.name}, so that it has "
            f"{HEADROOM:.0%} of what it holds; {counted(len(chosen), 'publisher')} can do it"
        )
        if len(allowed) < len(chosen):
            reasons.append(
                f"the budget of moves allows {len(allowed)} now, with {rate(gone)}; "
                "the others follow"
            )
        moves = tuple(self._move(sender, target) for sender, target in allowed)
        by_itself = all(self._topics[each.topic].by_itself for each in moves)
        return Decision(moves, tuple(reasons), by_itself and bool(moves))

    def _move(self, sender: Sender, target: str) -> Move:
        topic = self._topics[sender.topic]
        has = f"has room for {rate(self._rooms[target])} within {HEADROOM:.0%} of what it holds"
        serves = "serves the topic" if target in topic.brokers else "is new to the topic"
        text = f"{sender.id} sends {rate(sender.rate)}; {target} {serves} and {has}"
        return Move(sender.topic, sender.id, sender.rate, self._source.name, target, text)

    # --- why not ------------------------------------------------------------------------------

    def why_none(self, names: Collection[str]) -> list[str]:
        """Sentences; at least one."""
        need, said = self._need, []
        senders = self._movable(names)
        movable = fsum(each.rate for each in senders)
        widest = max(self._rooms.values(), default=0.0)
        big = [each for each in senders if each.rate > widest]
        if not self._rooms:
            said.append(f"no broker has room: add one that holds {rate(need)} or more")
        elif fsum(self._rooms.values()) < need:
            said.append(
                f"other brokers have room for {rate(fsum(self._rooms.values()))}, and "
                f"{rate(need)} have to leave: add one"
            )
        elif big and movable - fsum(each.rate for each in big) < need:
            said.append(
                f"publisher {big[0].id} of topic {big[0].topic} alone sends {rate(big[0].rate)}, "
                f"and no broker has room for more than {rate(widest)}: split it, or add a broker"
            )
        elif movable < need:
            said.append(f"{rate(need)} have to leave, and those who may move send {rate(movable)}")
        else:
            said.append(
                f"{rate(need)} have to leave, and no choice of whole publishers fits into "
                f"{rate(fsum(self._rooms.values()))} on {some(sorted(self._rooms))}"
            )
        return said + self._also(names)

    def _also(self, names: Collection[str]) -> list[str]:
        """What stands in the way besides."""
        said, source = [], self._source
        resting = [each for each in source.senders if each.topic in names
                   and self._memory.rests(each.topic, each.id, self._now)]  # fmt: skip
        if resting:
            until = max(self._memory.rests(each.topic, each.id, self._now) for each in resting)
            said.append(
                f"{some([each.id for each in resting])} moved lately; the last of them may move "
                f"again in {number(round(until))} s"
            )
        if source.unknown:
            who = sorted(source.unknown, key=lambda name: -source.unknown[name])
            total = rate(fsum(source.unknown.values()))
            said.append(
                f"{total} come from who is not placed there and cannot be moved: {some(who)}"
            )
        shut: dict[str, list[str]] = {}
        for each in self._targets:
            recovers = self._memory.recovers(each.name, self._now)
            why = each.why_not or (recovers and "was in trouble itself lately")
            if why:
                shut.setdefault(why, []).append(each.name)
        said += [f"broker {some(sorted(names_))} {why}" for why, names_ in sorted(shut.items())]
        for name in names:
            topic = self._topics[name]
            if not self._open[name] and self._rooms:
                said.append(
                    f"topic {name}: its b allows {counted(topic.most_brokers, 'broker')}, and "
                    "those have no room"
                )
        return said
