"""The brokers of a topic, for a load that is not told where to send."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from srtm.deployment.admin import topics_of
from srtm.deployment.document import Deployment, find
from srtm.deployment.layout import DATA_PATH
from srtm.http.nsqlookupd import all_producers, producers_of
from srtm.text.errors import UnavailableError

_ALONE = "127.0.0.1:4150"
"""a gateway, or an nsqd, that runs on this host by itself"""


@dataclass(frozen=True, slots=True)
class Brokers:
    """addresses: host:port of each broker that has a share of the topic; silent: of those that do
    not answer, whose share nobody knows; split: does the topic have a contract there?"""

    addresses: tuple[str, ...]
    silent: tuple[str, ...] = ()
    split: bool = False


def brokers_of(topic: str, where: Path | None, lookupds: Sequence[str]) -> Brokers:
    """The brokers of a topic, as nsqlookupd knows them where one is given, or else the deployment
    in `where`; None: the one in ./srtm-data, or without one the broker that runs on this host
    alone. Raises UnavailableError."""
    if lookupds:
        return _of_lookupds(topic, lookupds)
    deployment = _deployment(where)
    return Brokers((_ALONE,)) if deployment is None else _of_deployment(topic, deployment)


def left_out(topic: str, known: Brokers, used: Collection[str]) -> str:
    """A warning where a load that goes to `used` misses a part of the contract; or nothing."""
    plain = {each.replace("localhost:", "127.0.0.1:") for each in used}
    missed = [each for each in known.addresses if each not in plain]
    if known.silent and known.split:
        silent = ", ".join(known.silent)
        return f"topic {topic}: {silent} does not answer, and its share of the contract is unused"
    if not known.split or not missed or len(missed) == len(known.addresses):
        return ""
    return (
        f"topic {topic}: its contract is split over {len(known.addresses)} brokers and this load "
        f"goes to {len(known.addresses) - len(missed)} of them, without the share of "
        f"{', '.join(missed)}: take more publishers, or leave out --nsqd-tcp-address"
    )


def _deployment(where: Path | None) -> Deployment | None:
    if where is not None:
        return find(where)
    try:
        return find(DATA_PATH)
    except UnavailableError:
        return None


def _of_deployment(topic: str, deployment: Deployment) -> Brokers:
    """The brokers with a share of the topic's contract; all that answer for a topic without one."""
    shares, silent = [], []
    for broker in deployment.brokers:
        address = str(broker.tcp_address)
        try:
            row = topics_of(broker).get(topic, {})
        except UnavailableError:
            silent.append(address)
            continue
        if "rate" in row:
            shares.append(address)
    answering = [str(each.tcp_address) for each in deployment.brokers]
    answering = [each for each in answering if each not in silent]
    if not answering:
        raise UnavailableError(f"no broker of deployment {deployment.name} answers: srtm stat")
    return Brokers(tuple(shares or answering), tuple(silent), bool(shares))


def _of_lookupds(topic: str, lookupds: Sequence[str]) -> Brokers:
    """The brokers that have the topic; all that nsqlookupd knows where none has it yet."""
    having: dict[str, None] = {}
    everybody: dict[str, None] = {}
    for address in lookupds:
        having |= dict.fromkeys(each.tcp for each in producers_of(address, topic) if each.tcp)
        everybody |= dict.fromkeys(each.tcp for each in all_producers(address) if each.tcp)
    if not everybody:
        raise UnavailableError(f"nsqlookupd at {', '.join(lookupds)} knows no nsqd")
    return Brokers(tuple(having or everybody), split=len(having) > 1)
