"""What splitting a token bucket costs: SRTM Fig. 6a on real brokers, and three times on paper.

Fig. 6b overloads one broker and not two, which brokers that share their cores cannot show: both of
its halves are simulated at SRTM's own scale.

k = 1 to 6 brokers share a topic's contract and its Poisson publishers evenly. The gateways' record
of arrivals and bucket times gives the token wait of every message; beside it stand an exact bucket
over the same arrival stamps, SRTM's Eq. (1) and the exact mean of Poisson arrivals.
"""

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.experiments.drl import HEAVY, LIGHT, fig_6_bars, fig_6_table, simulated
from benchmarks.gateway.drl_figures import Split, pool
from benchmarks.gateway.drl_report import bars, draw, table_of
from benchmarks.gateway.record import MAX_SECONDS, Recorder, record_of, topic_figures
from benchmarks.harness.generator import Generator, percentile_ms
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from benchmarks.harness.world import brokers_up
from srtm.deployment.admin import put_topic
from srtm.deployment.document import DeployedBroker
from srtm.limits.contract import Limit
from srtm.limits.queueing import split_token_waits, token_waits, unfinished_work_exceeds
from srtm.load import LoadSettings
from srtm.load.schedule import build_schedule
from srtm.text.errors import SrtmError

BROKERS = 6
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
