"""The topics of a Load Distributor alone: `srtm topic ... --distributor-address`."""

from collections.abc import Mapping
from typing import Any

import click

from distributor.cli.adaptation import since_line
from distributor.remote import Remote, print_json
from srtm.limits.contract import Batches
from srtm.text.terminal import Column, Table, show
from srtm.text.words import number, rate

_RULES = ("mode", "max_wait", "slo")
_DESCRIBED = (*_RULES, "fair", "lease_grace")


def list_topics(remote: Remote, as_json: bool) -> None:
    answer = remote.look("topics")
    if as_json:
        print_json(answer)
        return
    table = Table(
        Column("topic", text=True),
        Column("rate/s"),
        Column("burst"),
        Column("mode", 5, text=True),
        Column("max-wait", 6),
        Column("SLO", 2, text=True),
        Column("publishers"),
        Column("placed", 1),
        Column("declared/s", 3),
        Column("epoch", 4),
    )
    for each in answer["topics"]:
        table.add(
            each["topic"],
            *(number(each[key]) for key in ("rate", "burst")),
            *(str(each[key] or "-") for key in _RULES),
            *(f"{each[key]:,}" for key in ("publishers", "placed")),
            number(each["offered"]),
            "-" if each["epoch"] is None else str(each["epoch"]),
        )
    if len(table):
        show(table)
    else:
        click.echo("no topic yet; srtm topic register FILE, or srtm topic set NAME, makes one")


def describe_topic(remote: Remote, name: str, as_json: bool) -> None:
    """Its contract, its shares by broker and since when."""
    topic = remote.look("topics", name)
    adaptation = remote.look("topics", name, "adaptation")
    plan = None
    if topic["epoch"] is not None:
        plan = remote.look("topics", name, "placements", "current")
    if as_json:
        brokers = plan["brokers"] if plan else []
        print_json({**topic, "brokers": brokers, "adaptation": adaptation})
        return
    rules = ", ".join(f"{key.replace('_', '-')} {topic[key]}" for key in _DESCRIBED if topic[key])
    click.echo(f"topic {name}: r = {number(topic['rate'])}, b = {number(topic['burst'])}, {rules}")
    for line in batch_lines(topic, topic["largest_batch"], len(plan["brokers"]) if plan else 1):
        click.echo(line)
    click.echo(
        f"{topic['placed']:,} of {topic['publishers']:,} publishers placed, with "
        f"{rate(topic['offered'])} in all"
    )
    if plan is None:
        click.echo(f"not placed yet: srtm placement apply {name}")
        return
    table = Table(
        Column("broker", text=True),
        Column("publishers"),
        Column("messages/s", 1),
        Column("r"),
        Column("b"),
    )
    for each in plan["brokers"]:
        figures = (number(each[key]) for key in ("rate", "r", "b"))
        table.add(each["name"], f"{each['publishers']:,}", *figures)
    show(table)
    click.echo(since_line(adaptation))


def batch_lines(topic: Mapping[str, Any], largest: int, brokers: int) -> list[str]:
    """What is said of its batches. topic: as JSON has it; largest: messages of the largest that was
    over a broker's b, at most all of b; brokers: that share b."""
    lines, batch = [], int(topic.get("batch") or 1)
    if topic.get("batches") == Batches.EACH:
        lines.append("batches bigger than a broker's b wait for no other broker")
    if batch > 1:
        lines.append(f"batches of up to {batch:,}: no broker's b is below that")
    if largest > batch:
        burst = topic["burst"]
        needed = f" --burst {largest * brokers}" if largest * brokers > burst else ""
        lines.append(
            f"batches of {largest:,}{' or more' if largest >= int(burst) else ''} came, over a"
            " broker's b: each waits until its broker has the whole contract; srtm topic set"
            f" {topic['topic']} --batch {largest}{needed} gives each broker room for one"
        )
    return lines


def set_migration(remote: Remote, name: str, mode: str) -> dict[str, Any]:
    """What becomes of publishers at a broker in trouble. Raises UsageError."""
    answer: dict[str, Any] = remote.call("PUT", "topics", name, "migration", body={"mode": mode})
    return answer


def warn_of_rates(name: str, limit: float, declared: float) -> None:
    """Whoever lowers a contract under what its publishers have declared makes them wait."""
    if limit < declared:
        click.echo(
            f"warning: topic {name}: its publishers have declared {rate(declared)}, and the "
            f"contract lets {rate(limit)} through: the rest waits",
            err=True,
        )


def delete_topic(remote: Remote, name: str, as_json: bool) -> None:
    remote.call("DELETE", "topics", name)
    if as_json:
        print_json({"topic": name, "deleted": True})
    else:
        click.echo(f"topic {name} is deleted, with its publishers and placements")


def moves(
    before: Mapping[str, Any] | None, plan: Mapping[str, Any]
) -> dict[tuple[str, str], list[str]]:
    """Publishers by (from, to); "" for no broker."""
    was = {each["publisher"]: each["broker"] for each in before["assignments"]} if before else {}
    now = {each["publisher"]: each["broker"] for each in plan["assignments"]}
    found: dict[tuple[str, str], list[str]] = {}
    for publisher in sorted(was.keys() | now.keys()):
        pair = was.get(publisher, ""), now.get(publisher, "")
        if pair[0] != pair[1]:
            found.setdefault(pair, []).append(publisher)
    return found
