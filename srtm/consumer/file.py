"""The TOML file of a consumer group: its consumers read it, and what scales them.

One file serves `srtm consume`, `srtm autoscale watch` and `srtm autoscale run`; each takes its part
and all refuse keys that nobody knows.
"""

import re
import socket
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from srtm.consumer.announced import Announcements
from srtm.kafka import file as kafka_file
from srtm.limits.slo import SLO
from srtm.options.door import HttpDoor
from srtm.options.journey import JourneyClient
from srtm.options.model import Bound, FileTable, read_toml
from srtm.text.address import Address
from srtm.text.errors import one_line
from srtm.text.fields import Duration, ListenAddress

OWN_SETTINGS: Mapping[str, str] = {
    "group.id": "it is id of [group]",
    "group.instance.id": "members have names of their own, which are never used again",
    "group.protocol": "it follows from handover of [group]",
    "enable.auto.commit": "offsets are committed after the sink",
    "enable.auto.offset.store": "offsets are committed after the sink",
    "auto.offset.reset": "it is reset of [group]",
    "enable.partition.eof": "consumers commit up to the end of the log",
    "acks": "what the group is told is kept by all replicas",
    "message.timeout.ms": "it follows from lease of [group]",
}
"""librdkafka's settings that a group's file may not set: name -> why"""
_WINDOW_SECONDS = 3600.0
_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


def _slo(value: object) -> object:
    """The SLO that a text says; without a window it holds over an hour."""
    if not isinstance(value, str):
        return value
    slo = SLO.parse(value)
    return slo if slo.window_seconds else replace(slo, window_seconds=_WINDOW_SECONDS)


RollingSlo = Annotated[SLO, BeforeValidator(_slo)]
"""an SLO over a window, an hour where the text names none"""


def kafka_topic(value: str) -> str:
    """Raises ValueError for what is no name of a Kafka topic; none at all is left as it is."""
    if value and (not _TOPIC.fullmatch(value) or value in (".", "..")):
        raise ValueError(f"{value!r} is no name of a Kafka topic: 1 to 249 of [a-zA-Z0-9._-]")
    return value


def group_id(value: str) -> str:
    """Raises ValueError for one that is blank, which librdkafka does not know."""
    if not value.strip():
        raise ValueError("it is blank; give the group a name")
    return value


def _function(value: str) -> str:
    if value and not _FUNCTION.fullmatch(value):
        raise ValueError(f"{value!r} names no function; write module:function, such as work:handle")
    return value


class KafkaTable(kafka_file.KafkaTable):
    """`[kafka]` and `[kafka.settings]`, which are librdkafka's.

    group-type: consumer: each partition has one consumer; share: records go to whoever is free
    """

    own_settings = OWN_SETTINGS

    group_type: Literal["consumer", "share"] = "consumer"


class ScaledTable(FileTable):
    """How late what is consumed may be, and who decides how many consumers there are.

    weigh:    what rates, lags and mu are counted in: events, or bytes that they take on disk
    mu:       of one consumer, in these a second, until it is learnt (None: policies wait for it)
    interval: between two decisions
    contract: what bounds the arrivals, as a topic's contract says it (None: nothing)
    rescales_a_day: changes after which only more consumers are possible (None: any number)
    """

    slo: RollingSlo
    policy: str = "srtm"
    min: int = Field(default=1, ge=0, le=1000)
    max: int = Field(default=8, ge=1, le=1000)
    mu: float | None = Field(default=None, gt=0, le=1e9)
    interval: Duration = 1.0
    contract: Bound | None = None
    rescales_a_day: int | None = Field(default=None, ge=1, le=86400)

    @model_validator(mode="after")
    def _in_bounds(self) -> Self:
        if not self.min:
            raise ValueError(
                "min 0: there is no scaling to zero, as without a consumer nobody learns how late "
                "messages are; write min = 1"
            )
        if self.max < self.min:
            raise ValueError(f"max {self.max} is less than min {self.min}")
        if not 0.2 <= self.interval <= 3600:
            raise ValueError("interval must be from 200ms to 1h")
        if self.policy == "contract" and self.contract is None:
            raise ValueError(
                'policy = "contract" sizes by a contract: give contract = "rate=1000,burst=200", '
                "the topic's own"
            )
        return self


