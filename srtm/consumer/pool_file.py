"""The TOML file of a pool: consumers of one NSQ channel, and what scales them.

It has `[nsq]` where that of a Kafka group has `[kafka]`; the other tables are the same.
"""

from collections.abc import Callable
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from srtm.consumer.announced import Announcements
from srtm.consumer.file import ConsumerTable, ControllerTable, ExecutorTable, ScaledTable
from srtm.http.nsqd import HTTPS
from srtm.nsq.names import is_ephemeral, is_valid_channel_name, is_valid_topic_name
from srtm.options.model import FileTable
from srtm.options.nsq import NsqOptions
from srtm.text.address import Address
from srtm.text.fields import Duration


def _address(text: object) -> str:
    found = Address.parse(text)
    if not found.host:
        raise ValueError(f"{text!r} names no host; write HOST:PORT, such as 127.0.0.1:4150")
    return str(found)


def _http_address(text: object) -> str:
    is_https = isinstance(text, str) and text.startswith(HTTPS)
    return HTTPS + _address(str(text).removeprefix(HTTPS)) if is_https else _address(text)


def _each(read: Callable[[object], str]) -> BeforeValidator:
    return BeforeValidator(
        lambda value: tuple(map(read, value)) if isinstance(value, list | tuple) else value
    )


Addresses = Annotated[tuple[str, ...], _each(_address), Field(max_length=1000)]
HttpAddresses = Annotated[tuple[str, ...], _each(_http_address), Field(max_length=1000)]
"""`HOST:PORT`, or https://HOST:PORT"""


class NsqTable(NsqOptions, FileTable):
    """`[nsq]`: a channel and its brokers, by nsqlookupd or by address.

    lookupd:     HTTP addresses of nsqlookupds
    nsqd:        TCP addresses of nsqds or gateways
    nsqd-http:   their HTTP addresses in that order, https://HOST:PORT for HTTPS addresses
    msg-timeout: after which nsqd gives a message of a consumer that died to another
    """

    topic: str
    channel: str
    lookupd: Addresses = ()
    nsqd: Addresses = ()
    nsqd_http: HttpAddresses = ()
    msg_timeout: Duration = 10.0

    @field_validator("topic", "channel")
    @classmethod
    def _is_name(cls, value: str) -> str:
        raw = value.encode(errors="replace")
        if not is_valid_topic_name(raw) or not is_valid_channel_name(raw):
            raise ValueError(f"{value!r} is no name of NSQ's: 1 to 64 of [.a-zA-Z0-9_-]")
        return value

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if bool(self.lookupd) == bool(self.nsqd):
            raise ValueError('give lookupd = ["HOST:4161"], or nsqd and nsqd-http')
        if len(self.nsqd) != len(self.nsqd_http):
            raise ValueError(
                f"{len(self.nsqd)} addresses in nsqd and {len(self.nsqd_http)} in nsqd-http: give "
                "both of each broker"
            )
        if is_ephemeral(self.channel.encode()):
            raise ValueError(
                f"channel {self.channel} goes with its last consumer, and its messages with it; "
                "scale one that is not ephemeral"
            )
        self.check_together()
        for each in self.nsqd_http:
            if each.startswith(HTTPS) and not self.tls_v1:
                raise ValueError(f"nsqd-http {each} needs tls-v1 = true")
        if not 1 <= self.msg_timeout <= 900:
            raise ValueError("msg-timeout: nsqd takes 1s to 15m")
        return self


class PoolTable(ScaledTable):
    """`[group]` of a pool. A channel has no partitions, so nothing is handed over."""


class PoolControllerTable(ControllerTable):
    """`[controller]` of a pool. state-folder: of what it keeps over restarts; the file's own."""

    state_folder: str = "."


class PoolFile(FileTable):
    """A whole file, checked."""

    nsq: NsqTable
    group: PoolTable
    executor: ExecutorTable = Field(default_factory=ExecutorTable)
    controller: PoolControllerTable = Field(default_factory=PoolControllerTable)
    consumer: ConsumerTable | None = None
    announced: Announcements = ()
