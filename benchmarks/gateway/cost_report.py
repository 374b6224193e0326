"""The gateway benchmark's bars, tables and picture."""

from collections.abc import Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from rich.table import Table

from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import number, span, table
from benchmarks.harness.trial import Figure, Round, Trial, of_arm, ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

Trials = dict[str, list[Round]]
"""rounds by workload: closed loops (the first two are judged), a fixed rate, the highest rate"""

_REPEATS = 2
_OURS = "behind", "alone"
_BUSY = 0.95
"""The part of a core that a generator may take: with more it was itself the limit of a closed
loop."""


def bars(trials: Trials, quick: bool) -> list[Bar]:
    """The consumer on nsqd in both arms; each the median of the rounds' ratios to nsqd alone."""
    one, many, *_ = trials
    *_, fixed, highest = trials

    def throughput(workload: str, at_least: float) -> Bar:
        values = ratios(trials[workload], lambda found: found.acknowledged, *_OURS)
        return judge(
            f"throughput, {workload}",
            values,
            at_least=at_least,
            quick=quick,
            doubt=generator_was_the_limit(trials[workload], values, at_least),
            repeats=_REPEATS,
        )

    def tail(workload: str, at_most: float) -> Bar:
        return judge(
            f"p99 end to end, {workload}",
            ratios(trials[workload], lambda found: found.p99_ms, *_OURS),
            at_most=at_most,
            quick=quick,
            doubt=generator_was_late(trials[workload], at_most),
            repeats=_REPEATS,
        )

    return [
        throughput(one, 1.15),
        throughput(many, 2.2),
        judge(
            f"CPU of a message, {fixed}",
            ratios(trials[fixed], lambda found: found.cpu_us_per_message, *_OURS),
            at_most=1.2,
            quick=quick,
            repeats=_REPEATS,
        ),
        tail(fixed, 1.3),
        tail(highest, 0.7),
    ]


def generator_was_late(rounds: Sequence[Round], at_most: float) -> str:
    """Could the generator's own lateness turn the verdict? A p99 from the intended send time has
    in it anything from nothing to all of the p99 of the send lag."""
    pairs = [(found["alone"], found["behind"]) for found in rounds if "behind" in found]
    if not pairs:
        return ""
    least = median(_less_lag(ours) / theirs.p99_ms for theirs, ours in pairs)
    most = median(ours.p99_ms / max(_less_lag(theirs), 1e-6) for theirs, ours in pairs)
    if (least <= at_most) == (most <= at_most):
        return ""
    lags = [median(each.lag_p99_ms for each in column) for column in zip(*pairs, strict=True)]
    return (
        f"the generator was late itself (p99 {lags[0]:.2f} and {lags[1]:.2f} ms): the ratio lies "
        f"between {least:.2f} and {most:.2f}"
    )


def _less_lag(found: Trial) -> float:
    return max(found.p99_ms - found.lag_p99_ms, 0.0)


def generator_was_the_limit(
    rounds: Sequence[Round], values: Sequence[float], at_least: float
) -> str:
    """A closed loop that misses its bar while the generator has no CPU left shows nothing."""
    if not values or median(values) >= at_least:
        return ""
    busy = median(of_arm(rounds, _busy, "behind"))
    return f"the generator took {busy:.0%} of its core" if busy > _BUSY else ""


def _busy(found: Trial) -> float:
    generator = found.document["generator"]
    return float(generator["cpu_seconds"] / generator["seconds"])


def _lag(found: Trial) -> float:
    return found.lag_p99_ms


def _is_closed(found: Trial) -> bool:
    """A closed loop sends when it is answered: it has no lag to show."""
    return found.document["settings"]["outstanding"] is not None


_ROWS: tuple[tuple[str, Figure], ...] = (
    ("acknowledged/s", lambda found: found.acknowledged),
    ("p99, ms", lambda found: found.p99_ms),
    ("CPU, us/msg", lambda found: found.cpu_us_per_message),
    ("send lag p99, ms", _lag),
    ("generator CPU, us/msg", lambda found: found.generator_cpu_us),
)


def tables(trials: Trials) -> list[Table]:
    """Medians of the rounds, and the range of their ratios; one table for each place of the
    consumer."""
    return [
        _table(trials, "behind", "consumer on nsqd itself in both"),
        _table(trials, "tunnel", "consumer behind the gateway's tunnel"),
    ]


def _table(trials: Trials, arm: str, title: str) -> Table:
    made = table(title, "load", "figure", "nsqd alone", "with gateway", "ratio", "range")
    for workload, rounds in trials.items():
        both = [found for found in rounds if arm in found]
        for name, figure in _ROWS if both else ():
            values = ratios(both, figure, arm, "alone")
            if not values or (figure is _lag and _is_closed(both[0][arm])):
                continue
            made.add_row(
                workload if name == _ROWS[0][0] else "",
                name,
                number(median(of_arm(both, figure, "alone"))),
                number(median(of_arm(both, figure, arm))),
                number(median(values)),
                span(values),
            )
        made.add_section()
    return made


def draw(figure: "Picture", trials: Trials) -> None:
    """Throughput of the closed loops, p99 of the open ones."""
    left, right = figure.subplots(1, 2)
    names = list(trials)
    shown: tuple[tuple[Any, list[str], Figure, str], ...] = (
        (left, names[:-2], lambda found: found.acknowledged, "acknowledged messages/s"),
        (right, names[-2:], lambda found: found.p99_ms, "p99 end to end, ms"),
    )
    for axes, workloads, value, label in shown:
        for place, (arm, title) in enumerate(
            (("alone", "nsqd alone"), ("behind", "with gateway"), ("tunnel", "with tunnel"))
        ):
            columns = [of_arm(trials[workload], value, arm) for workload in workloads]
            there = [position for position, column in enumerate(columns) if column]
            middle = [median(columns[position]) for position in there]
            low = [height - min(columns[at]) for at, height in zip(there, middle, strict=True)]
            high = [max(columns[at]) - height for at, height in zip(there, middle, strict=True)]
            moved = [position + 0.27 * (place - 1) for position in there]
            axes.bar(moved, middle, 0.25, yerr=[low, high], capsize=3, label=title)
        axes.set_xticks(range(len(workloads)), workloads)
        axes.set(ylabel=label, ylim=(0, None))
        axes.legend()