class GroupTable(ScaledTable):
    """`[group]` of a Kafka group: what is consumed by whom.

    lease: how long a consumer may go on without a word from the group's topic
    """

    topic: str = Field(min_length=1)
    id: str = Field(min_length=1, max_length=200)
    handover: Literal["direct", "assignor", "kip-848"] = "direct"
    weigh: Literal["events", "bytes"] = "events"
    reset: Literal["earliest", "latest"] = "earliest"
    lease: Duration = 2.0
    metadata_topic: str = ""

    _is_topic = field_validator("topic", "metadata_topic")(kafka_topic)
    _is_id = field_validator("id")(group_id)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not 0.5 <= self.lease <= 300:
            raise ValueError("lease must be from 500ms to 5m")
        kafka_topic(self.metadata)
        if self.weigh == "bytes" and self.contract is not None:
            raise ValueError(
                'a contract counts messages: give weigh = "events", or leave contract out'
            )
        return self

    @property
    def brokered(self) -> bool:
        """Does the broker say who has which partition?"""
        return self.handover == "kip-848"

    @property
    def subscribes(self) -> bool:
        """Do its consumers subscribe, so that Kafka knows them as a group?"""
        return self.handover != "direct"

    @property
    def metadata(self) -> str:
        """The topic by which controller and consumers speak."""
        plain = re.sub(r"[^a-zA-Z0-9._-]", "-", self.id)
        return self.metadata_topic or f"consumer.metadata.{plain}"


class ConsumerTable(FileTable, HttpDoor, JourneyClient):
    """`[consumer]`: the four phases. Sizes in bytes.

    process: module:function, sync or async: a list of records -> what the sink gets
    sink:    "callback" (with `callback`), "parquet" (with `folder`), or "" for none

    journey-address: of `srtm journey run`, which is told how old messages are, and tells the
    controller which SLO the group is to keep
    """

    process: str = ""
    sink: Literal["", "callback", "parquet"] = ""
    callback: str = ""
    folder: str = ""
    path: str = "."
    batch: int = Field(default=500, ge=1, le=1_000_000)
    batch_bytes: int = Field(default=5_000_000, ge=1, le=1 << 30)
    wait: Duration = 0.02
    batch_timeout: Duration = 30.0

    _is_function = field_validator("process", "callback")(_function)

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if not self.process and not self.sink:
            raise ValueError("nothing would be done with what is read: name process or a sink")
        for name, sink in (("callback", "callback"), ("folder", "parquet")):
            if bool(getattr(self, name)) != (self.sink == sink):
                raise ValueError(f'sink = "{sink}" and {name} belong together')
        if self.batch_timeout < 0.1:
            raise ValueError("batch-timeout must be 100ms or more")
        return self


class ExecutorTable(FileTable):
    """`[executor]`: who starts consumers.

    startup: how long a launched consumer may take to join
    grace:   from SIGTERM to SIGKILL

    local:      command of one consumer; without it, `srtm consume` of this file
    kubernetes: target is deployment/NAME or statefulset/NAME; kubeconfig: where it is not the
                cluster that this program runs in
    keda:       grpc-address, and files of PEM for TLS; client-ca: who may ask
    """

    kind: Literal["local", "kubernetes", "keda"] = "local"
    startup: Duration = 30.0
    grace: Duration = 10.0
    command: tuple[str, ...] = ()
    log_folder: str = ""
    target: str = ""
    namespace: str = Field(default="default", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    kubeconfig: str = ""
    grpc_address: ListenAddress = Address("127.0.0.1", 4197)
    tls_cert: str = ""
    tls_key: str = ""
    client_ca: str = ""

    @model_validator(mode="after")
    def _whole(self) -> Self:
        for key in self.model_fields_set - {"kind", "startup", "grace"}:
            if key not in _OF_KIND[self.kind]:
                raise ValueError(
                    f'{key.replace("_", "-")} has no effect with kind = "{self.kind}"; remove it'
                )
        if self.kind == "kubernetes" and not _TARGET.fullmatch(self.target):
            raise ValueError(
                f"target {self.target!r} is none; write deployment/NAME or statefulset/NAME"
            )
        if bool(self.tls_cert) != bool(self.tls_key) or (self.client_ca and not self.tls_cert):
            raise ValueError("TLS needs tls-cert and tls-key; client-ca goes with them")
        if self.kind == "keda" and not self.tls_cert and not self.grpc_address.is_local:
            raise ValueError(
                f"grpc-address {self.grpc_address} is reached from elsewhere: give tls-cert and "
                "tls-key, and client-ca where not everybody may ask"
            )
        return self


_TARGET = re.compile(r"(deployment|statefulset)/[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_OF_KIND = {
    "local": {"command", "log_folder"},
    "kubernetes": {"target", "namespace", "kubeconfig"},
    "keda": {"grpc_address", "tls_cert", "tls_key", "client_ca"},
}


class ControllerTable(FileTable, HttpDoor):
    """`[controller]`."""

    name: str = Field(default_factory=socket.gethostname, min_length=1, max_length=100)


class GroupFile(FileTable):
    """A whole file, checked."""

    kafka: KafkaTable
    group: GroupTable
    executor: ExecutorTable = Field(default_factory=ExecutorTable)
    controller: ControllerTable = Field(default_factory=ControllerTable)
    consumer: ConsumerTable | None = None
    announced: Announcements = ()


def read_group_file(path: Path) -> GroupFile:
    """Raises UsageError: one line, which names the key."""
    try:
        return GroupFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise one_line(error, str(path)) from None
