"""Impact of Distributed Rate Limiting on Load Distribution in a Latency-sensitive Messaging
Service (SRTM): sections 4 to 7."""

from benchmarks.papers.model import Bars, Paper, Rising, Row, Verdict

_JITTER = (
    "with every message of a group at one instant the paper's b leaves no room at 16 ms; beside it "
    "stands twice that b"
)


def _fig_7(panel: str, traffic: str) -> Row:
    return Row(
        f"Fig. 7{panel}",
        f"{traffic}: Conc meets 1 ms for 2,000 to 12,000 publishers, LB for none",
        (
            Bars("simulated", "concentration", (f"simulated: 7{panel}",)),
            Bars("measured", "concentration", (f"measured: 7{panel}",)),
        ),
    )


def _fig_8(panel: str, traffic: str, why: str = "") -> Row:
    simulated = f"simulated: 8{panel} ({traffic.lower()}): "
    return Row(
        f"Fig. 8{panel}",
        f"{traffic}: on brokers that carry others, Max-Min is better than Conc where the topic is "
        "split, and meets 1 ms",
        (
            Bars("simulated: order", "max-min", (f"{simulated}Conc's",)),
            Bars(
                "simulated: target",
                "max-min",
                (f"{simulated}Max-Min's", f"{simulated}SRTM's"),
                missed=Verdict.DIFFERS,
            ),
            Bars("measured", "max-min", (f"measured: 8{panel}",)),
        ),
        why,
    )


def _fig_11(panel: str, traffic: str) -> Row:
    shown = []
    for b in ("b", "2 b"):
        bars = f"simulated, {b}: 11{panel} ({traffic.lower()}): "
        order = (f"{bars}gain", f"{bars}brokers")
        shown += [
            Bars(f"simulated, {b}: order", "noisy-correlation", order),
            Bars(
                f"simulated, {b}: target",
                "noisy-correlation",
                (f"{bars}SRTM's",),
                missed=Verdict.DIFFERS,
            ),
        ]
    return Row(
        f"Fig. 11{panel}",
        f"{traffic}: knowing the groups helps less the further their messages are spread, and "
        "fewer brokers do",
        tuple(shown),
        _JITTER,
    )


_FULL = "brokers 5 and 6 are so full of others' batches that no placement meets 1 ms there"
_TRAFFIC = {
    "a": "Poisson, batch 1",
    "b": "Poisson, batch 10",
    "c": "periodic, batch 1",
    "d": "periodic, batch 10",
}
SRTM = Paper(
    "SRTM",
    "Impact of Distributed Rate Limiting on Load Distribution in a Latency-sensitive Messaging "
    "Service",
    (
        Row(
            "Eq. (1)",
            "the mean token wait of Poisson messages in closed form",
            (
                Bars(
                    "measured",
                    "drl-penalty",
                    ("mean token wait off", "closed form off"),
                    missed=Verdict.DIFFERS,
                ),
            ),
            "on one broker the wait is so short that its interval is half of it",
        ),
        Row(
            "Fig. 6a",
            "10,000 messages/s on 1 to 6 idle brokers: p99 grows with each, to 14.7 ms on six",
            (
                Bars("simulated", "drl-penalty", ("Fig. 6a simulated",)),
                Rising("measured", "drl-penalty", "240 Poisson publishers", "p99"),
            ),
        ),
        Row(
            "Fig. 6b",
            "60,000 messages/s overload one broker: two are best, and more are worse again",
            (Bars("simulated", "drl-penalty", ("Fig. 6b simulated",)),),
        ),
        *(_fig_7(panel, traffic) for panel, traffic in _TRAFFIC.items()),
        _fig_8("a", "Poisson, batch 1"),
        _fig_8("b", "periodic, batch 1"),
        _fig_8("c", "Poisson, batch 10", _FULL),
        _fig_8("d", "periodic, batch 10", _FULL),
        *(
            Row(
                f"Fig. 9{panel}",
                f"{traffic}: SRTM meets 1 ms up to groups of 30, Max-Min does not",
                (Bars("simulated", "correlation", (f"simulated: 9{panel}",)),),
            )
            for panel, traffic in (("a", "Poisson"), ("b", "periodic"))
        ),
        Row(
            "Fig. 10",
            "on as many brokers as SRTM, Max-Min is worse still",
            (
                Bars(
                    "simulated",
                    "correlation",
                    tuple(
                        f"simulated: {panel}: Max-Min's p99 over SRTM's on as many brokers"
                        for panel in ("9a (poisson)", "9b (periodic)")
                    ),
                ),
            ),
        ),
        _fig_11("a", "Poisson"),
        _fig_11("b", "periodic"),
        Row(
            "Table 1",
            "online fitting takes 64 s to 1,058 s for groups of 5 to 30, in rounds of 60 s",
            (
                Bars(
                    "simulated",
                    "convergence",
                    tuple(f"{kind}: paper / sequential" for kind in ("poisson", "periodic")),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
                Bars(
                    "simulated: where it ends",
                    "convergence",
                    tuple(
                        f"{kind}: {what}"
                        for kind in ("poisson", "periodic")
                        for what in ("k = ", "ended")
                    ),
                ),
            ),
        ),
        Row(
            "4.2",
            "where brokers run out, more are added",
            why="nothing starts a broker yet",
        ),
        Row(
            "5.2",
            "arrival times of the kernel delay no conformant message, those of the read do",
            (Bars("measured", "timestamps", ("conformant", "stamp")),),
        ),
        Row(
            "5.3",
            "a broker that collects garbage less often has the shorter tail",
            (Bars("measured", "garbage", ("",), missed=Verdict.DIFFERS),),
            "an unmodified nsqd allocates as it does: it can only be told to collect less often",
        ),
        Row(
            "5.4",
            "the TB Adaptor follows traffic that moves between brokers",
            (
                Bars(
                    "simulated",
                    "adaptor",
                    ("",),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
            ),
            "ours against the paper's rule: groups that stay where they are are better left alone",
        ),
        Row(
            "7",
            "publishers moved at run time (left as future work)",
            why="built, and no benchmark has it yet",
        ),
    ),
)
