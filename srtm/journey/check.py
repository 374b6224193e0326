"""`srtm journey check`: whether journeys can be measured, and kept as their parts are set."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from srtm.consumer.file import GroupFile
from srtm.consumer.scaled_file import ScaledFile
from srtm.host.certificates import Renewed
from srtm.http.access import Access
from srtm.http.service import distributor_files, service_at
from srtm.journey.causes import Leg
from srtm.journey.contracts import contract_slos
from srtm.journey.file import Journey, Journeys
from srtm.limits.slo import SLO
from srtm.text.address import Address
from srtm.text.duration import format_duration

log = logging.getLogger("srtm.journey")


@dataclass(frozen=True, slots=True)
class Finding:
    """A line about a journey. is_fault: it cannot be measured or kept so"""

    journey: str
    said: str
    is_fault: bool = False

    def __str__(self) -> str:
        return f"{self.journey}: {'FAULT: ' if self.is_fault else ''}{self.said}"


def check_files(journeys: Journeys, path: Path) -> None:
    """Read the files that the service and its consumers need. Raises UsageError."""
    table = journeys.table
    Access(table.token_file, f"{path}: token-file of [journeys]", log)
    Renewed.of(table.tls_files)
    if table.distributor_address:
        where = f"{path}: distributor-token-file of [journeys]"
        service_at(table.distributor_address, distributor_files(table), where)
    for journey in journeys.all:
        consumers = journey.consumers.consumer
        if consumers is not None and consumers.journey_address:
            where = f"{path}: journey-token-file of the consumers of {journey.name}"
            service_at(consumers.journey_address, consumers.journey_files, where)


def check_journeys(journeys: Journeys) -> list[Finding]:
    """What there is to say of each, by asking nsqlookupds and gateways."""
    return [found for each in journeys.all for found in _check(each, journeys.table.http_address)]


def _check(journey: Journey, door: Address) -> list[Finding]:
    found: list[Finding] = []

    def say(said: str, is_fault: bool = False) -> None:
        found.append(Finding(journey.name, said, is_fault))

    slos = dict[Leg, SLO | None]()
    contracts = contract_slos(journey)
    for fault in contracts.faults:
        say(fault, is_fault=True)
    for address, slo in contracts.slos.items():
        if slo is None:
            say(
                f"{address} has no SLO for topic {journey.topic}: give its contract slo=0.99@5ms",
                is_fault=True,
            )
    if len(set(contracts.slos.values())) > 1:
        told = ", ".join(f"{slo} at {address}" for address, slo in contracts.slos.items())
        say(f"the contract of topic {journey.topic} has no one SLO: {told}", is_fault=True)
    if contracts.slo is not None:
        slos[Leg.BROKER] = contracts.slo
    if journey.route is not None:
        slos[Leg.BRIDGE] = journey.route.slo
        say(
            f"what others write to kafka:{journey.kafka_topic} has no time of nsqd's, and no "
            "contract bounds it"
        )
    slos[Leg.CONSUMER] = journey.consumers.group.slo
    table = journey.consumers.consumer
    if table is None or not table.journey_address:
        say(
            "consumers do not tell how old messages are: give [consumer] of their file "
            "journey-address, or consume by srtm.consumer",
            is_fault=True,
        )
    elif Address.of(table.journey_address).port != door.port:
        say(
            f"consumers tell {table.journey_address}, and http-address of [journeys] is {door}: "
            "give both the same port",
            is_fault=True,
        )
    slow = _slow_batch(journey.consumers)
    if slow:
        say(slow)
    if Leg.BROKER in slos:
        _compare(journey.slo, slos, say)
    return found


def _slow_batch(file: ScaledFile) -> str:
    """What there is to say of a full batch, which is done with when all of it is; "" where it is
    quick enough, or nobody says how fast a consumer is."""
    group, table = file.group, file.consumer
    counts_bytes = isinstance(file, GroupFile) and file.group.weigh == "bytes"
    if table is None or group.mu is None or counts_bytes:
        return ""
    seconds, target = table.batch / group.mu, group.slo.target_seconds
    if seconds <= target:
        return ""
    return (
        f"a batch of {table.batch} messages takes {format_duration(seconds)} at mu = {group.mu:g}, "
        f"and the target of the consumers is {format_duration(target)}: give [consumer] "
        f"batch = {max(1, int(group.mu * target / 4))} or less"
    )


def _compare(slo: SLO, slos: dict[Leg, SLO | None], say: Callable[..., None]) -> None:
    """Do the SLOs of the legs keep that of the journey, by the union bound? A group may keep it
    though its SLO alone does not: its policy aims at that SLO, and as a rule does better."""
    missing = [leg for leg, each in slos.items() if each is None]
    if missing:
        say(f"{' and '.join(missing)} has no SLO of its own: nothing is promised by settings alone")
        return
    known = [each for each in slos.values() if each is not None]
    seconds = sum(each.target_seconds for each in known)
    late = sum(each.allowed_late_share for each in known)
    parts = ", ".join(f"{leg} {slo}" for leg, slo in slos.items())
    summed = f"the legs' SLOs ({parts}) promise {1 - late:.9g}@{format_duration(seconds)}"
    if seconds <= slo.target_seconds and late <= slo.allowed_late_share + 1e-12:
        say(f"{summed}, which keeps {slo}")
    else:
        say(
            f"{summed} by themselves, and not {slo}. What the legs do may keep it all the same: "
            "see srtm journey show and plan"
        )
