"""`srtm autoscale watch`: on a group that runs."""

import logging
import sys
from pathlib import Path

import click

from srtm.consumer.file import read_group_file
from srtm.consumer.required import require_client

LOG_LEVELS = {"debug": "DEBUG", "info": "INFO", "warn": "WARNING", "error": "ERROR"}


def log_to_stderr(level: str) -> None:
    logging.basicConfig(
        stream=sys.stderr,
        level=LOG_LEVELS[level],
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for name in ("asyncio", "tornado"):
        logging.getLogger(name).setLevel("WARNING")


_file = click.argument("file", type=click.Path(dir_okay=False, path_type=Path))


@click.command()
@_file
@click.option("--policy", "names", multiple=True, metavar="NAME", help="Only these; all otherwise.")
@click.option(
    "--count",
    type=click.IntRange(min=0),
    help="Looks before it ends; 0: until it is stopped.  [default: 0 on a terminal, 3 in a pipe]",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each look.")
def watch(file: Path, names: tuple[str, ...], count: int | None, as_json: bool) -> None:
    """Show the group of FILE once an interval, and what each policy would do.

    Rates and lags of each partition, who consumes it, what each consumer can serve. Nothing is
    changed: it asks for offsets and members only. Any group will do, whatever its consumers are.
    """
    parsed = read_group_file(file)
    require_client()
    from srtm.autoscaler.live.watch import watch_group  # librdkafka, an extra

    log_to_stderr("error")
    if count is None:
        count = 0 if sys.stdout.isatty() else 3
    watch_group(parsed, names, file, count, as_json)
