"""SRTM's figures 7 to 11 as data: what each varies, which designs it compares, and what its text
states of them."""

from collections.abc import Callable, Sequence

from benchmarks.experiments.experiment import AT_SAME, Experiment, Here, Panel, Statement, run
from benchmarks.experiments.scenario import Scenario
from benchmarks.harness.report import Report
from benchmarks.harness.session import Session
from srtm.load.settings import Arrivals

Values = Callable[[Here], list[float]]
SIZES = (5, 10, 15, 20, 25, 30)
"""of correlation groups"""
_LARGER = SIZES[1:]
"""From this size of groups on, one broker no longer holds the topic, and who is where matters."""
_JITTERS = (0, 1, 2, 4, 8, 16)  # ms
_ENDS = (0, 16)
_GROUP = 25
_PUBLISHERS, _BATCH = 1_000, 10  # where groups are compared
_INITIAL = (10_000.0, 40_000.0, 50_000.0, 60_000.0, 70_000.0, 80_000.0)
_ALIKE = (2_000, 4_000)
"""One broker holds them: Conc and Max-Min are the same there."""
_SPLIT = {1: (6_000, 8_000), 10: (8_000,)}
"""Numbers of publishers, by batch, at which the text says that Max-Min is better. Of 10,000 in
batches it says that Conc improves, and of 10,000 single ones nothing."""


def concentration(session: Session) -> Report:
    """What concentration gains (SRTM Fig. 7): a topic on the fewest brokers, or on all of them."""
    return run(session, CONCENTRATION)


def max_min(session: Session) -> Report:
    """What max-min gains over concentration alone (SRTM Fig. 8), where brokers carry others
    already."""
    return run(session, MAX_MIN)


def correlation(session: Session) -> Report:
    """What keeping a group's publishers apart gains (SRTM Fig. 9, 10): they send together
    exactly."""
    return run(session, CORRELATION)


def noisy_correlation(session: Session) -> Report:
    """What is left of it where a group's publishers send only about together (SRTM Fig. 11)."""
    return run(session, NOISY_CORRELATION)


def over_target(design: str, xs: Sequence[float] = ()) -> Values:
    """Its p99 over the target, at each x, or at these."""
    return lambda here: [each[design].ratio for x, each in here.items() if not xs or x in xs]


def over(one: str, other: str, xs: Sequence[float]) -> Values:
    """The p99 of one design over that of the other, at each of these x."""
    return lambda here: [each[one].mean / each[other].mean for x, each in here.items() if x in xs]


def _fig_7(label: str, arrivals: Arrivals, batch: int) -> Panel:
    publishers = (2_000, 4_000, 6_000, 8_000, 10_000, 12_000)
    return Panel(
        label,
        f"{arrivals}, batch {batch}",
        "",
        "publishers",
        {n: Scenario(f"{label}-{n}", n, arrivals, batch) for n in publishers},
        ("lb", "conc", "srtm"),
        "SRTM: Conc meets 1 ms at every point, LB at none; LB's loss falls as rates grow, and is "
        "worse in batches",
        (
            Statement(", conc: p99 over the target, worst", over_target("conc"), at_most=1.0),
            Statement(", srtm: p99 over the target, worst", over_target("srtm"), at_most=1.0),
            Statement(", lb: p99 over the target, best", over_target("lb"), at_least=1.0),
        ),
        publishers,
    )


def _fig_8(label: str, arrivals: Arrivals, batch: int) -> Panel:
    publishers, asked = (2_000, 4_000, 6_000, 8_000, 10_000), (*_ALIKE, *_SPLIT[batch])
    gain, held = over("conc", "max-min", _SPLIT[batch]), over_target("max-min", asked)
    return Panel(
        label,
        f"{arrivals}, batch {batch}",
        "",
        "publishers",
        {n: Scenario(f"{label}-{n}", n, arrivals, batch, initial=_INITIAL) for n in publishers},
        ("conc", "max-min", "srtm"),
        "SRTM: alike up to 4,000 publishers; at 8,000 (8a) Conc 1.50 ms, Max-Min 0.87 ms on "
        "brokers 1 to 3; in batches Conc is better at 10,000 than at 8,000",
        (
            Statement(": Conc's p99 over Max-Min's, smallest where split", gain, at_least=1.0),
            Statement(": Max-Min's p99 over the target, worst", held, at_most=1.0),
            Statement(
                ": SRTM's p99 over the target, worst", over_target("srtm", asked), at_most=1.0
            ),
        ),
        asked,
    )


def _more_brokers(here: Here) -> dict[float, int]:
    """Brokers of Max-Min more than SRTM's, by size of the larger groups."""
    larger = {x: each for x, each in here.items() if x in _LARGER}
    return {x: each["max-min"].brokers - each["srtm"].brokers for x, each in larger.items()}


