"""`srtm placement`."""

import json
from pathlib import Path

import click
from rich.box import SIMPLE
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from distributor.model import Placement
from distributor.offline import read_offline
from distributor.placement import POLICIES
from distributor.placement.words import counted, number, some


@click.group()
def placement() -> None:
    """Decide which publisher of a topic sends to which broker."""


@placement.command()
@click.option(
    "--offline",
    "file",
    type=click.Path(path_type=Path),
    required=True,
    metavar="FILE",
    help="JSON file with brokers, topic and publishers; no service is asked.",
)
@click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default="srtm",
    show_default=True,
    help="How to place; all but srtm are there to compare with.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of a table.")
def plan(file: Path, policy: str, as_json: bool) -> None:
    """Show a placement and its reasons; nothing is carried out.

    \b
    FILE: {"brokers": [{"name": "b1", "capacity": 20000, "allocated": 5000}],
           "topic": {"name": "t", "rate": 11000, "burst": 50, "slo": "0.99@1ms"},
           "publishers": [{"id": "p1", "key": "room-1", "rate": 10}]}

    Rates are messages/s. capacity is what the broker holds within topic.slo, allocated the declared
    rates of all that is there; key (or null) says which publishers send together. Publishers for
    which there is no room are listed as unplaced, and the exit code stays 0.
    """
    found = POLICIES[policy](*read_offline(file).values())
    if as_json:
        click.echo(json.dumps(found.document(), indent=2))
    else:
        Console().print(_render(found))


def _render(found: Placement) -> Group:
    table = Table("broker", title=f"policy {found.policy}", title_justify="left", box=SIMPLE)
    for column in ("publishers", "messages/s", "quota", "r", "b"):
        table.add_column(column, justify="right")
    for share in found.brokers:
        figures = (share.rate, share.quota, share.r, share.b)
        table.add_row(share.name, f"{share.publishers:,}", *map(number, figures))
    lines = [Text(f"- {reason}") for reason in found.reasons]
    if found.unplaced:
        who = f"unplaced: {counted(len(found.unplaced), 'publisher')}: {some(found.unplaced)}"
        lines.insert(0, Text(who))
    return Group(*([table] if found.brokers else []), *lines)
