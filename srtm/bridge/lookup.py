"""Which nsqds have a topic, asked of nsqlookupd by a thread of its own: a hung one stops nobody."""

import logging
import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from srtm.http.client import request
from srtm.nsq.names import OWN_TOPICS, is_valid_topic_name
from srtm.text.address import Address
from srtm.text.errors import UnavailableError, UsageError

log = logging.getLogger("srtm.bridge")

_POLL_SECONDS = 5.0
_TIMEOUT_SECONDS = 3.0
_MAX_BYTES = 8 << 20
_MAX_FOUND = 1000
_MAX_ADDRESS = 261  # a name of 255, and a port


class Lookup:
    """found: `host:port` of the nsqds, over all nsqlookupds that answered; None before the first.

    A nsqlookupd that does not answer takes nothing away: what was found before stays.
    """

    def __init__(self, lookupds: Sequence[str], topic: str) -> None:
        self.found: frozenset[str] | None = None
        self.reason = ""
        self._lookupds = lookupds
        self._topic = topic
        self._over = threading.Event()
        threading.Thread(target=self._run, name=f"lookup {topic}", daemon=True).start()

    def close(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.is_set():
            self._ask()
            self._over.wait(_POLL_SECONDS)

    def _ask(self) -> None:
        found: set[str] = set()
        fault = ""
        for lookupd in self._lookupds:
            try:
                found |= nsqds_of(lookupd, self._topic)
            except UnavailableError as error:
                fault = str(error)
        if fault and fault != self.reason:
            log.warning("%s; what is known goes on", fault)
        self.reason = fault
        if fault and self.found is not None:
            found |= self.found
        if not fault or found:
            self.found = frozenset(found)


def nsqds_of(lookupd: str, topic: str) -> set[str]:
    """Raises UnavailableError."""
    path = f"/lookup?topic={quote(topic, safe='')}"
    document = _ask(lookupd, path)
    if document is None:  # nobody has it yet
        return set()
    try:
        producers = document["producers"][:_MAX_FOUND]
        pairs = ((each["broadcast_address"], int(each["tcp_port"])) for each in producers)
        found = {str(Address(host, port)) for host, port in pairs}
        return set(filter(_is_address, found))
    except (KeyError, TypeError, ValueError, OverflowError):  # a port of 1e999
        raise UnavailableError(f"nsqlookupd {lookupd}: {path} is no list of nsqds") from None


def _is_address(text: str) -> bool:
    try:
        Address.of(text)
    except UsageError:
        log.warning("%.100s is no address of an nsqd", text)
        return False
    return len(text) <= _MAX_ADDRESS


def topics_of(lookupd: str) -> set[str]:
    """The topics of users that the nsqlookupd knows. Raises UnavailableError."""
    document = _ask(lookupd, "/topics")
    try:
        names = {each for each in document["topics"] if is_valid_topic_name(each.encode())}
        return {each for each in names if each.encode() not in OWN_TOPICS}
    except (KeyError, TypeError, AttributeError, UnicodeError):
        raise UnavailableError(f"nsqlookupd {lookupd}: /topics is no list of topics") from None


def _ask(lookupd: str, path: str) -> Any:
    """What it answers; None where it knows of nothing. Raises UnavailableError that names it."""
    try:
        answer = request(
            lookupd, "GET", path, timeout_seconds=_TIMEOUT_SECONDS, max_bytes=_MAX_BYTES
        )
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise UnavailableError(f"{lookupd}: {answer.error}")
        return answer.json()
    except UnavailableError as error:
        raise UnavailableError(f"nsqlookupd {error}") from None
