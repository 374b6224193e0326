"""`srtm correlate import`."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from srtm.text.errors import UnavailableError, UsageError
from srtm.text.terminal import printable

if TYPE_CHECKING:
    from srtm.traces.foreign.importing import Imported

_NS = 1_000_000_000
_COARSE_NS = 32_000_000
"""the widest window in which arrivals coincide (see groups/settings.py)"""


@click.command("import")
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    required=True,
    metavar="DIR",
    help="A new folder for the trace.",
)
@click.option("--time", required=True, metavar="COLUMN", help="When a message arrived.")
@click.option("--publisher", required=True, metavar="COLUMN", help="Who sent it.")
@click.option("--topic", metavar="COLUMN", help="Its topic; without it, all have that of --as.")
@click.option(
    "--as", "as_topic", metavar="TOPIC", default="imported", show_default=True,
    help="The topic of messages where no column has it.",
)  # fmt: skip
@click.option("--bytes", "size", metavar="COLUMN", help="The size of its body; without it, 0.")
@click.option("--broker", metavar="COLUMN", help="Where it arrived, for clocks that differ.")
@click.option(
    "--unit",
    type=click.Choice(["s", "ms", "us", "ns"]),
    help="Of times that are numbers; without it, the unit that makes them dates after 1973.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(["csv", "jsonl", "parquet"]),
    help="Without it, by the file's name.",
)
@click.option("--delimiter", metavar="CHARACTER", help="Of CSV; a comma, or a tab in a .tsv.")
@click.option(
    "--no-header", is_flag=True, help="The first line of CSV is a row; columns are 1, 2 and so on."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def import_command(
    files: tuple[Path, ...],
    trace: Path,
    time: str,
    publisher: str,
    topic: str | None,
    as_topic: str,
    size: str | None,
    broker: str | None,
    unit: str | None,
    kind: str | None,
    delimiter: str | None,
    no_header: bool,
    as_json: bool,
) -> None:
    """Make a trace of arrivals that somebody else recorded.

    FILE is CSV, JSON lines or Parquet, and may be compressed (.gz, .zst, .bz2, .lz4). Times are
    numbers since 1970, or ISO 8601, in UTC where they name no zone. A column of JSON lines or
    Parquet within another is named by a path, such as request.client. Rows that cannot be taken are
    left out and counted by reason.

    \b
      srtm correlate import access.csv.gz --time at --publisher client --trace DIR
      srtm correlate import *.jsonl --time ts --publisher user.id --topic stream --trace DIR
      srtm correlate run --trace DIR --out groups
    """
    if delimiter is not None and (len(delimiter) != 1 or ord(delimiter) > 0x7F):
        raise UsageError(f"--delimiter {delimiter!r}: one ASCII character")
    try:
        from srtm.traces.foreign.importing import Columns, Request, import_rows
        from srtm.traces.foreign.sources import How
    except ImportError:
        raise UnavailableError("pyarrow is not installed: pip install 'srtm[parquet]'") from None
    request = Request(
        files,
        trace,
        Columns(time, publisher, topic, size, broker),
        unit,
        as_topic,
        How(kind, delimiter, not no_header),
    )
    with _progress(silent=as_json) as tell:
        made = import_rows(request, tell)
    for line in [*made.odd.lines(), *_warnings(made)]:
        click.echo(printable(line), err=True)
    if as_json:
        click.echo(json.dumps(_document(made), indent=2))
    else:
        click.echo(
            f"{made.rows:,} arrivals from {_date(made.first_ns)} to {_date(made.last_ns)}"
            + (f", read as {made.unit} since 1970" if made.unit else "")
            + f": {made.file}"
        )


def _warnings(made: "Imported") -> Iterator[str]:
    if made.step_ns > _COARSE_NS:
        yield (
            f"all times are multiples of {made.step_ns / _NS:g} s: publishers whose arrivals fall "
            "into the same step seem to send at the same moment"
        )


def _document(made: "Imported") -> dict[str, object]:
    return {
        "file": str(made.file),
        "rows": made.rows,
        "unit": made.unit or None,
        "first": made.first_ns,
        "last": made.last_ns,
        "step": made.step_ns,
        "left_out": {why: asdict(found) for why, found in made.odd.reasons.items()},
    }


def _date(ns: int) -> str:
    return f"{datetime.fromtimestamp(ns / _NS, UTC):%Y-%m-%d %H:%M:%S} UTC"


@contextmanager
def _progress(silent: bool) -> Iterator[Callable[[Path, int], None] | None]:
    """Rows as they are read, on a terminal."""
    if silent or not sys.stderr.isatty():
        yield None
        return
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("reading", total=None)
        yield lambda path, rows: shown.update(
            task, description=printable(f"{path.name}: {rows:,} rows")
        )
