"""The TOML file of a bridge: Kafka, and the routes."""

import re
import socket
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from srtm.bridge.conflicts import refuse_conflicts
from srtm.bridge.names import End
from srtm.bridge.pointer import pointer
from srtm.kafka import file as kafka_file
from srtm.limits.slo import SLO
from srtm.options.door import HttpDoor
from srtm.options.journey import JourneyClient
from srtm.options.model import FileTable, read_toml
from srtm.options.nsq import NsqOptions
from srtm.options.tls import check_distributor
from srtm.text.address import Address
from srtm.text.errors import UsageError, one_line
from srtm.text.fields import Duration, ListenAddress, ServerAddresses

MAX_ROUTES = 256
OWN_SETTINGS = {
    "group.id": "it is group of the route",
    "group.instance.id": "it is made of the bridge's and the route's name",
    "group.protocol": "static membership is kept by the classic protocol",
    "enable.auto.commit": "offsets are committed after nsqd's OK",
    "enable.auto.offset.store": "offsets are committed after nsqd's OK",
    "auto.offset.reset": "what was never committed is read from its beginning",
    "enable.partition.eof": "the route commits up to the end of the log",
    "partition.assignment.strategy": "partitions move one by one (cooperative-sticky)",
    "acks": "nothing less than all keeps what NSQ has given up",
    "request.required.acks": "nothing less than all keeps what NSQ has given up",
    "enable.idempotence": "without it retries break order",
    "message.timeout.ms": "a message waits for Kafka as long as it takes",
    "delivery.timeout.ms": "a message waits for Kafka as long as it takes",
    "transactional.id": "transactions are not used",
    "linger.ms": "it is linger of the route",
    "queue.buffering.max.ms": "it is linger of the route",
    "message.max.bytes": "it is what NSQ's largest message takes",
}
"""librdkafka's settings that a bridge's file may not set: name -> why"""
_ROUTE_NAME = re.compile(r"\S{1,200}")


def _end(value: object) -> object:
    if isinstance(value, End):
        return value
    if not isinstance(value, str):
        raise ValueError("write one text: nsq:TOPIC/CHANNEL, nsq:TOPIC or kafka:TOPIC")
    return End.parse(value)


def _dead_end(value: object) -> object:
    if isinstance(value, str) and not value.startswith(("kafka:", "file:")):
        raise ValueError(f"{value!r} is no place for dead letters; write kafka:TOPIC or file:/PATH")
    return value if value is None else _end(value)


def _slo(value: object) -> object:
    return SLO.parse(value) if isinstance(value, str) else value


def _addresses(value: object) -> object:
    if not isinstance(value, list | tuple):
        raise ValueError(f'write a list: ["{value}"]')
    return tuple(str(Address.parse(each)) for each in value)


AnEnd = Annotated[End, BeforeValidator(_end)]
Addresses = Annotated[tuple[str, ...], BeforeValidator(_addresses)]


class BridgeTable(FileTable, HttpDoor, JourneyClient):
    """`[bridge]`. Its name tells the bridges of a Kafka group apart, and outlives a restart.

    journey-address: of `srtm journey run`, which tells which SLOs routes from NSQ are to keep
    """

    name: str = Field(default_factory=socket.gethostname, min_length=1, max_length=100)
    http_address: ListenAddress = Address("127.0.0.1", 4190)
    drain_timeout: Duration = 10.0


class KafkaTable(kafka_file.KafkaTable):
    """`[kafka]` and `[kafka.settings]`, which are librdkafka's."""

    own_settings = OWN_SETTINGS