def _held_on_fewer(here: Here) -> list[float]:
    """How many sizes Max-Min holds on fewer brokers."""
    held = [more < 0 and here[x]["max-min"].met for x, more in _more_brokers(here).items()]
    return [float(sum(held))] if held else []


_OF_GROUPS = (
    Statement(": SRTM's p99 over the target, worst of all sizes", over_target("srtm"), at_most=1.0),
    Statement(
        ": Max-Min's p99 over SRTM's on as many brokers, groups of 10 and more, smallest",
        over(AT_SAME, "srtm", _LARGER),
        at_least=1.0,
    ),
    Statement(
        ": sizes of 10 and more that Max-Min holds on fewer brokers", _held_on_fewer, at_most=0.0
    ),
    Statement(
        ": Max-Min's p99 over the target, the largest groups",
        over_target("max-min", SIZES[-1:]),
        at_least=1.0,
    ),
    Statement(
        ": brokers of Max-Min more than SRTM's, groups of 10 and more, most",
        lambda here: list(map(float, _more_brokers(here).values())),
        at_most=0.0,
    ),
    Statement(
        ": Max-Min's p99 on as many brokers as SRTM over that on its own number, smallest",
        over(AT_SAME, "max-min", _LARGER),
        at_least=1.0,
    ),
)


def _fig_9(label: str, arrivals: Arrivals) -> Panel:
    return Panel(
        label,
        arrivals,
        ", 1,000 publishers in groups",
        "publishers of a group",
        {n: Scenario(f"{label}-{n}", _PUBLISHERS, arrivals, _BATCH, n) for n in SIZES},
        ("max-min", "srtm", AT_SAME),
        "SRTM: it meets 1 ms up to groups of 30, on more and more brokers (1 to 6, Table 1); "
        "Max-Min does not, and on as many brokers as SRTM (Fig. 10) it is worse still",
        _OF_GROUPS,
        SIZES,
    )


def _gain_fades(here: Here) -> list[float]:
    gains = over(AT_SAME, "srtm", _ENDS)(here)
    return [gains[0] / gains[1]] if len(gains) == len(_ENDS) else []


def _brokers_fall(here: Here) -> list[float]:
    """By how many, for each design."""
    if not all(x in here for x in _ENDS):
        return []
    first, last = (here[x] for x in _ENDS)
    return [float(first[of].brokers - last[of].brokers) for of in ("max-min", "srtm")]


def _fig_11(label: str, arrivals: Arrivals) -> Panel:
    def scenario(ms: float) -> Scenario:
        return Scenario(f"{label}-{ms}", _PUBLISHERS, arrivals, _BATCH, _GROUP, ms / 1e3)

    return Panel(
        label,
        arrivals,
        f", groups of {_GROUP} spread over",
        "ms",
        {ms: scenario(ms) for ms in _JITTERS},
        ("max-min", "srtm", AT_SAME),
        "SRTM: with a little noise knowing the groups still helps; with more, p99 and the number "
        "of brokers fall for both designs, and the gain fades",
        (
            Statement(
                ": gain on as many brokers, at 0 ms over at 16 ms", _gain_fades, at_least=1.0
            ),
            Statement(
                ": brokers at 0 ms more than at 16 ms, either design", _brokers_fall, at_least=1.0
            ),
            Statement(": SRTM's p99 over the target, worst", over_target("srtm"), at_most=1.0),
        ),
        _ENDS,
    )


CONCENTRATION = Experiment(
    "concentration",
    [
        _fig_7("7a", "poisson", 1),
        _fig_7("7b", "poisson", 10),
        _fig_7("7c", "periodic", 1),
        _fig_7("7d", "periodic", 10),
    ],
    (2_000, 12_000),
)
MAX_MIN = Experiment(
    "max-min",
    [
        _fig_8("8a", "poisson", 1),
        _fig_8("8b", "periodic", 1),
        _fig_8("8c", "poisson", 10),
        _fig_8("8d", "periodic", 10),
    ],
    (4_000, 8_000),
    ["SRTM's text gives two figures, of 8,000 publishers in 8a: 1.5 and 0.87 ms"],
)
CORRELATION = Experiment(
    "correlation",
    [_fig_9("9a", "poisson"), _fig_9("9b", "periodic")],
    (10, 30),
)
NOISY_CORRELATION = Experiment(
    "noisy-correlation", [_fig_11("11a", "poisson"), _fig_11("11b", "periodic")], _ENDS
)
EXPERIMENTS = (CONCENTRATION, MAX_MIN, CORRELATION, NOISY_CORRELATION)
