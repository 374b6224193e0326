"""Which nsqds have a topic, asked of nsqlookupd by a thread of its own: a hung one stops nobody."""

import logging
import threading
from collections.abc import Sequence

from srtm.http.nsqlookupd import producers_of, topics
from srtm.nsq.names import OWN_TOPICS, is_valid_topic_name
from srtm.text.errors import UnavailableError

log = logging.getLogger("srtm.bridge")

_POLL_SECONDS = 5.0


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
    """The TCP addresses of those that have the topic. Raises UnavailableError."""
    return {each.tcp for each in producers_of(lookupd, topic)} - {""}


def topics_of(lookupd: str) -> set[str]:
    """The topics of users that the nsqlookupd knows. Raises UnavailableError."""
    names = {each.encode(errors="replace") for each in topics(lookupd)}
    return {each.decode() for each in names - OWN_TOPICS if is_valid_topic_name(each)}
