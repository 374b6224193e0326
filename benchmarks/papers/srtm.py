"""Impact of Distributed Rate Limiting on Load Distribution in a Latency-sensitive Messaging
Service (SRTM): sections 4 to 7."""

from benchmarks.papers.model import Bars, Paper, Rising, Row, Verdict

_SPENT = (
    "with the paper's b an unsplit bucket alone spends all that the SLO allows, and batches leave "
    "no room for a broker's own time; beside it stands twice that b"
)
_JITTER = (
    "with every message of a group at one instant the paper's b leaves no room at 16 ms; beside it "
    "stands twice that b"
)


def _simulated(
    benchmark: str, panel: str, order: tuple[str, ...], target: tuple[str, ...]
) -> list[Bars]:
    """With the paper's b, and with twice it. panel: as the bars name it; order, target: how their
    names go on."""
    found = []
    for b in ("b", "2 b"):
        bars = f"simulated, {b}: {panel}"
        named = tuple(f"{bars}{each}" for each in order)
        found.append(Bars(f"simulated, {b}: order", benchmark, named))
        if target:
            named = tuple(f"{bars}{each}" for each in target)
            how = f"simulated, {b}: target"
            found.append(Bars(how, benchmark, named, missed=Verdict.DIFFERS))
    return found


def _measured(panel: str) -> Bars:
    return Bars("measured, 2 b", f"srtm-{panel}", ("measured",))


def _fig_7(panel: str, traffic: str) -> Row:
    kept = tuple(f", {design}: p99 over the target" for design in ("conc", "srtm"))
    return Row(
        f"Fig. 7{panel}",
        f"{traffic}: Conc meets 1 ms for 2,000 to 12,000 publishers, LB for none",
        (
            *_simulated("concentration", f"7{panel} ({traffic.lower()})", (", lb",), kept),
            _measured(f"7{panel}"),
        ),
        _SPENT,
    )


def _fig_8(panel: str, traffic: str, why: str = "") -> Row:
    return Row(
        f"Fig. 8{panel}",
        f"{traffic}: on brokers that carry others, Max-Min is better than Conc where the topic is "
        "split, and meets 1 ms",
        (
            *_simulated(
                "max-min",
                f"8{panel} ({traffic.lower()}): ",
                ("Conc's",),
                ("Max-Min's", "SRTM's"),
            ),
            _measured(f"8{panel}"),
        ),
        f"measured brokers share the cores of one host, so the order is simulated alone{why}",
    )


def _fig_9(panel: str, traffic: str) -> Row:
    return Row(
        f"Fig. 9{panel}",
        f"{traffic}: SRTM meets 1 ms up to groups of 30, Max-Min does not",
        (
            *_simulated(
                "correlation",
                f"9{panel} ({traffic.lower()}): ",
                ("Max-Min's p99 over the target", "sizes of"),
                ("SRTM's",),
            ),
            _measured(f"9{panel}"),
        ),
        _SPENT,
    )


def _fig_11(panel: str, traffic: str) -> Row:
    return Row(
        f"Fig. 11{panel}",
        f"{traffic}: knowing the groups helps less the further their messages are spread, and "
        "fewer brokers do",
        (
            *_simulated(
                "noisy-correlation",
                f"11{panel} ({traffic.lower()}): ",
                ("gain", "brokers"),
                ("SRTM's",),
            ),
            _measured(f"11{panel}"),
        ),
        _JITTER,
    )


_FULL = "; brokers 5 and 6 are so full of others' batches that no placement meets 1 ms there"
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
        _fig_9("a", "Poisson"),
        _fig_9("b", "periodic"),
        Row(
            "Fig. 10",
            "on as many brokers as SRTM, Max-Min is worse still",
            tuple(
                bars
                for panel in ("9a (poisson): ", "9b (periodic): ")
                for bars in _simulated(
                    "correlation", panel, ("Max-Min's p99 over SRTM's", "Max-Min's p99 on"), ()
                )
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
            (Bars("measured", "scale-out", ("",)),),
            "the new broker is a deployment of the same host, where the paper asks a cloud for one",
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
            (
                Bars(
                    "measured",
                    "moves",
                    ("",),
                    met=Verdict.BETTER,
                    missed=Verdict.DIFFERS,
                ),
            ),
            "the paper has no figure of it: ours is against brokers that nobody leaves",
        ),
    ),
)
