"""The page of a result: what is chosen, what Spark adds to it, and what a browser makes of it."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

from srtm.correlation.correlate_command import correlate
from srtm.correlation.report.computed import computed
from srtm.correlation.report.page import page
from srtm.correlation.report.shown import (
    MOST_GROUPS,
    MOST_MEMBERS,
    MOST_TOPICS,
    Figures,
    Wait,
    shown,
)
from srtm.correlation.report.timeline import Life, Row, timeline
from srtm.text.errors import UsageError
from tb_adaptor.share import Part
from tests.support.browser import document_of
from tests.support.planted import BEGAN_SECONDS
from tests.support.planted import group_row as group
from tests.support.trace_frames import frame

HOSTILE = "<script>x</script><img src=x onerror=alert(1)>\"'&amp;"
SECOND = 1_000_000_000
BEGAN = BEGAN_SECONDS * SECOND


def result(folder: Path, *groups: dict[str, Any], **publishers: int) -> Path:
    """As a run leaves it. publishers: of each topic."""
    folder.mkdir(exist_ok=True)
    topics = [
        {
            "topic": topic,
            "publishers": count,
            "groups": [each for each in groups if each["topic"] == topic],
            "ungrouped": count
            - sum(len(each["publishers"]) for each in groups if each["topic"] == topic),
        }
        for topic, count in publishers.items()
    ]
    (folder / "groups.json").write_text(json.dumps({"topics": topics}))
    settings = {"rate": 0.01, "floor": 0.3}
    run = {"trace": str(folder / "gone"), "rows": 99, "left_out": [], "settings": settings}
    (folder / "run.json").write_text(json.dumps(run))
    part = folder / "groups.parquet"
    part.mkdir()
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("topic", "name")),
            ("publishers", pa.list_(pa.string())),
            *((name, pa.float64()) for name in ("lift", "q", "share")),
            ("coincidences", pa.int64()),
            ("periodic", pa.bool_()),
            ("instants", pa.list_(pa.int64())),
        ]
    )
    pq.write_table(pa.Table.from_pylist(list(groups), schema), part / "part-0.parquet")
    return folder


# --- what is chosen ---------------------------------------------------------------------------


def test_a_page_stays_of_one_size(tmp_path: Path) -> None:
    many = [f"p{each}" for each in range(500)]
    groups = [group("t0", f"g{each}", *many[: each + 2]) for each in range(40)]
    topics = {f"t{each}": 10_000 for each in range(20)}
    found = shown(result(tmp_path / "r", *groups, **topics))
    assert found.left_out == 20 - MOST_TOPICS
    first = found.topics[0]
    assert (first.name, first.count, len(first.groups)) == ("t0", 40, MOST_GROUPS)
    assert first.groups[0].size == 41
    assert all(len(each.publishers) <= MOST_MEMBERS for each in first.groups)


@pytest.mark.parametrize("file", ["groups.parquet/part-0.parquet", "run.json"])
def test_a_damaged_result_is_one_line(tmp_path: Path, file: str) -> None:
    folder = result(tmp_path / "r", group("t", "g1", "a", "b"), t=2)
    (folder / file).write_bytes(b"PAR1")
    with pytest.raises(UsageError, match="damaged result") as found:
        shown(folder)
    assert "\n" not in str(found.value)


def row(window: int, name: str, before: str | None, after: str | None, size: int = 3) -> Row:
    return Row(BEGAN + window * SECOND, name, size, before, after, f"{name}'s")


@pytest.mark.parametrize(
    ("rows", "lives"),
    [
        pytest.param([row(0, "g1", None, "g1"), row(1, "g1", "g1", None)],
                     [Life("g1\'s", 3, 0, 1, False, False)], id="there-all-the-time"),
        pytest.param([row(0, "g1", None, "g2"), row(1, "g2", "g1", None, 9),
                      row(2, "g7", None, None)],
                     [Life("g1\'s", 9, 0, 1, False, True), Life("g7\'s", 3, 2, 2, True, False)],
                     id="one-ends-another-appears"),
        pytest.param([row(0, "g1", None, None), row(1, "g2", None, None), row(4, "g1", None, None)],
                     [Life("g1\'s", 3, 0, 0, False, True), Life("g2\'s", 3, 1, 1, True, True),
                      Life("g1\'s", 3, 4, 4, True, False)], id="windows-without-groups-count"),
    ],
)  # fmt: skip
def test_lives_of_groups(rows: list[Row], lives: list[Life]) -> None:
    assert timeline(rows).lives == tuple(lives)


def test_of_many_groups_the_largest_lives_are_drawn_and_all_are_counted() -> None:
    rows = [row(at % 5, f"g{at}", None, None, size=at) for at in range(1, 100)]
    found = timeline(rows)
    assert len(found.begins) == 5
    assert max(each.size for each in found.lives) == 99
    assert min(each.size for each in found.lives) > 80
    assert found.appeared == sum(at % 5 > 0 for at in range(1, 100))


# --- what Spark adds --------------------------------------------------------------------------


@pytest.mark.timeout(300)
def test_figures_of_a_small_trace(spark: SparkSession, tmp_path: Path) -> None:
    """Two rooms of two, each at one broker: bursts of two; spread, one at each."""
    rooms = {"a": ("a1", "a2"), "b": ("b1", "b2")}
    rows = [
        (BEGAN + at * SECOND + offset * SECOND // 2, "t", who, f"n-{room}", 3)
        for at in range(60)
        for offset, room in enumerate(rooms)
        for who in rooms[room]
    ] + [(BEGAN + at * SECOND + 77_000_000, "t", "alone", "n-a", 1) for at in range(60)]
    folder = result(
        tmp_path / "r", group("t", "g1", *rooms["a"]), group("t", "g2", *rooms["b"]), t=5, idle=1
    )
    found = computed(frame(spark, rows), shown(folder))
    assert set(found) == {"t"}
    of = found["t"]
    assert of.statistics["messages"] == 60 * 13
    assert of.contract is not None
    assert of.brokers == 2
    waits = {each.name: each.p99_ms for each in of.waits}
    assert waits["each group spread"] < waits["each group on one broker"]
    assert waits["as traced"] == pytest.approx(waits["each group on one broker"], rel=0.2)
    assert set(of.curves) == {None, "g1", "g2"}
    assert [burst for _, burst in of.curves["g1"]][-1] == pytest.approx(6, abs=0.5)
    assert of.lone == ["alone"]
    assert set(of.ticks) == {"a1", "a2", "b1", "b2", "alone"}
    assert all(of.begins <= each <= of.ends for each in of.ticks["a1"])
    assert of.bursts["a1"] == [BEGAN + 20 * SECOND]
    assert "b1" not in of.bursts  # nothing within 80 ms of the instant


# --- the page ---------------------------------------------------------------------------------


def drawn(topic: str, *publishers: str) -> Figures:
    times = {who: [BEGAN + each * SECOND for each in (1, 2, 3)] for who in publishers}
    return Figures(
        statistics={
            "brokers": 2, "messages": 780, "rate": 13.0, "seconds": 60.0, "drift": 0.1,
            "dispersion": {"1ms": 2.0, "10ms": 2.5, "100ms": None},
            "hours": [1.0] + [0.0] * 23,
            "talkers": [{"publisher": publishers[0], "messages": 9, "share": 0.3}],
        },
        contract=Part(14.0, 12.0),
        brokers=2,
        waits=[Wait("publishers at random", 1.0, 20.0), Wait("each group spread", 0.5, 5.0)],
        curves={None: [(13.0, 9.0), (26.0, 7.0)], "g1": [(5.0, 6.0), (9.0, 6.0)]},
        begins=BEGAN,
        ends=BEGAN + 10 * SECOND,
        ticks=times,
        bursts={who: [BEGAN + 20 * SECOND + 5_000_000] for who in publishers},
    )  # fmt: skip


def test_the_page_says_what_spreading_saves(tmp_path: Path) -> None:
    folder = result(tmp_path / "r", group("t", "g1", "a", "b"), t=5)
    text = page(shown(folder), {"t": drawn("t", "a", "b")})
    assert "Spreading each group takes 75% less at p99" in text
    assert "1 groups with 2 of 5 publishers" not in text
    assert "1 group with 2 of 5 publishers" in text


def test_without_its_trace_the_page_says_what_is_missing(tmp_path: Path) -> None:
    folder = result(tmp_path / "r", group("t", "g1", "a", "b"), t=5)
    out = tmp_path / "x.html"
    done = CliRunner().invoke(
        correlate, ["report", str(folder), "--out", str(out)], catch_exceptions=False
    )
    assert f"The trace {folder}/gone is gone" in done.stderr
    text = out.read_text()
    assert "is gone" in text
    assert "a, b" in text
    with pytest.raises(UsageError, match="no such folder"):
        CliRunner().invoke(
            correlate, ["report", str(folder), "--trace", str(tmp_path / "no")],
            catch_exceptions=False,
        )  # fmt: skip


def test_no_name_becomes_html_in_the_real_browser(tmp_path: Path) -> None:
    topics = {HOSTILE: 5, "plain": 3}
    groups = [group(HOSTILE, "g1", HOSTILE, "b"), group("plain", "g1", "c", "d")]
    folder = result(tmp_path / "r", *groups, **topics)
    file = tmp_path / "x.html"
    names = {HOSTILE: drawn(HOSTILE, HOSTILE, "b"), "plain": drawn("plain", "c", "d")}
    text = page(shown(folder), names, HOSTILE)
    assert "<script" not in text
    assert "<img" not in text
    assert "http" not in text.replace("http-equiv", "")
    file.write_text(text)
    seen = document_of(file, tmp_path / "profile", 400)
    assert "<script" not in seen
    assert "<img" not in seen
    for element in ("<section", "<svg", "<tr", "<text", "<circle", "<path"):
        assert seen.count(element) == text.count(element)
