"""SRTM section 7: does moving publishers help when a shift in traffic overloads a broker?

The paper leaves such moves as future work; `distributor/migration` makes them, and by default only
proposes them. Two arms send the same messages at the same instants side by side, each to brokers
and a Load Distributor of its own: one moves publishers by itself (`--migrate auto`), the other
never (`off`). The TB Adaptor is on in both, as it is by default.

Tokens overload no broker, as the TB Adaptor brings them within seconds, and the capacity that the
distributor is told limits nothing by itself. So each nsqd takes only so many bytes a second, a
fifth more than that capacity needs (`slow_nsqd`). Half of the publishers sit on b1, half on b2,
which holds twice as much. At the shift those of b1 send more, those of b2 less, and the sum stays.
Without moves the backlog of b1 grows to the end, so the ratio of the seconds out of SLO depends on
how long is measured.
"""

import asyncio
import gc
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from statistics import median

import numpy as np
from rich.table import Table

from benchmarks.adaptor.live import by_second
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Picture, Report, number, span, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.trial import Timing
from benchmarks.harness.world import brokers_up
from benchmarks.placement.moves_live import SIZE, Arm, play
from srtm.deploy.programs import Programs, find_program
from srtm.limits.queueing import Floats
from srtm.limits.slo import SLO
from srtm.load.schedule import Ints
from tb_adaptor.simulator.judge import nearest_rank

ARMS = {"with moves": "auto", "without": "off"}
"""as `srtm topic set --migrate` takes them"""
WITH, WITHOUT = ARMS
HOLDS = {"b1": 200, "b2": 400}
"""messages/s that each broker holds, as its distributor is told"""
PUBLISHERS = 20
BEFORE, AFTER = {"b1": 14.0, "b2": 14.0}, {"b1": 26.0, "b2": 2.0}
"""messages/s of each publisher placed there; they are registered with those before"""
OBJECTIVE = SLO(0.99, 0.25)
CONTRACT: dict[str, object] = {"rate": 400, "burst": 40, "slo": str(OBJECTIVE)}
FULL, QUICK = Timing(70.0, 10.0, 5), Timing(27.0, 3.0, 1)
"""The warm-up ends with the shift."""
_NSQD_BYTES = 600.0
"""bytes/s that nsqd takes for each message/s that its broker holds: a message takes 484, and the
answer of the gateway's probe to it 21, so nsqd is full at 1.19 times what its broker holds"""
_NSQD_FLAGS = ["--max-body-size=32768"]
"""An MPUB has to come within nsqd's read deadline, 4 s with the heartbeats of a gateway."""
_LATE_SHARE = 0.1
"""of the target; a generator that is later may decide nothing that its lateness could change"""
_REPEATS = 3


@dataclass(frozen=True, slots=True)
class Move:
    """at: seconds from the shift until the publisher was told; pause: from then until its first OK
    at the other broker"""

    at: float
    pause: float


@dataclass(frozen=True, slots=True)
class Seen:
    """One arm in one round.

    refused:   messages without an OK
    lost:      acknowledged, and never received
    overtaken: stored by an nsqd after a message that their publisher had sent later
    late:      seconds since the shift whose p99 is over the target; surely_late: even without
               twice the generator's own lateness, that of sending and that of reading
    p99_ms:    from the intended time to receipt, by the second of the intended time
    lag_ms:    p99 of the generator's own lateness
    """

    messages: int
    refused: int
    lost: int
    overtaken: int
    duplicates: int
    late: int
    surely_late: int
    p99_ms: list[float]
    lag_ms: float
    moves: list[Move]


Round = dict[str, Seen]
"""by arm"""


