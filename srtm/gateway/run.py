"""A run: the messages for one topic from one read of one publisher, and who gets the answer."""

from typing import Protocol

from srtm.nsq.commands import Publish
from srtm.nsq.errors import ProtocolError


class Owner(Protocol):
    """Whoever published: a TCP client or an HTTP request."""

    publisher: str
    """as traces name it"""

    def settle(self, run: "Run", count: int) -> None:
        """nsqd has acknowledged `count` more messages of `run`; `run.left` is what it has not."""

    def refuse(self, run: "Run", retry_seconds: float | None) -> None:
        """The rest of `run` is not stored, by `run.refused`. The owner answers its client once
        `run.left` is 0, and nothing that it sent behind the run counts. retry_seconds: when it may
        be sent again; None: nobody knows; infinite: never here."""

    def lose(self, run: "Run") -> None:
        """nsqd went away without a word: the outcome is unknown, so no answer may be given."""

    def pause(self, reason: object) -> None:
        """Stop reading this publisher until `resume(reason)`."""

    def resume(self, reason: object) -> None: ...


class Run(Publish):
    """A `Publish` on its way through a topic.

    stamp:    monotonic ns at which its last byte arrived
    since:    bucket time at which it got its last token; -1: it has none yet
    size:     bytes of its messages; 0 once the topic has done with it
    admitted: messages that have their tokens
    left:     messages without an outcome; `done` and `refuse` change it
    earned:   replies earned while an earlier command of the client is unanswered
    refused:  the error that ends this run and its connection
    line:     the name under which it waits for tokens, where publishers have lines of their own
    void:     what is left of it must not go to nsqd any more
    """

    __slots__ = (
        "admitted",
        "earned",
        "left",
        "line",
        "owner",
        "refused",
        "since",
        "size",
        "stamp",
        "void",
    )

    owner: Owner
    stamp: int

    def __init__(
        self, topic: bytes, messages: list[bytes], count: int, atomic: bool, defer_ms: int | None
    ) -> None:
        self.topic = topic
        self.messages = messages
        self.count = count
        self.atomic = atomic
        self.defer_ms = defer_ms
        self.size = len(messages[0]) if count == 1 or atomic else sum(map(len, messages))
        self.since = -1
        self.admitted = 0
        self.left = count
        self.earned = 0
        self.refused: ProtocolError | None = None
        self.line = ""
        self.void = False

    # A run whose messages got their tokens together goes to nsqd as it is: as a `Piece` of itself.

    @property
    def run(self) -> "Run":
        return self

    @property
    def start(self) -> int:
        return 0

    @property
    def step_ns(self) -> float:
        return 0.0

    def cut(self, stop: int) -> bool:
        """The messages of the run end at `stop`: is any of them in this piece?"""
        return stop > 0

    def done(self, count: int) -> bool:
        """`count` more of its messages have their outcome. Is that all of them?"""
        self.left -= count
        return self.left == 0

    def refuse(self, sentence: str) -> None:
        """Nothing that is left of it is stored: no topic has it (any more). Its owner is told."""
        self.left = 0
        self.void = True
        self.refused = ProtocolError(self.failure_code, sentence)
        self.owner.refuse(self, None)

    @property
    def without_token(self) -> int:
        """Its messages that have none. Without a bucket all pass at once, and `admitted` is 0."""
        return self.count - self.admitted if self.admitted or self.since < 0 else 0

    @property
    def failure_code(self) -> str:
        """The error code that this command gets when nsqd could not store it."""
        return f"E_{self.verb}_FAILED"

    @property
    def verb(self) -> str:
        """The command's name."""
        if not self.atomic:
            return "PUB"
        return "MPUB" if self.defer_ms is None else "DPUB"


class Gone:
    """The owner of what is left of a client that has gone."""

    def __init__(self, publisher: str) -> None:
        self.publisher = publisher

    def settle(self, run: Run, count: int) -> None:
        pass

    def refuse(self, run: Run, retry_seconds: float | None) -> None:
        pass

    def lose(self, run: Run) -> None:
        pass

    def pause(self, reason: object) -> None:
        pass

    def resume(self, reason: object) -> None:
        pass


class Part:
    """Messages [start, stop) of a run that did not get its tokens at once.

    since:   bucket time at which the first of them got its token
    step_ns: the k-th of them got its token k * step_ns later (0: together)
    """

    __slots__ = ("run", "since", "start", "step_ns", "stop")

    def __init__(self, run: Run, start: int, stop: int, since: int, step_ns: float) -> None:
        self.run = run
        self.start = start
        self.stop = stop
        self.since = since
        self.step_ns = step_ns

    @property
    def count(self) -> int:
        return self.stop - self.start

    def cut(self, stop: int) -> bool:
        """The messages of the run end at `stop`: is any of them in this part?"""
        self.stop = min(self.stop, stop)
        return self.stop > self.start

    @property
    def messages(self) -> list[bytes]:
        """The messages as `Publish` has them: those of a batch are one element."""
        run = self.run
        return run.messages if run.atomic else run.messages[self.start : self.stop]


Piece = Run | Part
"""What goes to nsqd in one go: a whole run, or a part of one. Both have `run`, `count`, `messages`,
`start`, `since` and `step_ns`."""
