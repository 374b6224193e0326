"""`srtm placement plan --offline FILE` on real files."""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from distributor.placement.policies import POLICIES
from tests.support.programs import run_srtm

_ROOT = Path(__file__).parents[2]


def document() -> dict[str, Any]:
    return {
        "brokers": [
            {"name": "b1", "capacity": 100, "allocated": 40},
            {"name": "b2", "capacity": 50.0, "allocated": 0},
            {"name": "b3", "capacity": 10},
        ],
        "topic": {"name": "sensors", "rate": 110, "burst": 20, "slo": "0.99@1ms"},
        "publishers": [{"id": f"p{n}", "key": f"room-{n % 2}", "rate": 10} for n in range(10)],
    }


def plan(file: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    return run_srtm("placement", "plan", "--offline", file, *flags)


def written(folder: Path, values: object) -> Path:
    file = folder / "topic.json"
    file.write_text(json.dumps(values))
    return file


def test_the_answer_has_the_documented_form(tmp_path: Path) -> None:
    done = plan(written(tmp_path, document()), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    answer = json.loads(done.stdout)
    assert list(answer) == ["policy", "assignments", "brokers", "unplaced", "reasons"]
    assert answer["policy"] == "srtm"
    assert [row["publisher"] for row in answer["assignments"]] == [f"p{n}" for n in range(10)]
    assert {row["broker"] for row in answer["assignments"]} == {"b1", "b2"}
    assert answer["brokers"] == [
        {"name": name, "rate": 50.0, "quota": 50.0, "publishers": 5, "r": 55.0, "b": 10.0}
        for name in ("b1", "b2")
    ]
    assert answer["unplaced"] == []
    assert all(isinstance(reason, str) for reason in answer["reasons"])


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_has_a_table(tmp_path: Path, policy: str) -> None:
    done = plan(written(tmp_path, document()), "--policy", policy)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"policy {policy}" in done.stdout
    assert "b1" in done.stdout
    assert "\n- " in done.stdout


def test_who_is_unplaced_is_shown_and_the_plan_is_still_an_answer(tmp_path: Path) -> None:
    values = document()
    values["publishers"].append({"id": "huge", "key": None, "rate": 500})
    file = written(tmp_path, values)
    done = plan(file)
    assert done.returncode == 0
    assert "unplaced: 1 publisher: huge" in done.stdout
    assert json.loads(plan(file, "--json").stdout)["unplaced"] == ["huge"]


def broken(change: str, value: object) -> dict[str, Any]:
    """The document with one thing replaced, by its path."""
    values = document()
    *path, last = change.split(".")
    place: Any = values
    for part in path:
        place = place[int(part)] if part.isdigit() else place[part]
    place[last] = value
    return values


@pytest.mark.parametrize(
    ("values", "said"),
    [
        pytest.param(broken("publishers.3.rate", 0), "publishers.3.rate: ", id="a-rate-of-zero"),
        pytest.param(broken("publishers.3.rate", -5), "publishers.3.rate: ", id="a-negative-rate"),
        pytest.param(
            broken("publishers.3.rate", float("nan")), "publishers.3.rate: ", id="a-rate-of-nan"
        ),
        pytest.param(broken("publishers.3.rate", 1e12), "publishers.3.rate: ", id="an-absurd-rate"),
        pytest.param(broken("publishers.3.rate", "9"), "publishers.3.rate: ", id="a-rate-as-text"),
        pytest.param(broken("publishers.3.id", "p1"), "publishers.3.id: 'p1'", id="an-id-twice"),
        pytest.param(broken("publishers.3.id", ""), "publishers.3.id: ", id="an-empty-id"),
        pytest.param(broken("publishers.3.key", 7), "publishers.3.key: ", id="a-key-as-number"),
        pytest.param(broken("publishers.3.kye", "x"), "publishers.3.kye: ", id="an-unknown-field"),
        pytest.param(broken("publishers", []), "publishers: ", id="no-publishers"),
        pytest.param(broken("brokers.1.name", "b1"), "brokers.1.name: 'b1'", id="a-broker-twice"),
        pytest.param(broken("brokers.1.capacity", -1), "brokers.1.capacity: ", id="capacity"),
        pytest.param(broken("brokers.1.allocated", None), "brokers.1.allocated: ", id="allocated"),
        pytest.param(broken("topic.slo", "fast"), "topic.slo: 'fast' is not an SLO", id="slo"),
        pytest.param(broken("topic.name", "a b"), "topic.name: 'a b' is not", id="topic-name"),
        pytest.param(broken("topic.burst", 0.5), "topic.burst: ", id="a-burst-under-one"),
        pytest.param(broken("topic", None), "topic: ", id="no-topic"),
        pytest.param([1], "topic.json: ", id="no-object"),
    ],
)
def test_bad_values_get_one_line_with_their_place(
    tmp_path: Path, values: object, said: str
) -> None:
    done = plan(written(tmp_path, values))
    assert (done.returncode, done.stdout) == (2, "")
    line = done.stderr
    assert line.count("\n") == 1
    assert line.startswith(f"srtm: {tmp_path}/topic.json: ")
    assert said in line


@pytest.mark.parametrize(
    ("content", "said"),
    [
        pytest.param(b'{"brokers": ', "not JSON", id="cut-off"),
        pytest.param(b"\xff\xfe", "not JSON", id="not-text"),
        pytest.param(b"[" * 100_000, "not JSON", id="too-deep"),
        pytest.param(None, "No such file", id="missing"),
    ],
)
def test_bad_files_get_one_line(tmp_path: Path, content: bytes | None, said: str) -> None:
    file = tmp_path / "topic.json"
    if content is not None:
        file.write_bytes(content)
    done = plan(file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"srtm: {file}: {said}")
    assert done.stderr.count("\n") == 1


def test_no_brokers_is_a_plan_that_says_what_is_missing(tmp_path: Path) -> None:
    done = plan(written(tmp_path, broken("brokers", [])), "--json")
    assert done.returncode == 0
    answer = json.loads(done.stdout)
    assert (answer["brokers"], len(answer["unplaced"])) == ([], 10)
    assert any("add brokers with room for 100 messages/s" in each for each in answer["reasons"])


def test_an_unknown_policy_is_refused(tmp_path: Path) -> None:
    done = plan(written(tmp_path, document()), "--policy", "best")
    assert done.returncode == 2
    assert "'best' is not one of 'srtm', 'max-min', 'conc', 'lb', 'single'" in done.stderr
