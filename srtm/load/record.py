"""What happened in a run, as flat arrays that the hot loop only writes to; read when it is over.

Times are ns of CLOCK_MONOTONIC. An event is one write of one publisher, a command is what gets one
answer, a message is counted by its sequence number. All are numbered in the order of sending:
event e has the commands e * commands_per_event and so on, and the messages e * batch and so on.
"""

from array import array

import numpy as np

from srtm.load.schedule import Ints, Schedule

NOT_YET, REFUSED = 0, -1
"""What stands in place of a time. NOT_YET: it never happened; REFUSED: it was answered with an
error."""


class Received:
    """The messages of one consumer: their numbers, and for each read how many and when."""

    __slots__ = ("read_at_ns", "read_counts", "sequences")

    def __init__(self) -> None:
        self.sequences = array("q")
        self.read_counts = array("q")
        self.read_at_ns = array("q")


class Record:
    """Per event: intended_ns, sent_ns, publisher. Per command: answered_ns."""

    __slots__ = (
        "answered_ns",
        "batch",
        "commands_per_event",
        "intended_ns",
        "publisher",
        "received",
        "sent_ns",
    )

    def __init__(self, batch: int, commands_per_event: int) -> None:
        self.batch = batch
        self.commands_per_event = commands_per_event
        self.intended_ns = array("q")
        self.sent_ns = self.intended_ns  # at maximum speed what is sent now was intended now
        self.publisher = array("q")
        self.answered_ns = array("q")
        self.received: list[Received] = []

    def plan(self, schedule: Schedule, start_ns: int) -> None:
        """Make room for an open-loop run: everything is known but what will happen."""
        events = len(schedule)
        self.intended_ns.frombytes((schedule.offsets_ns + start_ns).tobytes())
        self.publisher.frombytes(schedule.publishers.tobytes())
        self.sent_ns = array("q", bytes(8 * events))
        self.answered_ns.frombytes(bytes(8 * events * self.commands_per_event))

    @property
    def messages(self) -> int:
        return len(self.intended_ns) * self.batch

    def received_count(self) -> int:
        """Messages received, doubles included; cheap enough for every few milliseconds."""
        return sum(len(received.sequences) for received in self.received)

    def acknowledged_count(self) -> int:
        return int(np.count_nonzero(self.by_message(self.answered_ns) > 0))

    def is_complete(self) -> bool:
        """Was every acknowledged message received? Looks at each one."""
        acknowledged = self.by_message(self.answered_ns) > 0
        return bool((self.receipts()[0][acknowledged] > 0).all())

    def by_message(self, per_event: "array[int]") -> Ints:
        """An array of one figure for each event, or for each command, as one for each message."""
        values = np.array(per_event, dtype=np.int64)
        events = len(self.intended_ns)
        return np.repeat(values, self.messages // len(values)) if events else values

    def receipts(self) -> tuple[Ints, Ints]:
        """When each message was first received (NOT_YET: never), and how often."""
        first = np.zeros(self.messages, dtype=np.int64)
        often = np.zeros(self.messages, dtype=np.int64)
        for received in self.received:
            numbers = np.array(received.sequences, dtype=np.int64)
            reads = np.array(received.read_counts, dtype=np.int64)
            times = np.repeat(np.array(received.read_at_ns, dtype=np.int64), reads)
            own = np.zeros(self.messages, dtype=np.int64)
            own[numbers[::-1]] = times[::-1]  # of equal numbers the last assignment stays
            first = np.where((first > 0) & (own > 0), np.minimum(first, own), first + own)
            often += np.bincount(numbers, minlength=self.messages)
        return first, often
