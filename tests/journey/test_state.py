"""What outlives a restart of `srtm journey run`."""

from pathlib import Path

import pytest

from srtm.journey.causes import Leg
from srtm.journey.resplit import Standing
from srtm.journey.state import State
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

STANDING = Standing(
    {Leg.BROKER: SLO.parse("0.998@100ms"), Leg.CONSUMER: SLO.parse("0.992@900ms over 1h")},
    2.5,
    1_000.0,
)


def test_it_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / "journeys.state.json"
    state = State(path)
    state.decide("a", STANDING, {"decision": "set"})
    state.decide("b", None, {"decision": "cannot be promised"})
    for number in range(60):
        state.decide("a", STANDING, {"decision": str(number)})
    again = State(path)
    assert again.standing == {"a": STANDING}
    assert again.decisions["b"] == [{"decision": "cannot be promised"}]
    assert [each["decision"] for each in again.decisions["a"]] == [str(n) for n in range(10, 60)]
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b'{"journeys": []}',
        b'{"journeys": {"a": null}}',
        b'{"journeys": {"a": {"standing": {"slos": {"moon": "0.9@1s"}}, "decisions": []}}}',
        b'{"journeys": {"a": {"standing": null, "decisions": [5]}}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_what_makes_no_sense_counts_as_nothing(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "journeys.state.json"
    path.write_bytes(content)
    state = State(path)
    assert (state.standing, state.decisions) == ({}, {})
    assert "it begins anew" in caplog.text
    state.decide("a", STANDING, {})
    assert State(path).standing == {"a": STANDING}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"set state-folder of \[journeys\]"):
        State(tmp_path / "away" / "journeys.state.json")
