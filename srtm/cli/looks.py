"""Commands that look at something again and again: `--interval`, `--count`, and the loop."""

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import wraps
from typing import Any, TypeVar

import click

from srtm.text.duration import parse_duration
from srtm.text.errors import UsageError

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Looks:
    """When to look. count: 0: until it is stopped"""

    interval_seconds: float
    count: int

    def __iter__(self) -> Iterator[None]:
        """A turn for each look, the first at once."""
        seen = 1
        yield
        while seen != self.count:
            time.sleep(self.interval_seconds)
            seen += 1
            yield


def count_option(in_pipe: int) -> Callable[[Command], Command]:
    """--count. in_pipe: its default in a pipe, as in `default_count`"""
    return click.option(
        "--count",
        type=click.IntRange(min=0),
        help="Stop after N looks; 0 repeats for ever.  "
        f"[default: 0 on a terminal, {in_pipe} in a pipe]",
    )


def default_count(in_pipe: int) -> int:
    """Whoever reads a pipe waits for its end."""
    return 0 if sys.stdout.isatty() else in_pipe


def looks_options(command: Command) -> Command:
    """--interval and --count; the command gets them as `looks`."""

    @wraps(command)
    def repeated(*args: Any, interval: str | None, count: int | None, **given: Any) -> Any:
        try:
            seconds = parse_duration(interval or "2s")
        except ValueError as error:
            raise UsageError(f"--interval: {error}") from None
        if count is None:
            count = 0 if interval else default_count(1)
        return command(*args, looks=Looks(seconds, count), **given)

    made: Any = count_option(1)(repeated)
    return click.option("--interval", help="Repeat every DURATION.  [default: 2s]")(made)  # type: ignore[no-any-return]
