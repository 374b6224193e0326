"""What a load run is asked to do: one frozen class, checked whole before a socket is opened."""

from dataclasses import dataclass, fields
from typing import Any, Literal

from srtm.nsq.connection import PLAIN, Features
from srtm.nsq.names import is_valid_channel_name, is_valid_topic_name
from srtm.text.errors import UsageError

Arrivals = Literal["poisson", "periodic"]

MIN_MESSAGE_BYTES = 24
"""Tag (8), sequence number (8) and intended time (8): see payload.py."""

MAX_MESSAGE_BYTES = 8 * 1024 * 1024
"""A consumer's buffer holds one. nsqd's own limit is 1 MiB unless --max-msg-size is raised."""

MAX_MESSAGES = 50_000_000
"""A run keeps about 50 bytes for each message until its end: 2.5 GB here."""


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """One run. One of `rate_per_second`, `rates`, `outstanding` and `trace` says how fast it goes.

    topic, channel:      what is published to, and what the consumers subscribe to
    publish_addresses:   host:port of nsqds or gateways; publishers take them in turn
    assignment:          instead: for each publisher the index of its publish address
    consume_addresses:   host:port (or a unix socket's path), one consumer connection each; empty:
                         nothing is consumed
    publishers:          connections that publish
    ids:                 of each publisher, as the Load Distributor knows it
    rate_per_second:     messages/s of each publisher (open loop)
    rates:               messages/s for each publisher (open loop)
    outstanding:         unanswered PUBs (MPUBs) that each publisher keeps up (closed loop)
    trace:               messages/s of all publishers together, one figure for each second
    trace_scale:         factor on `trace`
    arrivals:            `poisson`, or `periodic` with a random phase
    batch:               messages that a publisher sends at one instant, in one write
    mpub:                a batch is one MPUB instead of so many PUBs
    group_size:          publishers that send at the same instants (a correlation group)
    groups:              instead: for each publisher the number of its group, from 0 on
    jitter_seconds:      each member of a group sends up to this much later, evenly spread
    duration_seconds:    how long is sent; None: as long as the trace
    warmup_seconds:      samples intended in this first part are left out
    message_bytes:       size of a body
    low_latency:         consumers ask nsqd to write each message at once (output_buffer_size -1);
                         False: nsqd's own buffer, 16 KiB or 250 ms, which costs it less
    drain_seconds:       longest wait for answers after the last send, and then for the next message
    seed:                of all random choices
    features:            TLS, compression and AUTH of all connections
    """

    topic: str
    publish_addresses: tuple[str, ...]
    consume_addresses: tuple[str, ...] = ()
    channel: str = "load"
    publishers: int = 10
    assignment: tuple[int, ...] | None = None
    ids: tuple[str, ...] | None = None
    rate_per_second: float | None = None
    rates: tuple[float, ...] | None = None
    outstanding: int | None = None
    trace: tuple[float, ...] | None = None
    trace_scale: float = 1.0
    arrivals: Arrivals = "poisson"
    batch: int = 1
    mpub: bool = False
    group_size: int = 1
    groups: tuple[int, ...] | None = None
    jitter_seconds: float = 0.0
    duration_seconds: float | None = 10.0
    warmup_seconds: float = 0.0
    message_bytes: int = 100
    low_latency: bool = True
    drain_seconds: float = 5.0
    seed: int = 1
    features: Features = PLAIN

    def __post_init__(self) -> None:
        """Raises UsageError: the first thing that is wrong, in one line."""
        for wrong, sentence in self._faults():
            if wrong:
                raise UsageError(sentence)

    def _faults(self) -> list[tuple[bool, str]]:
        paces = [self.rate_per_second, self.rates, self.outstanding, self.trace]
        grouped = self.group_size > 1 or self.groups is not None
        faults = [
            (
                not is_valid_topic_name(self.topic.encode()),
                f"topic {self.topic!r} is not a name that NSQ allows",
            ),
            (
                not is_valid_channel_name(self.channel.encode()),
                f"channel {self.channel!r} is not a name that NSQ allows",
            ),
            (not self.publish_addresses, "at least one address to publish to is needed"),
            (
                sum(pace is not None for pace in paces) != 1,
                "give one of a rate, a trace, or outstanding messages at maximum speed",
            ),
            (self.arrivals not in ("poisson", "periodic"), f"no arrivals {self.arrivals!r}"),
            (
                self.message_bytes < MIN_MESSAGE_BYTES,
                f"message size {self.message_bytes} is too small: the generator's own fields take "
                f"{MIN_MESSAGE_BYTES} bytes",
            ),
            (
                self.message_bytes > MAX_MESSAGE_BYTES,
                f"message size {self.message_bytes} is over {MAX_MESSAGE_BYTES} bytes",
            ),
            (
                self.duration_seconds is None and self.trace is None,
                "a duration is needed: only a trace has one of its own",
            ),
            (
                self.outstanding is not None and (grouped or self.jitter_seconds > 0),
                "groups and jitter need a rate or a trace: at maximum speed nothing is scheduled",
            ),
            (
                self.outstanding is not None and self.batch > 1 and not self.mpub,
                "a batch at maximum speed is an MPUB: add mpub, or raise outstanding instead",
            ),
            (
                self.trace is not None and self.groups is not None,
                "a trace needs groups of one size",
            ),
            (
                self.trace is not None and not any(rate > 0 for rate in self.trace),
                "the trace has no events",
            ),
        ]
        for name in ("publishers", "batch", "group_size", "outstanding", "rate_per_second"):
            value = getattr(self, name)
            shown = name.replace("_per_second", "").replace("_", " ")
            faults.append((value is not None and not value > 0, f"{shown} {value} is not over 0"))
        for name in ("jitter_seconds", "warmup_seconds", "drain_seconds", "trace_scale"):
            value = getattr(self, name)
            shown = name.replace("_seconds", "").replace("_", " ")
            faults.append((not value >= 0, f"{shown} {value} is below 0"))
        if not any(wrong for wrong, _ in faults):
            faults += self._combined_faults()
        return faults

    def _combined_faults(self) -> list[tuple[bool, str]]:
        """What can be asked only of figures that make sense one by one."""
        addresses = len(self.publish_addresses)
        expected = 0.0
        if self.outstanding is None:
            expected = self.messages_per_second * self.seconds
        groups = self.groups or ()
        return [
            (
                self.rates is not None
                and (len(self.rates) != self.publishers or not all(r > 0 for r in self.rates)),
                f"rates: give {self.publishers}, each over 0",
            ),
            (
                self.groups is not None
                and (len(groups) != self.publishers or {*groups} != {*range(max(groups) + 1)}),
                f"groups: give {self.publishers} numbers, from 0 on without a gap",
            ),
            (not self.seconds > 0, f"duration {self.seconds:g} s is not over 0"),
            (
                self.warmup_seconds >= self.seconds > 0,
                f"a warmup of {self.warmup_seconds:g} s leaves nothing of {self.seconds:g} s",
            ),
            (
                expected > MAX_MESSAGES,
                f"{expected:,.0f} messages are more than one run can hold ({MAX_MESSAGES:,}); "
                "lower the rate or the duration",
            ),
            (
                self.assignment is not None
                and (
                    len(self.assignment) != self.publishers
                    or not all(0 <= index < addresses for index in self.assignment)
                ),
                f"the assignment needs {self.publishers} indexes below {addresses}",
            ),
            (
                self.ids is not None and len(self.ids) != self.publishers,
                f"ids: give {self.publishers}, one for each publisher",
            ),
        ]

    @property
    def seconds(self) -> float:
        """How long is sent: the shorter of the duration and the trace."""
        own = float("inf") if self.duration_seconds is None else self.duration_seconds
        return min(own, float(len(self.trace))) if self.trace is not None else own

    @property
    def messages_per_second(self) -> float:
        """The mean rate of all publishers together; infinite at maximum speed."""
        if self.trace is not None:
            return sum(self.trace) / len(self.trace) * self.trace_scale
        if self.rates is not None:
            return sum(self.rates)
        if self.rate_per_second is not None:
            return self.rate_per_second * self.publishers
        return float("inf")

    @property
    def commands_per_event(self) -> int:
        """Commands, and so answers, in one write: a batch of PUBs, or one."""
        return 1 if self.mpub else self.batch

    def address_index(self, publisher: int) -> int:
        """Which publish address this publisher talks to."""
        if self.assignment is not None:
            return self.assignment[publisher]
        return publisher % len(self.publish_addresses)

    def document(self) -> dict[str, Any]:
        """The settings for JSON; a trace is given by its length and sum, and nobody by name."""
        document = {field.name: getattr(self, field.name) for field in fields(self)}
        del document["ids"]
        document["features"] = self.features.asked
        if self.trace is not None:
            document["trace"] = {"seconds": len(self.trace), "events": round(sum(self.trace), 3)}
        return document
