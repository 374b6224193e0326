"""What splitting a token bucket costs: SRTM Fig. 6a on real brokers, and three times on paper.

Fig. 6b overloads one broker and not two, which brokers that share their cores cannot show: both of
its halves are simulated at SRTM's own scale.

k = 1 to 6 brokers share a topic's contract and its Poisson publishers evenly. The gateways' record
of arrivals and bucket times gives the token wait of every message; beside it stand an exact bucket
over the same arrival stamps, SRTM's Eq. (1) and the exact mean of Poisson arrivals.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from statistics import fmean, median

import numpy as np
from rich.table import Table

from benchmarks.experiments.scale import paper_scale
from benchmarks.experiments.scenario import BROKERS, Scenario
from benchmarks.experiments.simulated import Effort, Simulated
from benchmarks.gateway.drl_figures import JOINT_CONFIDENCE, PERCENTILES, Pooled, Split, pool
from benchmarks.gateway.record import MAX_SECONDS, Recorder, record_of, topic_figures
from benchmarks.harness.bars import Bar, judge, judge_worst
from benchmarks.harness.report import Picture, Report, number, span, table, tabulate
from benchmarks.harness.session import Session
from benchmarks.harness.trial import Generator, percentile_ms
from benchmarks.harness.world import brokers_up
from srtm.deployment.admin import put_topic
from srtm.deployment.document import DeployedBroker
from srtm.limits.contract import Limit
from srtm.limits.queueing import Floats, split_token_waits, token_waits, unfinished_work_exceeds
from srtm.load import LoadSettings
from srtm.load.schedule import build_schedule
from srtm.text.errors import SrtmError

RATE = 10.0  # messages/s of each publisher
HEADROOM = 1.1  # token rate over message rate, as SRTM section 6
PASS_AT_ONCE = 0.90
"""The part of the messages that pass one unsplit bucket at once. SRTM takes 0.99: its b is 26 and
not 13, one message in a hundred waits at k = 1, and minutes of load would say little about how
long."""
LAG_LIMIT_MS = 5.0
"""p99 of the generator's send lag, beyond which the machine does not hold so many publishers."""
_PUBLISHERS = (1_000, 500, 240)
_QUICK_PUBLISHERS = 240  # divisible by 1 to 6
_SECONDS, _WARMUP, _ROUNDS = 20.0, 2.0, 3
_QUICK_SECONDS, _QUICK_WARMUP = 4.0, 1.0
_BATCHES, _QUICK_BATCHES = 10, 6
_TRY_SECONDS = 4.0

_TOLERANCE = 0.01
"""Relative. What is left when the bucket is exact is rounding to nanoseconds."""


def bars(pooled: Sequence[Pooled], numbers: Iterable[int]) -> list[Bar]:
    """Two for each of `numbers` of brokers; those that there was no time for are undecided."""
    found = {each.brokers: each for each in pooled}
    deviations, distances = [], []
    for brokers in numbers:
        each = found.get(brokers)
        deviations.append(
            judge(
                f"mean token wait off the exact bucket, k = {brokers}",
                [run.deviation for run in each.runs] if each else [],
                at_most=_TOLERANCE,
            )
        )
        distances.append(
            judge(
                f"closed form off the measured mean, in widths of its interval, k = {brokers}",
                [each.distance] if each else [],
                at_most=1.0,
                doubt=each.doubt if each else "",
            )
        )
    return deviations + distances


