"""The TOML file of a Kafka share group: its consumers read it, and what scales them.

It has `group-type = "share"` in `[kafka]`. A share group has no owners of partitions, so its file
is like that of a pool.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from srtm.consumer.announced import Announcements
from srtm.consumer.file import (
    OWN_SETTINGS,
    ConsumerTable,
    ExecutorTable,
    KafkaTable,
    ScaledTable,
    group_id,
    kafka_topic,
)
from srtm.consumer.pool_file import PoolControllerTable
from srtm.options.model import FileTable
from srtm.text.fields import Duration

_NOT_HERE = ("wait", "batch_bytes")


class ShareKafkaTable(KafkaTable):
    """`[kafka]` of a share group."""

    own_settings: ClassVar[Mapping[str, str]] = {
        **OWN_SETTINGS,
        "share.acknowledgement.mode": "records are accepted after the sink",
        "max.poll.records": "it is batch of [consumer]",
        "client.id": "the controller knows consumers by it",
    }

    group_type: Literal["share"]


class ShareTable(ScaledTable):
    """`[group]` of a share group: what is consumed by whom.

    reset: where the group begins with a partition that it does not know
    """

    topic: str = Field(min_length=1)
    id: str = Field(min_length=1, max_length=200)
    reset: Literal["earliest", "latest"] = "earliest"

    _is_topic = field_validator("topic")(kafka_topic)
    _is_id = field_validator("id")(group_id)


class ShareConsumerTable(ConsumerTable):
    """`[consumer]` of a share group.

    dead-letter: topic of records that failed too often; `TOPIC.dead` where none is named
    """

    dead_letter: str = ""
    batch_timeout: Duration = 20.0  # less than the usual lock of 30 s

    _is_topic = field_validator("dead_letter")(kafka_topic)

    @model_validator(mode="after")
    def _gathered_by_kafka(self) -> Self:
        for key in _NOT_HERE:
            if key in self.model_fields_set:
                raise ValueError(
                    f"{key.replace('_', '-')} has no effect in a share group, where Kafka gathers "
                    'batches; "fetch.min.bytes" and "fetch.wait.max.ms" of [kafka.settings] do that'
                )
        return self


class ShareFile(FileTable):
    """A whole file, checked."""

    kafka: ShareKafkaTable
    group: ShareTable
    executor: ExecutorTable = Field(default_factory=ExecutorTable)
    controller: PoolControllerTable = Field(default_factory=PoolControllerTable)
    consumer: ShareConsumerTable | None = None
    announced: Announcements = ()

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if kafka_topic(self.dead_letter_topic) == self.group.topic:
            raise ValueError(
                f"consumer.dead-letter: {self.group.topic} is the group's own topic, so dead "
                "records would come back; name another one"
            )
        return self

    @property
    def dead_letter_topic(self) -> str:
        named = self.consumer.dead_letter if self.consumer else ""
        return named or f"{self.group.topic}.dead"
