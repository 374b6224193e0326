"""Online fitting (SRTM sections 4.2 and 6.5): rounds of measurement until every broker holds.

A state machine without clock or I/O: `next` takes what was measured and the time, and gives the
round to carry out or what came of it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from distributor.fitting.capacity import CapacityModel
from distributor.fitting.elsewhere import Rooms, elsewhere
from distributor.fitting.judge import Judge
from distributor.fitting.late_share import MOST_ALLOWED
from distributor.fitting.round import Done, Result, Round, warm_up
from distributor.fitting.samples import Sample
from distributor.fitting.settings import PAPER_SECONDS, Meanwhile, Mode, Settings, next_look
from distributor.fitting.shed import Shed
from distributor.fitting.spread import Spread, spread
from distributor.fitting.too_small import Arrivals, TooSmall, too_small
from distributor.fitting.topic import FittedTopic
from distributor.fitting.trial import End, Path, Trial
from distributor.fitting.verdict import Answer, Verdict
from distributor.model import Broker, Publisher
from distributor.placement.srtm import SubBucket
from distributor.placement.sub_buckets import sub_buckets
from srtm.limits.contract import Contract
from srtm.text.words import counted, some

_SEARCHED = 0.1
"""A prefix search of `sequential` ends within so much of the rate; the paper's ends by latency."""


