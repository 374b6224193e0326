"""`python -m benchmarks list`, `run NAME`, `papers`, `tune` and `keep FILE...`."""

import sys
import tempfile
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from benchmarks.catalogue import BENCHMARKS, PAPERS
from benchmarks.harness.machine import commit
from benchmarks.harness.report import Report, render, write
from benchmarks.harness.session import Session, session
from benchmarks.kept import PAGE, keep, page
from srtm.report.result import Result, read
from srtm.text.errors import Exit, SrtmError, UsageError

_PIPED_WIDTH = 180  # nobody's terminal: nothing is cut
_out = click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("out/benchmarks"),
    show_default=True,
    help="Folder for NAME.json and NAME.png.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def cli() -> None:
    """Measure what SRTM claims, on this machine."""


@cli.command("list")
def list_them() -> None:
    """Name every benchmark and what it shows."""
    width = max(map(len, BENCHMARKS))
    for name, entry in BENCHMARKS.items():
        click.echo(f"{name:<{width}}  {entry.shows}")


@cli.command()
@click.argument("name", type=click.Choice(list(BENCHMARKS)), metavar="NAME")
@click.option("--quick", is_flag=True, help="At most 50 s; bars it cannot decide are undecided.")
@click.option(
    "--full",
    is_flag=True,
    help="What is modelled is run live too (adaptor: a minute; convergence: half an hour; "
    "srtm-7a and the like: every point of the panel at SRTM's scale, for hours); "
    "correlation-groups: 10^8 arrivals too (an hour).",
)
@click.option(
    "--minutes",
    type=click.FloatRange(1, 10_000),
    help="How long a benchmark of faults lasts; autoscale-live begins no other seed after it.",
)
@click.option(
    "--hosts",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Inventory of srtm testbed, up already: brokers of SRTM's experiments run there.",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when a bar is missed.")
@_out
def run(
    name: str,
    quick: bool,
    full: bool,
    minutes: float | None,
    hosts: Path | None,
    strict: bool,
    out: Path,
) -> None:
    """Run one benchmark of those that `list` names: a table here, NAME.json and a plot under
    --out."""
    entry = BENCHMARKS[name]
    for flag, given, allowed, why in (
        ("--full", full, entry.models, "is run live anyway"),
        ("--minutes", minutes is not None, entry.lasts, "ends by itself"),
        ("--hosts", hosts is not None, entry.spans, "runs on this host alone"),
    ):
        if given and quick and flag != "--hosts":
            raise UsageError(f"{flag} and --quick do not go together")
        if given and not allowed:
            raise UsageError(f"{flag}: {name} {why}; leave it out")
    with session(quick, full, minutes, hosts) as running:
        report = _run(name, running, out)
    if strict and any(bar.met is False for bar in report.bars):
        raise SrtmError(f"{name}: a bar was missed")


def _run(name: str, running: Session, out: Path) -> Report:
    report, document = _measured(name, running)
    console = _console()
    console.print(render(report))
    for path in write(name, report, document, out):
        console.print(f"wrote {path}")
    return report


def _measured(name: str, running: Session) -> tuple[Report, dict[str, Any]]:
    entry = BENCHMARKS[name]
    report = entry.load()(running)
    return report, running.document(name, report, entry.shows, entry.method)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _PIPED_WIDTH)


@cli.command("papers")
@_out
def run_papers(out: Path) -> None:
    """Run every benchmark that shows a table or figure of the five papers, one after the other.

    What has been run at this commit, and lies under --out, is not run again: a run that was ended
    goes on with the benchmark that it was at. `run papers` then shows every table and figure beside
    what is kept; `keep` adds to that.
    """
    from benchmarks.papers.run import SOURCES

    now = commit()
    for name in SOURCES:
        file = out / f"{name}.json"
        if not now["dirty"] and file.exists() and _is_whole(read(file), now["id"]):
            click.echo(f"{file}: of this commit already")
            continue
        with session(quick=False) as running:
            _run(name, running, out)


def _is_whole(result: Result, commit_id: str | None) -> bool:
    return result.commit.id == commit_id and not result.quick


@cli.command("keep")
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
def keep_them(files: tuple[Path, ...]) -> None:
    """Keep what runs measured: tables and bars of their NAME.json go to benchmarks/results/, and
    the page benchmarks/RESULTS.md is made anew from all that is there; so is what the papers' rows
    come to."""
    for file in files:
        click.echo(f"wrote {keep(file)}")
    with session(quick=False) as running, tempfile.TemporaryDirectory() as folder:
        made, *_ = write(PAPERS, *_measured(PAPERS, running), Path(folder))
        click.echo(f"wrote {keep(made)}")
    PAGE.write_text(page())
    click.echo(f"wrote {PAGE}")


@cli.command("tune")
@click.option(
    "--try",
    "tries",
    multiple=True,
    metavar="NAME=V,V",
    help="A constant of srtm.autoscaler.policies.srtm.tuning and the values to try.",
)
@click.option(
    "--every",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Only each case of this number: shapes and percentiles recur every 21 and every 3.",
)
@click.option(
    "--processes", type=click.IntRange(min=1), default=1, show_default=True, help="Side by side."
)
def tune_them(tries: tuple[str, ...], every: int, processes: int) -> None:
    """Choose the constants of the autoscaling policy anew, on generated cases of their own.

    Each --try is taken in its order; a value is kept where the objective is smaller with it:
    replica time, and late events beyond those allowed. No reported figure is of these cases.

    \b
      python -m benchmarks tune --try price=20,28,36 --try dearest=1.5,2,3 --every 4
    """
    from benchmarks.autoscaler.unseen import tune  # a second to import

    best, scores = tune.tune(tune.choices(tries), tune.cases(every), processes)
    _console().print(tune.table_of(scores))
    click.echo(f"best: {best}")


def main() -> None:
    """One line for a user's mistake, never a traceback."""
    try:
        code = cli.main(standalone_mode=False, prog_name="python -m benchmarks")
    except click.exceptions.Exit as stop:
        code = stop.exit_code
    except click.ClickException as error:
        error.show()
        code = Exit.USAGE
    except SrtmError as error:
        click.echo(f"benchmarks: {error}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = 130
    sys.exit(int(code or 0))


if __name__ == "__main__":
    main()
