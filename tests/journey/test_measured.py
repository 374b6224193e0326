"""What keeps a journey from being measured."""

import time
from pathlib import Path

import pytest

from srtm.host.clock import NS, monotonic_ns
from srtm.host.offsets import SAME
from srtm.journey.file import read_journeys
from srtm.journey.measured import Measured
from srtm.journey.service import NOTHING


def measured(folder: Path) -> Measured:
    """A journey whose gateway and consumer tell of themselves."""
    (folder / "pool.toml").write_text(
        '[nsq]\ntopic = "t"\nchannel = "c"\nlookupd = ["127.0.0.1:1"]\n[group]\nslo = "0.9@2s"'
    )
    path = folder / "journeys.toml"
    path.write_text('[[journey]]\ntopic = "t"\nslo = "0.9@1s"\nconsumers = "pool.toml"')
    found = Measured(read_journeys(path).all[0])
    found.gateways.faults = {"127.0.0.1:2": ""}
    found.consumers.told("me", 0, 0, monotonic_ns())
    return found


@pytest.mark.parametrize(("error_ms", "told"), [(0, False), (99, False), (101, True)])
def test_clocks_too_far_apart_for_the_target(tmp_path: Path, error_ms: int, told: bool) -> None:
    journey = measured(tmp_path)
    journey.ages.clock_error_ns = error_ms * 1_000_000
    assert ("may differ by 101ms" in journey.fault) == told
    assert bool(journey.fault) == told


@pytest.mark.parametrize(
    ("arrived_ago", "handled_ago", "told"),
    [
        pytest.param(45, None, True, id="none-ever"),
        pytest.param(45, 70, True, id="none-for-a-minute"),
        pytest.param(45, 50, False, id="a-slow-message"),
        pytest.param(63, 61, False, id="one-message-and-a-lull"),
        pytest.param(15, None, False, id="too-new-to-say"),
        pytest.param(200, None, False, id="nothing-came-of-late"),
    ],
)
def test_consumers_that_are_done_with_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arrived_ago: int,
    handled_ago: int | None,
    told: bool,
) -> None:
    journey = measured(tmp_path)
    now, wall = monotonic_ns() + 300 * NS, time.time_ns()
    monkeypatch.setattr("srtm.journey.measured.monotonic_ns", lambda: now)
    journey.consumers.told("me", 0, 0, now)
    at = wall - arrived_ago * NS
    journey.rates.add({"count": 7, "span": [at, at]})
    if handled_ago is not None:
        journey.ages.handled(NOTHING | {"count": 1}, SAME, now - handled_ago * NS)
    assert ("have been done with none for 1m:" in journey.fault) == told
    assert bool(journey.fault) == told
