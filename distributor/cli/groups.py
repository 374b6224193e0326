"""`srtm placement groups`: who bursts together by a trace, and what of it counts."""

from collections.abc import Mapping
from typing import Any

import click

from distributor.cli.adaptation import when
from distributor.remote import Remote, print_json, remote_options
from srtm.text.errors import UsageError
from srtm.text.terminal import Column, Table, printable, show
from srtm.text.words import counted, some

_DECISIONS = ("accept", "reject", "forget")
_MODES = ("auto", "propose")
_FLOOR = ("lift", "q", "coincidences", "share")
_SHOWN = 20
"""groups, keys; --json has all"""


@click.command()
@click.argument("topic")
@click.argument("action", required=False, type=click.Choice([*_DECISIONS, *_MODES]))
@click.option(
    "--number",
    type=int,
    help="Number of the proposal that you looked at; the command fails if a newer one has come.",
)
@click.option("--lift", type=float, help="auto: smallest lift that is accepted.  [3 at first]")
@click.option("--q", type=float, help="auto: largest q that is accepted.  [0.001 at first]")
@click.option("--coincidences", type=int, help="auto: fewest coincidences.  [20 at first]")
@click.option("--share", type=float, help="auto: smallest share accepted.  [0.3 at first]")
@remote_options
def groups(
    topic: str,
    action: str | None,
    number: int | None,
    lift: float | None,
    q: float | None,
    coincidences: int | None,
    share: float | None,
    remote: Remote,
    as_json: bool,
) -> None:
    """Show the groups that srtm correlate propose sent for TOPIC, with their evidence, and where
    they and the keys of users disagree; or decide on them.

    \b
      accept   the proposed groups count from the next placement on (keys of users come first)
      reject   drop the proposal
      forget   drop the accepted groups
      auto     accept proposed groups whose evidence meets --lift, --q, --coincidences, --share
      propose  groups count only after accept (the default)
    """
    floor = {"lift": lift, "q": q, "coincidences": coincidences, "share": share}
    changes = {name: value for name, value in floor.items() if value is not None}
    if changes and action not in _MODES:
        raise UsageError(f"--{min(changes)} goes with auto")
    if number is not None and action not in ("accept", "reject"):
        raise UsageError("--number goes with accept and reject")
    if action is None:
        found = remote.call("GET", "topics", topic, "groups")
        if as_json:
            print_json(found)
        else:
            _show(found)
        return
    if action in _MODES:
        before = remote.call("GET", "topics", topic, "groups")["floor"]
        body = {**before, **changes, "mode": action}
        taken = remote.call("PUT", "topics", topic, "grouping", body=body)
    else:
        body = {"decision": action, "number": number}
        taken = remote.call("POST", "topics", topic, "groups", body=body)
    if as_json:
        print_json(taken)
    else:
        click.echo(taken_line(taken))


def taken_line(taken: Mapping[str, Any]) -> str:
    """What there is after a change."""
    topic = taken["topic"]
    said = f"topic {topic}: {counted(taken['accepted'], 'group')} accepted"
    if taken["accepted"]:
        said += (
            f", {counted(taken['publishers'], 'publisher')} in them; "
            f"srtm placement apply {topic} places by them"
        )
    if taken["proposed"]:
        said += (
            f"; {counted(taken['proposed'], 'group')} proposed: srtm placement groups {topic} "
            "shows them, with accept they count"
        )
    return said


def _show(found: Mapping[str, Any]) -> None:
    floor = found["floor"]
    how = "by hand"
    if floor["mode"] == "auto":
        how = (
            f"by themselves from lift {floor['lift']:g}, share {floor['share']:g}, "
            f"{floor['coincidences']:,} coincidences and q {floor['q']:g} on"
        )
    lines: list[str] = [f"topic {found['topic']}: groups are accepted {how}"]
    shown: list[Any] = []
    for word in ("proposed", "accepted"):
        proposal = found[word]
        if proposal is None:
            lines.append(f"{word}: none")
            continue
        table = _table(word, proposal)
        shown += [table] if len(table) else [_head(word, proposal)]
        left = len(proposal["groups"]) - _SHOWN
        if left > 0:
            shown.append(f"{counted(left, 'group')} more: --json has all")
    lines += _apart(found["disagreement"])
    show(lines[0], *shown, *lines[1:])


def _head(word: str, proposal: Mapping[str, Any]) -> str:
    gone = proposal["gone"]
    return (
        f"{word}: proposal {proposal['number']} of {when(proposal['at'])}, "
        f"{counted(len(proposal['groups']), 'group')} of {proposal['publishers']:,} publishers, "
        f"arrivals from {when(proposal['first'] / 1e9)} to {when(proposal['last'] / 1e9)}"
        + (f"; {counted(gone, 'publisher')} in them not registered now" if gone else "")
    )


def _table(word: str, proposal: Mapping[str, Any]) -> Table:
    table = Table(
        Column("group", text=True),
        Column("publishers"),
        Column("lift", 1),
        Column("q", 2),
        Column("coincidences", 1),
        Column("share", 1),
        Column("who", 3, text=True, sentence=True),
        Column("below the floor of auto", 4, text=True, sentence=True),
        title=_head(word, proposal),
    )
    for each in proposal["groups"][:_SHOWN]:
        table.add(
            each["name"],
            f"{len(each['publishers']):,}",
            f"{each['lift']:,.3g}",
            f"{each['q']:.1g}",
            f"{each['coincidences']:,}",
            f"{each['share']:.2f}",
            some(each["publishers"]),
            each["short"] or "-",
        )
    return table


def _apart(found: Mapping[str, Any]) -> list[str]:
    """Where keys and groups disagree, in sentences."""
    if not found["groups"]:
        return []
    said = ["keys and groups disagree (keys win):"]
    for each in found["keys"][:_SHOWN]:
        where = f"{each['together']:,} of {each['members']:,} are in {each['group']}"
        if each["group"] is None:
            where = f"no two of its {each['members']:,} publishers are in one group"
        rest = [f"{count:,} in {name}" for name, count in each["elsewhere"].items()]
        rest += [f"{each['alone']:,} in none"] if each["alone"] else []
        said.append(_sentence(f"key {each['key']}: {where}", rest, each["named"]))
    for each in found["groups"][:_SHOWN]:
        where = f"{each['keyed']:,} of {each['members']:,} have key {each['key']}"
        rest = [f"{count:,} key {name}" for name, count in each["others"].items()]
        rest += [f"{each['keyless']:,} none"] if each["keyless"] else []
        said.append(_sentence(f"group {each['group']}: {where}", rest, each["named"]))
    more = found["more"] + sum(max(0, len(found[each]) - _SHOWN) for each in ("keys", "groups"))
    if more:
        said.append(f"  and {more:,} more; --json has more of them")
    return said


def _sentence(head: str, rest: list[str], named: list[str]) -> str:
    who = f" ({some(named)})" if named else ""
    return printable(f"  {', '.join([head, *rest])}{who}")
