"""What `srtm correlate run` and `stream` are both told: where groups go, and which are meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from srtm.options.model import duration_option
from srtm.text.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])
_SHORTEST_SECONDS = 10.0


def group_options(command: Command) -> Command:
    """--out, --topic, --window, --floor and --rate."""
    for option in reversed(
        (
            click.option(
                "--out",
                type=click.Path(path_type=Path),
                required=True,
                metavar="DIR",
                help="Folder for groups.json and Parquet; a result there is replaced once this "
                "one is whole.",
            ),
            click.option("--topic", help="Only this topic."),
            duration_option("--window", "0", "Also by stretches of this length; windows.parquet."),
            click.option(
                "--floor",
                type=click.FloatRange(0, 1, min_open=True),
                default=0.3,
                show_default=True,
                help="Share of a publisher's arrivals that have to coincide, beyond chance.",
            ),
            click.option(
                "--rate",
                type=click.FloatRange(0, 0.5, min_open=True),
                default=0.01,
                show_default=True,
                help="False discovery rate among pairs.",
            ),
        )
    ):
        command = option(command)
    return command


def read_window(seconds: float) -> None:
    """Raises UsageError for one in which no group can be found."""
    if 0 < seconds < _SHORTEST_SECONDS:
        raise UsageError(f"--window: at least {_SHORTEST_SECONDS:g} s: a group needs some bursts")
