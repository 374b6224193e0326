"""From a trace by Spark to a better placement: nobody gives a key."""

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from srtm.correlation.correlate_command import correlate
from srtm.correlation.propose import proposal_of
from srtm.correlation.result import Group, GroupedTopic
from srtm.correlation.run import Request, run
from srtm.text.errors import UsageError
from tests.support.distributors import DistributorProcess
from tests.support.planted import Planted, planted

GROUPED = planted(31, sizes=(6, 6), alone=0)
MIXED = Planted(
    [each for pair in zip(GROUPED.times[:6], GROUPED.times[6:], strict=True) for each in pair],
    np.array([0, 1] * 6),
)
"""Publishers of even numbers burst together, and those of odd ones."""


@pytest.fixture(scope="module")
def out(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("proposed")
    for number, topic in enumerate(("t", "unknown"), 1):
        MIXED.write(folder / "trace", topic, number)
    run(spark, Request(folder / "trace", folder / "out"))
    return folder / "out"


def said(running: DistributorProcess, *words: object) -> Any:
    arguments = [*map(str, words), "--distributor-address", running.address]
    return CliRunner().invoke(correlate, arguments, catch_exceptions=False)


def at_each_broker(plan: Any) -> list[list[int]]:
    at = {each["publisher"]: each["broker"] for each in plan["assignments"]}
    return [
        [sum(at[f"p{n}"] == broker for n in range(first, 12, 2)) for broker in ("s1", "s2")]
        for first in (0, 1)
    ]


def test_a_topic_without_keys_is_placed_better_the_next_day(
    distributor: DistributorProcess, out: Path, tmp_path: Path
) -> None:
    for name in ("s1", "s2"):
        distributor.broker(name, 60.0)
    (tmp_path / "t.toml").write_text(
        'name = "t"\nrate = 120\nburst = 20\npublishers = "publishers.csv"\n'
    )
    rows = "".join(f"p{n},9\n" for n in range(12))
    (tmp_path / "publishers.csv").write_text(f"id,rate\n{rows}")
    registered = distributor.srtm("topic", "register", str(tmp_path / "t.toml"))
    assert registered.returncode == 0, registered.stderr
    assert at_each_broker(distributor.place()) == [[6, 0], [0, 6]]
    done = said(distributor, "propose", out)
    assert done.stderr == "topic unknown: left out, the distributor does not know it\n"
    assert done.stdout == (
        "topic t: 0 groups accepted; 2 groups proposed: srtm placement groups t shows them, with "
        "accept they count\n"
    )
    again = said(distributor, "propose", out, "--json")
    assert json.loads(again.stdout)["topics"][0]["number"] == 1, "the same is no new proposal"
    shown = distributor.ok("GET", "/topics/t/groups")["proposed"]
    table = {
        row["name"]: row
        for row in pq.read_table(out / "groups.parquet").to_pylist()
        if row["topic"] == "t"
    }
    for group in shown["groups"]:
        for name in ("lift", "q", "coincidences", "share", "publishers"):
            assert group[name] == table[group["name"]][name]
    times = MIXED.flat + 1_700_000_000_000_000
    assert (shown["first"], shown["last"]) == (times.min() * 1_000, times.max() * 1_000)
    distributor.ok("POST", "/topics/t/groups", {"decision": "accept", "number": 1})
    assert at_each_broker(distributor.place()) == [[3, 3], [3, 3]]


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        pytest.param({"groups.parquet": b"PAR1"}, r"groups\.parquet: cannot be read", id="parquet"),
        pytest.param({"run.json": b'{"first": null, "last": null}'}, "empty", id="empty-trace"),
        pytest.param({"run.json": b"{}"}, "needed", id="of-an-older-srtm"),
        pytest.param({"run.json": None}, "No such file", id="no-run"),
        pytest.param({}, "--topic nosuch: not in this result", id="no-topic"),
    ],
)
def test_what_is_no_result_is_one_line(
    out: Path, tmp_path: Path, spoil: dict[str, bytes | None], why: str
) -> None:
    for path in out.iterdir():
        if path.is_file() and spoil.get(path.name, b"") is not None:
            (tmp_path / path.name).write_bytes(spoil.get(path.name) or path.read_bytes())
    if "groups.parquet" not in spoil:
        (tmp_path / "groups.parquet").symlink_to(out / "groups.parquet")
    arguments = ["propose", str(tmp_path), "--topic=nosuch", "--distributor-address=127.0.0.1:1"]
    with pytest.raises(UsageError, match=why):
        CliRunner().invoke(correlate, arguments, catch_exceptions=False)


def test_as_much_is_proposed_as_is_taken_the_surest_first() -> None:
    now = time.time_ns()

    def group(name: str, q: float, *publishers: str) -> Group:
        return Group(name=name, publishers=publishers, lift=9, q=q, coincidences=30)

    large = tuple(f"x{n}" for n in range(99_998))
    groups = (
        group("g1", 1e-3, *large),
        group("g2", 1e-9, "a", "b", "bad\n"),
        group("g3", 1e-8, "c", "d"),
        group("g4", 1e-9, "alone", ""),
    )
    topic = GroupedTopic(topic="t", publishers=10, groups=groups, ungrouped=0)
    found, left_out = proposal_of(topic, {"g2": 0.5}, (0, now))
    assert [each.name for each in found.groups] == ["g2", "g3"]
    assert [each.share for each in found.groups] == [0.5, 0.0]
    assert found.groups[0].publishers == ["a", "b"]
    assert left_out[0] == "2 publishers left out, whose ids nobody can register"
    assert left_out[1].startswith("2 groups left out")
