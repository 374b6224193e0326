"""Real brokers behind a Load Distributor: a topic is registered, placed, loaded and forgotten."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.experiments.point import CURVE
from benchmarks.experiments.scale import Scale
from benchmarks.experiments.scenario import INITIAL_BATCH, SPARE, Scenario
from benchmarks.experiments.simulated import PROFILE
from benchmarks.harness.trial import Generator
from benchmarks.harness.world import brokers_up, distributor_address, until
from distributor.api_fields import MAX_PUBLISHERS
from distributor.model import BrokerShare, Placement, Publisher
from distributor.remote import Remote
from distributor.simulator.run import Seen, placed, simulate
from distributor.simulator.traffic import Traffic
from srtm.http.bearer import read_token
from srtm.http.client import Endpoint
from srtm.http.nsqd import stats
from srtm.limits.contract import Contract
from srtm.load import LoadResult, LoadSettings, run_load
from srtm.load.placement import read_placement, settings_of
from srtm.load.schedule import build_schedule
from srtm.testbed import open_testbed
from srtm.text.errors import UnavailableError, UsageError

_FULL, _FULL_SECONDS = 0.999, 60.0
_START_SECONDS = 1.0
"""Seconds that the generator of initial loads runs longer: it starts before the topic's own."""


@dataclass(frozen=True, slots=True)
class Door:
    """How one broker is reached: its gateway's addresses."""

    name: str
    tcp: str
    http: str


@dataclass(frozen=True, slots=True)
class Measured:
    """One load. Seconds; worst: p99 at the broker where it is longest. seen: what the simulator
    makes of the same messages under the same placement."""

    placement: Placement
    contract: Contract
    overall: float
    worst: float
    late_share: float
    lag: float
    curve: tuple[float, ...]
    seen: Seen


class World:
    """Brokers that nobody else uses, as their Load Distributor knows them."""

    def __init__(self, distributor: str, token: str = "") -> None:
        self._endpoint = Endpoint(distributor, token)
        self._remote = Remote(self._endpoint)
        self.doors = [
            Door(each["name"], each["tcp_address"], each["http_address"])
            for each in self._remote.call("GET", "brokers")["brokers"]
        ]

    def holds(self, capacities: Sequence[float]) -> None:
        """What each broker is taken to hold, messages/s."""
        for door, capacity in zip(self.doors, capacities, strict=True):
            reached = {"name": door.name, "tcp_address": door.tcp, "http_address": door.http}
            self._remote.call("POST", "brokers", body=reached | {"capacity": capacity})

    def register(
        self, contract: Contract, publishers: Sequence[Publisher], policy: str
    ) -> Placement:
        """The topic, placed; its shares stay as they are placed. Where it cannot be placed it is
        forgotten."""
        topic = ("topics", contract.topic)
        body: dict[str, Any] = {"rate": contract.rate, "burst": contract.burst}
        if contract.slo is not None:
            body["slo"] = str(contract.slo)
        self._remote.call("PUT", *topic, body=body)
        try:
            self._remote.call("PUT", *topic, "adaptation", body={"policy": "off"})
            rows = [{"id": each.id, "key": each.key, "rate": each.rate} for each in publishers]
            for at in range(0, len(rows), MAX_PUBLISHERS):
                some = {"publishers": rows[at : at + MAX_PUBLISHERS]}
                self._remote.call("POST", *topic, "publishers", body=some)
            return _placement(
                self._remote.call("POST", *topic, "placements", body={"policy": policy})
            )
        except BaseException:
            self.forget(contract.topic)
            raise

    def forget(self, topic: str) -> None:
        self._remote.call("DELETE", "topics", topic)

    def topics(self) -> list[str]:
        """The topics that the distributor knows."""
        return [each["topic"] for each in self._remote.call("GET", "topics")["topics"]]

    def loaded(self, topic: str, **how: Any) -> LoadSettings:
        """The load of a placed topic, once every broker has its share and its bucket is full: a
        share begins with no tokens, and under load a big bucket would not fill within a run."""
        found = read_placement(self._endpoint, topic)
        assigned = settings_of(found)
        until(
            lambda: all(_is_full(door, topic) for door in self.doors),
            f"the buckets of {topic} are full",
            _FULL_SECONDS,
        )
        return LoadSettings(
            topic=topic, consume_addresses=assigned["publish_addresses"], **assigned, **how
        )

    @contextmanager
    def initial(self, scenario: Scenario, scale: Scale, seconds: float) -> Iterator[None]:
        """What brokers have to do already: a topic without contract sends it, and one for each
        broker, that nobody sends to, tells the distributor of it."""
        loads = [load * scale.rate for load in scenario.initial]
        if not any(loads):
            yield
            return
        loads = [*loads, *[0.0] * (len(self.doors) - len(loads))]
        names: list[str] = []
        try:
            for door, load in zip(self.doors, loads, strict=True):
                if not load:
                    continue
                self.holds([1e9 if each is door else 0.0 for each in self.doors])
                contract = Contract(topic=f"initial-{door.name}", rate=2 * load, burst=10.0)
                self.register(contract, [Publisher(door.name, None, load)], "single")
                names.append(contract.topic)
            unit = min(each for each in loads if each)
            turns = [
                door.tcp
                for door, load in zip(self.doors, loads, strict=True)
                for _ in range(round(load / unit))
            ]
            sending = Generator(
                [
                    "--topic=initial#ephemeral",
                    "--channel=load#ephemeral",
                    *(f"--nsqd-tcp-address={each}" for each in turns),
                    *(f"--consumer-nsqd-tcp-address={each.tcp}" for each in self.doors),
                    f"--publishers={len(turns)}",
                    f"--rate={sum(loads) / len(turns)}",
                    f"--batch={INITIAL_BATCH}",
                ],
                seconds + _START_SECONDS,
            )
            try:
                yield
            finally:
                sending.stop()
        finally:
            for name in names:
                self.forget(name)

    def measure(
        self,
        scenario: Scenario,
        scale: Scale,
        policy: str,
        capacity: float,
        seconds: float,
        seed: int,
        spare: float = SPARE,
    ) -> Measured:
        """capacity: messages/s that each broker is taken to hold."""
        publishers = scenario.everybody(scale)
        if scenario.arrivals == "periodic":
            profile = scenario.traffic(scale, seconds, seed)  # with the phases that will be sent
        else:
            profile = scenario.traffic(scale, PROFILE * seconds, 10_000 + seed)
        name = f"{scenario.name}-{policy}-{seed}"
        fitted = scenario.contract(scale, profile, spare)
        contract = fitted.model_copy(update={"topic": name})
        with self.initial(scenario, scale, seconds):
            self.holds([capacity] * len(self.doors))
            placement = self.register(contract, publishers, policy)
            try:
                settings = self.loaded(
                    contract.topic,
                    arrivals=scenario.arrivals,
                    batch=scenario.batch,
                    jitter_seconds=scale.seconds(scenario.jitter),
                    duration_seconds=seconds,
                    warmup_seconds=seconds / 10,
                    seed=seed,
                )
                result = run_load(settings)
            finally:
                self.forget(contract.topic)
        seen = self._simulated(placement, publishers, settings, scale).after(seconds / 10)
        return _measured(placement, contract, scale, result, seen)

    def _simulated(
        self,
        placement: Placement,
        publishers: Sequence[Publisher],
        settings: LoadSettings,
        scale: Scale,
    ) -> Seen:
        schedule = build_schedule(settings)
        sent = Traffic(schedule.offsets_ns / 1e9, schedule.publishers, settings.batch)
        names = [each.name for each in self.doors]
        topic = placed(placement, publishers, names, sent)
        return simulate([topic], [scale.service] * len(names))[0]