class Route(NsqOptions, FileTable):
    """`[[route]]`, one way. Sizes in bytes."""

    name: str = ""
    source: AnEnd = Field(alias="from")
    target: AnEnd = Field(alias="to")
    nsqd: Addresses = ()
    lookupd: Addresses = ()
    distributor: ServerAddresses = ""
    distributor_token_file: str = ""
    distributor_tls_root_ca_file: str = ""
    distributor_tls_cert: str = ""
    distributor_tls_key: str = ""
    publishers: int = Field(default=1, ge=1, le=64)
    rate: float = Field(default=0.0, ge=0, le=1e9)
    group: str = Field(default="", max_length=255)
    key: str = ""
    dead_letter: Annotated[End | None, BeforeValidator(_dead_end)] = None
    dead_letter_bytes: int = Field(default=1 << 30, ge=1 << 20)
    tombstones: Literal["skip", "dead-letter"] = "dead-letter"
    slo: Annotated[SLO | None, BeforeValidator(_slo)] = None
    linger: Duration | None = None
    msg_timeout: Duration = 10.0
    loop: bool = False
    max_in_flight: int = Field(default=2500, ge=1, le=1_000_000)
    max_in_flight_bytes: int = Field(default=64 << 20, ge=1 << 20, le=8 << 30)
    max_msg_size: int = Field(default=1 << 20, ge=1, le=1 << 30)
    batch: int = Field(default=1000, ge=1, le=100_000)

    @field_validator("msg_timeout")
    @classmethod
    def _as_nsqd_takes_it(cls, seconds: float) -> float:
        if not 1 <= seconds <= 900:
            raise ValueError("nsqd takes 1s to 15m")
        return seconds

    @field_validator("key")
    @classmethod
    def _is_pointer(cls, key: str) -> str:
        if key:
            pointer(key)
        return key

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: object) -> object:
        if (
            isinstance(values, dict)
            and not values.get("name")
            and isinstance(values.get("from"), str)
        ):
            return values | {"name": values["from"]}
        return values

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not _ROUTE_NAME.fullmatch(self.name):
            raise ValueError(f"name {self.name!r} is none: 1 to 200 characters without a blank")
        ways = {self.source.system, self.target.system}
        if ways != {"nsq", "kafka"}:
            raise ValueError(
                f"{self.source} -> {self.target} is no route: one end is NSQ's, one Kafka's"
            )
        for key, which in _NOT_OF[self.source.system].items():
            if getattr(self, key) != type(self).model_fields[key].default:
                raise ValueError(f"{key} is for routes {which}")
        if self.source.system == "nsq":
            self._check_nsq_source()
        elif not self.group:
            raise ValueError("group is missing: the Kafka consumer group of the route")
        if self.target.channel:
            raise ValueError(
                f"to {self.target}: messages are published to a topic; leave out /channel"
            )
        if self.target.is_pattern:
            raise ValueError(f"to {self.target}: a target has no *; {{topic}} is the source's name")
        ways_in = [name for name in ("nsqd", "lookupd", "distributor") if getattr(self, name)]
        if len(ways_in) != 1:
            other = "lookupd = [...]" if self.source.system == "nsq" else 'distributor = "..."'
            raise ValueError(f"name NSQ's side once: nsqd = [...] or {other}")
        check_distributor(self)
        self._check_names()
        self.check_together()
        return self

    def _check_nsq_source(self) -> None:
        if not self.source.channel:
            raise ValueError("from: the channel is missing; write nsq:TOPIC/CHANNEL")
        if self.source.is_pattern and not self.lookupd:
            raise ValueError("from: a pattern needs lookupd = [...], which knows the topics")

    def _check_names(self) -> None:
        for key, end in (
            ("from", self.source),
            ("to", self.target),
            ("dead-letter", self.dead_letter),
        ):
            if end is None:
                continue
            plain = end.of("t") if end is not self.source else end.topic.replace("*", "t")
            if fault := end.fault(plain):
                raise ValueError(f"{key} {end}: {fault}")
        if self.source.is_pattern and not self.target.is_template:
            return  # many topics into one
        if self.distributor and self.source.is_pattern:
            raise ValueError(
                f"to {self.target}: the distributor is asked for the brokers of one topic; name "
                "it, or publish to nsqd = [...]"
            )
        if self.target.is_template and not self.source.is_pattern:
            name = self.target.of(self.source.topic)
            if fault := self.target.fault(name):
                raise ValueError(f"to {self.target}, which is {name} here: {fault}")
        if self.dead_letter and self.dead_letter.system == "file" and self.dead_letter.is_template:
            raise ValueError(
                f"dead-letter {self.dead_letter}: a file takes those of all topics; name one"
            )

    @property
    def one_target(self) -> str:
        """The target topic of a route that has one."""
        return self.target.of(self.source.topic)

    @property
    def linger_ms(self) -> float:
        """How long Kafka's producer gathers a batch. A tenth of the SLO's target at most: the rest
        is for nsqd's buffer, two networks and a slow moment."""
        if self.linger is not None:
            return self.linger * 1e3
        return min(5.0, self.slo.target_seconds * 100) if self.slo else 5.0


_NOT_OF = {
    "nsq": {
        "group": "from Kafka",
        "distributor": "from Kafka: it names the brokers to publish to",
        "rate": "from Kafka",
    },
    "kafka": {
        "key": "from NSQ: a record of Kafka has its own, and NSQ carries none",
        "lookupd": "from NSQ: publish to nsqd = [...] or through a distributor",
        "linger": "from NSQ",
    },
}


class BridgeFile(FileTable):
    """A whole file, checked."""

    bridge: BridgeTable = Field(default_factory=BridgeTable)
    kafka: KafkaTable
    routes: tuple[Route, ...] = Field(alias="route", default=(), max_length=MAX_ROUTES)

    @model_validator(mode="before")
    @classmethod
    def _many_routes(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("route"), dict):
            raise ValueError("write [[route]] with two brackets: there may be several")
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.routes:
            raise ValueError("there is no [[route]]")
        refuse_conflicts(self.routes)
        names = [route.name for route in self.routes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two routes are called {name}; give one of them another name")
        return self


def read_bridge_file(path: Path) -> BridgeFile:
    """Raises UsageError: one line, which names the key."""
    values = read_toml(path)
    try:
        return BridgeFile.model_validate(values)
    except ValidationError as error:
        raise _readable(error, values, path) from None


def _readable(error: ValidationError, values: dict[str, Any], path: Path) -> UsageError:
    """The route by its name rather than by its number."""
    place = error.errors()[0]["loc"]
    routes = values.get("route")
    if len(place) >= 2 and place[0] == "route" and isinstance(place[1], int):
        try:
            table = routes[place[1]]  # type: ignore[index]
            name = table.get("name") or table.get("from") or place[1] + 1
        except (TypeError, AttributeError, IndexError):
            name = place[1] + 1
        return one_line(error, f"{path}: route {name}", 2)
    return one_line(error, str(path))
