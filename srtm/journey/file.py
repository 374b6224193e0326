"""The TOML file of journeys: what each one's messages pass, and how old they may be at its end."""

from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from srtm.bridge.file import Route, read_bridge_file
from srtm.consumer.file import RollingSlo
from srtm.consumer.pool_file import HttpAddresses, PoolFile
from srtm.consumer.scaled_file import ScaledFile, read_scaled_file
from srtm.http.nsqd import NsqdDoor
from srtm.http.service import ClientFiles, distributor_files
from srtm.limits.slo import SLO
from srtm.nsq.names import is_valid_topic_name
from srtm.options.door import HttpDoor
from srtm.options.model import FileTable, read_toml
from srtm.options.nsq import NsqOptions
from srtm.options.tls import check_distributor
from srtm.text.address import Address
from srtm.text.errors import UsageError, one_line
from srtm.text.fields import ListenAddress, ServerAddresses

MOST_JOURNEYS = 256
SplitMode = Literal["off", "propose", "auto"]


class JourneysTable(FileTable, HttpDoor):
    """`[journeys]`: the door of `srtm journey run`, where the legs report.

    state-folder:        of the splits in force, which outlive a restart; the file's own
    distributor-address: of who holds the topics' contracts; empty: a deployment of this host
    """

    state_folder: str = "."
    distributor_address: ServerAddresses = ""
    distributor_token_file: str = ""
    distributor_tls_root_ca_file: str = ""
    distributor_tls_cert: str = ""
    distributor_tls_key: str = ""
    http_address: ListenAddress = Address("127.0.0.1", 4198)

    @model_validator(mode="after")
    def _distributor(self) -> Self:
        if not self.distributor_address and distributor_files(self) != ClientFiles():
            raise ValueError("keys of distributor-... need distributor-address")
        check_distributor(self)
        return self

    def owner(self, deployment: str) -> tuple[str, ...]:
        """The flags of `srtm topic set` that say who holds the contracts."""
        if not self.distributor_address:
            return ("--deployment", deployment)
        files = {
            "token-file": self.distributor_token_file,
            "tls-root-ca-file": self.distributor_tls_root_ca_file,
            "tls-cert": self.distributor_tls_cert,
            "tls-key": self.distributor_tls_key,
        }
        given = [(f"--distributor-{name}", value) for name, value in files.items() if value]
        return ("--distributor-address", self.distributor_address, *chain.from_iterable(given))


class JourneyTable(FileTable):
    """`[[journey]]`.

    consumers: file of the group or pool whose consumers end the journey, as `srtm consume` reads it
    bridge:    file of the bridge that takes the messages to the group's Kafka topic
    split:     what is done with a better split: off: no one looks for it; propose: it is shown by
               `srtm journey explain`; auto: the legs get it
    nsqd-http: HTTP addresses of the topic's gateways, where neither file names them
    """

    topic: str
    name: str = Field(default="", max_length=200)
    slo: RollingSlo
    consumers: str = Field(min_length=1)
    bridge: str = ""
    split: SplitMode = "off"
    nsqd_http: HttpAddresses = ()

    @field_validator("topic")
    @classmethod
    def _is_topic(cls, topic: str) -> str:
        if not is_valid_topic_name(topic.encode(errors="replace")):
            raise ValueError(f"{topic!r} is no name of an NSQ topic: 1 to 64 of [.a-zA-Z0-9_-]")
        return topic

    @model_validator(mode="before")
    @classmethod
    def _named(cls, values: object) -> object:
        if isinstance(values, dict) and not values.get("name"):
            return {**values, "name": values.get("topic", "")}
        return values

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        if not name.isprintable() or " " in name:
            raise ValueError(f"{name!r} is none: up to 200 characters without a blank")
        return name


class JourneysFile(FileTable):
    """A whole file, each table checked by itself."""

    journeys: JourneysTable = Field(default_factory=JourneysTable)
    journey: tuple[JourneyTable, ...] = Field(default=(), max_length=MOST_JOURNEYS)

    @model_validator(mode="before")
    @classmethod
    def _several(cls, values: object) -> object:
        if isinstance(values, dict) and isinstance(values.get("journey"), dict):
            raise ValueError("write [[journey]] with two brackets: there may be several")
        return values

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        names = [each.name for each in self.journey]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two journeys are called {name}; give one of them another name")
        if not names:
            raise ValueError("there is no [[journey]]")
        return self


