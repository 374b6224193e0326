"""The files of `srtm topic register`: contracts in TOML, publishers in CSV or JSON lines. Read, and
sent."""

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distributor.api_fields import MAX_PUBLISHERS, MAX_REGISTERED, Id, PublisherAsked
from distributor.remote import Remote
from srtm.host.files import MIB, json_of, open_rows
from srtm.limits.contract import Contract
from srtm.options.known_keys import refuse_unknown
from srtm.options.model import read_toml
from srtm.text.errors import SrtmError, UsageError, one_line
from srtm.text.words import counted


class _Extra(BaseModel):
    """What the file has beside the contract."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    keys: list[Id] | None = None
    publishers: str = Field(min_length=1)


_BODY_BYTES, _BODY_VALUES = 8 * MIB, 200_000
"""of one request with several topics; the distributor takes twice and 1.25 times that"""
_MANY_KEYS = 1_000
"""of a topic: with more its publishers go by themselves, so that one request holds either"""
_KEYS = (
    "name",
    "rate",
    "burst",
    "mode",
    "max-wait",
    "slo",
    "batch",
    "batches",
    "fair",
    "lease-grace",
    "keys",
    "publishers",
)


@dataclass(frozen=True)
class TopicFile:
    """contract and keys as in PUT /v1/topics/NAME; publishers as in POST .../publishers."""

    contract: Contract
    keys: list[str] | None
    publishers: list[PublisherAsked]

    def topic_document(self) -> dict[str, Any]:
        contract = {key.replace("-", "_"): each for key, each in self.contract.document().items()}
        del contract["topic"]
        return contract | ({} if self.keys is None else {"keys": self.keys})


def read_topic_files(paths: Sequence[Path]) -> list[TopicFile]:
    """The topics of several files, each of one topic or of `[[topic]]` tables. All is checked
    before anything is sent. Raises UsageError with file, line or key, and what is wrong there."""
    found: dict[str, TopicFile] = {}
    for path in paths:
        for each in _topics(path):
            name = each.contract.topic
            if name in found:
                raise UsageError(f"{path}: topic {name} is there twice; each may stand once")
            found[name] = each
    return list(found.values())


def read_topic_file(path: Path) -> TopicFile:
    """The content of a file of one topic. Raises as `read_topic_files`."""
    return _topic(path, str(path), read_toml(path))


def _topics(path: Path) -> Iterator[TopicFile]:
    values = read_toml(path)
    if "topic" not in values:
        yield _topic(path, str(path), values)
        return
    rows = values.pop("topic")
    if not (rows and isinstance(rows, list) and all(isinstance(each, dict) for each in rows)):
        raise UsageError(
            f"{path}: topic: write name = ... for one topic, [[topic]] for each of many"
        )
    if values:
        raise UsageError(f"{path}: {next(iter(values))}: write it into a [[topic]]")
    for number, row in enumerate(rows, 1):
        yield _topic(path, f"{path}: topic {number}", row)


def _topic(path: Path, where: str, values: dict[str, Any]) -> TopicFile:
    """values: of one topic; where: they stand"""
    try:
        refuse_unknown(values, _KEYS, also=("topic", "max_wait", "lease_grace"))
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None
    rest = {key: values.pop(key) for key in ("keys", "publishers") if key in values}
    if "topic" in values:
        raise UsageError(f'{where}: unknown key "topic"; write name = ...')
    if "name" not in values:
        raise UsageError(f"{where}: name: needed")
    values["topic"] = values.pop("name")
    contract = Contract.read(values, where)
    try:
        extra = _Extra.model_validate(rest)
    except ValidationError as error:
        raise one_line(error, where) from None
    keys = None if extra.keys is None else list(dict.fromkeys(extra.keys))
    publishers = read_publishers(path.parent / extra.publishers, keys)
    return TopicFile(contract, keys, publishers)


def read_publishers(path: Path, keys: list[str] | None) -> list[PublisherAsked]:
    """CSV or JSON lines, by the name's end; `keys`: the only ones that they may have. Raises
    UsageError."""
    read = {".csv": _csv, ".jsonl": _json_lines}.get(path.suffix)
    if read is None:
        raise UsageError(f"{path}: name it .csv (header id,key,rate) or .jsonl (JSON lines)")
    found: dict[str, PublisherAsked] = {}
    known = None if keys is None else set(keys)
    try:
        with open_rows(path) as file:
            for where, values in read(path, file):
                publisher = _publisher(where, values)
                if publisher.id in found:
                    raise UsageError(f"{where}: id {publisher.id!r} is there twice")
                if known is not None and publisher.key is not None and publisher.key not in known:
                    raise UsageError(
                        f"{where}: publisher {publisher.id}: key {publisher.key!r} is none of the "
                        f"topic's {len(known)} keys"
                    )
                found[publisher.id] = publisher
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not text: {error}") from None
    if not found:
        raise UsageError(f"{path}: no publishers: write at least one")
    return list(found.values())


def _csv(path: Path, file: Any) -> Iterator[tuple[str, object]]:
    rows = csv.DictReader(file, strict=True)
    names = rows.fieldnames or []
    if sorted(names) not in (["id", "key", "rate"], ["id", "rate"]):
        raise UsageError(f"{path}:1: the header is {','.join(names)!r}; write id,key,rate")
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise UsageError(f"{where}: not {len(names)} columns: {','.join(names)}")
        try:
            yield where, {**row, "rate": float(row["rate"])}
        except ValueError:
            raise UsageError(f"{where}: rate {row['rate']!r} is not a number") from None


def _json_lines(path: Path, file: Any) -> Iterator[tuple[str, object]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                yield f"{path}:{number}", json_of(line)
            except ValueError as error:
                raise UsageError(f"{path}:{number}: not JSON: {error}") from None


def _publisher(where: str, values: object) -> PublisherAsked:
    try:
        return PublisherAsked.model_validate(values)
    except ValidationError as error:
        raise one_line(error, where) from None


def upload(
    remote: Remote,
    topics: Sequence[TopicFile],
    progress: Callable[[int], None] = lambda more: None,
) -> None:
    """Send topics and their publishers, in as few requests as their bounds allow; to send them
    again is no fault. progress: is told how many publishers more are registered. Raises as
    `Remote.call` does, with what is registered by then."""
    done = 0
    try:
        for batch in _batches(topics):
            remote.call("POST", "topics", body={"topics": batch.topics})
            done += batch.publishers
            progress(batch.publishers)
        for each in topics:
            for part in _parts(each) if _is_apart(each) else ():
                name = each.contract.topic
                remote.call("POST", "topics", name, "publishers", body={"publishers": part})
                done += len(part)
                progress(len(part))
    except SrtmError as error:
        if not done:
            raise
        whole = counted(sum(len(each.publishers) for each in topics), "publisher")
        left = f"{done:,} of {whole} are registered"
        raise type(error)(f"{error}; {left}, run the command again") from None


@dataclass
class _Batch:
    """Topics of one request, and how much is in them."""

    topics: list[dict[str, Any]] = field(default_factory=list)
    publishers: int = 0
    size: int = 0
    values: int = 0

    def add(self, topic: dict[str, Any]) -> bool:
        """Take one more, if there is room; one alone is always taken."""
        text, publishers = json.dumps(topic), len(topic["publishers"])
        values = sum(text.count(sign) for sign in ",[{")
        fits = (
            len(self.topics) < MAX_REGISTERED
            and self.publishers + publishers <= MAX_PUBLISHERS
            and self.size + len(text) <= _BODY_BYTES
            and self.values + values <= _BODY_VALUES
        )
        if self.topics and not fits:
            return False
        self.topics.append(topic)
        self.publishers += publishers
        self.size += len(text)
        self.values += values
        return True


def _batches(topics: Sequence[TopicFile]) -> Iterator[_Batch]:
    batch = _Batch()
    for each in topics:
        publishers = [] if _is_apart(each) else [row.model_dump() for row in each.publishers]
        topic = {"topic": each.contract.topic, **each.topic_document(), "publishers": publishers}
        if not batch.add(topic):
            yield batch
            batch = _Batch()
            batch.add(topic)
    yield batch


def _is_apart(topic: TopicFile) -> bool:
    """Do its publishers go into requests of their own?"""
    return len(topic.publishers) > MAX_PUBLISHERS or len(topic.keys or ()) > _MANY_KEYS


def _parts(topic: TopicFile) -> Iterator[list[dict[str, Any]]]:
    for start in range(0, len(topic.publishers), MAX_PUBLISHERS):
        yield [each.model_dump() for each in topic.publishers[start : start + MAX_PUBLISHERS]]