def table_of(pooled: Sequence[Pooled], publishers: int, contract: Limit) -> Table:
    def end_to_end(name: str) -> Callable[[Pooled], float]:
        return lambda each: each.end_to_end_ms(name)

    def middle(figure: Callable[[Split], float]) -> Callable[[Pooled], float]:
        return lambda each: median(figure(run) for run in each.runs)

    read_late, sketch_off = middle(lambda run: run.read_late), middle(lambda run: run.sketch_off)
    return tabulate(
        f"{publishers:,} Poisson publishers x 10 msg/s, r = {contract.rate:,.0f}/s, "
        f"b = {contract.burst:g}, split over k brokers; ms",
        pooled,
        ("k", lambda each: each.brokers),
        *((name, end_to_end(name)) for name in PERCENTILES),
        ("token wait", lambda each: each.mean_ms(_measured)),
        ("exact bucket", lambda each: each.mean_ms(lambda run: run.exact)),
        ("interval", lambda each: span([each.interval.low * 1e3, each.interval.high * 1e3])),
        ("closed form", lambda each: each.closed * 1e3),
        ("Eq. (1)", lambda each: each.eq1 * 1e3),
        ("scheduled", lambda each: each.scheduled_ms),
        ("unsplit", lambda each: each.mean_ms(_unsplit)),
        ("penalty", lambda each: each.mean_ms(_measured) - each.mean_ms(_unsplit)),
        ("lag p99", middle(lambda run: run.send_lag_p99_ms)),
        ("read late", lambda each: f"{read_late(each):.2%}"),
        ("sketch off", lambda each: f"{sketch_off(each):+.2%}"),
    )


def _measured(run: Split) -> Floats:
    return run.measured


def _unsplit(run: Split) -> Floats:
    return run.unsplit


def draw(figure: Picture, pooled: Sequence[Pooled]) -> None:
    """Fig. 6a, and the mean token wait beside the closed forms."""
    left, right = figure.subplots(1, 2)
    brokers = [each.brokers for each in pooled]
    for name in PERCENTILES:
        left.plot(brokers, [each.end_to_end_ms(name) for each in pooled], marker="o", label=name)
    left.set(title="End to end (SRTM Fig. 6a)", xlabel="brokers", ylabel="ms", ylim=(0, None))
    left.legend()
    spread = [each.interval for each in pooled]
    right.errorbar(
        brokers,
        [each.mean * 1e3 for each in spread],
        yerr=(
            [max(each.mean - each.low, 0.0) * 1e3 for each in spread],
            [max(each.high - each.mean, 0.0) * 1e3 for each in spread],
        ),
        fmt="o",
        capsize=4,
        label=f"measured, joint {JOINT_CONFIDENCE:.0%}",
    )
    right.plot(
        brokers,
        [each.mean_ms(lambda run: run.exact) for each in pooled],
        "x",
        label="exact bucket, same arrivals",
    )
    right.plot(brokers, [each.closed * 1e3 for each in pooled], label="closed form")
    right.plot(brokers, [each.eq1 * 1e3 for each in pooled], "--", label="SRTM Eq. (1)")
    right.set(title="Mean token wait", xlabel="brokers", ylabel="ms", ylim=(0, None))
    right.legend()


LIGHT, HEAVY = Scenario("6a", 1_000), Scenario("6b", 6_000)
PAPER_MS = 14.7
"""SRTM Fig. 6a at k = 6, the one figure that its text gives"""
_EFFORT, _QUICK_EFFORT = Effort(10, 100_000), Effort(3, 40_000)

Row = tuple[float, float, float]
"""p50, p95 and p99 in seconds, means of the repetitions"""


def simulated(scenario: Scenario, quick: bool) -> list[Row]:
    """p50, p95 and p99 by number of brokers, from 1 on."""
    world = Simulated(scenario, paper_scale(), _QUICK_EFFORT if quick else _EFFORT)
    found = []
    for count in range(1, BROKERS + 1):
        seen = world.seen("max-min" if count > 1 else "single", count)
        rows = [[each.latency(p) for p in (0.5, 0.95, 0.99)] for each in seen]
        p50, p95, p99 = (fmean(row[at] for row in rows) for at in range(3))
        found.append((p50, p95, p99))
    return found


def fig_6_table(light: Sequence[Row], heavy: Sequence[Row]) -> Table:
    made = table(
        "SRTM Fig. 6, simulated at its scale: Poisson publishers x 10 msg/s over k brokers; ms",
        *("k", "6a: p50", "p95", "p99", "SRTM's p99", "6b: p50", "p95", "p99"),
    )
    for k, (one, other) in enumerate(zip(light, heavy, strict=True), 1):
        paper = number(PAPER_MS) if k == BROKERS else ""
        shown = [number(each * 1e3) for each in (*one, *other)]
        made.add_row(str(k), *shown[:3], paper, *shown[3:])
    return made


