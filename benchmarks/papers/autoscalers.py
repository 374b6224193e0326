"""Ezzeddine et al. on CLOSER and at ICCBDC, Li and Ku, and Landau's thesis."""

from collections.abc import Iterable

from benchmarks.papers.model import Bars, Paper, Row, Verdict


def _order(benchmark: str, *begins: str) -> Bars:
    return Bars("simulated: order", benchmark, begins)


def _figures(benchmark: str, *runs: str) -> Bars:
    """How near the paper's figures ours are."""
    begins = tuple(f"{run}:" for run in runs)
    return Bars("simulated: figures", benchmark, begins, missed=Verdict.DIFFERS)


def _of(workload: str, runs: Iterable[str]) -> tuple[str, ...]:
    return tuple(f"{workload}: {run}" for run in runs)


_RUNS = ("Algorithm 2", "linear", "optimal", "overprovisioning")
CLOSER = Paper(
    "CLOSER",
    "Tail-Latency Aware and Resource-Efficient Bin Pack Autoscaling for Distributed Event Queues",
    (
        Row(
            "Fig. 4, 5",
            "first workload: latencies peak as consumers are removed, not as they are added",
            (_order("closer", "Fig. 4, 5"),),
        ),
        Row(
            "Table 2",
            "first workload: Algorithm 2 has fewer late events than linear, and costs less than "
            "overprovisioning",
            (_order("closer", "Table 2:"), _figures("closer", *_of("first", _RUNS))),
            "replica-minutes: Algorithm 2 scales less often here, and holds longer",
        ),
        Row("Fig. 6", "the same on the second workload", (_order("closer", "Fig. 6"),)),
        Row(
            "Table 3",
            "the same on the second workload",
            (_order("closer", "Table 3:"), _figures("closer", *_of("second", _RUNS))),
            "the file's rates cross thresholds more often than the paper's workload seems to",
        ),
        Row(
            "Fig. 7",
            "skewed partitions: the CDF of linear lies below that of Algorithm 2",
            (_order("closer", "Fig. 7"),),
        ),
        Row(
            "Fig. 8",
            "second workload, skewed: latencies peak as consumers are removed",
            (_order("closer", "Fig. 8"),),
            "a consumer that joins stops everybody as well, and skewed load is late in a few "
            "stretches of up to a minute, which are near neither",
        ),
        Row(
            "5.1",
            "skewed partitions cost linear far more late events than Algorithm 2",
            (
                _order("closer", "5.1"),
                _figures(
                    "closer",
                    *_of("first, skewed", _RUNS),
                    *_of("second, skewed", _RUNS),
                ),
            ),
        ),
        Row(
            "5.2, Fig. 9",
            "heartbeats of 500 ms make fewer events late",
            (
                _order("closer", "5.2"),
                _figures(
                    "closer",
                    *_of("first", ("Algorithm 2, heartbeat 500 ms",)),
                    *_of("second", ("Algorithm 2, heartbeat 500 ms",)),
                ),
            ),
            "here they make none late",
        ),
        Row(
            "5.3, Fig. 10",
            "Algorithm 1: the longer a rebalance, the more late events",
            (
                _order("closer", "5.3, Fig. 10"),
                _figures("closer", *_of("first", ("Algorithm 1, 500 ms", "Algorithm 1, 2 s"))),
            ),
            "rebalances make lag and lag makes rebalances: one run, the paper's too, says little",
        ),
        Row(
            "5.3, Fig. 11, 12",
            "Algorithm 2 keeps the tail short where rebalances are long, and costs more",
            (
                _order("closer", "5.3, Fig. 11", "5.3, Fig. 12", "5.3: replica"),
                _figures("closer", *_of("first", ("Algorithm 2, 500 ms", "Algorithm 2, 2 s"))),
            ),
        ),
        Row(
            "5.3",
            "Algorithm 2: the longer a rebalance, the fewer late events",
            (_order("closer", "5.3: late"),),
            "its room for rebalances outweighs them at 2 s here, and not at 500 ms",
        ),
        Row(
            "5, live",
            "both algorithms on a real Kafka",
            (Bars("measured", "closer-live", ("Algorithm",), missed=Verdict.DIFFERS),),
            "a live controller looks at any instant after a second's burst; half a second after it "
            "both algorithms see little lag, and attain as little when simulated so",
        ),
        Row(
            "6",
            "chains of services (left as future work)",
            (Bars("simulated", "chain", ("",), met=Verdict.BETTER, missed=Verdict.DIFFERS),),
            "the paper has no figures of it: the bars are ours",
        ),
    ),
)
ICCBDC = Paper(
    "ICCBDC",
    "Cost-Efficient and Latency-Aware Event Consuming in Workload-Skewed Distributed Event Queues",
    (
        Row(
            "4.1, Fig. 4",
            "the ramp takes 18 replica-minutes",
            (
                Bars(
                    "simulated: over packing the true rates",
                    "iccbdc",
                    ("4.1: iccbdc: replica-minutes",),
                    met=Verdict.DIFFERS,
                    missed=Verdict.DIFFERS,
                ),
            ),
            "18 are fewer than packing the true rates takes, so no policy that keeps up has them",
        ),
        Row(
            "4.1, Fig. 5",
            "load-aware assignment keeps 100 % in time, cooperative-sticky 44 %",
            (
                _order("iccbdc", "4.1, Fig. 5"),
                _figures("iccbdc", *_of("4.1", ("iccbdc: SLA", "cooperative-sticky"))),
            ),
        ),
        Row(
            "4.2, Fig. 7",
            "the skewed workload takes 26.1 replica-minutes",
            (
                Bars(
                    "simulated: figures",
                    "iccbdc",
                    ("4.2: iccbdc: replica-minutes",),
                    missed=Verdict.DIFFERS,
                ),
            ),
        ),
        Row(
            "4.2, Fig. 8",
            "there 100 % are in time, and 77 % with cooperative-sticky",
            (
                _order("iccbdc", "4.2, Fig. 8"),
                _figures("iccbdc", *_of("4.2", ("iccbdc", "cooperative-sticky"))),
            ),
            "which partitions share a consumer is chance to a sticky assignor",
        ),
        Row(
            "4.2, Fig. 9, 10",
            "with a decision each 30 s, 86 % are in time",
            (
                _order("iccbdc", "4.2, Fig. 10", "4.2: in time"),
                _figures("iccbdc", *_of("4.2", ("iccbdc every 30 s",))),
            ),
        ),
        Row(
            "4, live",
            "on a real Kafka, partitions by load keep more in time than Kafka's own",
            (Bars("measured", "autoscale-live", ("ICCBDC 4.1",)),),
            "the ramp of 4.1 alone, in a fifth of its time; the backlog is not shown yet",
        ),
    ),
)


