"""Random faults over a deployment by `srtm up` (with LONG=yes), and the arithmetic of it."""

import random

import numpy as np
import pytest

from benchmarks.soak.run import growth, soak
from benchmarks.soak.world import RATE, World, _worst_interval
from tests.support.cases import LONG
from tests.support.deployments import need_nsq

SECONDS = 120

if LONG:

    @pytest.mark.timeout(420)
    def test_random_faults_lose_nothing_and_let_in_nothing_too_much(
        tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        need_nsq(monkeypatch)
        seed = random.randrange(1 << 32)
        with World(tmp_path_factory.mktemp("s")) as world:  # sockets' paths are short
            verdict, log = soak(world, SECONDS, seed)
        told = f"seed {seed}, worst interval {verdict.worst}: {log}"
        assert verdict.acknowledged > RATE, told
        assert verdict.lost == [], told
        assert verdict.unexpected == [], told
        assert verdict.excess <= 0, told
        for kind in ("distributor", "gateway b1", "gateway b2"):
            assert verdict.samples[kind], told


def test_the_worst_interval_is_found() -> None:
    calm = np.arange(0, 10, 2 / RATE)
    burst = np.full(50, 5.001)
    begins, ends = _worst_interval(np.sort(np.concatenate([calm, burst])))
    assert begins <= 5.001
    assert ends == pytest.approx(5.001, abs=0.01)


def test_growth_leaves_the_first_quarter_out() -> None:
    rows = [(float(at), rss, 10, 2) for at, rss in enumerate([1, 1, 50, 50, 60, 60, 55, 55])]
    assert growth(rows, 1) == (50, 55)
    assert growth(rows[:1], 1) == (1, 1)
