"""A trial write that shows whether an nsqd that was ill can write to its disk again.

nsqd 1.3.0 sets its health in two places, where a topic or a channel writes a message to its disk
(topic.go, channel.go: `SetHealth` in `put`); metadata and `/topic/create` leave it as it is. So
after one failed write it says NOK until a message is written, and while the gateway admits none,
nobody writes one. The gateway does: to a topic of its own, which is deleted at once, files and all.
An #ephemeral topic would not do: what it cannot hold it drops, and nsqd calls itself well for that.

A topic without channels keeps messages in memory first, so the message that reaches the disk is
the one after the `--mem-queue-size` that fit: they are sent together, as one byte each. For that
moment nsqd is withdrawn from nsqlookupd (watch.py), which keeps the names of deleted topics.
"""

import logging

from srtm.gateway.nsqd import NsqdHttp
from srtm.host.clock import NS
from srtm.nsq.names import DISK_TRIAL_TOPIC
from srtm.text.errors import UnavailableError

TOPIC = DISK_TRIAL_TOPIC.decode()
MOST_MESSAGES = 100_001
"""The most messages of a trial. With a bigger memory queue none is made: its messages take about
130 bytes each of nsqd's memory (13 MB here, 1.3 MB with nsqd's default of 10,000) until the topic
is deleted."""
_PERIOD_NS = 4 * NS
"""The time between two trials. On a full disk each may leave two empty files `nsqd.dat.*.tmp` of
nsqd's, which writes its metadata when a topic comes or goes; and 4 s leave time to be back within
10."""

log = logging.getLogger("srtm.gateway")


class DiskTrial:
    """See the module."""

    def __init__(self, http: NsqdHttp, mem_queue_size: int, topics: list[str]) -> None:
        """topics: those of nsqd; one that a gateway which was killed has left is deleted"""
        self._http = http
        self._messages = mem_queue_size + 1
        self._next_at = 0
        self._left = TOPIC in topics

    def follow(self, mem_queue_size: int) -> None:
        """nsqd was started anew, perhaps with another one."""
        self._messages = mem_queue_size + 1

    @property
    def possible(self) -> bool:
        return self._messages <= MOST_MESSAGES

    def wait(self, now: int) -> None:
        """nsqd has just become ill: the first trial is due in a while."""
        self._next_at = now + _PERIOD_NS

    def is_due(self, now: int) -> bool:
        return self.possible and now >= self._next_at

    async def passes(self, now: int) -> bool:
        """Make a trial: could nsqd write? Raises UnavailableError."""
        self._next_at = now + _PERIOD_NS
        self._left = True
        try:
            path = f"/mpub?topic={TOPIC}"
            response = await self._http.call("POST", path, b"\n".join([b"x"] * self._messages))
        finally:
            await self.clean()
        # What it says now, not that it took the messages: they may all have fitted into memory.
        return response.status == 200 and await self._http.healthy()

    async def clean(self) -> None:
        """Delete the topic where it may be there. Raises UnavailableError."""
        if self._left:
            response = await self._http.call("POST", f"/topic/delete?topic={TOPIC}")
            if response.status not in (200, 404):
                raise UnavailableError(
                    f"nsqd at {self._http.address} did not delete topic {TOPIC}: "
                    f"status {response.status}"
                )
            self._left = False