def fig_6_bars(light: Sequence[Row], heavy: Sequence[Row]) -> list[Bar]:
    """6a: each broker more makes p99 longer. 6b: two brokers are best, one is overloaded."""
    steps = [after[2] / before[2] for before, after in pairwise(light)]
    others = [row[2] / heavy[1][2] for k, row in enumerate(heavy, 1) if k != 2]
    longer = "Fig. 6a simulated: p99 with a broker more over that without, smallest"
    worse = "Fig. 6b simulated: p99 of any other k over that of k = 2, smallest"
    return [
        judge_worst(longer, steps, at_least=1.0),
        judge_worst(worse, others, at_least=1.0),
    ]


def run(session: Session) -> Report:
    quick = session.quick
    seconds, warmup = (_QUICK_SECONDS, _QUICK_WARMUP) if quick else (_SECONDS, _WARMUP)
    rounds = 1 if quick else _ROUNDS
    session.plan(BROKERS * rounds + 2)
    session.step("Fig. 6 at SRTM's scale, simulated")
    fig_6 = simulated(LIGHT, quick), simulated(HEAVY, quick)
    notes: list[str] = []
    splits: list[Split] = []
    names = [f"b{k + 1}" for k in range(BROKERS)]
    # No distributor: contracts are split by hand here.
    with brokers_up(session.folder, names, notes.append, distributor=False) as deployment:
        brokers = deployment.brokers
        publishers = _QUICK_PUBLISHERS if quick else _held(session, brokers, notes)
        burst = fitted_burst(HEADROOM, PASS_AT_ONCE)
        contract = Limit(rate=HEADROOM * RATE * publishers, burst=float(burst))
        for number in range(rounds):
            for count in range(1, BROKERS + 1):
                session.step(f"{count} brokers ({number + 1}/{rounds})")
                if session.seconds_left < seconds + 1:
                    notes.append(f"no time for {count} brokers")
                    continue
                topic = f"drl-{number}-{count}"
                seed = number * BROKERS + count  # its own: one unlucky load does not tilt all k
                found = _measure(
                    brokers[:count], topic, contract, publishers, seconds, warmup, seed
                )
                splits.append(found)
    pooled = pool(splits, _QUICK_BATCHES if quick else _BATCHES)
    late = max((split.send_lag_p99_ms for split in splits), default=0.0)
    notes.append(
        f"the generator's send lag, p99, is up to {late:.2f} ms: that much of end to end is its own"
    )
    return Report(
        settings={
            "publishers": publishers,
            "rate_per_second": RATE,
            "contract": contract.document(),
            "burst": f"smallest whole b with P(wait) <= {1 - PASS_AT_ONCE:.0%} unsplit",
            "seconds": seconds,
            "warmup_seconds": warmup,
            "rounds": rounds,
        },
        figures={
            "by_brokers": [each.document() for each in pooled],
            "runs": [split.document() for split in splits],
            "fig_6_simulated_seconds": dict(zip(("a", "b"), fig_6, strict=True)),
        },
        bars=bars(pooled, range(1, BROKERS + 1)) + fig_6_bars(*fig_6),
        tables=[table_of(pooled, publishers, contract), fig_6_table(*fig_6)],
        notes=notes,
        draw=lambda figure: draw(figure, pooled),
    )


def fitted_burst(headroom: float, pass_at_once: float) -> int:
    """The smallest whole b with which that share of Poisson messages finds a token waiting.

    By the M/D/1 queue behind SRTM's Eq. (1), as its footnote 8 allows: P(U > b - 1) is the share
    that waits, and depends on the load 1 / headroom alone, not on the rate.
    """
    burst = 1
    while unfinished_work_exceeds(1 / headroom, burst - 1) > 1 - pass_at_once:
        burst += 1
    return burst


