"""`srtm placement simulate`."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from distributor.cli.placement import placement
from srtm.text.errors import UsageError

PLAN: dict[str, Any] = {
    "brokers": [{"name": f"b{n}", "capacity": 600} for n in range(4)],
    "topic": {"name": "t", "rate": 1100, "burst": 52, "slo": "0.99@50ms"},
    "publishers": [{"id": f"p{n}", "key": None, "rate": 20} for n in range(50)],
}


def simulated(folder: Path, plan: dict[str, Any], *flags: str) -> Result:
    file = folder / "plan.json"
    file.write_text(json.dumps(plan))
    return CliRunner().invoke(placement, ["simulate", str(file), "--duration=20s", *flags])


def test_a_split_over_all_brokers_is_late_and_the_fewest_are_not(tmp_path: Path) -> None:
    plan = PLAN | {"topic": PLAN["topic"] | {"slo": "0.99@25ms", "burst": 30}}
    result = simulated(tmp_path, plan, "--json")
    assert result.exit_code == 0, result.output
    found = {each["policy"]: each for each in json.loads(result.output)["policies"]}
    assert set(found) == {"srtm", "max-min", "conc", "lb", "single"}
    assert [len(found[each]["brokers"]) for each in ("srtm", "lb")] == [2, 4]
    assert found["srtm"]["token_wait"] < found["lb"]["token_wait"]
    assert not found["single"]["met"], "it is over its capacity"
    for each in found.values():
        assert sum(broker["messages"] for broker in each["brokers"]) == each["messages"]


def test_a_table_for_people(tmp_path: Path) -> None:
    result = simulated(tmp_path, PLAN, "--policy=lb", "--policy=srtm")
    lines = [line.split() for line in result.output.splitlines()]
    assert [line[0] for line in lines if line][2:] == ["lb", "srtm"], result.output


def test_batches_and_other_topics_take_their_time(tmp_path: Path) -> None:
    alone = json.loads(simulated(tmp_path, PLAN, "--json", "--policy=lb").output)
    brokers = [each | {"allocated": 250} for each in PLAN["brokers"]]
    beside = json.loads(
        simulated(tmp_path, PLAN | {"brokers": brokers}, "--json", "--policy=lb").output
    )
    assert beside["policies"][0]["latency"] > alone["policies"][0]["latency"]


def test_no_room_is_no_verdict_of_met(tmp_path: Path) -> None:
    plan = PLAN | {"brokers": PLAN["brokers"][:1]}
    result = simulated(tmp_path, plan, "--policy=srtm")
    assert "no room for" in result.output


@pytest.mark.parametrize(
    ("plan", "flags", "says"),
    [
        pytest.param(
            {"topic": {"name": "t", "rate": 1100, "burst": 52}}, (), "has no slo", id="no-slo"
        ),
        pytest.param(
            {"brokers": [{"name": "b", "capacity": 0}]}, (), "capacity 0", id="an-unmeasured-broker"
        ),
        pytest.param({}, ("--duration=10h",), "give a --duration of at most", id="too-much"),
        pytest.param({}, ("--base=50ms",), "--base", id="a-base-over-the-target"),
    ],
)
def test_what_cannot_be_simulated_is_one_clear_line(
    tmp_path: Path, plan: dict[str, Any], flags: tuple[str, ...], says: str
) -> None:
    result = simulated(tmp_path, PLAN | plan, *flags)
    assert isinstance(result.exception, UsageError)
    assert says in str(result.exception)
