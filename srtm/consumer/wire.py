"""What controller and consumers say to each other, as records of one compacted partition. Pure.

The partition orders everything: who leads, what consumers are told, what they have. Each record is
the whole state of one thing and replaces the one before of the same key, so that nothing is lost by
compaction, by a restart, or by a record that came twice.
"""

import json
from typing import Annotated, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_BYTES: Final = 900_000
"""of a record: Kafka takes 1 MiB by default"""

_NAME = Field(min_length=1, max_length=400)
_Pid = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Partition = Annotated[int, Field(ge=0, le=2**31 - 1)]
_Token = Annotated[int, Field(ge=0, le=2**53)]


class Said(BaseModel):
    """Keys that a newer version has are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class Leader(Said):
    """A claim to lead, where `epoch` is beyond all others; a beat of who leads, where it is not.
    gone: its last word."""

    name: str = _NAME
    epoch: int = Field(ge=1, le=2**53)
    beat: int = Field(ge=0, le=2**53)
    place: str = ""
    pid: _Pid = 0
    begun: _Token = 0
    gone: bool = False


class Command(Said):
    """A command of a leader: all that a member is to have (partition -> token), and what it had and
    is to give up.

    fence: it was silent for too long: it is out, and what it had goes to others after its lease
    leave: it is not needed any more; it gives everything up and ends
    """

    name: str = _NAME
    leader: str = _NAME
    epoch: int = Field(ge=1, le=2**53)
    version: int = Field(ge=1, le=2**53)
    start: dict[_Partition, _Token] = Field(default_factory=dict)
    stop: tuple[_Partition, ...] = ()
    fence: bool = False
    leave: bool = False


class Report(Said):
    """A member's beat: the version of the last command that it has carried out, and what it has.

    launch: the id that its executor gave it
    place, pid, begun: its process; begun is in clock ticks since the host's start, which tells it
            from a later process of the same pid
    mu:     events/s at full batches, as it measures itself; 0 while unknown
    gone:   its last word: it has committed and given up everything
    """

    name: str = _NAME
    beat: int = Field(ge=0, le=2**53)
    epoch: int = Field(default=0, ge=0, le=2**53)
    version: int = Field(default=0, ge=0, le=2**53)
    holds: dict[_Partition, _Token] = Field(default_factory=dict)
    launch: str = ""
    place: str = ""
    pid: _Pid = 0
    begun: _Token = 0
    mu: float = Field(default=0.0, ge=0, le=1e12)
    served: int = Field(default=0, ge=0, le=2**63)
    fault: str = Field(default="", max_length=2000)
    gone: bool = False


class PartitionPlan(Said):
    """Who is to have which partition where members subscribe and one of them assigns.

    name:  of the leader that made it
    parts: member -> partitions
    loads: partition -> events/s, for whoever has to share out partitions of members that are away
    """

    name: str = _NAME
    epoch: int = Field(ge=1, le=2**53)
    version: int = Field(ge=1, le=2**53)
    parts: dict[str, tuple[_Partition, ...]] = Field(default_factory=dict)
    loads: dict[_Partition, Annotated[float, Field(ge=0, le=1e15)]] = Field(default_factory=dict)


class Note(Said):
    """A decision, for `srtm autoscale explain`."""

    name: str = _NAME
    document: dict[str, object]


class Memory(Said):
    """What a leader has seen, for the one after it."""

    name: str = _NAME
    document: dict[str, object]


class Ended(Said):
    """A member that is no more: nobody with its name will ever come again."""

    name: str = _NAME


Written = Leader | Command | Report | PartitionPlan | Note | Memory
Word = Written | Ended

_KINDS: dict[str, type[Written]] = {
    "leader": Leader,
    "command": Command,
    "member": Report,
    "plan": PartitionPlan,
    "decision": Note,
    "memory": Memory,
}
_SINGLE = ("leader", "plan")
"""The kinds of words of which there is one in a group; the others have a key for each name."""


def _kind(word: Word) -> str:
    return next(name for name, kind in _KINDS.items() if isinstance(word, kind))


def encode(group: str, word: Written) -> tuple[bytes, bytes]:
    """Key and value."""
    kind = _kind(word)
    name = "" if kind in _SINGLE else word.name
    return json.dumps([group, kind, name]).encode(), word.model_dump_json().encode()


def tombstones(group: str, member: str) -> tuple[bytes, ...]:
    """Keys whose last values go, as the member is no more."""
    return tuple(json.dumps([group, kind, member]).encode() for kind in ("command", "member"))


def decode(group: str, key: bytes | None, value: bytes | None) -> Word | None:
    """The word in a record; None for what is another group's, or nothing that this version
    knows."""
    if key is None or len(key) > MAX_BYTES or len(value or b"") > MAX_BYTES:
        return None
    try:
        of, kind, name = json.loads(key)
        if of != group or kind not in _KINDS or not isinstance(name, str):
            return None
        if value is None:
            return Ended(name=name) if kind == "member" else None
        word = _KINDS[kind].model_validate_json(value)
    except (ValueError, TypeError, RecursionError, ValidationError):
        return None
    return word if kind in _SINGLE or word.name == name else None
