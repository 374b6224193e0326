"""Which Kafka topics were deleted and made anew under a consumer that did not notice.

Offsets alone do not tell: where the new topic is as long as the old one was, a consumer goes on in
the middle of it. Each topic has an id of its own.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from typing import Any

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from srtm.kafka.client import AWAY, MAKES_NONE, client_settings
from srtm.kafka.cut_off import let_go
from srtm.kafka.file import KafkaTable

Asked = dict[str, "Future[Any]"]

_ASK_SECONDS = 1.0
_TIMEOUT_SECONDS = 10.0
_NONE = "AAAAAAAAAAAAAAAAAAAAAA"
"""of a Kafka before 2.8, whose topics have no ids"""


class TopicIds:
    """Asks without waiting: `tick` often. One that is away for now keeps the id that it had."""

    def __init__(self, kafka: KafkaTable, client_id: str) -> None:
        self._settings = {**client_settings(kafka, client_id), **MAKES_NONE}
        self._admin = AdminClient(self._settings)
        self._known: dict[str, str] = {}
        self._asked: Asked = {}
        self._unanswered = False
        self._next = 0.0

    def of(self, topic: str) -> str:
        """Empty while nobody has told."""
        return self._known.get(topic, "")

    def tick(self, topics: Iterable[str], now: float, anew: Callable[[str], bool]) -> None:
        """anew: called with each topic that has another id; True once it has seen to that."""
        if self._asked:
            if all(each.done() for each in self._asked.values()):
                asked, self._asked = self._asked, {}
                for topic, answer in asked.items():
                    self._take(topic, answer, anew)
                self._renew()
            return
        if now >= self._next:
            wanted = sorted(topics)
            self._next = now + _ASK_SECONDS
            self._known = {each: id for each, id in self._known.items() if each in wanted}
            self._asked = self.ask(wanted)

    def first(self, topics: Iterable[str]) -> Asked:
        """Ask of those that are new, for `learn`: before their offsets are asked for, so that an
        offset of the old topic never meets the id of the new one."""
        return self.ask(sorted(set(topics) - self._known.keys()))

    def learn(
        self, asked: Asked, seconds: float, anew: Callable[[str], bool] = lambda _: False
    ) -> None:
        """Waits so long at most; who has not answered by then is asked by `tick`."""
        wait(asked.values(), seconds)
        for topic, answer in asked.items():
            if answer.done():
                self._take(topic, answer, anew)
        self._renew()

    def _renew(self) -> None:
        """Ask by another client after one that was not answered (see cut_off.py)."""
        if self._unanswered:
            self._unanswered = False
            old, self._admin = [self._admin], AdminClient(self._settings)
            let_go(old)

    def ask(self, topics: list[str]) -> Asked:
        if not topics:
            return {}
        return self._admin.describe_topics(
            TopicCollection(topics), request_timeout=_TIMEOUT_SECONDS
        )

    def _take(self, topic: str, answer: "Future[Any]", anew: Callable[[str], bool]) -> None:
        try:
            id = str(answer.result().topic_id)
        except KafkaException as error:
            self._unanswered |= error.args[0].code() in AWAY
            return
        if id == _NONE:
            return
        if self._known.setdefault(topic, id) != id and anew(topic):
            self._known[topic] = id