@dataclass(frozen=True, slots=True)
class Journey:
    """One journey with what its files say of it.

    channel: of NSQ: the pool's, or the one that the bridge reads
    group:   the Kafka group that ends it, of `kafka_topic`; both are empty where a pool does
    nsq:     how gateways are reached; lookupd, nsqd_http: where they are
    """

    name: str
    topic: str
    slo: SLO
    channel: str
    group: str
    kafka_topic: str
    consumers: ScaledFile
    route: Route | None
    nsq: NsqOptions
    lookupd: tuple[str, ...]
    nsqd_http: tuple[str, ...]
    split: SplitMode

    @property
    def ends_at(self) -> tuple[str, str]:
        """What its consumers report: (topic, channel) of NSQ, or (topic, group) of Kafka."""
        return (self.kafka_topic, self.group) if self.group else (self.topic, self.channel)

    def door(self, address: str) -> NsqdDoor:
        """A gateway's HTTP door. Raises UsageError for a file of TLS that cannot be read."""
        features = self.nsq.features()
        where = "the bridge's route" if self.route else "[nsq] of the consumers' file"
        return NsqdDoor(
            address, features.tls, features.server_name, f"set tls-v1 = true in {where}"
        )


@dataclass(frozen=True, slots=True)
class Journeys:
    table: JourneysTable
    all: tuple[Journey, ...]


def read_journeys(path: Path) -> Journeys:
    """The file, and the files that it names. Raises UsageError: one line, which names the key."""
    try:
        file = JourneysFile.model_validate(read_toml(path))
    except ValidationError as error:
        raise one_line(error, str(path)) from None
    found = tuple(_journey(each, path) for each in file.journey)
    ends: dict[tuple[str, str], Journey] = {}
    for each in found:
        other = ends.setdefault(each.ends_at, each)
        if other.slo != each.slo:
            raise UsageError(
                f"{path}: journeys {other.name} and {each.name} end at the same consumers with "
                f"different SLOs, {other.slo} and {each.slo}: one group has one SLO"
            )
        if other is not each and other.topic == each.topic:
            raise UsageError(
                f"{path}: journeys {other.name} and {each.name} are the same one: topic "
                f"{each.topic} to the same consumers; remove one of them"
            )
    return Journeys(file.journeys, found)


def _journey(table: JourneyTable, path: Path) -> Journey:
    where = f"{path}: journey {table.name}"
    consumers = read_scaled_file(_beside(path, table.consumers, f"{where}: consumers"))
    if isinstance(consumers, PoolFile):
        nsq = consumers.nsq
        if table.bridge:
            raise UsageError(
                f"{where}: bridge has no effect: {table.consumers} is a pool, which reads NSQ"
            )
        if nsq.topic != table.topic:
            raise UsageError(
                f"{where}: {table.consumers} consumes topic {nsq.topic}, not {table.topic}"
            )
        return _made(table, where, nsq.channel, consumers, None, nsq, nsq.lookupd, nsq.nsqd_http)
    if not table.bridge:
        raise UsageError(
            f"{where}: {table.consumers} is a Kafka group: name the bridge.toml by which the "
            "messages get there"
        )
    bridge = _beside(path, table.bridge, f"{where}: bridge")
    route = _route(table, where, bridge, consumers.group.topic)
    channel = route.source.channel
    return _made(table, where, channel, consumers, route, route, route.lookupd, ())


def _beside(path: Path, name: str, where: str) -> Path:
    """A file that another one names. Raises UsageError where there is none."""
    found = path.parent / name
    if not found.exists():
        raise UsageError(f"{where}: there is no file {found}")
    return found


def _route(table: JourneyTable, where: str, bridge: Path, kafka_topic: str) -> Route:
    file = read_bridge_file(bridge)
    if table.split == "auto" and not file.bridge.journey_address:
        raise UsageError(
            f'{where}: split = "auto" needs journey-address in [bridge] of {table.bridge}, which '
            "asks there which SLO its route is to keep"
        )
    for route in file.routes:
        source = route.source
        comes = source.system == "nsq" and source.matches(table.topic)
        if comes and route.target.of(table.topic) == kafka_topic:
            return route
    raise UsageError(
        f"{where}: {table.bridge} has no route from nsq:{table.topic}/CHANNEL to "
        f"kafka:{kafka_topic}, which {table.consumers} consumes"
    )


def _made(
    table: JourneyTable,
    where: str,
    channel: str,
    consumers: ScaledFile,
    route: Route | None,
    nsq: NsqOptions,
    lookupd: tuple[str, ...],
    nsqd_http: tuple[str, ...],
) -> Journey:
    if not (table.nsqd_http or lookupd or nsqd_http):
        raise UsageError(
            f"{where}: nobody says where the gateways of {table.topic} are: give "
            'nsqd-http = ["HOST:4151"], their HTTP addresses'
        )
    group = None if isinstance(consumers, PoolFile) else consumers.group
    return Journey(
        table.name,
        table.topic,
        table.slo,
        channel,
        group.id if group else "",
        group.topic if group else "",
        consumers,
        route,
        nsq,
        () if table.nsqd_http else lookupd,
        table.nsqd_http or nsqd_http,
        table.split,
    )
