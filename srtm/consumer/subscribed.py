"""The data side of a consumer whose partitions the broker assigns (KIP-848)."""

import logging

from confluent_kafka import Consumer, KafkaException, TopicPartition

from srtm.consumer.file import ConsumerTable, GroupFile
from srtm.consumer.reader import Reader
from srtm.kafka.client import told

log = logging.getLogger("srtm.consumer")


class Subscribed(Reader):
    """Partitions come and go while records are waited for, never in the middle of a batch."""

    def __init__(self, file: GroupFile, table: ConsumerTable, client: str) -> None:
        super().__init__(file, table, client, {"group.protocol": "consumer"})
        self._subscribe()

    def _subscribe(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._assigned,
            on_revoke=self._revoked,
            on_lost=self._lost,
        )

    def _renew(self) -> None:
        """Join as a new member, which gets the partitions once the old one has left."""
        self._drop(list(self.positions))
        self._open_again()
        self._subscribe()

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer is not self._consumer:  # it is being closed
            return
        try:
            self.start(each.partition for each in partitions)
        except KafkaException as error:
            log.warning("committed offsets are not known yet: %s", told(error))
            self._consumer.incremental_assign(partitions)  # librdkafka asks again
            for each in partitions:
                self._places.begin(each.partition, each.offset)

    def _revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        self.commit()
        self.stop(each.partition for each in partitions)

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if consumer is not self._consumer:
            return
        log.warning("the broker has given our partitions away; what was not committed comes again")
        self.stop(each.partition for each in partitions)
