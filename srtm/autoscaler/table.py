"""A comparison for people."""

from rich.text import Text

from srtm.autoscaler.comparison import Experiment
from srtm.autoscaler.simulator.run import Run
from srtm.limits.slo import SLO
from srtm.text.duration import format_duration
from srtm.text.terminal import Column, Table


def title(experiment: Experiment, run: Run) -> str:
    """What was simulated: without it the figures mean nothing."""
    setting = experiment.setting
    mus = ", ".join(f"{mu:g}" for mu in setting.mus or (setting.mu,))
    return (
        f"{len(run.latency):,} events in {format_duration(run.seconds)}, "
        f"{experiment.model} arrivals (seed {setting.seed}), {len(experiment.shares)} partitions, "
        f"mu {mus}/s\nSLO {setting.slo}, {setting.handover} hand-over, rebalance "
        f"{format_duration(setting.rebalance_seconds)}, start-up "
        f"{format_duration(setting.startup_seconds)}, heartbeat "
        f"{format_duration(setting.heartbeat_seconds)}, lag read "
        f"{format_duration(setting.lag_phase)} after the second"
    )


def render(runs: list[Run], slo: SLO) -> Table:
    """A row for each run: what it kept, what it cost, its latencies and actions."""
    table = Table(
        Column("policy", text=True),
        Column("in SLO"),
        *([Column("worst window")] if slo.window_seconds is not None else []),
        Column("SLO", text=True),
        Column("replica minutes"),
        Column("mean ms", 3),
        Column("p50 ms", 4),
        Column("p99 ms", 1),
        Column("max ms", 2),
        Column("ups", 6),
        Column("downs", 7),
        Column("rebal- ances", 5),
        Column("events/s", 8),
    )
    for run in runs:
        figures = run.summary()
        style = "green" if run.keeps_slo else "bold red"
        shares = [figures["sla_percent"]]
        if slo.window_seconds is not None:
            shares.append(figures["worst_window_percent"])
        table.add(
            run.policy,
            *(Text(f"{share:.2f}%", style=style) for share in shares),
            Text("kept" if run.keeps_slo else "MISSED", style=style),
            f"{figures['replica_minutes']:.2f}",
            *(_milliseconds(figures[f"{name}_ms"]) for name in ("mean", "p50", "p99", "max")),
            *(str(figures[name]) for name in ("scale_ups", "scale_downs", "rebalances")),
            f"{figures['throughput']:.1f}",
        )
    return table


def _milliseconds(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else "never"
