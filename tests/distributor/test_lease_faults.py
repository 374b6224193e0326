"""10,000 runs of the lease protocol with everything against it: the sum of all shares never exceeds
the contract, and no gateway ever drops its limit. See `tests.distributor.lease_faults`."""

import multiprocessing
import os

import pytest

from tests.distributor.lease_faults import failing, run

SEEDS = 10_000
PARTS = 100


@pytest.mark.timeout(900)
def test_nothing_exceeds_the_contract_whatever_fails() -> None:
    """It takes two to four minutes of CPU. A seed that fails replays alone:
    `python -m tests.distributor.lease_faults SEED`."""
    parts = [range(start, start + SEEDS // PARTS) for start in range(0, SEEDS, SEEDS // PARTS)]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        found = [seed for part in pool.imap(failing, parts) for seed in part]
    assert found == []


def test_shares_follow_the_traffic_meanwhile() -> None:
    assert sum(run(seed).adapted for seed in range(100)) > 20


@pytest.mark.parametrize("seed", [0, 3, 151, 318, 465])
def test_a_run_is_its_seed(seed: int) -> None:
    """Those that once failed: an instance forgotten by drain, an older copy that nobody in contact
    could tell from the newest, a topic that only a gateway knew."""
    first, second = run(seed), run(seed)
    assert first.trace == second.trace
    assert len(first.trace) > 45
