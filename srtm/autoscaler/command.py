"""`srtm autoscale`: policies compared on a workload by simulation."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from srtm.autoscaler.comparison import (
    Experiment,
    check_names,
    policy_names,
    run_policy,
)
from srtm.autoscaler.decision import Handover
from srtm.autoscaler.live.command import explain, run, stop, watch
from srtm.autoscaler.simulator.arrivals import ArrivalModel, even_shares
from srtm.autoscaler.simulator.feasibility import what_cannot_be_met
from srtm.autoscaler.simulator.run import Run
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import read_workload
from srtm.autoscaler.table import render, title
from srtm.errors import PLOTS, UnavailableError, UsageError
from srtm.options import duration_option, parsed
from srtm.slo import SLO
from srtm.terminal import show

_DEFAULT_PARTITIONS = 5  # CLOSER's and ICCBDC's experiments


def _numbers(example: str) -> Callable[[str], tuple[float, ...]]:
    def read(text: str) -> tuple[float, ...]:
        try:
            return tuple(float(part) for part in text.split(","))
        except ValueError:
            raise ValueError(f"{text!r} is no list of numbers such as {example}") from None

    return read


@click.group()
def autoscale() -> None:
    """Consumer autoscalers: simulated and compared, and on groups that run.

    \b
    See a group without touching it, and what each policy would do:
      srtm autoscale watch group.toml
    Control it:
      srtm autoscale run group.toml
    """


for _live in (watch, run, explain, stop):
    autoscale.add_command(_live)


@autoscale.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def policies(as_json: bool) -> None:
    """List the policies that `srtm autoscale simulate` knows."""
    known = policy_names()
    if as_json:
        listed = [{"policy": name, "description": text} for name, text in known.items()]
        click.echo(json.dumps(listed, indent=2))
        return
    width = max(map(len, known))
    for name, text in known.items():
        click.echo(f"{name:<{width}}  {text}")


@autoscale.command()
@click.option(
    "--workload",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE.csv",
    help="One row a second, the last column is the topic's events/s; a header is skipped.",
)
@click.option(
    "--policy",
    "names",
    multiple=True,
    required=True,
    metavar="NAME",
    help="Policy to run; several are compared. `srtm autoscale policies` lists them.",
)
@click.option(
    "--partitions",
    type=int,
    help=f"Partitions with equal shares.  [default: {_DEFAULT_PARTITIONS}, or those of --shares]",
)
@click.option(
    "--shares",
    metavar="0.5,0.3,0.2",
    callback=parsed(_numbers("0.5,0.3,0.2")),
    help="Share of the events of each partition; they sum to 1.",
)
@click.option(
    "--mu",
    "mus",
    default="200",
    show_default=True,
    metavar="200 or 140,200,260",
    callback=parsed(_numbers("140,200,260")),
    help="Events/s that a consumer serves; several: of each, in the order of launches.",
)
@click.option(
    "--slo",
    default="0.99@500ms",
    show_default=True,
    metavar="P@DURATION",
    callback=parsed(SLO.parse),
    help="Share of events and the time from arrival to the end of processing (w_sla); "
    "0.99@500ms over 10m asks it of every ten minutes.",
)
@duration_option(
    "--rebalance", "500ms", "t_reb: from the last member's rejoining to the new assignment."
)
@click.option(
    "--handover",
    type=click.Choice(list(map(str, Handover))),
    default="eager",
    show_default=True,
    help="Eager: all stop; cooperative: what moves stops for two rebalances; direct: for one.",
)
@duration_option("--startup", "5s", "From a launch, which is billed, to joining the group.")
@click.option(
    "--arrivals",
    "model",
    type=click.Choice(list(map(str, ArrivalModel))),
    default="poisson",
    show_default=True,
    help="Events within a second: evenly, at random, or all at its start as the papers send them.",
)
@duration_option("--lag-phase", "100ms", "Decisions are taken this long after each full second.")
@duration_option("--heartbeat", "3s", "How often a member asks whether a rebalance is due.")
@click.option("--initial", default=1, show_default=True, help="Consumers at the start.")
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="Of Poisson arrivals and heartbeat phases.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write simulation.json and simulation.png (arrivals, replicas, latency, CDF) there.",
)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object for a policy.")
def simulate(
    workload: Path, names: tuple[str, ...], out: Path | None, as_json: bool, **flags: Any
) -> None:
    """Run policies on a workload, event by event, and compare what they cost and keep.

    Each event of the workload is one message with a latency of its own. The group has start-up
    times, heartbeats, polls and rebalances; consumers are billed from their launch to the end of
    their last poll. Policies see what a live controller sees: rates, lag and members, once a
    second. Under `burst` arrivals --lag-phase decides how much of a second they see as lag.

    What cannot be met runs all the same and is named below the table, with what would help; with
    --json on stderr. So are the clamps that a policy's paper prescribes.

    \b
    CLOSER's two algorithms on a workload, as in the paper, with plots:
      srtm autoscale simulate --workload iot.csv --policy closer1 --policy closer2 \\
        --arrivals burst --out out/
    A skewed topic and direct hand-over:
      srtm autoscale simulate --workload iot.csv --policy closer2 --handover direct \\
        --shares 0.27,0.27,0.16,0.15,0.15
    """
    check_names(names)
    experiment = _experiment(read_workload(workload), **flags)
    if out is not None:
        _prepare(out)
    try:
        arrivals = experiment.arrivals()
    except ValueError as error:
        raise UsageError(str(error)) from None
    warnings = list(what_cannot_be_met(arrivals, experiment.setting))
    runs: list[Run] = []
    with _progress(len(names), arrivals.seconds) as progress:
        for name in names:
            outcome = run_policy(name, experiment, arrivals, progress(name))
            runs.append(outcome.run)
            warnings += outcome.notes
    document = json.dumps([run.summary() for run in runs], indent=2)
    if as_json:
        click.echo(document)
    else:
        show(Text(title(experiment, runs[0])), render(runs, experiment.setting.slo))
    for warning in warnings:
        click.echo(f"note: {warning}", err=as_json)
    if out is not None:
        _write(out, document, runs)


def _experiment(
    rates: list[float],
    *,
    partitions: int | None,
    shares: tuple[float, ...] | None,
    model: str,
    handover: str,
    rebalance: float,
    startup: float,
    heartbeat: float,
    mus: tuple[float, ...],
    **same: Any,
) -> Experiment:
    if shares is not None and partitions not in (None, len(shares)):
        raise UsageError(f"--partitions {partitions} and {len(shares)} --shares: give one of them")
    try:
        setting = Setting(
            handover=Handover(handover),
            mu=mus[0],
            mus=mus if len(mus) > 1 else (),
            rebalance_seconds=rebalance,
            startup_seconds=startup,
            heartbeat_seconds=heartbeat,
            **same,
        )
        if shares is None:
            shares = even_shares(_DEFAULT_PARTITIONS if partitions is None else partitions)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Experiment(rates, shares, ArrivalModel(model), setting)


def _prepare(folder: Path) -> None:
    """Before the runs, not after them."""
    if importlib.util.find_spec("matplotlib") is None:
        raise UnavailableError(f"--out: plots need matplotlib; {PLOTS}")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {folder}: {error.strerror}") from None
    if not os.access(folder, os.W_OK):
        raise UsageError(f"--out {folder}: not writable")


def _write(folder: Path, document: str, runs: list[Run]) -> None:
    from srtm.autoscaler.simulator.plots import draw  # an extra, and half a second to import

    (folder / "simulation.json").write_text(document + "\n")
    draw(runs, folder / "simulation.png")
    click.echo(f"wrote simulation.json and simulation.png in {folder}", err=True)


@contextmanager
def _progress(
    count: int, seconds: int
) -> Iterator[Callable[[str], Callable[[float], None] | None]]:
    """A bar on a terminal: simulated time over all policies."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda name: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=count * seconds)
        begun = 0

        def start(name: str) -> Callable[[float], None]:
            nonlocal begun
            before, begun = begun, begun + seconds
            bar.update(task, description=name, completed=before)
            return lambda now: bar.update(task, completed=before + now)

        yield start
