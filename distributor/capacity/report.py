"""What `srtm broker capacity` shows: a bar and lines meanwhile, a table, JSON, the verdict."""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from distributor.capacity.rounds import Round
from distributor.capacity.search import Found, Outcome
from srtm.limits.slo import SLO
from srtm.load import runner
from srtm.text.terminal import Column, Table
from srtm.text.words import number, rate, some

_WHY = {
    Outcome.LATE: "",
    Outcome.BEHIND: ": the load generator itself fell behind there; give it a faster host, or "
    "another one than the broker's",
    Outcome.HELD: ": no more was tried (--most)",
}


@dataclass(frozen=True, slots=True)
class Report:
    """others: messages/s that other topics had meanwhile, and their names."""

    broker: str
    slo: SLO
    found: Found
    rounds: Sequence[Round]
    others: tuple[float, Sequence[str]]

    @property
    def verdict(self) -> str:
        found = self.found
        if not found.rate:
            tried = min(each.rate for each in self.rounds)
            return f"{self.broker} does not hold {self.slo} with {rate(tried)}{_WHY[found.limit]}"
        least = "at least " if found.at_least else ""
        return f"{self.broker} holds {self.slo} with {least}{rate(found.rate)}{_WHY[found.limit]}"

    @property
    def warning(self) -> str:
        """Empty where the broker had nothing else to do."""
        beside, names = self.others
        if not names:
            return ""
        return (
            f"warning: {some(names)} had {rate(round(beside, 1))} meanwhile: the figure is what is "
            "left beside them"
        )

    def document(self) -> dict[str, Any]:
        """Rates in messages/s, latencies in seconds; capacity is null where no rate held."""
        return {
            "broker": self.broker,
            "slo": str(self.slo),
            "capacity": self.found.rate or None,
            "at_least": self.found.at_least,
            "limit": self.found.limit,
            "other_topics": {"rate": self.others[0], "names": list(self.others[1])},
            "rounds": [each.document() for each in self.rounds],
        }

    def table(self) -> Table:
        latency, lag = _columns(self.slo)
        table = Table(
            Column("messages/s"),
            Column("with OK/s", 1),
            Column(latency),
            Column("late"),
            Column(lag, 2),
            Column("round", sentence=True),
        )
        for each in self.rounds:
            table.add(*_cells(each))
        return table


def _columns(slo: SLO) -> tuple[str, str]:
    percentile = f"p{100 * slo.percentile:.6g}"
    return f"{percentile} ms", f"generator's own {percentile} ms"


def _cells(found: Round) -> tuple[str, ...]:
    latency = "-" if found.latency is None else f"{1e3 * found.latency:.2f}"
    return (
        number(found.rate),
        f"{found.achieved:,.0f}",
        latency,
        f"{found.late:.2%}",
        f"{1e3 * found.send_lag:.2f}",
        found.outcome.value,
    )


OnProgress = Callable[[runner.Progress], None]
Measure = Callable[[int, OnProgress | None], Round]


@contextmanager
def shown(measure: Measure, silent: bool) -> Iterator[Callable[[int], Round]]:
    """`measure` with a bar on a terminal, drawn from the load's own loop (a thread would contend
    for the interpreter), and a line for each round that is over."""
    console = Console(stderr=True)
    if silent or not console.is_terminal or not sys.stdout.isatty():
        yield lambda asked: measure(asked, None)
        return
    columns = (TextColumn("{task.description}"), BarColumn())
    with Progress(*columns, console=console, auto_refresh=False, transient=True) as bar:
        task = bar.add_task("")

        def one(asked: int) -> Round:
            bar.reset(task, description=f"round at {rate(asked)}")
            bar.refresh()

            def show(now: runner.Progress) -> None:
                bar.update(task, completed=now.seconds, total=now.total_seconds)
                bar.refresh()

            found = measure(asked, show)
            *_, outcome = cells = _cells(found)
            console.print(f"{cells[0]} messages/s: {cells[2]} ms, {cells[3]} late: {outcome}")
            return found

        yield one