def run(session: Session) -> Report:
    timing = QUICK if session.quick else FULL
    session.plan(timing.rounds)
    rounds = []
    for seed in range(timing.rounds):
        session.step(f"round {seed + 1}")
        rounds.append(_round(session.folder / str(seed), timing, seed))
    return Report(
        settings={
            "publishers": PUBLISHERS,
            "holds": HOLDS,
            "before": BEFORE,
            "after": AFTER,
            "contract": CONTRACT,
            "message_bytes": SIZE,
            "nsqd_bytes": _NSQD_BYTES,
            **asdict(timing),
        },
        figures={"rounds": [{arm: asdict(seen) for arm, seen in each.items()} for each in rounds]},
        bars=bars(rounds, session.quick),
        tables=[_table(rounds)],
        notes=[
            f"seconds are counted from the shift, {timing.seconds - timing.warmup_seconds:g} s",
            "a publisher that moves first waits for its OKs, which are behind the backlog of the "
            "broker that it leaves: that is most of its pause",
        ],
        draw=lambda figure: _draw(figure, rounds, timing.warmup_seconds),
    )


def _round(folder: Path, timing: Timing, seed: int) -> Round:
    times, who = schedule(timing, seed)
    programs = Programs(
        nsqd=find_program("nsqd"),
        gateway=(sys.executable, "-m", "benchmarks.placement.slow_nsqd", str(_NSQD_BYTES)),
    )
    holds = {name: {"capacity": each} for name, each in HOLDS.items()}
    arms = {}
    with ExitStack() as stack:
        for name, mode in ARMS.items():
            deployment = brokers_up(
                folder / mode, list(HOLDS), programs=programs, own=holds, nsqd_flags=_NSQD_FLAGS
            )
            up = stack.enter_context(deployment)
            arms[name] = Arm(up, mode, CONTRACT, [BEFORE["b1"]] * PUBLISHERS)
        gc.collect()
        gc.disable()
        try:
            began_at = asyncio.run(play(list(arms.values()), times, who))
        finally:
            gc.enable()
    return {name: seen(arm, times, who, began_at, timing) for name, arm in arms.items()}


def schedule(timing: Timing, seed: int) -> tuple[Floats, Ints]:
    """When each message is due, in order, and whose it is: Poisson. The first half of the
    publishers is on b1."""
    random = np.random.default_rng(seed)
    shift = timing.warmup_seconds
    times, who = [], []
    for publisher in range(PUBLISHERS):
        broker = "b1" if publisher < PUBLISHERS // 2 else "b2"
        for rates, begin, end in ((BEFORE, 0.0, shift), (AFTER, shift, timing.seconds)):
            count = random.poisson(rates[broker] * (end - begin))
            times.append(random.uniform(begin, end, count))
            who.append(np.full(count, publisher))
    joined = np.concatenate(times)
    order = np.argsort(joined)
    return joined[order], np.concatenate(who)[order]


# --- judged -----------------------------------------------------------------------------------


def seen(arm: Arm, times: Floats, who: Ints, began_at: float, timing: Timing) -> Seen:
    latencies = np.where(arm.receipts > 0, arm.received - began_at - times, inf)
    p99_ms = by_second(times, latencies, timing.seconds).tolist()
    lag_ms = nearest_rank(arm.handed - began_at - times, 0.99) * 1e3
    over_ms = [
        each - OBJECTIVE.target_seconds * 1e3 for each in p99_ms[int(timing.warmup_seconds) :]
    ]
    return Seen(
        messages=times.size,
        refused=arm.refused,
        lost=int(np.count_nonzero(~np.isnan(arm.acknowledged) & (arm.receipts == 0))),
        overtaken=overtaken(who, arm.stored),
        duplicates=int(np.maximum(arm.receipts - 1, 0).sum()),
        late=sum(each > 0 for each in over_ms),
        surely_late=sum(each > 2 * lag_ms for each in over_ms),
        p99_ms=p99_ms,
        lag_ms=lag_ms,
        moves=_moves(arm, who, began_at + timing.warmup_seconds),
    )


def overtaken(who: Ints, stored: Ints) -> int:
    """Messages that were stored after one that their publisher sent later. stored: in order of
    sending; 0: it was not."""
    found = 0
    for publisher in range(PUBLISHERS):
        own = stored[(who == publisher) & (stored > 0)]
        found += int(np.count_nonzero(own < np.maximum.accumulate(own)))
    return found


def _moves(arm: Arm, who: Ints, shift_at: float) -> list[Move]:
    found = []
    for index, publisher in enumerate(arm.publishers):
        for told_at in publisher.told:
            later = arm.acknowledged[(who == index) & (arm.handed >= told_at)]
            found.append(Move(told_at - shift_at, float(np.nanmin(later, initial=inf)) - told_at))
    return sorted(found, key=lambda each: each.at)


