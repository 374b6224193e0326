"""The load generator's settings: flags, file keys, environment and help in one table."""

from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from srtm.load.settings import Arrivals
from srtm.options.model import Objective, environment
from srtm.options.nsq import NsqOptions
from srtm.options.tls import (
    DISTRIBUTOR_CERT,
    DISTRIBUTOR_KEY,
    DISTRIBUTOR_ROOT_CA,
    check_distributor,
)
from srtm.text.fields import Duration, ServerAddresses


class RunOptions(BaseModel):
    """What a run sends and how it is judged."""

    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    topic: str = Field("load", description="topic to publish to")
    channel: str = Field(
        "load", description="channel to consume from; it stays afterwards, and fills"
    )
    nsqd_tcp_address: tuple[str, ...] = Field(
        (),
        description="nsqd or gateway to publish to; publishers are spread over several in turn; "
        "default: the topic's brokers, or without a deployment 127.0.0.1:4150",
    )
    lookupd_http_address: tuple[str, ...] = Field(
        (), description="nsqlookupd that knows the topic's brokers"
    )
    deployment: Path | None = Field(
        None,
        description="data path or file of the `srtm up` that runs the topic's brokers; default: "
        "./srtm-data",
        json_schema_extra=environment("SRTM_DEPLOYMENT"),
    )
    consumer_nsqd_tcp_address: tuple[str, ...] = Field(
        (), description="nsqd or gateway to consume from; default: the publishing addresses"
    )
    no_consumer: bool = Field(False, description="publish only; no end-to-end latency")
    consumer_buffer: bool = Field(
        False,
        description="consume with nsqd's output buffer: more throughput, up to 250 ms more latency",
    )
    publishers: int = Field(10, description="connections that publish")
    rate: float | None = Field(
        None,
        description="messages/s of each publisher [default: 10, unless --max-speed or --trace]",
    )
    arrivals: Arrivals = Field(
        "poisson", description="intended send times: poisson, or periodic with a random phase"
    )
    batch: int = Field(1, description="messages that a publisher sends at one instant")
    mpub: bool = Field(False, description="send a batch as one MPUB instead of PUBs")
    group_size: int = Field(
        1, description="publishers that send at the same instants (a correlation group)"
    )
    jitter: Duration = Field(0.0, description="spread the members of a group evenly over this time")
    distributor_address: ServerAddresses = Field(
        "",
        description="Load Distributor that has placed the topic (several addresses with commas "
        "between, where others stand by): sends as its publishers, with their rates and groups, "
        "and follows each to the gateway that it is moved to",
    )
    distributor_token_file: str = Field(
        "", description="file of mode 0600 with the distributor's token"
    )
    distributor_tls_root_ca_file: str = Field("", description=DISTRIBUTOR_ROOT_CA)
    distributor_tls_cert: str = Field("", description=DISTRIBUTOR_CERT)
    distributor_tls_key: str = Field("", description=DISTRIBUTOR_KEY)
    max_speed: bool = Field(False, description="closed loop: send again at each answer")
    outstanding: int | None = Field(
        None,
        description="with --max-speed: unanswered PUBs (or MPUBs) of each publisher [default: 1]",
    )
    trace: Path | None = Field(
        None,
        description="CSV with the messages/s of all publishers in its last column, a row a second",
    )
    trace_scale: float = Field(1.0, description="factor on the trace's rates")
    duration: Duration | None = Field(
        None, description="how long to send [default: 10s, or the whole trace]"
    )
    warmup: Duration = Field(
        0.0, description="first part of the duration, whose messages are not measured"
    )
    drain: Duration = Field(
        5.0,
        description="longest wait for answers after the last send, and then for the next message",
    )
    message_size: int = Field(100, description="bytes of a body, 24 or more")
    seed: int = Field(1, description="seed of all random choices")
    slo: Objective | None = Field(
        None, description="judge end-to-end latency by this, such as 0.99@1ms"
    )
    strict: bool = Field(False, description="exit with 1 when the SLO is missed")
    histogram: Path | None = Field(
        None, description="file that gets the end-to-end percentile distribution (ms)"
    )

    @model_validator(mode="after")
    def _apart(self) -> Self:
        if (self.rate is not None) + self.max_speed + (self.trace is not None) > 1:
            raise ValueError("--rate, --max-speed and --trace exclude each other")
        if self.outstanding is not None and not self.max_speed:
            raise ValueError("--outstanding goes with --max-speed; a rate is an open loop")
        if self.no_consumer and self.consumer_nsqd_tcp_address:
            raise ValueError("--no-consumer and --consumer-nsqd-tcp-address exclude each other")
        if self.no_consumer and self.consumer_buffer:
            raise ValueError("--no-consumer and --consumer-buffer exclude each other")
        if self.no_consumer and (self.slo or self.histogram):
            raise ValueError("--slo and --histogram need a consumer: leave out --no-consumer")
        if self.strict and self.slo is None:
            raise ValueError("--strict needs an --slo to judge")
        for name in ("distributor_token_file", "distributor_tls_root_ca_file"):
            if getattr(self, name) and not self.distributor_address:
                raise ValueError(f"--{name.replace('_', '-')} goes with --distributor-address")
        check_distributor(self)
        return self


class LoadOptions(NsqOptions, RunOptions):
    """See `srtm load --help`."""

    @model_validator(mode="after")
    def _together(self) -> Self:
        self.check_together()
        return self
