"""`srtm autoscale explain`: the last decisions, their reasons, and what came of them."""

import json
import time
from typing import Any

import click

from srtm.consumer.file import GroupFile
from srtm.consumer.ledger import Ledger
from srtm.consumer.log import GroupLog
from srtm.consumer.topic import topic_is_there
from srtm.errors import UnavailableError
from srtm.terminal import Column, Table, show

_READ_SECONDS = 15.0


def read_ledger(file: GroupFile) -> Ledger:
    """All that stands in the group's partition; nothing is written. Raises UnavailableError."""
    if not topic_is_there(file):
        raise UnavailableError(
            f"Kafka has no topic {file.group.metadata}: no controller has run for group "
            f"{file.group.id} yet"
        )
    words = GroupLog(file, f"srtm-explain-{file.group.id}")
    ledger, until = Ledger(), time.monotonic() + _READ_SECONDS
    try:
        while not words.caught_up:
            for word in words.read(0.1):
                ledger.apply(word)
            if time.monotonic() > until:
                raise UnavailableError(f"topic {file.group.metadata} cannot be read to its end")
    finally:
        words.close(0)
    return ledger


def decisions_of(ledger: Ledger) -> list[dict[str, Any]]:
    """Oldest first; what no controller has written so is passed over."""
    numbered: dict[int, dict[str, Any]] = {}
    for note in ledger.notes.values():
        number = note.document.get("number")
        if isinstance(number, int):
            numbered[number] = dict(note.document)
    return [numbered[number] for number in sorted(numbered)]


def explain_group(file: GroupFile, last: int, as_json: bool) -> None:
    decisions = decisions_of(read_ledger(file))[-last:]
    if as_json:
        click.echo(json.dumps(decisions, indent=2))
        return
    table = Table(
        Column("at", text=True),
        Column("action", text=True),
        Column("consumers"),
        Column("moved", 2),
        Column("stood still s", 1),
        Column("took s", 3),
        Column("budget left", 1),
        Column("because", sentence=True),
    )
    for each in decisions:
        table.add(
            str(each.get("at")),
            str(each.get("action")),
            f"{each.get('consumers_before')} -> {each.get('consumers')}",
            str(each.get("moved", "-")),
            str(each.get("stopped_seconds", "-")),
            str(each.get("took_seconds", "-")),
            _percent(each.get("budget_left")),
            str(each.get("reason")),
        )
    if not decisions:
        click.echo("no decision has been taken yet")
        return
    show(table)


def _percent(share: object) -> str:
    return f"{share:.0%}" if isinstance(share, int | float) else "-"
