"""`srtm correlate`."""

import json
from pathlib import Path

import click

from srtm.correlation.need_commands import envelope, statistics, what_if
from srtm.correlation.result import Result, Topic, read_result
from srtm.terminal import Column, Table, show


@click.group("correlate")
def correlate() -> None:
    """Find which publishers burst together, by Spark, from the traces that gateways write.

    \b
      srtm correlate run --trace DIR --out DIR
      srtm correlate show DIR
      srtm correlate envelope --trace DIR
      srtm correlate statistics --trace DIR
      srtm correlate what-if --trace DIR --placement FILE
    """


for command in (envelope, statistics, what_if):
    correlate.add_command(command)


@correlate.command("show")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--topic", help="This topic alone.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show_command(folder: Path, topic: str | None, as_json: bool) -> None:
    """Show the groups that a run left in DIR. Needs no Spark."""
    print_result(read_result(folder).only(topic), as_json)


def print_result(result: Result, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(result.model_dump(mode="json"), indent=2))
        return
    table = Table(
        Column("topic", text=True),
        Column("group", text=True),
        Column("publishers"),
        Column("lift", rank=2),
        Column("q", rank=2),
        Column("coincidences", rank=1),
        Column("who", text=True, sentence=True, rank=3),
    )
    for topic in result.topics:
        for group in topic.groups:
            table.add(
                topic.topic,
                group.name,
                f"{len(group.publishers):,}",
                f"{group.lift:,.3g}",
                f"{group.q:.1g}",
                f"{group.coincidences:,}",
                _some(group.publishers),
            )
    lines = [_summary(topic) for topic in result.topics]
    show(*([table] if len(table) else []), *(lines or ["no arrivals"]))


def _summary(topic: Topic) -> str:
    return (
        f"{topic.topic}: {topic.publishers:,} publishers, {len(topic.groups):,} groups, "
        f"{topic.ungrouped:,} in none"
    )


_SHOWN = 5


def _some(publishers: tuple[str, ...]) -> str:
    more = f" and {len(publishers) - _SHOWN:,} more" if len(publishers) > _SHOWN else ""
    return ", ".join(publishers[:_SHOWN]) + more
