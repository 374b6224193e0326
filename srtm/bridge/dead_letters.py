"""Where the dead letters of a route go: a topic of Kafka, or a file."""

from collections.abc import Callable
from typing import Any

from srtm.bridge.dead_letter_file import DeadLetterFile, as_json
from srtm.bridge.kafka_sink import LARGEST, Headers, KafkaSink
from srtm.bridge.runner import Runner


class DeadLetters:
    """The dead letters of one runner. Their producer is made with the first of them."""

    def __init__(self, runner: Runner, client: str, linger_ms: float, max_messages: int) -> None:
        """client: of the producer, behind the names of bridge and route"""
        route = runner.route
        self._runner = runner
        self._client_id = f"{runner.bridge}-{route.name}{client}"
        self._linger_ms = linger_ms
        self._max_messages = max_messages
        self._sink: KafkaSink | None = None
        self._file: DeadLetterFile | None = None
        if route.dead_letter and route.dead_letter.system == "file":
            self._file = DeadLetterFile(route.dead_letter.topic, route.dead_letter_bytes)

    @property
    def refused(self) -> bool:
        """Do some wait for their file to take them?"""
        return bool(self._file is not None and self._file.fault)

    def put(
        self,
        topic: str,
        origin: Headers,
        reason: str,
        on_delivery: Callable[[Any, Any], None],
        now: float,
        *,
        body: bytes | None,
        key: bytes | None = None,
        theirs: Headers = (),
        refusals: int = 0,
    ) -> bool:
        """True when it had to be cut short. origin: our headers, and theirs, those of the message;
        refusals: how often it was too big. Raises KafkaException and BufferError."""
        if self._file is None:
            if self._sink is None:
                self._sink = KafkaSink(
                    self._runner.kafka,
                    self._client_id,
                    linger_ms=self._linger_ms,
                    max_messages=self._max_messages,
                    max_msg_size=LARGEST,
                    alone=True,
                )
            return self._sink.dead_letter(
                topic, body, key, origin, theirs, reason, on_delivery, refusals
            )
        letter: dict[str, Any] = {"route": self._runner.route.name, "reason": reason}
        for name, value in (*origin, ("key", key)):
            letter |= as_json(name, value)
        if theirs:
            letter["headers"] = [{"name": name} | as_json("value", value) for name, value in theirs]
        self._file.put(letter | as_json("body", body), on_delivery, now)
        return False

    def poll(self, now: float, at_once: bool = False) -> None:
        """Take Kafka's reports, and write what waits for its file; after a failure that is tried
        again later, or `at_once`."""
        if self._sink is not None:
            self._sink.poll(0)
        if self._file is not None:
            before = self._file.failures
            self._file.flush(now, at_once)
            if self._file.failures > before:
                self._runner.said(f"dead letters: {self._file.fault}")

    def renew(self) -> bool:
        """Start another producer after a fatal error; True where there was one."""
        if self._sink is not None and len(self._sink):
            self._sink.look()
        if self._sink is None or not self._sink.fatal:
            return False
        self._sink.renew(self._sink.fatal)
        return True

    def close(self) -> None:
        if self._sink is not None:
            self._sink.flush(1)
