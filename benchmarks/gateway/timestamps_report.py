"""Stalled gateways by source of arrival times: figures, bars, tables and a picture."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import number, table, tabulate
from benchmarks.harness.trial import Figure, Round, gateway_cpu, of_arm, ratios

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

STOPPED, NEIGHBOUR = "stopped", "busy neighbour"
MAX_STAMP_ERROR_US = 100.0
MAX_COST_RATIO = 1.15
_COST_ROUNDS = 2  # fewer ratios have no range


@dataclass(frozen=True, slots=True)
class Held:
    """One source in one stalled run. kind: how it was held up.

    conformant: messages that need not wait by the segments' own arrival times
    delayed:    of those, the ones that waited for a token
    sender_us:  stamp minus time of sending: median, and p99 of the distance
    capture_us: stamp minus time of the packet capture, likewise; None without a capture
    """

    source: str
    kind: str
    pattern: str
    stall_ms: int
    messages: int
    conformant: int
    delayed: int
    longest_wait_ms: float
    sender_us: tuple[float, float]
    capture_us: tuple[float, float] | None


def bars(held: Sequence[Held], costs: Sequence[Round], quick: bool, doubt: str) -> list[Bar]:
    """doubt: why ebpf could not be measured at all"""
    exact = [each for each in held if each.source == "ebpf"]
    captured = [each for each in exact if each.capture_us is not None]
    unseen = doubt or ("no packet capture" if len(captured) < len(exact) else "")
    made = [
        judge(
            f"conformant messages delayed, ebpf, {stall_ms} ms",
            [float(sum(each.delayed for each in exact if each.stall_ms == stall_ms))],
            at_most=0,
            doubt=unseen,
        )
        for stall_ms in sorted({each.stall_ms for each in held})
    ]
    made.append(
        judge(
            "stamp of ebpf to the packet capture, p99, us",
            [each.capture_us[1] for each in captured if each.capture_us is not None],
            at_most=MAX_STAMP_ERROR_US,
            doubt=unseen,
        )
    )
    made.append(
        judge(
            "CPU per message, ebpf / clock",
            ratios(costs, gateway_cpu, "ebpf", "clock"),
            at_most=MAX_COST_RATIO,
            quick=quick,
            doubt=doubt,
            repeats=_COST_ROUNDS,
        )
    )
    return made


def tables(held: Sequence[Held], costs: Sequence[Round]) -> list[Table]:
    sources = list(dict.fromkeys(each.source for each in held))
    shares = table(
        "conformant messages delayed", "held up", "stall, ms", "publishers", "conformant", *sources
    )
    runs: dict[tuple[str, int, str], list[Held]] = {}
    for each in held:
        runs.setdefault((each.kind, each.stall_ms, each.pattern), []).append(each)
    for (kind, stall_ms, pattern), found in runs.items():
        by_source = {name: [each for each in found if each.source == name] for name in sources}
        first = by_source[sources[0]]
        kept = sum(each.conformant for each in first) / sum(each.messages for each in first)
        shares.add_row(
            kind,
            str(stall_ms),
            pattern,
            f"{kept:.1%}",
            *(f"{delayed_share(each):.2%}" for each in by_source.values()),
        )
    errors = table(
        "error of the stamp, us, worst run", "source", "sender p50", "sender p99", "capture p50",
        "capture p99",
    )  # fmt: skip
    for name in sources:
        ours = [each for each in held if each.source == name]
        sender = [max(each.sender_us[at] for each in ours) for at in (0, 1)]
        known = [each.capture_us for each in ours if each.capture_us is not None]
        capture = [max(each[at] for each in known) if known else None for at in (0, 1)]
        errors.add_row(name, *map(number, (*sender, *capture)))

    def middle(figure: Figure) -> Callable[[str], float | None]:
        return lambda name: _middle(of_arm(costs, figure, name))

    spent = tabulate(
        "CPU per message, us",
        sources,
        ("source", lambda name: name),
        ("gateway", middle(gateway_cpu)),
        ("nsqd", middle(lambda found: found.cpu_us["nsqd"])),
        ("generator", middle(lambda found: found.generator_cpu_us)),
        ("over clock", lambda name: _middle(ratios(costs, gateway_cpu, name, "clock"))),
    )
    return [shares, errors, spent]


def delayed_share(held: Sequence[Held]) -> float:
    """The part of the conformant messages that were delayed."""
    return sum(each.delayed for each in held) / max(sum(each.conformant for each in held), 1)


def _middle(values: Sequence[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def draw(figure: "Picture", held: Sequence[Held]) -> None:
    """Share of conformant messages delayed against the length of the stall, by source."""
    kinds = list(dict.fromkeys((each.kind, each.pattern) for each in held))
    axes = figure.subplots(1, len(kinds), sharey=True, squeeze=False)[0]
    for ax, (kind, pattern) in zip(axes, kinds, strict=True):
        ours = [each for each in held if (each.kind, each.pattern) == (kind, pattern)]
        for source in dict.fromkeys(each.source for each in ours):
            stalls = sorted({each.stall_ms for each in ours})
            shares = [
                delayed_share(
                    [each for each in ours if each.source == source and each.stall_ms == stall]
                )
                for stall in stalls
            ]
            ax.plot(stalls, [100 * share for share in shares], "o-", label=source)
        ax.set(title=f"{kind}, {pattern}", xlabel="stall, ms")
    axes[0].set_ylabel("conformant messages delayed, %")
    axes[0].legend()
