"""The bytes of all topics' backlogs together: they are bounded, and shared fairly by topics.

Each topic has a bound of its own, and there may be thousands. Over the common bound a topic takes
no more once it has its part of that: the bound, divided by the topics that have a backlog; over
twice the bound, divided by all that there may be. So all of them have at most three times the
bound (and one read of each connection), and a topic whose messages leave at once never waits for
those that hold theirs.
"""

from typing import Protocol


class Waiting(Protocol):
    """A topic that takes no more because of the common bound."""

    def look_again(self) -> None:
        """Look again: there may be room."""


class Backlogs:
    """bytes: of all; topics: those that have any"""

    __slots__ = ("_max_topics", "_waiting", "bytes", "most", "topics")

    def __init__(self, most_bytes: int, max_topics: int) -> None:
        self.most = most_bytes
        self._max_topics = max_topics
        self._waiting: dict[Waiting, None] = {}
        self.bytes = 0
        self.topics = 0

    def is_full_for(self, backlog_bytes: int) -> bool:
        """backlog_bytes: of the topic that asks"""
        if self.bytes <= self.most:
            return False
        parts = self.topics if self.bytes <= 2 * self.most else self._max_topics
        return backlog_bytes * parts > self.most

    def add(self, size: int, first: bool) -> None:
        """first: of its topic's backlog"""
        self.bytes += size
        if first:
            self.topics += 1

    def remove(self, size: int, last: bool) -> None:
        self.bytes -= size
        if last:
            self.topics -= 1
        if self._waiting and self.bytes <= self.most:
            waiting, self._waiting = self._waiting, {}
            for topic in waiting:
                topic.look_again()

    def wait(self, topic: Waiting) -> None:
        """The topic is told once all have room again; where they have it now, it has to look
        itself."""
        if self.bytes > self.most:
            self._waiting[topic] = None
