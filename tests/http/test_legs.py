"""How a program asks which SLOs its legs are to keep. Time is passed in."""

import json
import logging
from typing import Any

import pytest

from srtm.http import legs
from srtm.http.client import Answer, Endpoint
from srtm.http.legs import MOST_LEGS, Legs
from srtm.limits.slo import SLO
from srtm.text.errors import UnavailableError

A, B = SLO.parse("0.9@1s"), SLO.parse("0.99@2s over 1h")


class Played:
    """Legs whose server answers `answers`, one after the other, and whose clock is `at`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: list[Any], count: int = 1) -> None:
        self.taken: list[list[SLO | None]] = []
        self.asked: list[int] = []
        self.at = 1_000.0
        self.legs = Legs(
            Endpoint("127.0.0.1:1"),
            lambda: [{"leg": "consumer"}] * count,
            lambda wanted: self.taken.append(list(wanted)),
            logging.getLogger("srtm.test"),
        )

        def request(*_: Any, document: Any, **__: Any) -> Any:
            self.asked.append(len(document["legs"]))
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return Answer(200, json.dumps(answer).encode(), "127.0.0.1:1")

        class Over:
            def wait(over, seconds: float) -> bool:
                self.at += seconds
                return not answers

        monkeypatch.setattr(legs, "request", request)
        monkeypatch.setattr(legs.time, "monotonic", lambda: self.at)
        monkeypatch.setattr(self.legs, "_over", Over())
        self.legs._run()


def test_what_is_wanted_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(monkeypatch, [{"slos": [str(A)]}, {"slos": [None]}])
    assert played.taken == [[A], [None]]


@pytest.mark.parametrize(
    "answer",
    [
        UnavailableError("away"),
        {},
        [],
        None,
        {"slos": 5},
        {"slos": []},
        {"slos": [str(A), str(A)]},
        {"slos": ["soon" * 100_000]},
        {"slos": [5]},
    ],
    ids=lambda answer: str(answer)[:20],
)
def test_another_answer_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, answer: Any
) -> None:
    caplog.set_level("INFO")
    played = Played(monkeypatch, [answer, answer, {"slos": [str(B)]}])
    assert played.taken == [[B]]
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert "the SLO stays as it is" in said[0]
    assert len(said[0]) < 400
    assert said[1] == "the journey answers again"


def test_more_legs_than_one_report_has(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [{"slos": [str(A)] * MOST_LEGS}, {"slos": [str(B)] * 4}]
    played = Played(monkeypatch, answers, MOST_LEGS + 4)
    assert played.asked == [MOST_LEGS, 4]
    assert played.taken == [[A] * MOST_LEGS + [B] * 4]


def test_a_server_that_flaps_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another SLO every five seconds for ten minutes."""
    answers = [{"slos": [f"0.9@{number}s"]} for number in range(1, 121)]
    played = Played(monkeypatch, answers)
    before = [None, *played.taken[:-1]]
    changes = [now for now, then in zip(played.taken, before, strict=True) if now != then]
    assert 9 <= len(changes) <= 12  # three in three minutes
