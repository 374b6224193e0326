"""`srtm bridge check`: what would run, asked of both sides; nothing is changed."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from srtm.bridge.dead_letter_file import fault_of_file, fault_of_folder
from srtm.bridge.file import BridgeFile, Route
from srtm.bridge.kafka_sink import setting_of
from srtm.bridge.lookup import nsqds_of, topics_of
from srtm.bridge.names import End
from srtm.http.client import Endpoint, get_json, request
from srtm.http.service import distributor_files, service_at
from srtm.kafka.client import LastFault, away, client_settings, refuse_settings
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import CLS
from srtm.nsq.connection import Features
from srtm.text.errors import SrtmError, UnavailableError

_SECONDS = 5.0
_MOST_TRIED = 20
"""nsqds that a nsqlookupd or a distributor names"""
_IDENTITY = {"user_agent": "srtm-bridge", "feature_negotiation": True}


@dataclass(frozen=True)
class Finding:
    """A line about a route, or with "" one that names it itself; fault: it would wait or stop."""

    route: str
    text: str
    fault: bool = False

    def __str__(self) -> str:
        name = f"{self.route}: " if self.route else ""
        return f"{name}{'WAITS: ' if self.fault else ''}{self.text}"


def check_settings(file: BridgeFile, where: str) -> None:
    """Would librdkafka take the settings, and are the files of certificates and secrets of use?
    Raises UsageError."""
    refuse_settings(file.kafka, where, {"acks": "all", "enable.idempotence": True})
    for route in file.routes:
        route.features(f"{where}: route {route.name}: ")


def check(file: BridgeFile) -> list[Finding]:
    """The findings about Kafka and every route."""
    last = LastFault()
    admin = AdminClient(client_settings(file.kafka, "check", last))
    topics: dict[str, int] | None = None
    findings: list[Finding] = []
    try:
        found = admin.list_topics(timeout=_SECONDS).topics
        topics = {
            name: len(each.partitions)
            for name, each in found.items()
            if each.error is None or each.error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART
        }
    except KafkaException as error:
        admin.poll(0)
        findings.append(Finding("[kafka]", away(file.kafka, error, last.text), True))
    for route in file.routes:
        name = route.name if route.name != str(route.source) else ""
        findings.append(Finding(name, f"{route.source} -> {route.target}"))
        if topics is not None:
            findings += _kafka_side(route, topics)
            findings += _without_keys(route, topics, admin)
        findings += _nsq_side(route, topics)
        if route.dead_letter and route.dead_letter.system == "file":
            findings.append(_file(route, route.dead_letter.topic))
        if route.dead_letter is None:
            findings.append(
                Finding(route.name, "no dead-letter: it stops at a message that cannot go over")
            )
    return findings


def _kafka_side(route: Route, topics: dict[str, int]) -> list[Finding]:
    found = []
    for end in (route.source, route.target, route.dead_letter):
        if end is None or end.system != "kafka" or (end.is_template and route.source.is_pattern):
            continue
        name = end.of(route.source.topic)
        if end.is_pattern:
            names = sorted(filter(end.matches, topics))
            found.append(Finding(route.name, f"Kafka {_matching(end, names)}"))
        elif name in topics:
            found.append(Finding(route.name, f"kafka:{name} has {topics[name]} partitions"))
        else:
            found.append(Finding(route.name, _no_topic(name), True))
    return found


def _matching(end: End, names: list[str]) -> str:
    found = f"now has {', '.join(names[:20])}" if names else "has none yet"
    return f"{found} that match {end.topic}"


def _without_keys(route: Route, topics: dict[str, int], admin: AdminClient) -> list[Finding]:
    """A compacted topic takes no record without a key."""
    found = []
    if route.target.system == "kafka" and not route.key:
        name = route.target.of(route.source.topic)
        found.append((name, "the route has none; give it a key"))
    if route.dead_letter is not None and route.dead_letter.system == "kafka":
        name = route.dead_letter.of(route.source.topic)
        found.append((name, "a dead letter may have none; name another topic"))
    return [
        Finding(
            route.name, f"kafka:{name} is compacted and takes no record without a key: {why}", True
        )
        for name, why in found
        if name in topics and "compact" in setting_of(name, "cleanup.policy", admin)
    ]


def _file(route: Route, path: str) -> Finding:
    """The finding about the file of dead letters."""
    size, most = 0, route.dead_letter_bytes
    try:
        size = os.stat(path).st_size
        fault = fault_of_file(path)
        text = f"has {size:,} of {most:,} bytes"
    except FileNotFoundError:
        fault = fault_of_folder(Path(path).parent)
        text = "is made with the first dead letter"
    except OSError as error:
        fault = error.strerror or str(error)
    if fault:
        return Finding(route.name, f"file:{path} cannot be written: {fault}", True)
    return Finding(route.name, f"file:{path} {text}", size >= most)


def _no_topic(name: str) -> str:
    """Kafka shows none that its user may not see."""
    return f"Kafka has no topic {name}, or does not show it; create it, or give its user an ACL"


def targets_missing(route: Route, names: list[str], topics: dict[str, int] | None) -> list[Finding]:
    """Kafka's topics for the names that a pattern of NSQ takes in now."""
    ends = [end for end in (route.target, route.dead_letter) if end and end.system == "kafka"]
    wanted = sorted({end.of(name) for end in ends if end.is_template for name in names})
    missing = [each for each in wanted if topics is not None and each not in topics]
    return [Finding(route.name, _no_topic(each), True) for each in missing[:20]]


