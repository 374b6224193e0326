"""The file of `srtm topic register`: a contract in TOML, its publishers in CSV or JSON lines. Read,
and sent."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from distributor.api_fields import MAX_PUBLISHERS, Id, PublisherAsked
from distributor.remote import Remote
from srtm.host.files import json_of, open_rows
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
        contract = self.contract.document()
        del contract["topic"]
        if "max-wait" in contract:
            contract["max_wait"] = contract.pop("max-wait")
        return contract | ({} if self.keys is None else {"keys": self.keys})


def read_topic_file(path: Path) -> TopicFile:
    """The content of a topic's file, all of which is checked before anything is sent. Raises
    UsageError with file, line or key, and what is wrong there."""
    values = read_toml(path)
    try:
        refuse_unknown(values, _KEYS, also=("topic", "max_wait"))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from None
    rest = {key: values.pop(key) for key in ("keys", "publishers") if key in values}
    if "topic" in values:
        raise UsageError(f'{path}: unknown key "topic"; write name = ...')
    if "name" in values:
        values["topic"] = values.pop("name")
    else:
        raise UsageError(f"{path}: name: needed")
    contract = Contract.read(values, str(path))
    try:
        extra = _Extra.model_validate(rest)
    except ValidationError as error:
        raise one_line(error, str(path)) from None
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


def upload(remote: Remote, found: TopicFile) -> None:
    """Send the topic and its publishers; to send them again is no fault. Raises as `Remote.call`
    does, with what is registered by then."""
    name, everybody = found.contract.topic, found.publishers
    remote.call("PUT", "topics", name, body=found.topic_document())
    for start in range(0, len(everybody), MAX_PUBLISHERS):
        part = [each.model_dump() for each in everybody[start : start + MAX_PUBLISHERS]]
        try:
            remote.call("POST", "topics", name, "publishers", body={"publishers": part})
        except SrtmError as error:
            left = f"{start:,} of {counted(len(everybody), 'publisher')} are registered"
            raise type(error)(f"{error}; {left}, run the command again") from None
