"""From a delivery back to its arrival, without a byte of ours in the message.

nsqd stamps each message when it receives it, on this host's clock. That time falls between the
writing and the answer of the MPUB that carried the message, and there its body is looked up.
"""

from srtm.gateway.batch import Batch
from srtm.gateway.topic import Topic
from srtm.host.clock import WallClock
from srtm.nsq.commands import elements
from srtm.nsq.commands import message as element_of
from srtm.nsq.frames import MESSAGE, Message, parse_message

_Places = tuple[bytes, list[Batch]]
"""a message as it stands in an MPUB, and the batches that it may be in"""

_SLACK_NS = 1_000_000
"""The slack between nsqd's reading of the clock, converted with an offset read once a second, and
ours."""
_READS_SAMPLED_PER_TICK = 50


class Deliveries:
    """Samples of deliveries, matched a little later: nsqd may deliver a message before its OK."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        self._consumed: list[tuple[Topic, Message, int]] = []
        self._reads = 0
        self._stride = 1

    def consumed(self, topic: "Topic", raw: bytes, ends: list[int], now: int) -> None:
        """Frames relayed to a consumer in one read: the last message of every n-th read."""
        self._reads += 1
        if self._reads % self._stride:
            return
        start = ends[-2] if len(ends) > 1 else 0
        if raw[start + 7] == MESSAGE:
            message = parse_message(raw[start + 8 : ends[-1]])
            if message.attempts == 1:
                self._consumed.append((topic, message, now))

    def match(self) -> None:
        """Put what has come since the last call into the topics' sketches."""
        consumed, self._consumed = self._consumed, []
        search = _Search(self._wall)
        looked_for = [search.add(topic, message) for topic, message, _ in consumed]
        search.run()
        for (topic, message, at), places in zip(consumed, looked_for, strict=True):
            stamp = search.stamp(places)
            if stamp is None:
                if at <= topic.deferred_until:
                    continue
                # Older than what we remember: the consumers' own backlog outweighs the gateway's
                # part by far, so nsqd's time of receipt stands for the arrival.
                stamp = self._wall.monotonic_of(message.timestamp_ns)
            topic.meter.consumer_latency.add(max(at - stamp, 0), 1)
        self._stride = max(1, self._reads // _READS_SAMPLED_PER_TICK)
        self._reads = 0


class _Search:
    """A search for many messages at once: each batch is gone through once, however many are looked
    for there. In an overload batches hold tens of thousands, and hundreds look: one by one that
    took seconds."""

    def __init__(self, wall: WallClock) -> None:
        self._wall = wall
        self._wanted: dict[Batch, dict[bytes, int | None]] = {}

    def add(self, topic: Topic, message: Message) -> _Places:
        """Where it may be."""
        received = self._wall.monotonic_of(message.timestamp_ns)
        element = element_of(message.body)
        batches = list(topic.ring.around(received, _SLACK_NS))
        for batch in batches:
            self._wanted.setdefault(batch, {})[element] = None
        return element, batches

    def run(self) -> None:
        for batch, wanted in self._wanted.items():
            _find(batch, wanted)

    def stamp(self, places: _Places) -> int | None:
        """When it arrived."""
        element, batches = places
        for batch in batches:
            stamp = self._wanted[batch][element]
            if stamp is not None:
                return stamp
        return None


def _find(batch: Batch, wanted: dict[bytes, int | None]) -> None:
    """Fill in the stamps of those that are in the batch."""
    missing = len(wanted)
    for piece in batch.pieces:
        run, messages = piece.run, piece.messages
        if run.defer_ms is not None or not messages:  # of a client that has gone
            continue
        for element in elements(messages[0]) if run.atomic else messages:
            if element in wanted and wanted[element] is None:
                wanted[element] = run.stamp
                missing -= 1
                if not missing:
                    return
