"""The file of `srtm placement plan --offline`: brokers, a topic and its publishers, as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from distributor.model import Broker, Publisher
from srtm.host.files import json_in
from srtm.limits.contract import MAX_RATE, MIN_RATE, Contract
from srtm.text.errors import UsageError, one_line


class _Row(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class _Broker(_Row):
    name: str = Field(min_length=1)
    capacity: float = Field(ge=0, le=MAX_RATE, allow_inf_nan=False)
    allocated: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class _Publisher(_Row):
    id: str = Field(min_length=1)
    key: str | None = None
    rate: float = Field(ge=MIN_RATE, le=MAX_RATE, allow_inf_nan=False)


class _Topic(Contract):
    """A contract whose topic is written `name`."""

    topic: str = Field(alias="name")


class OfflineFile(_Row):
    """{"brokers": [{"name", "capacity", "allocated"}], "topic": {"name", "rate", "burst", "slo"},
    "publishers": [{"id", "key", "rate"}]}; rates in messages/s, slo as 0.99@1ms."""

    brokers: list[_Broker]
    topic: _Topic
    publishers: list[_Publisher] = Field(min_length=1)

    @model_validator(mode="after")
    def _once_each(self) -> Self:
        _refuse_twice("brokers", "name", [broker.name for broker in self.brokers])
        _refuse_twice("publishers", "id", [publisher.id for publisher in self.publishers])
        return self

    def values(self) -> tuple[Contract, list[Broker], list[Publisher]]:
        """What a policy takes."""
        return (
            self.topic,
            [Broker(each.name, each.capacity, each.allocated) for each in self.brokers],
            [Publisher(each.id, each.key, each.rate) for each in self.publishers],
        )


def _refuse_twice(table: str, field: str, names: Sequence[str]) -> None:
    first: dict[str, int] = {}
    for number, name in enumerate(names):
        if first.setdefault(name, number) != number:
            raise ValueError(
                f"{table}.{number}.{field}: {name!r} is the {field} of {table}.{first[name]} "
                "already; each may stand once"
            )


def read_offline(path: Path) -> OfflineFile:
    """Raises UsageError with the file, the path inside it and what is wrong there."""
    try:
        values = json_in(path)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{path}: not JSON: {error}") from None
    try:
        return OfflineFile.model_validate(values)
    except ValidationError as error:
        raise one_line(error, str(path)) from None
