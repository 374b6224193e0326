"""Both ends of a route as they are written, and the names that NSQ and Kafka take. Pure."""

import re
from dataclasses import dataclass

from srtm.nsq.names import MAX_NAME_LENGTH, is_valid_topic_name

MAX_KAFKA_NAME = 249
_KAFKA_NAME = re.compile(r"[a-zA-Z0-9._-]+")
TOPIC = "{topic}"
"""The part of a target that stands for the name of the topic that the message comes from."""


@dataclass(frozen=True, slots=True)
class End:
    """`nsq:TOPIC`, `nsq:TOPIC/CHANNEL`, `kafka:TOPIC`, or for dead letters `file:/PATH`, which is
    its topic then. `*` in a source's topic is a pattern."""

    system: str
    topic: str
    channel: str = ""

    @classmethod
    def parse(cls, text: str) -> "End":
        """Raises ValueError."""
        system, colon, rest = text.partition(":")
        if not colon or system not in ("nsq", "kafka", "file") or not rest:
            raise ValueError(
                f"{text!r} is no end of a route; write nsq:TOPIC/CHANNEL, nsq:TOPIC or kafka:TOPIC"
            )
        if system != "nsq":
            return cls(system, rest)
        topic, slash, channel = rest.partition("/")
        if slash and (fault := nsq_fault(channel)):
            raise ValueError(f"channel {channel!r}: {fault}")
        return cls(system, topic, channel)

    @property
    def is_pattern(self) -> bool:
        return "*" in self.topic

    @property
    def is_template(self) -> bool:
        return TOPIC in self.topic

    def matches(self, topic: str) -> bool:
        return glob(self.topic).fullmatch(topic) is not None

    def of(self, topic: str) -> str:
        """The target's name for what comes from `topic`."""
        return self.topic.replace(TOPIC, topic)

    def fault(self, topic: str) -> str:
        """Why this end's system takes no topic of that name; "" when it does."""
        if self.system == "file":
            if not topic.isprintable():
                return "a path has only characters that can be printed"
            return "" if topic.startswith("/") else "write the whole path: file:/PATH"
        return nsq_fault(topic) if self.system == "nsq" else kafka_fault(topic)

    def __str__(self) -> str:
        return f"{self.system}:{self.topic}" + (f"/{self.channel}" if self.channel else "")


def nsq_fault(name: str) -> str:
    if is_valid_topic_name(name.encode()):
        return ""
    return f"NSQ takes 1 to {MAX_NAME_LENGTH} of [.a-zA-Z0-9_-], and #ephemeral after them"


def kafka_fault(name: str) -> str:
    if name in (".", ".."):
        return "Kafka takes no topic that is called . or .."
    if len(name) <= MAX_KAFKA_NAME and _KAFKA_NAME.fullmatch(name):
        return ""
    return f"Kafka takes 1 to {MAX_KAFKA_NAME} of [a-zA-Z0-9._-]"


def collides(one: str, other: str) -> bool:
    """Kafka's metrics write `.` as `_`, so that it refuses a.b beside a_b."""
    return one != other and one.replace(".", "_") == other.replace(".", "_")


def glob(pattern: str) -> re.Pattern[str]:
    """`*` stands for any characters."""
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def overlap(one: str, other: str) -> bool:
    """Is there a name that both patterns match?"""
    if "*" not in one:
        return glob(other).fullmatch(one) is not None
    if "*" not in other:
        return glob(one).fullmatch(other) is not None
    # Two patterns meet when their ends agree before the first star and after the last.
    head, tail = one.split("*", 1)[0], one.rsplit("*", 1)[1]
    other_head, other_tail = other.split("*", 1)[0], other.rsplit("*", 1)[1]
    heads = head.startswith(other_head) or other_head.startswith(head)
    return heads and (tail.endswith(other_tail) or other_tail.endswith(tail))
