"""Real groups under the ramp of ICCBDC section 4.1 and the crowds of Li-Ku, beside the simulator.

Time is compressed to what two cores carry: seconds of the workload are left out, start-up and
hand-overs take what they take. Each event waits 1/mu in its consumer, so what is measured is the
group, not the machine. Latency counts from when an event was to be sent. The simulator is given the
same arrivals, start-up and hand-over times as the live run learnt them, and what Kafka assigned
where it is Kafka that assigns; whether it then says the same is judged.
"""

from typing import Any

from benchmarks.autoscaler.autoscale_live.arms import ARMS, MOST, WORKLOADS
from benchmarks.autoscaler.autoscale_live.play import Outcome, play, predict
from benchmarks.harness.bars import judge
from benchmarks.harness.machine import load_average
from benchmarks.harness.report import Report, number, table
from benchmarks.harness.session import Session

_COMPRESS, _QUICK_COMPRESS = 5, 40
_SEEDS = (1, 2, 3)
_POINTS = 3.0
_PERCENT = 10.0


def run(session: Session) -> Report:
    quick = session.quick
    seeds = _SEEDS[:1] if quick else _SEEDS
    cases = [(w, a, s) for s in seeds for w in WORKLOADS for a in ARMS]
    if quick:
        cases = cases[:1]
    session.plan(len(cases))
    figures: list[dict[str, Any]] = []
    for index, (workload, arm, seed) in enumerate(cases):
        session.step(f"{workload.name}: {arm.name}")
        arrivals = workload.arrivals(seed, _QUICK_COMPRESS if quick else _COMPRESS)
        load = load_average()
        live = play(arm, workload, arrivals, session.folder / f"run-{index}")
        predicted = predict(arm, workload, arrivals, live)
        figures.append(
            {
                "workload": workload.name,
                "arm": arm.name,
                "seed": seed,
                "events": arrivals.events,
                "live": _document(live),
                "simulated": _document(predicted),
                "agrees": agrees(live, predicted),
                "load_average": load,
            }
        )
    return _report(figures, quick)


def agrees(live: Outcome, predicted: Outcome) -> bool:
    """Within 3 points of SLA and 10 % of replica-minutes?"""
    points = 100 * abs(live.sla - predicted.sla)
    percent = 100 * abs(live.replica_minutes / max(predicted.replica_minutes, 1e-9) - 1)
    return bool(points <= _POINTS and percent <= _PERCENT)


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "sla_percent": 100 * outcome.sla,
        "replica_minutes": outcome.replica_minutes,
        "lost": outcome.lost,
        "startup_seconds": outcome.startup,
        "rebalance_seconds": outcome.rebalance,
        "parts": outcome.parts,
    }


def _report(figures: list[dict[str, Any]], quick: bool) -> Report:
    shown = table(
        "live, and as simulated",
        *(
            "",
            "seed",
            "SLA %",
            "simulated",
            "replica-minutes",
            "simulated",
            "start-up s",
            "t_reb s",
        ),
    )
    for row in figures:
        live, simulated = row["live"], row["simulated"]
        shown.add_row(
            f"{row['workload']}: {row['arm']}",
            str(row["seed"]),
            number(live["sla_percent"], 4),
            number(simulated["sla_percent"], 4),
            number(live["replica_minutes"]),
            number(simulated["replica_minutes"]),
            number(live["startup_seconds"]),
            number(live["rebalance_seconds"]),
        )
    share = sum(row["agrees"] for row in figures) / len(figures)
    lost = sum(row["live"]["lost"] for row in figures)
    doubt = "one short run" if quick else ""
    bars = [
        judge("runs that the simulator foretells", [share], at_least=0.8, doubt=doubt),
        judge("events lost", [float(lost)], at_most=0.0),
    ]
    settings = {
        "compress": _QUICK_COMPRESS if quick else _COMPRESS,
        "most_consumers": MOST,
        "within": {"sla_points": _POINTS, "replica_minutes_percent": _PERCENT},
    }
    notes = [
        "a second of the table is a second of the clock; the workload's own ran faster",
        "replica-minutes are billed from the launch on; a fixed group has them by definition",
    ]
    return Report(settings, {"runs": figures}, bars, [shown], notes)