def _columns(table: str, *columns: tuple[str, str, str]) -> tuple[Row, ...]:
    """Rows of one line of a table each: its name, what the paper has, and why ours differs."""
    return tuple(
        Row(f"{table}, {name}", says, (_order("li-ku", f"{table}: {name}"),), why)
        for name, says, why in columns
    )


_THRESHOLDS = "the paper prints neither KEDA's window nor the thresholds of FLAS"
LI_KU = Paper(
    "Li-Ku",
    "Cost-Effective Autoscaler under Event-Driven Architecture",
    (
        *_columns(
            "Table 2",
            ("scale-ups", "theirs 3.35, FLAS 3.29, KEDA 1.75", _THRESHOLDS),
            ("scale-downs", "theirs 4.05, KEDA 0.75, FLAS 0.47", _THRESHOLDS),
            ("late", "KEDA 17.22 %, theirs 14.53, FLAS 12.01", ""),
            (
                "time in the system",
                "KEDA 470.99 ms, theirs 317.50, FLAS 316.25",
                "1.25 ms between the last two",
            ),
            ("replica-minutes", "consumer time: FLAS 1,380 s, KEDA 783, theirs 781", ""),
        ),
        Row(
            "Fig. 7",
            "consumers over time: FLAS stays at 8, KEDA grows later than theirs",
            (_order("li-ku", "Fig. 7"),),
        ),
        *_columns(
            "Table 3",
            ("scale-ups", "eager 3.35, cooperative 2.05", ""),
            ("scale-downs", "eager 4.05, cooperative 2.50", ""),
            ("late", "cooperative 18.11 %, eager 14.53", ""),
            ("time in the system", "cooperative 358.04 ms, eager 317.50", ""),
            ("replica-minutes", "consumer time: eager 781 s, cooperative 711", ""),
            (
                "throughput",
                "cooperative 99.50, eager 99.45",
                "all that come are served, whoever serves them",
            ),
        ),
        Row(
            "Table 3, intervals",
            "scaling up takes 10.25 s (eager) and 11.80 s (cooperative), down 10.80 and 12.10",
            why="the simulator is given them; no live arm measures them yet",
        ),
        Row(
            "Conclusions",
            "parameters tuned by control, and queueing networks (left as future work)",
            (Bars("simulated: tuned", "unseen", ("li-ku-tuned",)),),
            "its queueing networks are chains of groups, as CLOSER has them",
        ),
    ),
)
LANDAU = Paper(
    "Landau",
    "Event Driven Publish/Subscribe Consumer Group Autoscaling",
    (
        Row(
            "Ch. 3, Table 3.1",
            "bins over the fewest, in the limit: 17/10 almost worst fit, 71/60 MFFD",
            (_order("packing", "surveyed:"),),
        ),
        Row(
            "Fig. 4.2",
            "the monitor takes 30 s to follow a step",
            (
                Bars("simulated: his window", "monitor", ("Fig. 4.2: window",)),
                Bars("simulated: ours", "monitor", ("Fig. 4.2: ours",), met=Verdict.BETTER),
            ),
        ),
        Row(
            "Fig. 4.3",
            "under noise the monitor stays at the mean speed",
            (
                Bars("simulated: his window", "monitor", ("Fig. 4.3: window",)),
                Bars(
                    "simulated: ours",
                    "monitor",
                    ("Fig. 4.3: ours",),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
            ),
            "ours measures single seconds, and leaves noise to the forecast",
        ),
        Row(
            "Tables 4.1, 4.2, Fig. 4.5",
            "a cycle of 5 MB takes 2.1 s; consumers read 2.3 to 2.4 MB/s whatever the partitions",
            (Bars("measured", "landau-live", ("Fig. 4.5",), missed=Verdict.DIFFERS),),
            "his sink posts to BigQuery for 1.7 s of a cycle; here it counts, which hides nothing",
        ),
        Row(
            "Fig. 4.8",
            "cardinal bin score: NF is worst, then NFD; BFD is best",
            (_order("landau", "NF has", "NFD has", "BFD has"),),
        ),
        Row(
            "Fig. 4.9",
            "of the modified algorithms MBFP has the best cardinal bin score",
            (_order("landau", "MBFP has"),),
        ),
        Row("Fig. 4.10", "MWF has the best Rscore", (_order("landau", "MWF has"),)),
        Row(
            "Fig. 4.11",
            "the modified algorithms but MWFP are on the Pareto front",
            (_order("landau", "MWF is", "MBF is", "MBFP is"),),
        ),
        Row(
            "4.3.4",
            "a consumer that crashed takes up its partitions again",
            (
                Bars(
                    "measured",
                    "landau-live",
                    ("4.3.4",),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
            ),
            "the direct back end gives them to others instead",
        ),
        Row(
            "Fig. 5.2",
            "a step is measured after 30 s at most",
            (Bars("simulated: ours", "monitor", ("Fig. 4.2: ours",), met=Verdict.BETTER),),
        ),
        Row(
            "Fig. 5.3",
            "a decision takes less than 1 s",
            (
                Bars(
                    "measured: CPU of a decision",
                    "decision-cost",
                    ("",),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
            ),
        ),
        Row(
            "Fig. 5.4",
            "88 % of new consumers are ready within 10 to 50 s",
            why="a cluster's own time: ours is learnt from each launch",
        ),
        Row(
            "Fig. 5.5",
            "a change of partitions takes two cycles, about 5 s",
            (
                Bars(
                    "measured: beyond the batches in hand",
                    "hand-over",
                    ("direct",),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
            ),
        ),
    ),
)
