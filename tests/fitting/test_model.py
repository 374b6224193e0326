"""The brokers in virtual time that `convergence` measures, against one message after the other."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.placement import fitting_model as model
from benchmarks.placement.convergence import part
from benchmarks.placement.fitting_errors import modelled
from distributor.fitting import Fitting, Mode, Result, Round, Settings
from distributor.fitting.spread import spread
from srtm.limits.bucket import TokenBucket


@given(
    st.lists(st.tuples(st.integers(0, 4_000), st.integers(1, 200)), min_size=1, max_size=20),
    st.integers(1, 300),
    st.integers(1_000, 20_000),
)
def test_late_messages_are_those_of_a_bucket_before_a_queue(
    batches: list[tuple[int, int]], burst: int, rate: int
) -> None:
    """A message takes its token, then its turn at a server, then BASE."""
    times = np.cumsum([gap for gap, _ in batches]) / 1e5
    sizes = np.array([size for _, size in batches], dtype=float)
    found = model.lates(times, sizes, float(rate), float(burst))
    bucket, free_at = TokenBucket(rate, burst, 0), 0.0
    for at, (time, size) in enumerate(zip(times, sizes, strict=True)):
        late = doubtful = 0
        for _ in range(int(size)):
            stamp = round(time * 1e9)
            token_at = bucket.take(1, stamp)
            if token_at is None:
                token_at = bucket.ready_at(1)
                assert bucket.take(1, token_at) is not None
            # Its wait in the queue; where it waits for a token, the next is there 1/r later.
            free_at = max(free_at, token_at / 1e9) + 1 / model.DRAIN
            waited = free_at - time
            alone = token_at / 1e9 - time
            beyond = max(waited if alone <= 0 else alone, waited - 1 / model.DRAIN)
            limit = model.TARGET.target_seconds - model.BASE_SECONDS
            late += beyond > limit + 1e-5
            doubtful += abs(beyond - limit) <= 1e-5 + 1 / model.DRAIN
        assert late - doubtful <= found.late[at] <= late + doubtful


def test_all_groups_send_as_often_as_they_should() -> None:
    for arrivals in ("poisson", "periodic"):
        load = model.workload(10, arrivals, 1)
        assert (np.diff(load.times) >= 0).all()
        assert load.times[-1] < model.TRACE_SECONDS
        rate = len(load.times) * 10 * model.BATCH / model.TRACE_SECONDS
        assert rate == pytest.approx(load.offered, rel=0.02)
    period = load.times[load.groups == 3]
    assert np.diff(period) == pytest.approx(1.0)


def test_the_burst_is_twice_the_smallest_that_lets_99_of_100_pass() -> None:
    load = model.workload(20, "poisson", 3)
    seen = load.seen(model.TRACE_SECONDS)
    assert seen.times[0] >= model.TRACE_SECONDS - 60
    sizes = np.full(50, 200.0)[load.groups]
    rate = load.contract.rate
    work = model.work_before(load.times, sizes, rate)
    for burst, enough in ((load.burst / 2, True), (load.burst / 2 - 1, False)):
        late = model.beyond(work, sizes, burst).sum() / sizes.sum()
        assert bool(late <= 0.01) is enough


def test_k_ref_is_the_first_that_keeps_to_the_allowed_share() -> None:
    found = model.fewest(model.workload(15, "poisson", 2))
    assert all(share > 0.01 for share in found[:-1])
    assert found[-1] <= 0.01
    assert len(found) in (3, 4)
    assert found == sorted(found, reverse=True)


def test_the_late_share_is_set_exactly() -> None:
    load = model.workload(10, "poisson", 5)
    runs = list(modelled(load, 2, 0.015))
    late = sum(each.sum() for _, each in runs)
    assert late / sum(each.sum() for each, _ in runs) == pytest.approx(0.015, rel=0.1)


def test_samples_count_every_message_once() -> None:
    load = model.workload(25, "poisson", 4)
    fitting = Fitting(load.contract, model.brokers(), load.publishers)
    current = fitting.next([], 0.0)
    assert isinstance(current, Round)
    cluster = model.Cluster(load)
    found = [s for until in (0.7, 0.9, 4.0, 9.0, 9.1) for s in cluster.samples(current, until)]
    spans = [each.began_at for each in found]
    assert len(set(spans)) == len(spans) == 45  # 9 s of 0.2 s
    assert sum(each.messages for each in found) == np.sum(load.times < 9.0) * 250
    assert all(each.epoch == 1 and each.broker == "b0" for each in found)


@pytest.mark.parametrize("mode", list(Mode))
def test_a_search_replays_to_the_same_end(mode: Mode) -> None:
    load = model.workload(10, "poisson", 7)
    ends = []
    for _ in range(2):
        fitting = Fitting(
            load.contract, model.brokers(), load.publishers, Settings(mode=mode), batch=model.BATCH
        )
        done, rounds = model.carried_out(fitting, load)
        ends.append((done.seconds, done.assignment))
        assert done.result is Result.MET
        assert len(done.shares) == len(model.fewest(load)) == 3
        assert len(rounds) == done.rounds
    assert ends[0] == ends[1]


def test_the_tokens_of_a_topic_move_with_its_publishers() -> None:
    """After a round over one broker, each of two starts with its part of what was there."""
    load = model.workload(30, "poisson", 9)
    topic = model.topic(load)
    fitting = Fitting(load.contract, model.brokers(), load.publishers)
    first = fitting.next([], 0.0)
    assert isinstance(first, Round)
    cluster = model.Cluster(load)
    fitting.next(cluster.samples(first, 3.0), 3.0)
    second = fitting.next([], 4.0)
    assert isinstance(second, Round)
    assert second.epoch == 2
    cluster.samples(second, 5.0)
    before = load.times < second.began_at
    sizes = np.bincount(np.arange(1_000) // 30)[load.groups[before]] * 10.0
    work = model.work_before(load.times[before], sizes, load.contract.rate)
    owed = work[-1] + sizes[-1]
    assert cluster._owed_part == pytest.approx(owed / load.burst)
    assert len(spread(topic, 2).brokers) == 2


@pytest.mark.parametrize(
    ("count", "total", "expected"),
    [
        pytest.param(0, 0, [], id="nothing"),
        pytest.param(0, 50, [0.0, 0.0, 0.0711], id="none"),
        pytest.param(50, 50, [0.9289, 1.0, 1.0], id="all"),
        pytest.param(5, 10, [0.1871, 0.5, 0.8129], id="half"),
    ],
)
def test_a_part_and_its_interval(count: int, total: int, expected: list[float]) -> None:
    assert part(count, total) == pytest.approx(expected, abs=1e-4)
