"""`--log-level`, and the log of a program, which goes to standard error."""

import logging
import sys

import click

log_level_option = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warn", "error"]),
    default="info",
    show_default=True,
    help="Lowest level that is logged.",
)


def log_to_stderr(level: str, quiet: tuple[str, ...] = ("asyncio", "tornado")) -> None:
    """Log what has at least `level`; of the libraries in `quiet`, warnings and errors alone."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    for name in quiet:
        logging.getLogger(name).setLevel("WARNING")
