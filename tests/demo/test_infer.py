"""`srtm demo --infer`: what is compared, and what is said of it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.correlation.inferred import Trial, report
from srtm.contract import Contract
from srtm.correlation.result import Group
from srtm.demo.command import demo
from srtm.demo.infer import _traced, gain_kept, kept_share, use
from srtm.demo.load import PUBLISHERS, in_rooms, in_turn, publishers
from srtm.demo.measure import Outcome
from srtm.errors import UnavailableError
from srtm.load.latency import Latencies
from srtm.load.placement import PlacedPublisher


def outcome(name: str, wait_ms: float, lag_ms: float = 0.0) -> Outcome:
    waits = np.full(100, wait_ms / 1e3)
    return Outcome(
        name, 2, Latencies(np.array([1_000_000] * 100)), 0.0, waits, waits / 2, lag_ms / 1e3
    )


@pytest.mark.parametrize(
    ("waits", "kept", "said"),
    [
        pytest.param((20, 4, 4), 1.0, "gain no less than named ones", id="as-good"),
        pytest.param((20, 2, 4), 1.125, "gain no less than named ones", id="better"),
        pytest.param((20, 12, 4), 0.5, "found groups keep 50% of the gain", id="half"),
        pytest.param((20, 24, 4), -0.25, "found groups keep -25% of the gain", id="worse"),
        pytest.param((4, 4, 4), None, "named groups gain nothing in this run", id="no-gain"),
    ],
)
def test_what_is_said_of_a_run(waits: tuple[float, ...], kept: float | None, said: str) -> None:
    assert kept_share(*waits) == (None if kept is None else pytest.approx(kept))
    line = gain_kept(*(outcome(str(each), each) for each in waits))
    assert said in line
    assert line.startswith(f"token wait at p99: {waits[0]:g} ms without groups")


def test_the_benchmark_judges_the_gain_that_is_kept() -> None:
    def trial(seed: int, *waits: float, lag_ms: float = 0.0) -> Trial:
        blind, found, named = (outcome(str(each), each, lag_ms) for each in waits)
        return Trial(seed, (blind, found, named), 0.5)

    good = report([trial(each, 20, 4.5, 4) for each in (1, 2, 3)])
    assert [bar.met for bar in good.bars] == [True, True]
    bad = report([trial(1, 20, 4, 4), trial(2, 20, 12, 4), trial(3, 20, 12, 4)])
    assert [bar.met for bar in bad.bars] == [False, False]
    assert [bar.met for bar in report([]).bars] == [None, None]
    late = report([trial(each, 20, 4, 4, lag_ms=90) for each in (1, 2, 3)])
    assert [bar.met for bar in late.bars] == [None, True]
    assert late.bars[0].why.startswith("the load itself was 90 ms late")
    assert report([trial(1, 4, 4, 4, lag_ms=-1)]).bars[0].why == "named groups gained nothing"


def test_rooms_send_together_whatever_keys_are_registered() -> None:
    placed = [PlacedPublisher(each.id, None, each.rate, "h:1") for each in publishers()]
    assert in_rooms(placed) == in_turn(["h:1"])


def test_found_groups_become_keys_and_the_others_have_none() -> None:
    class Far:
        def __init__(self) -> None:
            self.keys: dict[str, str | None] = {}

        def call(self, _: str, *path: str, body: Any) -> None:
            if path[-1] == "publishers":
                self.keys = {each["id"]: each["key"] for each in body["publishers"]}

    far = Far()
    groups = [Group(name="g1", publishers=("s-000", "s-007"), lift=9, q=0, coincidences=9)]
    use(far, Contract(topic="t", rate=10, burst=5), groups)  # type: ignore[arg-type]
    assert len(far.keys) == PUBLISHERS
    named = {who: key for who, key in far.keys.items() if key is not None}
    assert named == {"s-000": "g1", "s-007": "g1"}


def test_only_the_topic_s_messages_are_waited_for(tmp_path: Path) -> None:
    rows = {"topic": ["t", "noise", "t"], "messages": pa.array([2, 9, 3], pa.int32())}
    pq.write_table(pa.table(rows), tmp_path / "a.parquet")
    (tmp_path / ".b.parquet.tmp").write_bytes(b"half")
    assert _traced(tmp_path, "t") == 5
    assert _traced(tmp_path, "other") == 0


def test_without_java_nothing_is_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UnavailableError, match="Java is not installed"):
        CliRunner().invoke(demo, ["--infer"], catch_exceptions=False)
