"""What a pool's messages come from: a channel of NSQ, or a share group of Kafka.

In both whoever is free gets the next message, so one controller and one kind of policy serve both.
"""

from pathlib import Path
from typing import Protocol

from srtm.autoscaler.pool.reading import PoolReading
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.share_file import ShareFile


class Sampler(Protocol):
    """Follows the messages and their consumers in threads of its own."""

    def start(self) -> None: ...

    def aim(self, target_seconds: float) -> None:
        """Another target of the SLO."""

    def close(self) -> None: ...

    def wait_first(self, seconds: float) -> bool:
        """Is anything known yet?"""

    @property
    def faults(self) -> list[str]:
        """What cannot be seen, a sentence each."""

    def brokers(self) -> dict[str, str]:
        """Address -> why it is away; "" where it answers."""

    def read(self) -> PoolReading | None:
        """What was seen since the last call; None before anything was."""

    def mu(self, consumer: str) -> float | None:
        """Messages/s that this consumer serves while it has work."""

    def mean_mu(self, consumers: int) -> float | None:
        """Messages/s of one of so many consumers."""

    def least_mu(self) -> float | None:
        """Messages/s that one serves at least, whatever was learnt."""


class Source(Protocol):
    """key: one source of one set of brokers, for the lock of its controller
    whose: what is consumed: `topic`, and `channel` or `group`
    """

    @property
    def key(self) -> str: ...
    @property
    def whose(self) -> dict[str, str]: ...
    @property
    def nobody(self) -> str:
        """Why nothing is known of it."""

    def sampler(self) -> Sampler: ...


class NsqSource:
    def __init__(self, file: PoolFile) -> None:
        self._file = file

    @property
    def key(self) -> str:
        nsq = self._file.nsq
        return f"nsq:{nsq.topic}/{nsq.channel}@{','.join(sorted((*nsq.lookupd, *nsq.nsqd)))}"

    @property
    def whose(self) -> dict[str, str]:
        return {"topic": self._file.nsq.topic, "channel": self._file.nsq.channel}

    @property
    def nobody(self) -> str:
        return f"no nsqd has topic {self._file.nsq.topic} yet"

    def sampler(self) -> Sampler:
        from srtm.autoscaler.pool.sampler import PoolSampler

        return PoolSampler(self._file)


class ShareSource:
    def __init__(self, file: ShareFile) -> None:
        self._file = file

    @property
    def key(self) -> str:
        group, kafka = self._file.group, self._file.kafka
        brokers = ",".join(sorted(kafka.bootstrap_servers.split(",")))
        return f"share:{group.topic}/{group.id}@{brokers}"

    @property
    def whose(self) -> dict[str, str]:
        return {"topic": self._file.group.topic, "group": self._file.group.id}

    @property
    def nobody(self) -> str:
        return f"nothing is known of topic {self._file.group.topic} yet"

    def sampler(self) -> Sampler:
        from srtm.autoscaler.pool.share_sampler import ShareSampler  # librdkafka, an extra

        return ShareSampler(self._file)


def source_of(file: PoolFile | ShareFile, path: Path) -> Source:
    """Raises UnavailableError where Kafka's client is not installed, UsageError for settings that
    it does not take."""
    if isinstance(file, PoolFile):
        return NsqSource(file)
    from srtm.consumer.required import require_client

    require_client(file, path)
    return ShareSource(file)
