"""What is known of a round's brokers so far."""

from collections.abc import Iterable
from dataclasses import replace

from distributor.fitting.late_share import LOW
from distributor.fitting.round import Round
from distributor.fitting.samples import Sample, slots
from distributor.fitting.settings import PAPER_SECONDS, Mode, Settings
from distributor.fitting.topic import FittedTopic
from distributor.fitting.verdict import LONGEST_SECONDS, Answer, Verdict, by_round, by_test


class Judge:
    """The judge of one round. Samples of other rounds, and those from before the moves, are left
    out."""

    def __init__(self, topic: FittedTopic, settings: Settings, current: Round) -> None:
        self._settings = settings
        self._round = current
        self._own = topic.contract.topic
        self._allowed = {**settings.others, self._own: topic.slo.allowed_late_share}
        loads = topic.loads(current.assignment)
        self._together = {name: load.burst for name, load in loads.items()}
        self._samples: dict[tuple[str, str], list[Sample]] = {}

    def keep(self, samples: Iterable[Sample]) -> None:
        for each in samples:
            if each.epoch == self._round.epoch and each.topic in self._allowed:
                self._samples.setdefault((each.broker, each.topic), []).append(each)

    def verdicts(self, now: float) -> dict[str, Verdict]:
        """The verdicts by name of each broker that is judged."""
        return {name: self._of_broker(name, now) for name in sorted(self._round.judged)}

    def helping(self, now: float) -> dict[str, Verdict]:
        """The verdicts on brokers that publishers outside the trial send through, by name, where
        anything was measured."""
        found = {name: self._of_broker(name, now) for name in sorted(self._round.helping)}
        return {name: each for name, each in found.items() if each.messages}

    def _of_broker(self, broker: str, now: float) -> Verdict:
        """The worst of all topics there; the fitted topic's own where all hold.

        Another topic is waited for only while more of its messages are late than would be accepted:
        one that hardly sends would keep every round open, and it was fitted when it came.
        """
        own = self._of_topic(broker, self._own, now)
        found = [own]
        for name in sorted(topic for at, topic in self._samples if at == broker):
            if name != self._own:
                other = self._of_topic(broker, name, now)
                waits = other.late_share > LOW * self._allowed[name]
                if other.answer is Answer.UNSURE and not waits:
                    continue
                found.append(replace(other, reason=f"topic {name}: {other.reason}"))
        for answer in (Answer.VIOLATED, Answer.UNSURE):
            for each in found:
                if each.answer is answer:
                    return each
        return own

    def _of_topic(self, broker: str, topic: str, now: float) -> Verdict:
        current, allowed = self._round, self._allowed[topic]
        samples = self._samples.get((broker, topic), [])
        at, warm = current.settled_at, current.warm_up
        if self._settings.mode is Mode.PAPER:
            half = current.began_at + PAPER_SECONDS / 2  # whatever the bucket remembers
            over = now >= current.began_at + PAPER_SECONDS
            return by_round(slots(samples, min(at + warm.violated_from, half)), allowed, over)
        long_enough = now >= at + warm.holds_after
        return by_test(
            early=slots(samples, at),
            warm=slots(samples, at + warm.violated_from),
            favourable=slots(samples, at + warm.holds_from) if long_enough else None,
            allowed=allowed,
            together=self._together.get(broker, 1.0),
            tests=len(current.judged),
            over=now >= at + warm.violated_from + LONGEST_SECONDS,
        )
