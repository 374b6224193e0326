"""The pool's pure parts: what /stats says, counters over restarts, shares, who is a consumer."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.pool.counters import Counters
from srtm.autoscaler.pool.stats import ChannelSeen, channel_seen


def document(**channel: Any) -> dict[str, Any]:
    here = {"channel_name": "c", "message_count": 10, "depth": 3, **channel}
    return {"start_time": 7, "topics": [{"topic_name": "t", "depth": 0, "channels": [here]}]}


def test_backlog_is_all_that_is_not_finished() -> None:
    seen = channel_seen(document(in_flight_count=2, deferred_count=1), "t", "c")
    assert (seen.started, seen.entered, seen.backlog) == (7, 10, 6)


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        pytest.param([], "no object", id="list"),
        pytest.param({"start_time": 1, "topics": "x"}, "no list", id="topics"),
        pytest.param(document(depth=-1), "depth", id="negative"),
        pytest.param(document(message_count=2**70), "message_count", id="huge"),
        pytest.param(document(depth=True), "depth", id="bool"),
        pytest.param(document(depth="9"), "depth", id="text"),
        pytest.param({"srtm": {"nsqd_away": "gone"}}, "nsqd is away: gone", id="gateway-alone"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(answer: object, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        channel_seen(answer, "t", "c")


def test_a_topic_without_channels_keeps_its_messages_for_the_first() -> None:
    found = {"start_time": 7, "topics": [{"topic_name": "t", "depth": 5, "channels": []}]}
    assert channel_seen(found, "t", "c").depth == 5
    assert channel_seen({"start_time": 7, "topics": None}, "t", "c").backlog == 0


def test_what_is_deferred_arrives_when_it_is_due() -> None:
    counters = Counters()
    counters.see(ChannelSeen(1))
    counters.see(ChannelSeen(1, entered=100, deferred=100))
    assert (counters.arrived, counters.finished) == (0, 0)
    counters.see(ChannelSeen(1, entered=100, depth=40, in_flight=60))
    assert (counters.arrived, counters.finished) == (100, 0)
    counters.see(ChannelSeen(1, entered=100, in_flight=10, deferred=30))  # 30 were requeued
    assert (counters.arrived, counters.finished) == (100, 60)
    counters.see(ChannelSeen(1, entered=100))
    assert (counters.arrived, counters.finished) == (100, 100)


def test_a_restart_keeps_what_waits_and_forgets_what_was_lost() -> None:
    counters = Counters()
    counters.see(ChannelSeen(1))
    counters.see(ChannelSeen(1, entered=100, depth=80))
    assert not counters.see(ChannelSeen(2, entered=0, depth=50))  # kill -9: 30 are gone
    assert (counters.arrived, counters.finished) == (100, 50)
    counters.see(ChannelSeen(2, entered=10, depth=20))
    assert (counters.arrived, counters.finished) == (110, 90)
    assert not counters.see(ChannelSeen(2, entered=4, depth=4))  # the channel was deleted
    assert counters.arrived - counters.finished == 20 - 16


_SEEN = st.builds(
    ChannelSeen,
    started=st.integers(0, 2),
    entered=st.integers(0, 1000),
    depth=st.integers(0, 500),
    in_flight=st.integers(0, 50),
    deferred=st.integers(0, 50),
)


@given(st.lists(_SEEN, max_size=20))
def test_counters_never_go_back_and_what_waits_is_never_negative(seen: list[ChannelSeen]) -> None:
    counters = Counters()
    before = (0, 0)
    for each in seen:
        counters.see(each)
        assert counters.arrived >= max(counters.finished, before[0])
        assert counters.finished >= before[1]
        before = (counters.arrived, counters.finished)
