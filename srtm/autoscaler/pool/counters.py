"""Counters of one broker that never go back, whatever its nsqd does. Pure.

Finished are those that entered less those that wait, so each message counts once, however often it
was requeued. What was deferred by its publisher (DPUB) arrives when it is due: until then nobody
could serve it. What a consumer has requeued with a delay has arrived already.
"""

from dataclasses import dataclass

from srtm.autoscaler.pool.stats import ChannelSeen


@dataclass(slots=True)
class Counters:
    """arrived: messages that were due; finished: those that are done"""

    arrived: int = 0
    finished: int = 0
    _last: ChannelSeen | None = None

    def see(self, seen: ChannelSeen) -> bool:
        """False where the channel began anew: its nsqd was started again, or it was deleted."""
        last, self._last = self._last, seen
        now = seen.entered - seen.backlog
        again = last is not None and (seen.started != last.started or seen.entered < last.entered)
        if last is None or again:
            # What was there is counted by what is left of it: the rest is done, or was lost.
            waiting = seen.depth + seen.in_flight
            self.finished = max(self.finished, self.arrived - waiting)
            self.arrived = max(self.arrived, self.finished + waiting)
            return not again
        self.finished += max(now - (last.entered - last.backlog), 0)
        due = self.finished + seen.depth + seen.in_flight
        self.arrived = max(self.arrived, self.finished, due)
        return True
