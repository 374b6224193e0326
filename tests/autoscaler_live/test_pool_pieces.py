"""The pool's pure parts: what /stats says, counters over restarts, shares, who is a consumer."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.pool.busy import Busy
from srtm.autoscaler.pool.counters import Counters
from srtm.autoscaler.pool.sampler import PoolSampler
from srtm.autoscaler.pool.stats import ChannelSeen, ClientSeen, channel_seen
from srtm.consumer.pool_file import PoolFile
from srtm.consumer.scaled_file import read_scaled_file


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


def test_what_is_served_over_the_time_with_work() -> None:
    """Two consumers of 100/s, of which one has work half of the time."""
    busy = Busy()
    finished = 0
    for look in range(40):
        working = 1 + look % 2
        busy.see(look * 0.1, finished, working)
        finished += 10 * (2 - look % 2)  # served until the next look, which sees who worked
    assert busy.mu == pytest.approx(100.0, rel=0.02)
    busy.see(4.0, 0, 2)  # they have connected anew
    assert busy.mu == pytest.approx(100.0, rel=0.02)


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


def test_what_a_sampler_makes_of_two_brokers(tmp_path: Path) -> None:
    """A consumer has a connection to each; two of one name at one broker are two."""
    file = tmp_path / "pool.toml"
    file.write_text(
        '[nsq]\ntopic = "t"\nchannel = "c"\nlookupd = ["127.0.0.1:1"]\n'
        '[group]\nslo = "0.99@500ms"\n'
    )
    parsed = read_scaled_file(file)
    assert isinstance(parsed, PoolFile)
    sampler = PoolSampler(parsed)
    assert sampler.read() is None
    for step in range(40):
        at, done = step * 0.25, 25 * step
        here = tuple(ClientSeen("x@h", "x", done, in_flight=1) for _ in range(2))
        there = (ClientSeen("x@h", "x", done, in_flight=1), ClientSeen("y@h", "y", 0))
        sampler._see("a:1", at, ChannelSeen(1, 50 * step + 900, 900, clients=here))
        sampler._see("b:1", at, ChannelSeen(1, 25 * step, deferred=3, paused=True, clients=there))
        seen = sampler.read()
    assert seen is not None
    assert set(seen.clients or {}) == {"x@h#0", "x@h#1", "y@h#0"}
    assert (seen.waiting, seen.deferred, seen.paused) == (900, 3, False)
    assert sum(each.rate for each in seen.reading.partitions) == pytest.approx(300.0)
    assert sampler.mu("x@h#0") == pytest.approx(200.0)
    assert sampler.mu("x") is None  # two say so
    assert sampler.mu("y") is None  # it has done nothing
    assert sampler.least_mu() == pytest.approx(100.0)
    sampler._forget("b:1")
    seen = sampler.read()
    assert seen is not None
    assert seen.parts == ("a:1",)