def _nsq_side(route: Route, topics: dict[str, int] | None) -> list[Finding]:
    found: list[Finding] = []
    addresses = list(route.nsqd)
    for lookupd in route.lookupd:
        try:
            if route.source.is_pattern:
                names = sorted(filter(route.source.matches, topics_of(lookupd)))
                text = f"nsqlookupd {lookupd} {_matching(route.source, names)}"
                found += targets_missing(route, names, topics)
            else:
                nsqds = sorted(nsqds_of(lookupd, route.source.topic))
                addresses += nsqds[:_MOST_TRIED]
                where = ", ".join(nsqds) or "no nsqd yet"
                text = f"nsqlookupd {lookupd}: topic {route.source.topic} at {where}"
            found.append(Finding(route.name, text))
        except UnavailableError as error:
            found.append(Finding(route.name, f"{error}; mend lookupd of the route", True))
    if route.distributor:
        endpoint = service_at(route.distributor, distributor_files(route), "distributor-token-file")
        found.append(_distributor(route, endpoint))
        if not found[-1].fault:
            addresses += _brokers(endpoint)
    features = route.features()
    for address in dict.fromkeys(addresses):
        try:
            found.append(Finding(route.name, _nsqd(address, features)))
        except SrtmError as error:
            found.append(Finding(route.name, str(error), True))
    return found


def _nsqd(address: str, features: Features) -> str:
    """What comes of a connection such as the route makes, up to AUTH. Raises SrtmError."""
    with Blocking(address, _IDENTITY, _SECONDS, features) as link:
        link.identify()
        text = f"{address} answers"
        if features.tls is not None:
            text += " by TLS"
        else:
            _refuse_required_tls(link)
        return text + (", with AUTH" if link.v2.told.get("auth_required") else "")


def _refuse_required_tls(link: Blocking) -> None:
    """Only IDENTIFY is answered in clear where TLS is required. CLS changes nothing: without SUB it
    is always refused, and the reason tells. Raises UnavailableError."""
    try:
        link.ask(CLS)
    except UnavailableError as error:
        if "TLS required" in str(error):
            text = f"{link.address}: it requires TLS; give the route tls-v1 = true"
            raise UnavailableError(text) from None


def _brokers(endpoint: Endpoint) -> list[str]:
    """Where those in contact publish."""
    try:
        rows = get_json(endpoint, "/v1/brokers", timeout_seconds=_SECONDS)["brokers"]
        return [str(row["tcp_address"]) for row in rows if row["state"] == "up"][:_MOST_TRIED]
    except (UnavailableError, KeyError, TypeError):
        return []  # it has just answered, and goes


def _distributor(route: Route, endpoint: Endpoint) -> Finding:
    """Does it know the topic?"""
    topic, address = route.one_target, route.distributor
    path = f"/v1/topics/{quote(topic, safe='')}"
    try:
        answer = request(endpoint, "GET", path, timeout_seconds=_SECONDS)
        if answer.status == 404 and "error" in answer.document:
            text = f"distributor {address} does not know topic {topic}; srtm topic register FILE"
            return Finding(route.name, text, True)
        if answer.status == 401:
            text = f"distributor {address}: wrong or no token; name distributor-token-file"
            return Finding(route.name, text, True)
        known = answer.json()
        rate = min(known["rate"], sys.float_info.max)  # an integer may be longer than any float
        text = f"distributor {address} knows topic {topic}: {rate:,g} messages/s"
        return Finding(route.name, text)
    except UnavailableError as error:
        return Finding(route.name, f"distributor {error}", True)
    except (KeyError, TypeError, ValueError):
        return Finding(route.name, f"{address} is no distributor", True)
