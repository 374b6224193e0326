"""`srtm demo --infer`: what is compared, and what is said of it."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.correlation.inferred import Trial, report
from distributor.remote import Remote
from srtm.correlation.result import Result, read_result, write_json
from srtm.demo import infer
from srtm.demo.demo_command import demo
from srtm.demo.infer import _traced, gain_kept, kept_share
from srtm.demo.load import PUBLISHERS, in_rooms, in_turn, publishers
from srtm.demo.measure import Outcome
from srtm.http.client import Endpoint
from srtm.limits.contract import Contract
from srtm.limits.slo import SLO
from srtm.load.latency import Latencies
from srtm.load.placement import PlacedPublisher
from srtm.text.errors import UnavailableError
from tests.support.distributors import DistributorProcess


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


def result_of(groups: dict[str, list[str]], folder: Path) -> Result:
    """Written as a run does."""
    last = time.time_ns()
    rows = [
        {"topic": "t", "name": name, "publishers": who, "lift": 50.0, "q": 1e-9}
        | {"coincidences": 40, "share": 0.9}
        for name, who in groups.items()
    ]
    folder.mkdir()
    topic = {"topic": "t", "publishers": PUBLISHERS, "ungrouped": 0}
    write_json(folder, [topic], iter(rows))
    pq.write_table(pa.Table.from_pylist(rows), folder / "groups.parquet")
    (folder / "run.json").write_text(json.dumps({"first": last - 10**10, "last": last}))
    return read_result(folder)


def test_found_groups_are_proposed_and_accepted_as_users_do_it(
    distributor: DistributorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("s1", "s2"):
        distributor.broker(name, 600.0)
    rooms = {f"g{n}": [f"s-{n:03}", f"s-{n + 50:03}"] for n in range(50)}
    plans: list[Any] = []

    def found(trace: Path, folder: Path, topic: str) -> Result:
        assert (trace, topic) == (tmp_path / "trace", "t")
        return result_of(rooms, folder)

    def placed(_: object, remote: Remote, policy: str, *rest: Any) -> Outcome:
        body = {"policy": policy, "groups": rest[-1]}
        plan = remote.call("POST", "topics", "t", "placements", body=body)
        keys = {distributor.where(each.id)["key"] for each in publishers()}
        plans.append((plan, keys))
        return outcome(rest[-3], 1)

    monkeypatch.setattr(infer, "measure", placed)
    monkeypatch.setattr(infer, "find", found)
    monkeypatch.setattr(infer, "_await_trace", lambda *_: None)
    said: list[str] = []
    contract = Contract(topic="t", rate=1100, burst=40, slo=SLO(0.99, 0.01))
    remote = Remote(Endpoint(distributor.address))
    infer.three_ways(None, remote, contract, 1, tmp_path / "trace", said.append)  # type: ignore[arg-type]
    (_, no_keys), (plan, keys), (given, all_keys) = plans
    assert no_keys == keys == {None}, "nobody gives a key for them"
    assert len(all_keys) == 50
    assert plan["reasons"][0] == (
        "groups: 100 publishers in inferred groups (proposal 1, accepted)"
    )
    at = {each["publisher"]: each["broker"] for each in plan["assignments"]}
    assert all(at[one] != at[other] for one, other in rooms.values())
    assert "inferred" not in given["reasons"][0]
    assert any(line.startswith("topic t: 50 groups accepted, 100 publishers") for line in said)


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
