"""What the demo's picture says, and that its figures can be read."""

import builtins
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srtm.demo.measure import Outcome
from srtm.demo.picture import draw, picture
from srtm.limits.contract import Contract
from srtm.load.latency import Latencies

CONTRACT = Contract.parse("alarms,rate=1100,burst=40,slo=0.99@5ms")


def outcome(policy: str, brokers: int, latency_ms: float, wait_ms: float) -> Outcome:
    latency = Latencies(np.array([latency_ms * 1e6] * 100, dtype=np.int64))
    waits = np.full(100, wait_ms / 1e3)
    return Outcome(policy, brokers, latency, 0.0, waits, waits, 0.0)


OUTCOMES = [outcome("lb", 4, 52.0, 8.5), outcome("srtm", 2, 2.0, 0.0123)]


def test_the_point_is_in_the_title_and_load_and_contract_below() -> None:
    made = picture(OUTCOMES, CONTRACT)
    assert made.get_suptitle() == "lb to srtm: 4 brokers to 2, p99 52 to 2 ms"
    below = made.get_supxlabel()
    assert "100 publishers x 10 msg/s" in below
    assert "contract r = 1,100/s, b = 40, SLO 0.99@5ms" in below


def test_latency_is_a_distribution_with_the_slo_as_a_line() -> None:
    latency, _ = picture(OUTCOMES, CONTRACT).axes
    curves = [line for line in latency.lines if len(line.get_xdata()) > 100]
    assert [line.get_label() for line in curves] == [
        "lb: 4 brokers, 0.00% late", "srtm: 2 brokers, 0.00% late",
    ]  # fmt: skip
    for line, each in zip(curves, OUTCOMES, strict=True):
        assert line.get_xdata()[-1] == pytest.approx(each.latency.percentile_ms(99.9), rel=0.01)
    [limit] = [line for line in latency.lines if line.get_linestyle() == "--"]
    assert list(limit.get_xdata()) == [5, 5]


def test_a_bar_too_small_to_be_seen_has_its_figure() -> None:
    _, waits = picture(OUTCOMES, CONTRACT).axes
    assert {"8.5 ms", "0.0123 ms"} <= {text.get_text() for text in waits.texts}


def test_without_matplotlib_nothing_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    assert not draw(OUTCOMES, CONTRACT, tmp_path / "demo.png")
    assert not list(tmp_path.iterdir())
