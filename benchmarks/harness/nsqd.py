"""nsqd asked directly: its topics, how many messages it has, and the messages themselves."""

import time
from dataclasses import dataclass
from urllib.parse import quote

from srtm.http.client import request
from srtm.http.nsqd import stats
from srtm.nsq.blocking import Blocking
from srtm.nsq.commands import CLS, rdy, sub
from srtm.text.errors import UnavailableError

DURABLE = ["--mem-queue-size=0", "--sync-every=1"]
"""Flags with which what nsqd has acknowledged survives its death: else a lost message says
nothing."""


@dataclass(frozen=True, slots=True)
class Depth:
    """The messages of one topic in nsqd: how many it ever got, and how many wait in the topic or
    its channels; in_topic: of these, those in the topic itself."""

    received: int
    waiting: int
    in_topic: int


def depth(nsqd_http: str, topic: str, channel: str = "") -> Depth:
    """The depth of a topic with all of its channels or the one that is named, asked without nsqd's
    list of clients and without its memory figures: those stop its world."""
    received = in_topic = in_channels = 0
    for found in stats(nsqd_http, topic, channel)["topics"]:
        received += found["message_count"]
        in_topic += found["depth"]
        for each in found["channels"]:
            in_channels += each["depth"] + each["in_flight_count"] + each["deferred_count"]
    return Depth(received, in_topic + in_channels, in_topic)


def ask(nsqd_http: str, what: str, topic: str, channel: str = "") -> None:
    """what: create, empty, pause or unpause; of the channel too, where one is named. Raises
    UnavailableError."""
    paths = [f"/topic/{what}?topic={quote(topic)}"]
    if channel:
        paths.append(f"/channel/{what}?topic={quote(topic)}&channel={quote(channel)}")
    for path in paths:
        answer = request(nsqd_http, "POST", path)
        if answer.status != 200:
            raise UnavailableError(f"{nsqd_http}: {path}: {answer.error}")


def create_paused(nsqd_http: str, topic: str, channel: str) -> None:
    """A paused topic keeps its messages: nsqd reads one from the topic's file before it writes it
    into the channel's, and an nsqd that is killed in between loses it."""
    ask(nsqd_http, "create", topic)
    ask(nsqd_http, "pause", topic)
    ask(nsqd_http, "create", topic, channel)


def drain(nsqd_tcp: str, topic: str, channel: str, quiet_seconds: float) -> list[tuple[bytes, int]]:
    """Take what a channel has by now, or until nothing comes for so long: bodies, with nsqd's own
    time of receipt in ns since 1970. All that was sent here is finished: what is in flight dies
    with nsqd. Raises UnavailableError."""
    found: list[tuple[bytes, int]] = []
    began_at = time.time_ns()
    identity = {"client_id": "drain", "heartbeat_interval": 60000}
    with Blocking(nsqd_tcp, identity, quiet_seconds) as link:
        link.identify().ask(sub(topic.encode(), channel.encode()))
        link.write(rdy(2000))
        ends = False
        while True:
            try:
                messages = link.messages()
            except TimeoutError:
                return found
            except OSError as error:
                raise UnavailableError(f"{nsqd_tcp}: {error}") from None
            found += [(bytes(each.body), each.timestamp_ns) for each in messages]
            newest = max((each.timestamp_ns for each in messages), default=0)
            if newest > began_at and not ends:
                ends = True  # publishers go on, and it would never be quiet
                link.write(CLS)
