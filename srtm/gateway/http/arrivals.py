"""`GET /arrivals`: when the messages of a topic arrived, for who handles them (`srtm.journey`)."""

import asyncio
import json
import time

from srtm.gateway.http.asking import Asking
from srtm.gateway.http.authorizing import check_subscribe
from srtm.gateway.http.handler import HttpError
from srtm.gateway.measure.arrivals import arrivals
from srtm.host.clock import boot_id, monotonic_ns
from srtm.nsq.names import is_valid_channel_name

_DIGITS = 20
"""of a cursor: nanoseconds in 64 bits"""
_PAUSE_SECONDS = 0.02
"""from one answer to the next, whoever asks: so they take a tenth of the loop at most"""


class Arrivals(Asking):
    """Whoever may subscribe to the topic may ask: checksums of bodies are told."""

    async def get(self) -> None:
        try:
            self.check_query()
            topic, channel = self.argument("topic") or "", self.argument("channel") or ""
            if not is_valid_channel_name(channel.encode()):
                raise HttpError(400, "MISSING_ARG_CHANNEL: give the channel that is subscribed to")
            await check_subscribe(self, topic, channel)
            since = self._since()
            async with self.turn() as is_there:
                if is_there:
                    text = json.dumps(self._document(topic, since), separators=(",", ":"))
                    self.set_header("Content-Type", "application/json; charset=utf-8")
                    self.finish(text)
                    await asyncio.sleep(_PAUSE_SECONDS)
        except HttpError as error:
            self.fail(error)

    def _since(self) -> int:
        since = self.argument("since") or "0"
        if not (since.isascii() and since.isdigit() and len(since) <= _DIGITS):
            raise HttpError(400, "INVALID_ARG_SINCE: give the cursor of the last answer, or 0")
        return int(since)

    def _document(self, topic: str, since: int) -> dict[str, object]:
        found = self.gateway.topics.by_name.get(topic.encode())
        if found is None:
            raise HttpError(404, "TOPIC_NOT_FOUND")
        if not found.has_slo:
            raise HttpError(409, f"NO_SLO: topic {topic} has none here, so nothing is measured")
        now = monotonic_ns()
        document = arrivals(found.ring, since, now, self.gateway.wall.offset_ns)
        # Cursors are this process's own; `boot_id` says with whom it shares its clock.
        return {"boot_id": boot_id(), "wall_ns": time.time_ns(), **document}
