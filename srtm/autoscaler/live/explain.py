"""`srtm autoscale explain`: the last decisions, their reasons, and the hand-overs that followed."""

import time
from typing import Any

from srtm.autoscaler.live.shown import show_decisions
from srtm.consumer.file import GroupFile
from srtm.consumer.ledger import Ledger
from srtm.consumer.log import GroupLog
from srtm.consumer.topic import topic_is_there
from srtm.text.errors import UnavailableError

_READ_SECONDS = 15.0
_WAIT_SECONDS = 0.05


def read_ledger(file: GroupFile) -> Ledger:
    """The ledger of all that stands in the group's partition; nothing is written. Raises
    UnavailableError."""
    if not topic_is_there(file):
        raise UnavailableError(
            f"Kafka has no topic {file.group.metadata}: no controller has run for group "
            f"{file.group.id} yet"
        )
    words, ledger = GroupLog(file, f"srtm-explain-{file.group.id}"), Ledger()
    try:
        read_on(words, ledger, file)
    finally:
        words.close(0)
    return ledger


def read_on(words: GroupLog, ledger: Ledger, file: GroupFile) -> None:
    """Read the group's topic to the end, as it is now. Raises UnavailableError."""
    until = time.monotonic() + _READ_SECONDS
    while True:
        found = words.read(_WAIT_SECONDS)
        for word in found:
            ledger.apply(word)
        if not found and words.caught_up:
            return
        if time.monotonic() > until:
            raise UnavailableError(f"topic {file.group.metadata} cannot be read to its end")


def decisions_of(ledger: Ledger) -> list[dict[str, Any]]:
    """Oldest first; what no controller has written so is passed over."""
    numbered: dict[int, dict[str, Any]] = {}
    for note in ledger.notes.values():
        number = note.document.get("number")
        if isinstance(number, int):
            numbered[number] = dict(note.document)
    return [numbered[number] for number in sorted(numbered)]


def explain_group(file: GroupFile, last: int, as_json: bool) -> None:
    show_decisions(decisions_of(read_ledger(file))[-last:], as_json)
