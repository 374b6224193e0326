"""What keeps a journey from being measured."""

from pathlib import Path

import pytest

from srtm.host.clock import monotonic_ns
from srtm.journey.file import read_journeys
from srtm.journey.measured import Measured


@pytest.mark.parametrize(("error_ms", "told"), [(0, False), (99, False), (101, True)])
def test_clocks_too_far_apart_for_the_target(tmp_path: Path, error_ms: int, told: bool) -> None:
    (tmp_path / "pool.toml").write_text(
        '[nsq]\ntopic = "t"\nchannel = "c"\nlookupd = ["127.0.0.1:1"]\n[group]\nslo = "0.9@2s"'
    )
    path = tmp_path / "journeys.toml"
    path.write_text('[[journey]]\ntopic = "t"\nslo = "0.9@1s"\nconsumers = "pool.toml"')
    measured = Measured(read_journeys(path).all[0])
    measured.gateways.faults = {"127.0.0.1:2": ""}
    measured.consumers.told("me", 0, 0, monotonic_ns())
    measured.ages.clock_error_ns = error_ms * 1_000_000
    assert ("may differ by 101ms" in measured.fault) == told
    assert bool(measured.fault) == told