def _is_full(door: Door, topic: str) -> bool:
    """Is the topic's bucket full at this broker? A broker without a share of it counts as full."""
    return all(
        each["placed_elsewhere"] or each.get("tokens", 0.0) >= _FULL * each.get("burst", 0.0)
        for each in stats(door.http, topic)["srtm"]["topics"]
    )


def require_hosts(inventory: Path, brokers: int) -> None:
    """Is that testbed up, and has it so many? Raises UsageError, UnavailableError."""
    testbed = open_testbed(inventory)
    if not testbed.is_up:
        raise UnavailableError(f"--hosts: it is not up: srtm testbed up {inventory}")
    found = len(testbed.inventory.plan.brokers)
    if found < brokers:
        raise UsageError(f"--hosts: {inventory} has {found} brokers, and {brokers} are needed here")


def world_of(inventory: Path) -> World:
    """The brokers of a testbed that is up. Raises UsageError, UnavailableError."""
    found = open_testbed(inventory).inventory
    address, token_file = found.distributor_address, found.token_file
    if address is None:
        raise UsageError(f"{inventory} has no distributor, which places the topics")
    return World(str(address), read_token(str(token_file or ""), "token"))


@contextmanager
def local_world(folder: Path, brokers: int) -> Iterator[World]:
    """Brokers on this host, for the time of a `with` block."""
    with brokers_up(folder, [f"b{n + 1}" for n in range(brokers)]) as up:
        yield World(distributor_address(up))


def _measured(
    placement: Placement, contract: Contract, scale: Scale, result: LoadResult, seen: Seen
) -> Measured:
    times = result.latencies_ns
    percentile = 100 * scale.slo.percentile
    return Measured(
        placement,
        contract,
        float(np.quantile(times, scale.slo.percentile, method="inverted_cdf")) / 1e9,
        max(each.end_to_end.percentile_ms(percentile) for each in result.brokers.values()) / 1e3,
        result.late_share(scale.slo),
        result.send_lag.percentile_ms(percentile) / 1e3,
        tuple((np.quantile(times, CURVE) / 1e9).tolist()),
        seen,
    )


def _placement(found: dict[str, Any]) -> Placement:
    """The placement that an answer of the distributor describes."""
    return Placement(
        policy=found["policy"],
        assignment={each["publisher"]: each["broker"] for each in found["assignments"]},
        brokers=tuple(
            BrokerShare(*(each[key] for key in ("name", "rate", "quota", "publishers", "r", "b")))
            for each in found["brokers"]
        ),
        unplaced=tuple(found["unplaced"]),
        reasons=tuple(found["reasons"]),
        brokers_at_least=0,  # bounds that the distributor keeps to itself
        minimum_at_most=0.0,
    )