def bars(rounds: Sequence[Round], quick: bool) -> list[Bar]:
    ours = [each[WITH] for each in rounds]
    pairs = [(each[WITH], each[WITHOUT]) for each in rounds if each[WITHOUT].late]
    ratios = [one.late / other.late for one, other in pairs]
    doubt = _late_generator(rounds, pairs)
    if len(pairs) < len(rounds):
        doubt = f"{len(rounds) - len(pairs)} of {len(rounds)} rounds kept the SLO without moves"
    still = "" if any(each.moves for each in ours) else "nobody moved"
    moved = [len(each.moves) for each in ours]
    return [
        judge_worst("publishers moved, fewest of a round", moved, at_least=1),
        judge_worst(
            "messages lost, most of a round", [each.lost for each in ours], at_most=0, doubt=still
        ),
        judge_worst(
            "messages out of their publisher's order, most of a round",
            [each.overtaken for each in ours],
            at_most=0,
            doubt=still,
        ),
        judge(
            "seconds out of SLO with moves over without",
            ratios,
            at_most=1.0,
            quick=quick,
            doubt=doubt,
            repeats=_REPEATS,
        ),
    ]


def _late_generator(rounds: Sequence[Round], pairs: Sequence[tuple[Seen, Seen]]) -> str:
    """Why the ratio is in doubt: the generator was late, and its lateness could change the
    verdict."""
    lag = max(seen.lag_ms for each in rounds for seen in each.values())
    if lag <= _LATE_SHARE * OBJECTIVE.target_seconds * 1e3:
        return ""
    least = [one.surely_late / other.late for one, other in pairs]
    most = [one.late / (other.surely_late or 0.1) for one, other in pairs]
    if pairs and (median(least) <= 1.0) == (median(most) <= 1.0):
        return ""
    return f"the generator itself was {lag:.1f} ms late at p99"


def _table(rounds: Sequence[Round]) -> Table:
    def column(figure: Callable[[Seen], float]) -> Callable[[str], str]:
        def cell(arm: str) -> str:
            values = [figure(each[arm]) for each in rounds]
            return f"{number(median(values))} ({span(values)})"

        return cell

    def of_moves(figure: Callable[[Sequence[Move]], float]) -> Callable[[str], str]:
        def cell(arm: str) -> str:
            values = [figure(each[arm].moves) for each in rounds if each[arm].moves]
            return f"{number(median(values))} ({span(values)})" if values else "-"

        return cell

    def pause(arm: str) -> str:
        pauses = [move.pause for each in rounds for move in each[arm].moves]
        return number(nearest_rank(np.array(pauses), 0.99) * 1e3) if pauses else "-"

    return tabulate(
        f"b1 gets 1.3 times what it holds; median and range of {len(rounds)} rounds",
        ARMS,
        ("arm", lambda arm: arm),
        ("seconds out of SLO", column(lambda seen: seen.late)),
        ("moved", column(lambda seen: len(seen.moves))),
        ("first after, s", of_moves(lambda moves: moves[0].at)),
        ("last after, s", of_moves(lambda moves: moves[-1].at)),
        ("pause p99, ms", pause),
        ("lost", column(lambda seen: seen.lost)),
        ("out of order", column(lambda seen: seen.overtaken)),
        ("duplicates", column(lambda seen: seen.duplicates)),
        ("without OK", column(lambda seen: seen.refused)),
    )


def _draw(figure: Picture, rounds: Sequence[Round], shift: float) -> None:
    """The p99 of each second."""
    axes = figure.subplots()
    for each in rounds:
        for place, (arm, seen) in enumerate(each.items()):
            seconds = np.arange(len(seen.p99_ms)) - shift
            label = arm if each is rounds[0] else None
            axes.plot(seconds, seen.p99_ms, color=f"C{place}", label=label)
    axes.axhline(OBJECTIVE.target_seconds * 1e3, color="grey", linestyle="dotted")
    axes.set(yscale="log", xlabel="seconds since the shift", ylabel="p99, ms")
    axes.legend()
