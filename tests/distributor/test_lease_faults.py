"""200 runs (LONG=yes: 10,000) of the lease protocol with everything against it: the sum of all
shares never exceeds the contract, nor do admissions over any interval, and no gateway ever drops
its limit. See `tests.distributor.lease_faults`."""

import multiprocessing
import os

import pytest

from tests.distributor.lease_faults import Gateway, failing, run
from tests.support.cases import LONG

SEEDS = 10_000 if LONG else 200
PARTS = 20


@pytest.mark.timeout(900)
def test_nothing_exceeds_the_contract_whatever_fails() -> None:
    """Ten thousand take two to four minutes of CPU. A seed that fails replays alone:
    `python -m tests.distributor.lease_faults SEED`."""
    parts = [range(start, start + SEEDS // PARTS) for start in range(0, SEEDS, SEEDS // PARTS)]
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        found = [seed for part in pool.imap(failing, parts) for seed in part]
    assert found == []


def test_tokens_that_nobody_gave_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A share that begins full has tokens that were another broker's until now."""
    fit = Gateway.fit

    def full(gateway: Gateway, now: int) -> None:
        is_new = gateway.bucket is None
        fit(gateway, now)
        if is_new and gateway.bucket is not None:
            gateway.bucket.tokens = gateway.bucket.burst

    monkeypatch.setattr(Gateway, "fit", full)
    assert failing(range(0, 180, 3)) != []


def test_contracts_fall_batches_run_debts_and_shares_follow_the_traffic_meanwhile() -> None:
    worlds = [run(seed) for seed in range(60)]
    assert sum(world.was_lowered for world in worlds) > 3
    assert sum(bool(world.admissions.debts) for world in worlds) > 6
    assert sum(count for world in worlds for _, _, count in world.admissions.rows) > 6_000
    assert sum(world.adapted for world in worlds) > 12


@pytest.mark.parametrize("seed", [0, 3, 151, 318, 465, 2994, 5844])
def test_a_run_is_its_seed(seed: int) -> None:
    """Those that once failed: an instance forgotten by drain, an older copy that nobody in contact
    could tell from the newest, a topic that only a gateway knew, a contract lowered just before
    and just after another one leads."""
    first, second = run(seed), run(seed)
    assert first.trace == second.trace
    assert len(first.trace) > 45
