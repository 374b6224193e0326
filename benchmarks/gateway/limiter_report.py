"""The limiter's conformance and cost: figures, bars, tables and a picture."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.table import Table

from benchmarks.gateway.record import Record
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import span, tabulate
from benchmarks.harness.trial import Figure, Round, gateway_cpu, of_arm, ratios
from srtm.limits.queueing import Floats

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_TOLERANCE = 1e-6
"""messages; and what a nanosecond brings, since bucket times are whole nanoseconds"""


@dataclass(frozen=True)
class Conformance:
    """One bursty run. Times in seconds since the record's origin, rate in messages/s.

    on_wire:      nsqd's own time of receipt of each message
    excess:       worst over max(burst, largest_batch) + rate * t of any interval, in bucket time
    wire_excess:  the same by nsqd's times
    gateway_time: the gateway's own sketch, from token to nsqd's socket, in seconds
    """

    rate: float
    burst: float
    largest_batch: int
    record: Record
    on_wire: Floats
    excess: float
    wire_excess: float
    gateway_time: dict[str, Any]
    loads: list[dict[str, Any]]

    @property
    def missing_on_wire(self) -> int:
        return int(self.record.admissions.size - self.on_wire.size)

    @property
    def lateness(self) -> Floats:
        """Seconds of each message from its token to nsqd, first in first out; empty when messages
        are missing."""
        if self.missing_on_wire:
            return np.zeros(0)
        return self.on_wire - self.record.admissions

    def late_ms(self, share: float) -> float | None:
        """A quantile of the lateness."""
        late = self.lateness
        return float(np.quantile(late, share)) * 1e3 if late.size else None

    @property
    def explained(self) -> float | None:
        """Messages by which the spread of the lateness can exceed the contract on the wire."""
        late = self.lateness
        return float(np.ptp(late)) * self.rate if late.size else None

    @property
    def tolerance(self) -> float:
        return _TOLERANCE + self.rate * 1e-9

    @property
    def problems(self) -> list[str]:
        return [problem for load in self.loads for problem in load["problems"]]

    def document(self) -> dict[str, Any]:
        late = self.lateness
        return {
            "messages": int(self.record.admissions.size),
            "waiting_share": float(np.mean(self.record.waits() > 0)),
            "mean_token_wait": float(np.mean(self.record.waits())),
            "excess": self.excess,
            "tolerance": self.tolerance,
            "wire_excess": self.wire_excess,
            "wire_excess_explained": self.explained,
            "lateness": {
                name: float(np.quantile(late, q)) if late.size else None
                for name, q in (("min", 0.0), ("p50", 0.5), ("p99", 0.99), ("max", 1.0))
            },
            "gateway_time": self.gateway_time,
            "loads": self.loads,
        }


Conformances = Mapping[str, Sequence[Conformance]]


def bars(conformances: Conformances) -> list[Bar]:
    return [
        judge(
            f"worst excess in bucket time, {name}, messages",
            [each.excess for each in found],
            at_most=max((each.tolerance for each in found), default=_TOLERANCE),
        )
        for name, found in conformances.items()
    ]


def tables(conformances: Conformances, costs: Sequence[Round]) -> list[Table]:
    runs = [(name, each) for name, found in conformances.items() for each in found]
    kept = tabulate(
        "over the contract, worst interval of all, messages",
        runs,
        ("load", lambda run: run[0]),
        ("messages", lambda run: run[1].record.admissions.size),
        ("waited", lambda run: f"{np.mean(run[1].record.waits() > 0):.0%}"),
        ("bucket time", lambda run: run[1].excess),
        ("on the wire", lambda run: run[1].wire_excess),
        ("explained by lateness", lambda run: run[1].explained),
        ("late p99, ms", lambda run: run[1].late_ms(0.99)),
        ("max, ms", lambda run: run[1].late_ms(1.0)),
    )

    def middle(figure: Figure) -> Callable[[str], float]:
        return lambda name: median(of_arm(costs, figure, name))

    def over_none(name: str) -> list[float]:
        return ratios(costs, gateway_cpu, name, "no contract")

    names = dict.fromkeys(name for found in costs for name in found)
    spent = tabulate(
        "CPU of the gateway",
        [name for name in names if over_none(name)],
        ("topic", lambda name: name),
        ("us/msg", middle(gateway_cpu)),
        ("ratio", lambda name: median(over_none(name))),
        ("range", lambda name: span(over_none(name))),
        ("nsqd, us/msg", middle(lambda found: found.cpu_us["nsqd"])),
        ("generator, us/msg", middle(lambda found: found.generator_cpu_us)),
        ("lag p99, ms", middle(lambda found: found.lag_p99_ms)),
    )
    return [kept, spent]


def draw(figure: "Picture", conformances: Conformances) -> None:
    """How near the contract each message came, in two clocks."""
    axes = figure.subplots(1, len(conformances), sharey=False, squeeze=False)[0]
    for each_axes, (name, found) in zip(axes, conformances.items(), strict=True):
        if not found:
            continue
        run = found[0]
        allowance = max(run.burst, run.largest_batch)
        for label, times in (("on the wire", run.on_wire), ("bucket time", run.record.admissions)):
            before = np.arange(times.size) - run.rate * (times - times[:1])
            used = before + 1 - np.minimum.accumulate(before)
            each_axes.plot(times, used, linewidth=0.7, label=label)
        each_axes.axhline(allowance, color="black", linestyle="--", label="max(b, largest batch)")
        each_axes.set(title=name, xlabel="s", ylabel="messages over r t, worst interval up to here")
        each_axes.legend(loc="lower right")
