"""Admission logs as they lie in folders, read whole for one topic."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from srtm.audit import blocks
from srtm.audit.blocks import Admissions, Beat, Kind
from srtm.audit.session import SUFFIX, Damage, Session
from srtm.host.files import MOST_ROWS_BYTES, read_file
from srtm.text.errors import UsageError

_MOST_NAMED = 10


def read_sessions(folders: Iterable[Path], topic: str) -> list[Session]:
    """The sessions by broker, and in order of time; at least one has beats. Raises UsageError where
    there is nothing of the topic."""
    files: set[Path] = set()
    for folder in folders:
        try:
            found = {file.resolve() for file in folder.iterdir() if file.name.endswith(SUFFIX)}
        except OSError as error:
            raise UsageError(f"{folder}: {error.strerror}") from None
        if not found:
            raise UsageError(
                f"{folder}: no admission log (*{SUFFIX}); it is the folder that `srtm gateway "
                "--admission-log` names"
            )
        files |= found
    sessions: dict[str, Session] = {}
    names: set[bytes] = set()
    for file in sorted(files):
        _read_file(file, topic.encode(), sessions, names)
    if topic.encode() not in names:
        known = sorted(name.decode(errors="replace") for name in names)
        shown = ", ".join(known[:_MOST_NAMED]) + (", ..." if len(known) > _MOST_NAMED else "")
        raise UsageError(f"topic {topic} is in none of the logs; they have {shown or 'no topic'}")
    if not any(each.beats for each in sessions.values()):
        raise UsageError(f"topic {topic}: the logs end before their first beat; nothing is whole")
    return sorted(sessions.values(), key=lambda each: (each.broker, each.files[0]))


def _read_file(file: Path, topic: bytes, sessions: dict[str, Session], names: set[bytes]) -> None:
    try:
        data = memoryview(read_file(file, MOST_ROWS_BYTES))
    except FileNotFoundError:
        return  # the gateway has just made room
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from None
    session: Session | None = None
    place = 0
    numbered: dict[int, bytes] = {}
    try:
        for kind, payload, stop in blocks.read(data):
            place = stop
            if session is None:
                session = _begin(kind, payload, sessions)
            elif kind is Kind.WORD:
                number, at, name, word = blocks.read_word(payload)
                numbered[number] = name
                names.add(name)
                session.began = min(session.began or at, at)
                if name == topic and (not session.words or session.words[-1][1] != word):
                    session.words.append((at, word))
            elif kind is Kind.ADMISSIONS:
                _take(session, blocks.read_admissions(payload), numbered, topic)
            elif kind is Kind.BEAT:
                _beat(session, blocks.read_beat(payload))
            elif kind is Kind.DROPPED:
                session.dropped.append(blocks.read_dropped(payload))
            elif kind is Kind.END:
                session.ended = True
    except ValueError as error:
        raise UsageError(f"{file}: not an admission log of this version: {error}") from None
    if session is None:
        if len(data) and not place:
            raise UsageError(f"{file}: not an admission log, or its first block is damaged")
        return
    if place < len(data):
        session.damages.append(Damage(session.files[-1], len(data) - place, session.until))


def _begin(kind: Kind, payload: memoryview, sessions: dict[str, Session]) -> Session:
    if kind is not Kind.HEADER:
        raise ValueError("no header")
    head = blocks.read_header(payload)
    session = sessions.setdefault(
        head["process"], Session(head["broker"], head["boot"], head["process"])
    )
    session.files.append(head["file"])
    return session


def _take(session: Session, found: Admissions, numbered: dict[int, bytes], topic: bytes) -> None:
    wanted = [number for number, name in numbered.items() if name == topic]
    of_topic = np.isin(found.numbers, wanted)
    if of_topic.any():
        columns = {name: column[of_topic] for name, column in vars(found).items()}
        session.admissions.append(Admissions(**columns))


def _beat(session: Session, beat: Beat) -> None:
    last = session.beats[-1] if session.beats else None
    if last is None or (last.offset_ns, last.error_ns) != (beat.offset_ns, beat.error_ns):
        session.beats.append(beat)
    session.began = min(session.began or beat.until, beat.until)
    session.until = max(session.until, beat.until)
