"""`srtm placement`."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import click
from rich.console import Console, Group
from rich.text import Text

from distributor.api_fields import FittingMode, Meanwhile
from distributor.cli.adaptation import when
from distributor.cli.groups import groups
from distributor.cli.offline import read_offline
from distributor.cli.topics import moves
from distributor.grouping.keys import Use
from distributor.placement.policies import POLICIES
from distributor.remote import Remote, print_json, remote_options
from srtm.cli.group import LazyGroup
from srtm.text.errors import Exit, SrtmError, UsageError
from srtm.text.terminal import Column, Table
from srtm.text.terminal import show as show_
from srtm.text.words import counted, number, rate, some

_FOLLOW_SECONDS = 0.5

_policy = click.option(
    "--policy",
    type=click.Choice(list(POLICIES)),
    default="srtm",
    show_default=True,
    help="How publishers are placed; all policies but srtm are for comparison.",
)
_keep = click.option(
    "--keep",
    is_flag=True,
    help="Place only publishers whose broker is not up or that have none (policy srtm).",
)


_groups = click.option(
    "--groups",
    type=click.Choice(get_args(Use)),
    help="Which groups count: the keys of users, the groups inferred from traces, or both, where "
    "keys come first. With inferred or both, srtm placement plan uses proposed groups, too.",
)


@click.group(
    cls=LazyGroup, imported={"simulate": "distributor.simulator.simulate_command:simulate"}
)
def placement() -> None:
    """Decide which publisher of a topic sends to which broker."""


@placement.command()
@click.argument("topic", required=False)
@click.option(
    "--offline",
    "file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="JSON file with brokers, topic and publishers; the distributor is not asked.",
)
@_policy
@_keep
@_groups
@remote_options
def plan(
    topic: str | None,
    file: Path | None,
    policy: str,
    keep: bool,
    groups: str | None,
    remote: Remote,
    as_json: bool,
) -> None:
    """Show a placement of TOPIC and its reasons; nothing is carried out.

    \b
    FILE: {"brokers": [{"name": "b1", "capacity": 20000, "allocated": 5000}],
           "topic": {"name": "t", "rate": 11000, "burst": 50, "slo": "0.99@1ms"},
           "publishers": [{"id": "p1", "key": "room-1", "rate": 10}]}

    Rates are messages/s. capacity is the rate that the broker holds within topic.slo; allocated is
    the sum of the declared rates already there; publishers with the same key send together (null:
    none). Publishers for which there is no room are listed as unplaced, and the exit code is 0.
    """
    if (topic is None) == (file is None):
        raise UsageError("srtm placement plan: give TOPIC, or --offline FILE")
    if file is not None:
        if keep:
            raise UsageError("--keep: FILE does not say where publishers are; leave it out")
        if groups:
            raise UsageError("--groups: FILE has the keys alone; leave it out")
        _show(POLICIES[policy](*read_offline(file).values()).document(), as_json)
    else:
        assert topic is not None
        body = {"policy": policy, "keep": keep, "groups": groups, "dry_run": True}
        found = remote.call("POST", "topics", topic, "placements", body=body)
        try:
            before = remote.call("GET", "topics", topic, "placements", "current")
        except UsageError:  # it has none yet
            before = None
        changes = moves(before, found)
        found["moves"] = [
            {"from": former or None, "to": to or None, "publishers": who}
            for (former, to), who in changes.items()
        ]
        _show(found, as_json)
        if not as_json:
            _show_moves(changes, before is None)


@placement.command()
@click.argument("topic", nargs=-1, required=True, metavar="TOPIC...")
@_policy
@_keep
@_groups
@remote_options
def apply(
    topic: tuple[str, ...],
    policy: str,
    keep: bool,
    groups: str | None,
    remote: Remote,
    as_json: bool,
) -> None:
    """Place the publishers of one TOPIC or more, in their order. They move once their new brokers
    have their shares."""
    body = {"policy": policy, "keep": keep, "groups": groups, "dry_run": False}
    placed: list[dict[str, Any]] = []
    for name in topic:
        try:
            found = remote.call("POST", "topics", name, "placements", body=body)
        except SrtmError as error:
            if not placed:
                raise
            raise type(error)(f"{error}; {len(placed)} of {len(topic)} topics are placed") from None
        placed.append({"topic": name, **found})
        if len(topic) > 1 and not as_json:
            left = f", {len(found['unplaced']):,} without a broker" if found["unplaced"] else ""
            click.echo(
                f"topic {name}: {counted(len(found['assignments']), 'publisher')} on "
                f"{some([each['name'] for each in found['brokers']])}{left}"
            )
    if len(topic) == 1:
        _show(found, as_json)
    elif as_json:
        print_json(placed)


placement.add_command(groups)


@placement.command()
@click.argument("topic")
@click.option(
    "--mode",
    type=click.Choice(get_args(FittingMode)),
    default="sequential",
    show_default=True,
    help="sequential: a test that stops as soon as it is sure; paper: rounds of 60 s.",
)
@click.option(
    "--meanwhile",
    type=click.Choice(get_args(Meanwhile)),
    default="hold",
    show_default=True,
    help="Publishers taken off a broker that misses its SLO wait, or send through other brokers "
    "that have room.",
)
@click.option(
    "--batch",
    type=click.FloatRange(min=1),
    default=1.0,
    show_default=True,
    help="Messages that a publisher sends at one instant, where that is known.",
)
@click.option("--stop", is_flag=True, help="Stop the fitting in progress.")
@click.option(
    "--no-wait", is_flag=True, help="Start the fitting and return; the distributor carries it on."
)
@remote_options
def fit(
    topic: str,
    mode: str,
    meanwhile: str,
    batch: float,
    stop: bool,
    no_wait: bool,
    remote: Remote,
    as_json: bool,
) -> None:
    """Fit TOPIC by measurement: put its publishers on the fewest brokers that keep its SLO.

    The publishers must be sending. The command shows the current round and then the result; srtm
    placement explain TOPIC shows all rounds. The distributor goes on even if the command is ended.
    Exit code 1: the SLO cannot be kept, or the fitting failed.
    """
    if stop:
        found = remote.call("DELETE", "topics", topic, "fitting")
    else:
        body = {"mode": mode, "meanwhile": meanwhile, "batch": batch}
        try:
            found = remote.call("POST", "topics", topic, "fitting", body=body)
            if not no_wait:
                found = _follow(remote, topic, found, quiet=as_json)
        except KeyboardInterrupt:  # the answer may have been on its way
            raise SrtmError(
                f"a fitting that has begun goes on: srtm placement explain {topic} shows its "
                f"rounds, srtm placement fit {topic} --stop ends it"
            ) from None
    if as_json:
        print_json(found)
    else:
        show_(_fitting(found))
    if not stop and found["state"] not in ("running", "met"):
        raise click.exceptions.Exit(Exit.FAILED)


def _follow(remote: Remote, topic: str, found: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """Follow the fitting until it has ended."""
    with Console(stderr=True, quiet=quiet).status("starts") as status:
        while found["state"] == "running":
            waiting = found["held"] + found["elsewhere"]
            status.update(
                f"round {found['round']} over {some(found['brokers']) or 'no broker yet'}, "
                f"{counted(waiting, 'publisher')} outside"
            )
            time.sleep(_FOLLOW_SECONDS)
            found = remote.call("GET", "topics", topic, "fitting")
    return found


def _fitting(found: dict[str, Any]) -> Group:
    head = (
        f"{found['state']}: {counted(found['round'], 'round')}, {found['seconds']:.0f} s, "
        f"{some(found['brokers']) or 'no brokers'}"
    )
    return Group(Text(head), *(Text(f"- {reason}") for reason in found["reasons"]))


@placement.command()
@click.argument("topic")
@remote_options
def show(topic: str, remote: Remote, as_json: bool) -> None:
    """Show the placement of TOPIC that is in force."""
    _show(remote.look("topics", topic, "placements", "current"), as_json)


@placement.command()
@click.argument("topic")
@click.argument("publisher", required=False)
@remote_options
def explain(topic: str, publisher: str | None, remote: Remote, as_json: bool) -> None:
    """Show why TOPIC is placed as it is: every placement with its reasons, newest first. With
    PUBLISHER, show its broker and the placement that put it there."""
    history = remote.look("topics", topic, "placements")["placements"]
    if publisher is None:
        if as_json:
            print_json({"topic": topic, "placements": history})
            return
        if not history:
            click.echo(f"topic {topic} has no placement yet")
        for each in history:
            _explain(each)
        return
    place = remote.look("topics", topic, "publishers", publisher)
    by = next((each for each in history if each["epoch"] <= place["epoch"]), None)
    if as_json:
        print_json({**place, "placement": by})
        return
    group = _group(remote, topic, publisher, place["key"])
    where = place["broker"] or "no broker"
    click.echo(f"{publisher}: {where}, {rate(place['rate'])}, {group}")
    if by:
        _explain(by)


def _group(remote: Remote, topic: str, publisher: str, key: str | None) -> str:
    """The publisher's group: by a user's key or by an inferred group, else one of its own."""
    if key:
        return f"group {key}"
    accepted = remote.look("topics", topic, "groups")["accepted"]
    for each in accepted["groups"] if accepted else ():
        if publisher in each["publishers"]:
            return f"inferred group {each['name']} (proposal {accepted['number']})"
    return "a group of its own"


def _explain(entry: dict[str, Any]) -> None:
    names = some([each["name"] for each in entry["brokers"]])
    click.echo(f"epoch {entry['epoch']}, {when(entry['at'])}, policy {entry['policy']}: {names}")
    for reason in entry["reasons"]:
        click.echo(f"  - {reason}")


@placement.command()
@click.argument("topic")
@remote_options
def migrations(topic: str, remote: Remote, as_json: bool) -> None:
    """Show which publishers of TOPIC should leave a broker in trouble, and which have left one,
    when and why; newest first.

    A broker is in trouble if for 10 s it gets more messages than it holds, or its messages are late
    even without their token wait. srtm topic set TOPIC --migrate decides whether moves are proposed
    (the default), made, or neither.
    """
    found = remote.call("GET", "topics", topic, "migrations")
    if as_json:
        print_json(found)
        return
    click.echo(f"topic {topic}: migrate {found['mode']}")
    if not any(found[each] for each in ("trouble", "blocked", "proposed", "applied")):
        click.echo("no broker of it is in trouble, and nobody has left one")
    for broker, reason in found["trouble"].items():
        click.echo(f"broker {broker} is in trouble: {reason}")
    for reason in found["blocked"]:
        click.echo(f"  - {reason}")
    if found["proposed"]:
        click.echo(f"proposed; srtm placement migrate {topic} carries it out:")
        _migration(found["proposed"])
    for each in found["applied"]:
        click.echo(f"applied {when(each['at'])}:")
        _migration(each)


@placement.command()
@click.argument("topic")
@remote_options
def migrate(topic: str, remote: Remote, as_json: bool) -> None:
    """Carry out the moves that are proposed for TOPIC."""
    found = remote.call("POST", "topics", topic, "migrations")
    if as_json:
        print_json(found)
    else:
        click.echo(f"topic {topic}: {counted(len(found['moves']), 'publisher')} moved:")
        _migration(found)


def _migration(found: dict[str, Any]) -> None:
    for each in found["moves"]:
        way = f"{each['publisher']} from {each['source']} to {each['target']}"
        click.echo(f"  {way}: {each['reason']}")
    for reason in found["reasons"]:
        click.echo(f"  - {reason}")


def _show(found: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(found)
    else:
        show_(_render(found))


def _show_moves(changes: Mapping[tuple[str, str], Sequence[str]], is_first: bool) -> None:
    if is_first:
        return
    if not changes:
        click.echo("nobody would move")
    for (former, to), who in changes.items():
        way = f"from {former or 'no broker'} to {to or 'no broker'}"
        click.echo(f"would move {way}: {counted(len(who), 'publisher')}: {some(who)}")


def _render(found: dict[str, Any]) -> Group:
    epoch = f", epoch {found['epoch']}" if found.get("epoch") else ""
    title = f"policy {found['policy']}{epoch}"
    table = Table(
        Column("broker", text=True),
        Column("publishers", 1),
        Column("messages/s"),
        Column("quota", 2),
        Column("r"),
        Column("b"),
        title=title,
    )
    for share in found["brokers"]:
        figures = (share["rate"], share["quota"], share["r"], share["b"])
        table.add(share["name"], f"{share['publishers']:,}", *map(number, figures))
    lines = [Text(f"- {reason}") for reason in found["reasons"]]
    if found["unplaced"]:
        unplaced = found["unplaced"]
        who = f"unplaced: {counted(len(unplaced), 'publisher')}: {some(unplaced)}"
        lines.insert(0, Text(who))
    return Group(*([table] if found["brokers"] else []), *lines)
