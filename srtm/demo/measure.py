"""One placement of the topic under its load: what came late, and how long messages waited."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from distributor.api_fields import PublisherAsked
from distributor.cli.topic_file import TopicFile, upload
from distributor.grouping.keys import Use
from distributor.remote import Remote
from srtm.demo.load import TOPIC, in_rooms, in_turn, predicted_waits, settings_for
from srtm.deployment.admin import topics_of
from srtm.deployment.document import DeployedBroker, Deployment
from srtm.host.clock import NS, monotonic_ns
from srtm.http.client import get_json
from srtm.limits.contract import Contract
from srtm.limits.queueing import Floats
from srtm.limits.slo import SLO
from srtm.load import run_load
from srtm.load.latency import Latencies
from srtm.load.placement import read_placement
from srtm.text.errors import UnavailableError

_SETTLE_SECONDS = 20.0
_POLL_SECONDS = 0.05
_SLACK = 1e-6  # of a share: it comes as text
_NOISE_SECONDS = 4.0


@dataclass(frozen=True)
class Outcome:
    """The topic as it was placed by `policy`, or by what it is named. Waits in seconds, one for
    each message: `measured` by the gateways, `predicted` from the same send times through buckets
    on paper. send_lag_seconds: how late the load itself was at p99, as this machine was busy."""

    policy: str
    brokers: int
    latency: Latencies
    late_share: float
    measured: Floats
    predicted: Floats
    send_lag_seconds: float

    def late_by_tokens(self, slo: SLO) -> float:
        """The share that the token wait alone made late."""
        return float(np.mean(self.measured > slo.target_seconds))

    def keeps(self, slo: SLO) -> bool:
        return self.late_share <= slo.allowed_late_share


def noise(brokers: Sequence[DeployedBroker]) -> float:
    """p99 end to end of the same load without a contract, in seconds: the machine's own."""
    placed = in_turn([str(broker.tcp_address) for broker in brokers])
    result = run_load(settings_for(placed, _NOISE_SECONDS, "demo-noise"))
    return result.total.end_to_end.percentile_ms(99) / 1e3


def register(remote: Remote, contract: Contract, everybody: Sequence[PublisherAsked]) -> None:
    """A topic whose placements are compared: no share leaves what they gave."""
    upload(remote, [TopicFile(contract, None, list(everybody))])
    stays = {"policy": "off", "window": "10s", "every": "10s"}
    remote.call("PUT", "topics", contract.topic, "adaptation", body=stays)


def measure(
    deployment: Deployment,
    remote: Remote,
    policy: str,
    seconds: float,
    slo: SLO,
    topic: str = TOPIC,
    name: str = "",
    seed: int = 1,
    groups: Use | None = None,
) -> Outcome:
    """Place the registered topic by `policy`, and let its publishers send, each room at once
    whatever keys they are registered with. name: of the outcome [default: the policy]; groups: that
    count [default: all that were given or accepted]. Raises SrtmError."""
    body = {"policy": policy, "groups": groups}
    plan = remote.call("POST", "topics", topic, "placements", body=body)
    shares = {each["name"]: (each["r"], each["b"]) for each in plan["brokers"]}
    _await_shares(deployment.brokers, shares, topic)
    assert deployment.distributor is not None
    endpoint = deployment.distributor.endpoint()
    settings = settings_for(in_rooms(read_placement(endpoint, topic)), seconds, topic, seed)
    used = [broker for broker in deployment.brokers if broker.name in shares]
    for broker in used:
        _take_record(broker, topic)  # the first call switches it on
    result = run_load(settings)
    measured = np.concatenate([_waits(_take_record(broker, topic)) for broker in used])
    by_address = {str(broker.tcp_address): shares[broker.name] for broker in used}
    return Outcome(
        name or policy,
        len(used),
        result.total.end_to_end,
        result.late_share(slo),
        measured,
        predicted_waits(settings, by_address),
        result.send_lag.percentile_ms(99) / 1e3,
    )


def _await_shares(
    brokers: Sequence[DeployedBroker], shares: dict[str, tuple[float, float]], topic: str
) -> None:
    """Wait until every gateway has what the placement gives it, and no other has any: shares shrink
    before others grow, and those who leave keep a little until their lease ends."""
    deadline_ns = monotonic_ns() + int(_SETTLE_SECONDS * NS)
    while not all(_has(broker, shares.get(broker.name), topic) for broker in brokers):
        if monotonic_ns() > deadline_ns:
            raise UnavailableError(
                f"topic {topic}: the gateways do not have their shares after {_SETTLE_SECONDS:g} s"
            )
        time.sleep(_POLL_SECONDS)


def _has(broker: DeployedBroker, share: tuple[float, float] | None, topic: str) -> bool:
    row = topics_of(broker).get(topic, {})
    if share is None:
        return "rate" not in row
    return bool(np.allclose((row.get("rate", 0), row.get("burst", 0)), share, rtol=_SLACK))


def _take_record(broker: DeployedBroker, topic: str) -> dict[str, Any]:
    record: dict[str, Any] = get_json(broker.admin_socket, f"/topics/{topic}/record")
    return record


def _waits(record: dict[str, Any]) -> Floats:
    """The waits from arrival to token in seconds, message by message: arrivals and admissions are
    both in order of arrival."""
    arrived = [stamp for stamp, count in record["arrivals"] for _ in range(count)]
    admitted = [
        since + step * number
        for since, step, count in record["admissions"]
        for number in range(count)
    ]
    if record["lost"] or len(arrived) != len(admitted):
        raise UnavailableError(
            f"a gateway's record has {len(arrived)} arrivals and {len(admitted)} admissions: "
            "shorten the load with --seconds"
        )
    waits: Floats = np.maximum(np.array(admitted, float) - np.array(arrived, float), 0.0) / NS
    return waits
