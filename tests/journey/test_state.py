"""What outlives a restart of `srtm journey run`."""

from pathlib import Path

import pytest

from srtm.journey.causes import Leg
from srtm.journey.resplit import Standing
from srtm.journey.state import SplitDecision, State
from srtm.limits.slo import SLO
from srtm.text.errors import UsageError

STANDING = Standing(
    SLO.parse("0.99@1s over 1h"),
    {Leg.BROKER: SLO.parse("0.998@100ms"), Leg.CONSUMER: SLO.parse("0.992@900ms over 1h")},
    2.5,
    1_000.0,
    {Leg.BROKER: ("a",), Leg.CONSUMER: ("a", "handlers")},
    (SLO.parse("0.99@1s over 1h"), 900.0),
)


def decision(what: str) -> SplitDecision:
    return SplitDecision(1.7e9, "why", what, {"broker": "0.998@100ms"})


def kept(standing: str = "null", decisions: str = "[]") -> bytes:
    return f'{{"journeys": {{"a": {{"standing": {standing}, "decisions": {decisions}}}}}}}'.encode()


def test_it_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / "journeys.state.json"
    state = State(path)
    state.decide("a", STANDING, decision("set"))
    state.decide("b", None, decision("cannot be promised"))
    for number in range(60):
        state.decide("a", STANDING, decision(str(number)))
    again = State(path)
    assert again.standing == {"a": STANDING}
    assert again.decisions["b"] == [decision("cannot be promised")]
    assert [each.decision for each in again.decisions["a"]] == [str(n) for n in range(10, 60)]
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
        kept('{"whole": "0.9@1s", "slos": {}, "places": {}, "consumers": NaN, "since": 1}'),
        kept('{"whole": "0.9@1s", "slos": {}, "places": {}, "consumers": 1, "since": 1e300}'),
        kept('{"whole": "0.9@1s", "slos": {}, "places": {}, "consumers": 1, "since": "soon"}'),
        kept('{"whole": "0.9@1s", "slos": {}, "consumers": 1, "since": 1}'),
        kept(
            '{"whole": "0.9@1s", "slos": {}, "places": {"broker": ["t"]}, "consumers": 1, '
            '"since": 1}'
        ),
        kept('{"whole": "0.9@1s", "slos": {"consumer": "0.9@1s"}, "consumers": 1, "since": 1}'),
        kept(
            '{"whole": "0.9@1s", "slos": {}, "places": {}, "consumers": 1, "since": 1, '
            '"broke": ["0.9@1s"]}'
        ),
        kept(decisions="[{}]"),
        kept(decisions='[{"at": NaN, "why": "", "decision": "", "slos": {}}]'),
        kept(decisions='[{"at": -1e18, "why": "", "decision": "", "slos": {}}]'),
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
    state.decide("a", STANDING, decision("set"))
    assert State(path).standing == {"a": STANDING}


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"set state-folder of \[journeys\]"):
        State(tmp_path / "away" / "journeys.state.json")


def test_what_cannot_be_kept_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journeys.state.json"
    state = State(path)
    path.mkdir()
    state.decide("a", STANDING, decision("set"))
    assert "the split is not kept" in state.fault
    assert state.standing == {"a": STANDING}
    path.rmdir()
    state.decide("a", STANDING, decision("set"))
    assert state.fault == ""
