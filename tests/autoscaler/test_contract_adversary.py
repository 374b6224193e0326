"""Random arrivals that a contract allows, and bursts at the worst moments: no event may be late."""

import pytest

from benchmarks.autoscaler.contract.cases import drawn, play
from tests.support.cases import LONG, cases

BLOCKS, EACH = 2 if LONG else 1, cases(160)
"""Each case is played twice, as a group and as a pool: 40 arrivals, or all 640. `python -m
benchmarks run contract` plays 10,000."""


@pytest.mark.parametrize("pooled", [False, True], ids=["group", "pool"])
@pytest.mark.parametrize("block", range(BLOCKS))
def test_no_event_is_late(pooled: bool, block: int) -> None:
    for seed in range(block * 1000, block * 1000 + EACH):
        for each in play(drawn(seed, 1 if pooled else 2 + seed % 7), pooled):
            assert each.late == 0, (seed, each)
