"""A client that has lost Kafka for good, though Kafka is there.

A Kafka whose brokers are all fenced, as one that stood still for longer than its session, names no
broker for a moment. A client of librdkafka (2.10 to 2.16 at least) that asks just then drops its
connections, and may never begin anew (librdkafka's issue 5301); no setting helps. Only another
client can tell that from a Kafka that is away: it is asked beside the work, and whoever is cut off
is made anew by its owner. A client that holds nothing is made anew after each question that Kafka
did not answer.
"""

import threading
import time
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient

ASK_SECONDS = 5.0
LOOK_SECONDS = 15.0
"""from one look to the next, while Kafka is silent"""
_SILENT_NEW = ("error_cb", "logger")
"""settings that a new client does without: what it says is not the old one's word"""
CUT_OFF = "it was cut off from Kafka, which a new client reaches"


class CutOff:
    """Looks whether a client is cut off. settings: its own"""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {name: settings[name] for name in settings if name not in _SILENT_NEW} | {
            "log_level": 0
        }
        self._looked = -LOOK_SECONDS
        self._looking: threading.Thread | None = None
        self._found: Producer | Consumer | None = None
        self._found_at = 0.0

    def look(self, client: Producer | Consumer) -> bool:
        """True where `client` was found to be cut off. Call it while Kafka is silent: it begins to
        look now and then, and does not wait."""
        now = time.monotonic()
        found, self._found = self._found, None
        if found is client and now - self._found_at < 2 * LOOK_SECONDS + ASK_SECONDS:
            return True
        busy = self._looking is not None and self._looking.is_alive()
        if not busy and now - self._looked >= LOOK_SECONDS:
            self._looked = now
            self._looking = threading.Thread(
                target=self._look, args=(client,), name="cut-off", daemon=True
            )
            self._looking.start()
        return False

    def _look(self, client: Producer | Consumer) -> None:
        if _answers(client) or not _answers(AdminClient(self._settings)):
            return
        if not _answers(client):  # Kafka may have come back just between the two
            self._found, self._found_at = client, time.monotonic()


def let_go(clients: list[Any]) -> None:
    """End clients that nothing but this list refers to, beside the work: librdkafka may wait for a
    name to be resolved first."""
    threading.Thread(target=clients.clear, name="old-client", daemon=True).start()


def _answers(client: Producer | Consumer | AdminClient) -> bool:
    try:
        return bool(client.list_topics(timeout=ASK_SECONDS).brokers)
    except (KafkaException, RuntimeError):  # RuntimeError: it was closed meanwhile
        return False