class Fitting:
    """The online fitting of one new topic. Raises ValueError for a contract without SLO, no brokers
    or publishers, and as the placement does.

    batch: messages that a publisher sends at one instant, where it is known: the model learns by it
    """

    def __init__(
        self,
        contract: Contract,
        brokers: Iterable[Broker],
        publishers: Iterable[Publisher],
        settings: Settings | None = None,
        model: CapacityModel | None = None,
        batch: float = 1.0,
    ) -> None:
        if contract.slo is None:
            raise ValueError(
                f"topic {contract.topic} has no SLO to be fitted to: give it one, or place it only"
            )
        if not contract.slo.allowed_late_share < MOST_ALLOWED:
            raise ValueError(
                f"topic {contract.topic}: SLO {contract.slo} allows too many late messages to be "
                f"tested; its percentile must be above {1 - MOST_ALLOWED:.2f}"
            )
        if not batch >= 1:
            raise ValueError(f"batch is {batch}; a publisher sends at least 1 message at once")
        self._topic = FittedTopic(contract, contract.slo, tuple(brokers), tuple(publishers), batch)
        if not self._topic.brokers:
            raise ValueError(
                f"topic {contract.topic}: no brokers take publishers; srtm broker list shows each"
            )
        self._settings = settings or Settings()
        self._model = model or CapacityModel()
        self._path: Path | None = None
        self._round: Round | None = None
        self._epoch = 0
        self._started_at = 0.0
        self._judge: Judge | None = None
        self._rooms = Rooms()
        self._best: tuple[float, Mapping[str, str]] | None = None
        self._done: Done | None = None

    def next(
        self, samples: Iterable[Sample], now: float, arrivals: Arrivals | None = None
    ) -> Round | Done:
        """samples: those that are new since the last call; other epochs' are left out.
        now:      seconds, the clock of the samples
        arrivals: the topic's, over the last minute or so

        The same round again while no broker is sure. Once done, done for ever.
        """
        if self._done is not None:
            return self._done
        current, judge, path = self._round, self._judge, self._path
        if current is None or judge is None or path is None:
            self._started_at = now
            return self._begin(now, arrivals)
        judge.keep(samples)
        verdicts = judge.verdicts(now)
        violated = [n for n, each in verdicts.items() if each.answer is Answer.VIOLATED]
        unsure = [n for n, each in verdicts.items() if each.answer is Answer.UNSURE]
        if unsure and not (violated and path.impatient):
            look = next_look(self._settings, current.began_at, current.settled_at, now)
            self._round = replace(current, look_again_at=look)
            return self._round
        self._learn(current, verdicts)
        measured = {**judge.helping(now), **verdicts}
        self._rooms = self._rooms.judged(self._topic.rates(current.assignment), measured)
        if violated:
            small = too_small(self._topic.contract, self._topic.slo, self._topic.offered, arrivals)
            if small is not None:
                return self._contract_too_small(small, now)
        sure = {name: each for name, each in verdicts.items() if name not in unsure}
        said = tuple(f"{name}: {each.reason}" for name, each in sure.items())
        return self._go(path.after(sure), now, said, sure)

    @property
    def model(self) -> CapacityModel:
        """The model with what the rounds so far have taught."""
        return self._model

    def settled(self, at: float) -> Round:
        """Everybody had moved only at `at`, in seconds: the round is measured from then on. Raises
        ValueError where no round goes on."""
        if self._round is None or self._done is not None:
            raise ValueError("no round goes on")
        current = self._round
        settled_at = max(current.settled_at, at)
        # However long the moves took, half a round of `paper` is left to measure.
        began_at = max(current.began_at, settled_at - PAPER_SECONDS / 2)
        look = next_look(self._settings, began_at, settled_at, at)
        self._round = replace(current, began_at=began_at, settled_at=settled_at, look_again_at=look)
        self._judge = Judge(self._topic, self._settings, self._round)
        return self._round

    def lost(self, broker: str, now: float) -> Round | Done:
        """A broker has vanished, in the middle of a round or not: begin again with the others. What
        the model has learnt stays. Raises ValueError for a broker that is not known."""
        left = tuple(each for each in self._topic.brokers if each.name != broker)
        if len(left) == len(self._topic.brokers):
            raise ValueError(f"broker {broker} is not one of topic {self._topic.contract.topic}'s")
        if self._round is None:
            self._started_at = now
        self._topic = replace(self._topic, brokers=left)
        self._best = self._done = None
        return self._begin(now, None, (f"{broker} is lost or drained: again over the others",))

    def _begin(
        self, now: float, arrivals: Arrivals | None, said: tuple[str, ...] = ()
    ) -> Round | Done:
        topic, paper = self._topic, self._settings.mode is Mode.PAPER
        small = too_small(topic.contract, topic.slo, topic.offered, arrivals)
        if small is not None:
            return self._contract_too_small(small, now)
        self._path = (
            Shed(topic, spread(topic, 1), near_ends=True, tolerance=0.0)
            if paper
            else Spread(topic, self._model)
        )
        return self._go(self._path.first(), now, said, {})

    def _go(
        self,
        what: Trial | End,
        now: float,
        said: tuple[str, ...],
        verdicts: Mapping[str, Verdict],
    ) -> Round | Done:
        if isinstance(what, Trial):
            return self._measure(what, now, said)
        said += what.reasons
        if what.assignment is not None:
            return self._end(Result.MET, what.assignment, now, said)
        last = self._path.last if isinstance(self._path, Spread) else None
        if last is not None and not last.unplaced and self._round:
            # No broker is left to spread everybody over once more, but one may have room: it holds,
            # or the round was cut off before it could be known.
            known = verdicts if len(verdicts) == len(self._round.judged) else {}
            if not known or any(each.answer is Answer.HOLDS for each in known.values()):
                self._path = Shed(self._topic, last, False, _SEARCHED, known)
                return self._go(self._path.first(), now, said, {})
        if self._best is not None:
            share, assignment = self._best
            said += (
                "no design that was measured meets the SLO; the best is applied, with a late share "
                f"of {share:.2%} at its worst broker (allowed "
                f"{self._topic.slo.allowed_late_share:.2%})",
            )
            return self._end(Result.BEST, assignment, now, said)
        return self._end(Result.OUT_OF_BROKERS, {}, now, said)

    def _measure(self, trial: Trial, now: float, said: tuple[str, ...]) -> Round:
        topic, settings = self._topic, self._settings
        assignment = trial.assignment
        waiting = [p.id for p in topic.publishers if p.id not in assignment]
        if waiting and settings.meanwhile is Meanwhile.ELSEWHERE:
            assignment = elsewhere(topic, trial, self._rooms, self._model)
        sent = tuple(each for each in waiting if each in assignment)
        held = tuple(each for each in waiting if each not in assignment)
        reasons = said + trial.reasons
        if held and settings.meanwhile is Meanwhile.ELSEWHERE:
            reasons += (
                f"{counted(len(held), 'publisher')} held: no broker outside the trial is known to "
                "have room",
            )
        warm = warm_up(topic.contract, topic.offered)
        self._epoch += 1
        settled_at = now + settings.settle_seconds
        self._round = Round(
            epoch=self._epoch,
            assignment=assignment,
            held=held,
            elsewhere=sent,
            shares=self._shares(assignment),
            judged=trial.judged,
            began_at=now,
            settled_at=settled_at,
            look_again_at=next_look(settings, now, settled_at, now),
            warm_up=warm,
            reasons=reasons,
        )
        self._judge = Judge(topic, settings, self._round)
        return self._round

    def _shares(self, assignment: Mapping[str, str]) -> dict[str, SubBucket]:
        """r_l = r λ_l / λ and b_l = b λ_l / λ, the part of those who wait with nobody."""
        rates = self._topic.rates(assignment)
        contract = self._topic.contract
        waiting = [p.rate for p in self._topic.publishers if p.id not in assignment]
        split = sub_buckets(
            contract.rate,
            contract.burst,
            list(rates.values()),
            sum(waiting),
            least=contract.least_burst,
        )
        return dict(zip(rates, split, strict=True))

    def _learn(self, current: Round, verdicts: Mapping[str, Verdict]) -> None:
        for name, load in self._topic.loads(current.assignment).items():
            if name in verdicts:
                verdict = verdicts[name]
                self._model = self._model.learnt(name, load, verdict.late, verdict.messages)
        if not current.held and not current.elsewhere:
            worst = max((each.late_share for each in verdicts.values()), default=0.0)
            if self._best is None or worst < self._best[0]:
                self._best = worst, current.assignment

    def _contract_too_small(self, small: TooSmall, now: float) -> Done:
        done = self._end(Result.TOO_SMALL, {}, now, (small.reason,))
        self._done = replace(done, rate=small.rate, burst=small.burst)
        return self._done

    def _end(
        self, result: Result, assignment: Mapping[str, str], now: float, said: tuple[str, ...]
    ) -> Done:
        """The shares of a design are those it was measured with."""
        brokers = some(sorted(set(assignment.values())))
        said += (f"applied: {brokers}",) if assignment else ()
        self._done = Done(
            result=result,
            assignment=dict(assignment),
            shares=self._shares(assignment) if assignment else {},
            rounds=self._epoch,
            seconds=now - self._started_at,
            reasons=said,
            model=self._model,
        )
        return self._done