def _flags(brokers: Sequence[DeployedBroker], topic: str, publishers: int) -> list[str]:
    """Publishers take the brokers in turn; the topic is consumed through every gateway."""
    addresses = [f"--nsqd-tcp-address={broker.tcp_address}" for broker in brokers]
    return [*addresses, f"--topic={topic}", f"--publishers={publishers}", f"--rate={RATE:g}"]


def _held(session: Session, brokers: Sequence[DeployedBroker], notes: list[str]) -> int:
    """The most publishers for which the generator is not late, over all brokers at once."""
    for publishers in _PUBLISHERS:
        session.step(f"does this machine hold {publishers:,} publishers?")
        flags = [*_flags(brokers, f"try-{publishers}", publishers), "--warmup=1s"]
        document = Generator(flags, _TRY_SECONDS).result()
        lag = percentile_ms(document["send_lag"], "p99")
        if lag <= LAG_LIMIT_MS:
            break
        notes.append(
            f"{publishers:,} publishers are too many for this machine: the generator's send lag "
            f"is {lag:.1f} ms at p99"
        )
    return publishers


def _measure(
    brokers: Sequence[DeployedBroker],
    topic: str,
    contract: Limit,
    publishers: int,
    seconds: float,
    warmup: float,
    seed: int,
) -> Split:
    """One load over `brokers`: what the gateways recorded, and the same arrivals on paper."""
    share = contract.share(len(brokers))
    for broker in brokers:
        put_topic(broker, topic, share)  # a new topic's bucket starts full, as the exact one does
    recorders = [Recorder(broker.admin_socket, topic) for broker in brokers]
    flags = [*_flags(brokers, topic, publishers), f"--warmup={warmup}s", f"--seed={seed}"]
    document = Generator(flags, seconds).result()
    if document["generator"]["seconds"] > MAX_SECONDS:
        raise SrtmError(f"{topic}: the load took too long for the gateways' records")
    answers = [recorder.finish() for recorder in recorders]
    origin_ns = min(stamp for answer in answers for part in answer for stamp, _ in part["arrivals"])
    records = [record_of(answer, origin_ns) for answer in answers]
    measured = np.concatenate([record.waits() for record in records])
    exact = np.concatenate([record.exact_waits(share.rate, share.burst) for record in records])
    arrivals = np.concatenate([record.arrivals for record in records])
    order = np.argsort(arrivals, kind="stable")
    arrivals, measured, exact = arrivals[order], measured[order], exact[order]
    sketches = [topic_figures(broker.admin_socket, topic)["token_wait"] for broker in brokers]
    messages = sum(sketch["count"] for sketch in sketches)
    waits = math.fsum((sketch["mean"] or 0.0) * sketch["count"] for sketch in sketches)
    count = len(brokers)
    offered = tuple(len(range(at, publishers, count)) * RATE for at in range(count))
    return Split(
        offered=offered,
        share=share,
        arrivals=arrivals,
        measured=measured,
        exact=exact,
        unsplit=token_waits(arrivals, contract.rate, contract.burst),
        warmup=warmup,
        scheduled_mean=_scheduled_mean(share, count, publishers, seconds, warmup, seed),
        sketch_mean=waits / max(messages, 1),
        read_late=float(np.average([record.read_late for record in records], weights=offered)),
        load=document,
    )


def _scheduled_mean(
    share: Limit, brokers: int, publishers: int, seconds: float, warmup: float, seed: int
) -> float:
    """Mean token wait in seconds had every message arrived when it was intended."""
    settings = LoadSettings(
        topic="scheduled",
        publish_addresses=("127.0.0.1:1",) * brokers,
        publishers=publishers,
        rate_per_second=RATE,
        duration_seconds=seconds,
        seed=seed,
    )
    schedule = build_schedule(settings)
    times = schedule.offsets_ns / 1e9
    waits = split_token_waits(
        times, schedule.publishers % brokers, [share.rate] * brokers, [share.burst] * brokers
    )
    return float(waits[times >= warmup].mean())
