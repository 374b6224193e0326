"""What Kafka says of a share group (KIP-932): who is in it, what waits, and its limits. The admin
client of librdkafka has none of these questions."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import (
    CoordinatorLoadInProgressError,
    CoordinatorNotAvailableError,
    GroupIdNotFoundError,
    IncompatibleBrokerVersion,
    KafkaError,
    NotCoordinatorError,
    UnsupportedVersionError,
    for_code,
)
from kafka.protocol.api_message import ApiMessage

from srtm.host.clock import NS, monotonic_ns
from srtm.kafka import messages
from srtm.kafka.file import KafkaTable
from srtm.kafka.python_client import asking_settings, quiet
from srtm.text.errors import UnavailableError, UsageError

Found = TypeVar("Found")

_ASK_MS = 3_000
_SOON = (CoordinatorLoadInProgressError, CoordinatorNotAvailableError, NotCoordinatorError)
"""A Kafka that has just started, or a group that moves to another broker, answers so."""
_SOON_SECONDS, _AGAIN_SECONDS = 10.0, 0.1
_RESET = "share.auto.offset.reset"
_ISOLATION = "share.isolation.level"
_LOCK = "share.record.lock.duration.ms"
_DELIVERIES = "share.delivery.count.limit"
_UNKNOWN = -1
"""the lag of a partition that the group has not begun, or that Kafka does not know yet"""


class DescribeShareGroupOffsetsRequest(ApiMessage, load_json=messages): ...  # type: ignore[call-arg, misc]


class DescribeShareGroupOffsetsResponse(ApiMessage, load_json=messages): ...  # type: ignore[call-arg, misc]


class ShareGroupDescribeRequest(ApiMessage, load_json=messages): ...  # type: ignore[call-arg, misc]


class ShareGroupDescribeResponse(ApiMessage, load_json=messages): ...  # type: ignore[call-arg, misc]


@dataclass(frozen=True, slots=True)
class Limits:
    """lock_seconds: for which a record is its consumer's alone; deliveries: after which Kafka gives
    a record to nobody any more"""

    lock_seconds: float
    deliveries: int


class ShareGroup:
    """Each question raises UnavailableError where Kafka does not answer it, or has no share
    groups."""

    def __init__(self, kafka: KafkaTable, group: str, topic: str) -> None:
        """Raises UsageError for settings that kafka-python does not know."""
        quiet()
        self._group, self._topic = group, topic
        self._address = kafka.bootstrap_servers
        bounds = {"request_timeout_ms": _ASK_MS, "bootstrap_timeout_ms": _ASK_MS}
        self._settings = {**asking_settings(kafka), **bounds}
        self._admin: KafkaAdminClient | None = None

    def members(self) -> dict[str, str]:
        """Member -> its client id, of those that have partitions: who joins has none for up to
        `group.share.heartbeat.interval.ms`, 5 s as a rule. Who was killed is a member for
        `group.share.session.timeout.ms`, 45 s as a rule."""
        request = ShareGroupDescribeRequest(
            group_ids=[self._group], include_authorized_operations=False
        )
        found = self._ask(lambda admin: self._group_of(admin, request))
        return {
            each.member_id: each.client_id
            for each in (found.members if found else ())
            if each.assignment.topic_partitions
        }

    def lags(self, partitions: Iterable[int]) -> dict[int, int]:
        """Partition -> records that the group has not finished, of partitions that it has begun."""
        request = DescribeShareGroupOffsetsRequest(
            groups=[(self._group, [(self._topic, list(partitions))])], min_version=1
        )
        found = self._ask(lambda admin: self._group_of(admin, request))
        return {
            each.partition_index: each.lag
            for topic in (found.topics if found else ())
            for each in topic.partitions
            if not each.error_code and each.lag != _UNKNOWN
        }

    def limits(self) -> Limits:
        """The group's own limits, or else those of the brokers."""
        own = self._ask(
            lambda admin: _values(admin, ConfigResource(ConfigResourceType.GROUP, self._group))
        )
        brokers = self._ask(
            lambda admin: _values(
                admin, ConfigResource(ConfigResourceType.BROKER, str(_a_broker(admin)))
            )
        )

        def of(name: str) -> int:
            return int(own.get(name) or brokers[f"group.{name}"])

        return Limits(of(_LOCK) / 1000, of(_DELIVERIES))

    def prepare(self, reset: str) -> None:
        """What Kafka keeps with the group and not with its consumers: it is to begin with the
        earliest or the latest record of a partition that it does not know, and to pass over records
        of transactions that were aborted."""
        wanted = {_RESET: reset, _ISOLATION: "read_committed"}
        resource = ConfigResource(ConfigResourceType.GROUP, self._group)
        has = self._ask(lambda admin: _values(admin, resource))
        if any(has.get(name) != value for name, value in wanted.items()):
            resource.configs = wanted
            self._ask(lambda admin: admin.alter_configs([resource]))

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()
            self._admin = None

    def _group_of(self, admin: KafkaAdminClient, request: ApiMessage) -> Any:
        """What the group's coordinator answers of it; None: there is no such group. Raises
        KafkaError."""
        manager = admin._manager
        node = manager.run(admin._find_coordinator_id, self._group)
        (found,) = manager.run(manager.send, request, node).groups
        error = for_code(found.error_code)
        if error is GroupIdNotFoundError:
            return None
        if error.errno:
            raise error(found.error_message or "")
        return found

    def _ask(self, question: Callable[[KafkaAdminClient], Found]) -> Found:
        until_ns = monotonic_ns() + _SOON_SECONDS * NS
        while True:
            try:
                if self._admin is None:
                    self._admin = KafkaAdminClient(**self._settings)
                return question(self._admin)
            except (AssertionError, TypeError, ValueError) as error:
                raise UsageError(f"[kafka.settings]: kafka-python: {error}") from None
            except (KafkaError, OSError) as error:
                self.close()  # the group may have another coordinator by now
                if not isinstance(error, _SOON) or monotonic_ns() > until_ns:
                    raise self._fault(error) from None
            time.sleep(_AGAIN_SECONDS)

    def _fault(self, error: Exception) -> UnavailableError:
        where = f"Kafka at {self._address}"
        if isinstance(error, IncompatibleBrokerVersion | UnsupportedVersionError):
            return UnavailableError(
                f"{where} has no share groups whose lag it tells: that takes brokers of 4.2 or "
                "newer with share.version=1 (kafka-features.sh upgrade --feature share.version=1)"
            )
        said = " ".join(str(error).split()) or type(error).__name__
        return UnavailableError(f"{where}: share group {self._group}: {said}")


def _values(admin: KafkaAdminClient, resource: ConfigResource) -> Mapping[str, str]:
    """Name -> value, of what is set or has a default."""
    found = admin.describe_configs([resource], config_filter="all")
    (by_name,) = (each for kind in found.values() for each in kind.values())
    return {name: str(each["value"]) for name, each in by_name.items()}


def _a_broker(admin: KafkaAdminClient) -> int:
    return int(admin.describe_cluster()["brokers"][0]["broker_id"])
