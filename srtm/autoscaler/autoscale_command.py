"""`srtm autoscale`: policies compared on a workload by simulation."""

import importlib.util
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
from srtm.autoscaler.live.live_commands import explain, run, stop, watch
from srtm.autoscaler.options import DEFAULT_PARTITIONS, SimulateOptions
from srtm.autoscaler.policies.registry import SIZES_BY_CONTRACT
from srtm.autoscaler.simulator.arrivals import even_shares
from srtm.autoscaler.simulator.feasibility import what_cannot_be_met
from srtm.autoscaler.simulator.run import Run
from srtm.autoscaler.simulator.setting import Setting
from srtm.autoscaler.simulator.workload import read_workload
from srtm.autoscaler.table import render, title
from srtm.cli.group import LazyGroup
from srtm.cli.policies import list_policies
from srtm.options.model import add_options, read_options
from srtm.text.errors import PLOTS, UnavailableError, UsageError
from srtm.text.terminal import show


@click.group(cls=LazyGroup)
def autoscale() -> None:
    """Scale the consumers of Kafka groups and NSQ pools; compare autoscalers by simulation.

    \b
    See a group without changing it, and what each policy would do:
      srtm autoscale watch group.toml
    Control the group:
      srtm autoscale run group.toml
    """


for _live in (watch, run, explain, stop):
    autoscale.add_command(_live)


@autoscale.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON list.")
def policies(as_json: bool) -> None:
    """List the policies that `srtm autoscale simulate` knows."""
    list_policies(policy_names(), as_json)


@autoscale.command(context_settings={"auto_envvar_prefix": "SRTM_AUTOSCALE_SIMULATE"})
@add_options(SimulateOptions)
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, one object for a policy.")
@click.pass_context
def simulate(context: click.Context, /, as_json: bool, **_: object) -> None:
    """Run policies on a workload, event by event, and compare their cost and how they keep the SLO.

    Each event of the workload is one message with its own latency. The group has start-up times,
    heartbeats, polls and rebalances; consumers are billed from their launch to the end of their
    last poll. Policies see what a live controller sees: rates, lag and members, once a second. With
    `burst` arrivals --lag-phase decides how much of a second's events they see as lag.

    A setting under which the SLO cannot be met is simulated all the same, and a note below the
    table says what would help. Notes also name the limits that a policy's paper prescribes. With
    --json the notes go to stderr.

    \b
    CLOSER's two algorithms on a workload, as in the paper, with plots:
      srtm autoscale simulate --workload iot.csv --policy closer1 --policy closer2 \\
        --arrivals burst --out out/
    A skewed topic and direct hand-over:
      srtm autoscale simulate --workload iot.csv --policy closer2 --handover direct \\
        --shares 0.27,0.27,0.16,0.15,0.15
    """
    options = read_options(SimulateOptions, context)
    names, out = options.policy, options.out
    check_names(names)
    if SIZES_BY_CONTRACT in names and options.contract is None:
        raise UsageError(
            f"--policy {SIZES_BY_CONTRACT} sizes by a contract: give --contract rate=1000,burst=200"
        )
    experiment = _experiment(options)
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


def _experiment(options: SimulateOptions) -> Experiment:
    rates, shares = read_workload(options.workload), options.shares
    try:
        setting = Setting(
            slo=options.slo,
            mu=options.mu[0],
            mus=options.mu if len(options.mu) > 1 else (),
            rebalance_seconds=options.rebalance,
            handover=options.handover,
            startup_seconds=options.startup,
            lag_phase=options.lag_phase,
            heartbeat_seconds=options.heartbeat,
            initial=options.initial,
            seed=options.seed,
        )
        if shares is None:
            count = options.partitions
            shares = even_shares(DEFAULT_PARTITIONS if count is None else count)
    except ValueError as error:
        raise UsageError(str(error)) from None
    return Experiment(rates, shares, options.arrivals, setting, options.contract)


def _prepare(folder: Path) -> None:
    """Make the folder, and check that plots can be made and written there, before the runs and not
    after them."""
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
