"""The pieces of share groups that need no Kafka: the file, and what a sampler makes of lags."""

import threading
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.pool.share_sampler import ShareSampler
from srtm.autoscaler.pool.source import ShareSource
from srtm.consumer.scaled_file import read_scaled_file
from srtm.consumer.share_file import ShareFile
from srtm.text.errors import UsageError

BASE = """[kafka]
bootstrap-servers = "127.0.0.1:9092"
group-type = "share"
{kafka}
[group]
topic = "events"
id = "workers"
slo = "0.99@500ms"
{group}
[consumer]
process = "work:handle"
{consumer}
"""


def read(path: Path, kafka: str = "", group: str = "", consumer: str = "") -> ShareFile:
    file = path / "share.toml"
    file.write_text(BASE.format(kafka=kafka, group=group, consumer=consumer))
    found = read_scaled_file(file)
    assert isinstance(found, ShareFile)
    return found


def test_a_file_of_a_share_group(tmp_path: Path) -> None:
    found = read(tmp_path)
    assert (found.dead_letter_topic, found.group.reset) == ("events.dead", "earliest")
    assert ShareSource(found).key == "share:events/workers@127.0.0.1:9092"
    assert ShareSource(found).whose == {"topic": "events", "group": "workers"}
    other = read(tmp_path, consumer='dead-letter = "bad"')
    assert other.dead_letter_topic == "bad"


@pytest.mark.parametrize(
    ("part", "said"),
    [
        ({"group": 'handover = "direct"'}, 'group: unknown key "handover"'),
        ({"group": 'lease = "2s"'}, 'group: unknown key "lease"'),
        ({"consumer": 'wait = "5ms"'}, "wait has no effect in a share group"),
        ({"consumer": "batch-bytes = 1000"}, "batch-bytes has no effect in a share group"),
        (
            {"consumer": 'dead-letter = "events"'},
            "consumer.dead-letter: events is the group's own topic",
        ),
        ({"consumer": 'dead-letter = "a b"'}, "is no name of a Kafka topic"),
        ({"kafka": "[kafka.settings]\n'max.poll.records' = 5"}, "it is batch of [consumer]"),
        (
            {"kafka": "[kafka.settings]\n'share.acknowledgement.mode' = 'implicit'"},
            "records are accepted after the sink",
        ),
        ({"group": 'topic = "other"'}, "Cannot overwrite a value"),
    ],
)
def test_what_a_share_group_does_not_have_is_refused(
    tmp_path: Path, part: dict[str, str], said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, **part)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["share", "consumer"])
def test_a_blank_id_is_refused(tmp_path: Path, kind: str) -> None:
    file = tmp_path / "group.toml"
    text = BASE.replace('"share"', f'"{kind}"').replace('"workers"', '" "')
    file.write_text(text.format(kafka="", group="", consumer=""))
    with pytest.raises(UsageError, match="it is blank; give the group a name"):
        read_scaled_file(file)


def test_a_group_has_no_dead_letters(tmp_path: Path) -> None:
    file = tmp_path / "group.toml"
    text = BASE.replace('group-type = "share"', 'group-type = "consumer"')
    file.write_text(text.format(kafka="", group="", consumer='dead-letter = "bad"'))
    with pytest.raises(UsageError, match='consumer: unknown key "dead-letter"'):
        read_scaled_file(file)
    file.write_text(
        text.replace('"consumer"', '"queue"', 1).format(kafka="", group="", consumer="")
    )
    with pytest.raises(UsageError, match="group-type: must be 'consumer' or 'share'"):
        read_scaled_file(file)


class Kafka(ShareSampler):
    """A sampler whose Kafka says what it is told to."""

    def __init__(self, file: ShareFile) -> None:
        super().__init__(file)
        self.ends: dict[int, int] = {}
        self.lag: dict[int, int] = {}
        self.who: dict[str, str] = {}
        self._group: Any = SimpleNamespace(
            lags=lambda _: dict(self.lag), members=lambda: dict(self.who), close=lambda: None
        )

    def _partitions(self) -> list[int]:
        return sorted(self.ends)

    def _offsets(self, partitions: list[int], logical: int) -> dict[int, int]:
        return {each: self.ends[each] if logical == -1 else 0 for each in partitions}

    def look(self, at: float, ends: Mapping[int, int], lag: Mapping[int, int]) -> None:
        self.ends, self.lag = dict(ends), dict(lag)
        self._look(at)


@pytest.fixture
def sampler(tmp_path: Path) -> Kafka:
    return Kafka(read(tmp_path))


def test_what_waits_is_what_kafka_says(sampler: Kafka) -> None:
    assert sampler.read() is None
    sampler.who = {"m1": "c-1", "m2": "c-2"}
    sampler.look(1.0, {0: 100, 1: 50}, {0: 40})
    sampler.look(2.0, {0: 200, 1: 50}, {0: 10})
    found = sampler.read()
    assert found is not None
    assert found.waiting == 10 + 50, "what the group has not begun waits as well"
    assert found.client_ids == {"c-1", "c-2"}
    assert found.parts == ("events/0", "events/1")
    sampler.look(3.0, {0: 200, 1: 50}, {0: 0, 1: 0})
    again = sampler.read()
    assert again is not None
    served = again.reading.served
    assert (again.waiting, served) == (0, 10), "of what was there before nobody knows its age"


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 400)), min_size=1, max_size=30))
def test_what_is_finished_never_goes_back(steps: list[tuple[int, int]]) -> None:
    """steps: records that come, and the lag that Kafka then says, which may be of a moment later
    or earlier than the ends"""
    file = ShareFile.model_validate(
        {
            "kafka": {"bootstrap-servers": "127.0.0.1:9", "group-type": "share"},
            "group": {"topic": "events", "id": "w", "slo": "0.99@500ms"},
        }
    )
    sampler = Kafka(file)
    sampler._lock = threading.Lock()
    end = finished = served = 0
    for number, (come, lag) in enumerate(steps):
        end += come
        sampler.look(float(number), {0: end}, {0: lag})
        assert finished <= sampler._finished[0] <= end
        finished = sampler._finished[0]
        found = sampler.read()
        assert found is not None
        served += found.reading.served
    assert served <= finished
