"""CLOSER's two algorithms on a real Kafka, at its parameters: its first workload as it came.

Five partitions, mu 200 events/s, 500 ms, decisions every second, (f_up, f_down) = (0.9, 0.4). The
consumers follow the controller's assignment by Kafka's eager protocol, with heartbeats of 500 ms
(the paper's are of 3 s, and it has runs with 500 ms too). Each event waits 1/mu in its consumer;
those of a second come at once. The simulator is given the same arrivals, start-up and hand-over
times as the live run learnt them. It looks at lag 0.1 s after each burst, as in `closer`, and once
more 0.5 s after; a live controller looks whenever its own second is full.
"""

from typing import Any

from benchmarks.autoscaler.live.arms import Arm, Workload
from benchmarks.autoscaler.live.autoscale import played
from benchmarks.autoscaler.scaling import workload as read
from benchmarks.harness.bars import judge
from benchmarks.harness.report import Report, number, tabulate
from benchmarks.harness.session import Session
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.simulator.arrivals import ArrivalModel, Arrivals, arrivals_of, even_shares
from srtm.autoscaler.simulator.workload import iot_like
from srtm.limits.slo import SLO

_PARTITIONS = 5
_QUICK_SECONDS = 25
_LATER = "simulated_half_a_second_later"
_MOST_PEAK = 50.0
"""replica-minutes of the paper's overprovisioning"""
PRINTED: dict[str, tuple[float, float | None]] = {
    "Algorithm 1": (97.4, None),
    "Algorithm 2": (97.4, 30.21),
}
"""SLA % and replica-minutes of the paper (its Fig. 10 and Table 2)"""
ARMS = (
    Arm("Algorithm 1", "closer1", "assignor", Handover.EAGER),
    Arm("Algorithm 2", "closer2", "assignor", Handover.EAGER),
)


def run(session: Session) -> Report:
    first = read("iot-10min.csv", iot_like)
    rates = first.rates[: _QUICK_SECONDS if session.quick else None]

    def arrivals(seed: int, _: int) -> Arrivals:
        return arrivals_of(rates, even_shares(_PARTITIONS), ArrivalModel.BURST, seed)

    workload = Workload("first (CLOSER)", 200.0, SLO(0.99, 0.5), arrivals)
    arms = ARMS[1:] if session.quick else ARMS
    session.plan(len(arms))
    figures: list[dict[str, Any]] = []
    for arm in arms:
        session.step(arm.name)
        came = workload.arrivals(1, 1)
        figures.append(played(arm, workload, came, session.folder / arm.policy, 1))
    doubt = first.doubt or ("a slice of the workload" if session.quick else "")
    return Report(
        settings={"seconds": len(rates), "partitions": _PARTITIONS, "mu": workload.mu},
        figures={"runs": figures},
        bars=[
            *(
                judge(
                    f"{row['arm']}: SLA, points below the paper's",
                    [PRINTED[row["arm"]][0] - row["live"]["sla_percent"]],
                    at_most=2.0,
                    doubt=doubt,
                )
                for row in figures
            ),
            *(
                judge(
                    f"{row['arm']}: replica-minutes over those of overprovisioning",
                    [row["live"]["replica_minutes"] / _MOST_PEAK],
                    at_most=1.0,
                    doubt=doubt,
                )
                for row in figures
            ),
            judge("events lost", [float(sum(r["live"]["lost"] for r in figures))], at_most=0.0),
        ],
        tables=[
            tabulate(
                "CLOSER's algorithms, live, as simulated, and as printed",
                figures,
                ("", lambda row: row["arm"]),
                ("SLA %", lambda row: number(row["live"]["sla_percent"], 4)),
                ("simulated", lambda row: number(row["simulated"]["sla_percent"], 4)),
                ("0.5 s after", lambda row: number(row[_LATER]["sla_percent"], 4)),
                ("paper", lambda row: number(PRINTED[row["arm"]][0], 4)),
                ("replica-minutes", lambda row: row["live"]["replica_minutes"]),
                ("simulated", lambda row: row["simulated"]["replica_minutes"]),
                ("0.5 s after", lambda row: row[_LATER]["replica_minutes"]),
                ("paper", lambda row: PRINTED[row["arm"]][1]),
                ("twice", lambda row: row["live"]["twice"]),
                ("start-up s", lambda row: row["live"]["startup_seconds"]),
                ("t_reb s", lambda row: row["live"]["rebalance_seconds"]),
            )
        ],
        notes=[first.note],
    )
