"""A comparison for people."""

from rich.box import SIMPLE
from rich.table import Table
from rich.text import Text

from srtm.autoscaler.comparison import Experiment
from srtm.autoscaler.simulator.run import Run
from srtm.duration import format_duration
from srtm.slo import SLO


def title(experiment: Experiment, run: Run) -> str:
    """What was simulated: without it the figures mean nothing."""
    setting = experiment.setting
    return (
        f"{len(run.latency):,} events in {format_duration(run.seconds)}, "
        f"{experiment.model} arrivals (seed {setting.seed}), {len(experiment.shares)} partitions, "
        f"mu {setting.mu:g}/s\nSLO {setting.slo}, {setting.handover} hand-over, rebalance "
        f"{format_duration(setting.rebalance_seconds)}, start-up "
        f"{format_duration(setting.startup_seconds)}, heartbeat "
        f"{format_duration(setting.heartbeat_seconds)}, lag read "
        f"{format_duration(setting.lag_phase)} after the second"
    )


def render(runs: list[Run], slo: SLO) -> Table:
    """A row for each run: what it kept, what it cost, its latencies and actions."""
    table = Table(box=SIMPLE, padding=(0, 1, 0, 0))
    table.add_column("policy", no_wrap=True)
    for column in ("in SLO", "replica\nminutes", "mean\nms", "p50\nms", "p99\nms", "max\nms"):
        table.add_column(column, justify="right", no_wrap=True)
    for column in ("ups", "downs", "rebal-\nances", "events/s"):
        table.add_column(column, justify="right", no_wrap=True)
    for run in runs:
        figures = run.summary()
        kept = run.sla_share >= slo.percentile
        table.add_row(
            run.policy,
            Text(f"{figures['sla_percent']:.2f}%", style="green" if kept else "bold red"),
            f"{figures['replica_minutes']:.2f}",
            *(_milliseconds(figures[f"{name}_ms"]) for name in ("mean", "p50", "p99", "max")),
            *(str(figures[name]) for name in ("scale_ups", "scale_downs", "rebalances")),
            f"{figures['throughput']:.1f}",
        )
    return table


def _milliseconds(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) else "never"
