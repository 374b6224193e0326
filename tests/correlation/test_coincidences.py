"""The arithmetic of coincidences: by definition, and on planted groups. Needs no Spark."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.correlation.groups.clocks import FARTHEST_US, offset_us, total_of_slab
from srtm.correlation.groups.clusters import Edges, clusters
from srtm.correlation.groups.coincidences import Pairs, compare
from srtm.correlation.groups.hashing import LARGEST, bands, bins, bucket_pairs, signatures
from srtm.correlation.groups.instants import Floats, instants
from srtm.correlation.groups.members import least_size
from srtm.correlation.groups.settings import Settings
from tests.support.planted import Planted, planted

SETTINGS = Settings()
GAP = SETTINGS.widest_us


def pairs_of(trace: Planted) -> Pairs:
    """All of them."""
    left, right = np.triu_indices(len(trace.times), 1)
    found = list(compare(instants(trace.flat, trace.starts, GAP), left, right, SETTINGS))
    names = Pairs.__dataclass_fields__
    return Pairs(*(np.concatenate([getattr(each, name) for each in found]) for name in names))


# --- instants and coincidences, by definition -------------------------------------------------

TIMES = st.lists(st.integers(0, 400_000), min_size=1, max_size=25).map(sorted)


def runs(times: list[int]) -> list[list[int]]:
    found = [[times[0]]]
    for time in times[1:]:
        if time - found[-1][-1] > GAP:
            found.append([])
        found[-1].append(time)
    return found


@given(TIMES, TIMES)
@settings(max_examples=150)
def test_coincidences_by_definition(one: list[int], other: list[int]) -> None:
    trace = Planted([np.array(one), np.array(other)], np.zeros(2))
    came = instants(trace.flat, trace.starts, GAP)
    assert np.diff(came.runs).tolist() == [len(runs(one)), len(runs(other))]
    (found,) = compare(came, np.array([0]), np.array([1]), SETTINGS)

    def met(mine: list[int], others: list[int], window: int) -> int:
        return sum(
            any(abs(a - b) <= window for a in run for b in others)
            for run in runs(mine)
            if any(others[0] - GAP <= a <= others[-1] + GAP for a in run)
        )

    window = int(found.window_us[0])
    assert found.coincidences[0] == min(met(one, other, window), met(other, one, window))
    assert 0 < found.p[0] <= 1


def test_a_batch_counts_once() -> None:
    burst = np.arange(0, 60_000_000, 1_000_000)
    batches = np.sort(np.concatenate([burst + each for each in (0, 3_000, 9_000, 20_000)]))
    found = pairs_of(Planted([burst, batches], np.zeros(2)))
    assert found.coincidences.tolist() == [burst.size]


def test_only_common_time_counts() -> None:
    """One was there for a quarter of the time: its bursts are half of the other's then."""
    random = np.random.default_rng(3)
    at = np.sort(random.integers(0, 400_000_000, 80))
    late = at[at > 300_000_000] + 500
    found = pairs_of(Planted([at, late], np.zeros(2)))
    assert found.coincidences[0] == late.size - 1  # two of them are one instant
    assert found.share[0] > 0.9
    assert found.p[0] < 1e-20


def test_a_shape_that_both_follow_is_no_coincidence() -> None:
    """Both send a hundred times as much in the same few minutes, and never together."""
    random = np.random.default_rng(4)
    times = [
        np.sort(
            np.concatenate(
                [random.integers(0, 6_000_000_000, 60), random.integers(0, 60_000_000, 60)]
            )
        )
        for _ in range(40)
    ]
    found = pairs_of(Planted(times, np.arange(40)))
    assert found.p.min() > 1e-6
    assert np.mean(found.p < 1e-2) < 0.02


def test_p_is_that_of_chance_in_independent_traffic() -> None:
    found = pairs_of(planted(5, sizes=(), alone=120, bursts=60))
    for p in (1e-1, 1e-2, 1e-3):
        assert np.mean(found.p <= p) <= 1.5 * p


@pytest.mark.parametrize("jitter", [0.0, 0.004, 0.016])
@pytest.mark.parametrize("periodic", [False, True])
def test_members_are_told_from_others(jitter: float, periodic: bool) -> None:
    trace = planted(6, jitter=jitter, periodic=periodic)
    found = pairs_of(trace)
    same = trace.label[found.left] == trace.label[found.right]
    assert found.p[same].max() < 1e-6
    assert found.share[same].min() > SETTINGS.floor
    assert found.spread_us[same].max() < SETTINGS.spread_us
    assert (found.steady[same] >= SETTINGS.steady).mean() == pytest.approx(
        float(periodic), abs=0.05
    )
    sure = (found.p < 1e-6) & (found.share > SETTINGS.floor)
    sure &= found.spread_us < SETTINGS.spread_us
    if not periodic:
        assert same[sure].all()


def test_clocks_that_pass_each_other_are_seen_to_travel() -> None:
    """Equal periods but for 1e-4: together for two minutes, 16 ms apart at their ends."""
    at = np.arange(0, 120_000_000, 500_000)
    found = pairs_of(Planted([at, np.rint(at * (1 + 1e-4)).astype(np.int64) - 6_000], np.zeros(2)))
    assert found.steady[0] > 0.9
    assert found.share[0] > 0.9
    assert found.travel_us[0] == pytest.approx(12_000, rel=0.05)
    assert abs(found.travel_us[0]) > SETTINGS.delay_us + 3 * found.travel_error_us[0]


def test_a_phase_that_stays_is_seen_as_a_lag() -> None:
    at = np.arange(0, 120_000_000, 500_000)
    found = pairs_of(Planted([at, at + 7_000], np.zeros(2)))
    assert found.lag_us[0] == pytest.approx(7_000)
    assert found.travel_us[0] == pytest.approx(0, abs=100)


def test_an_alignment_that_ends_is_uneven() -> None:
    at = np.arange(0, 200_000_000, 1_000_000)
    half = at + np.where(at < 100_000_000, 0, 400_000)
    found = pairs_of(Planted([at, half], np.zeros(2)))
    assert found.share[0] > SETTINGS.floor
    assert found.uneven[0] < -3.5


# --- clusters ---------------------------------------------------------------------------------


def edges_of(pairs: list[tuple[int, int]], beat: bool = False, lags: object = 0.0) -> Edges:
    left, right = (np.array([each[at] for each in pairs], np.int64) for at in (0, 1))
    ones = np.ones(left.size)
    lag = ones * np.asarray(lags)
    return Edges(
        left, right, ones * 20, ones.astype(bool) & beat, lag, ones * 300, ones * 0, ones * 1_000
    )


def clique(*members: int) -> list[tuple[int, int]]:
    return [(a, b) for a in members for b in members if a < b]


@pytest.mark.parametrize(
    ("pairs", "groups"),
    [
        pytest.param(clique(0, 1), [{0, 1}], id="a-pair"),
        pytest.param(clique(0, 1, 2, 3), [{0, 1, 2, 3}], id="a-clique"),
        pytest.param(
            [*clique(0, 1, 2, 3), *clique(4, 5, 6, 7), (3, 4)],
            [{0, 1, 2, 3}, {4, 5, 6, 7}],
            id="one-chance-edge-merges-nothing",
        ),
        pytest.param([(0, 1), (1, 2), (2, 3)], [{0, 1}, {2, 3}], id="nor-two-pairs"),
        pytest.param(
            [*clique(0, 1, 2, 3, 4), (4, 5)], [{0, 1, 2, 3, 4}], id="nor-a-stranger-with-a-group"
        ),
        pytest.param(
            [each for each in clique(0, 1, 2, 3, 4) if each != (0, 4)],
            [{0, 1, 2, 3, 4}],
            id="an-edge-that-is-missing-splits-nothing",
        ),
    ],
)
def test_groups_by_edges(pairs: list[tuple[int, int]], groups: list[set[int]]) -> None:
    count = 1 + max(map(max, pairs))
    found = clusters(count, edges_of(pairs), SETTINGS)
    assert sorted(sorted(each.tolist()) for each in found) == sorted(map(sorted, groups))


def test_two_clocks_of_nearly_one_phase_are_two_groups() -> None:
    pairs = clique(*range(20))
    lags = [4_000.0 * ((b >= 10) - (a >= 10)) for a, b in pairs]
    found = clusters(20, edges_of(pairs, True, lags), SETTINGS)
    assert sorted(sorted(each.tolist()) for each in found) == [[*range(10)], [*range(10, 20)]]


def test_the_jitter_of_one_clock_splits_nothing() -> None:
    random = np.random.default_rng(0)
    pairs = clique(*range(30))
    for _ in range(30):
        place = random.normal(0, 300 / np.sqrt(2), 30)
        lags = [place[b] - place[a] for a, b in pairs]
        assert len(clusters(30, edges_of(pairs, True, lags), SETTINGS)) == 1


def test_a_large_group_and_a_chance_edge_to_it() -> None:
    """By shared neighbours, as no matrix holds so many: each has edges with its next eight."""
    ring = [(a, (a + step) % 2_200) for a in range(2_200) for step in range(1, 9)]
    found = clusters(2_205, edges_of([*ring, *clique(*range(2_200, 2_205)), (0, 2_200)]), SETTINGS)
    assert sorted(each.size for each in found) == [5, 2_200]


@pytest.mark.parametrize(
    ("sizes", "groups", "judged", "chance", "least"),
    [
        pytest.param([2], [50], 100, 0.0, 2, id="no-clocks-that-agree"),
        pytest.param([2, 12], [300, 20], 1_000, 300.0, 12, id="pairs-by-chance-groups-not"),
        pytest.param([2, 3], [300, 20], 1_000, 300.0, 4, id="all-by-chance"),
    ],
)
def test_periodic_groups_that_come_by_chance(
    sizes: list[int], groups: list[int], judged: int, chance: float, least: int
) -> None:
    kept = least_size(np.array(sizes), np.array(groups), judged, chance)
    assert [size >= kept for size in sizes] == [size >= least for size in sizes]


# --- candidates -------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), unique=True, max_size=40).map(sorted)
)
def test_pairs_of_buckets(rows: list[tuple[int, int]]) -> None:
    bucket, member = (np.array([row[at] for row in rows], np.int64) for at in (0, 1))
    left, right = bucket_pairs(bucket, member)
    found = [(rows[a], rows[b]) for a, b in zip(left, right, strict=True)]
    assert found == [(a, b) for a in rows for b in rows if a[0] == b[0] and a < b]


def test_a_crowded_bucket_does_not_cost_its_square() -> None:
    count = 50 * LARGEST
    left, right = bucket_pairs(np.zeros(count, np.int64), np.arange(count))
    assert left.size < 17 * count
    assert set(left) | set(right) == set(range(count))


def test_sets_that_are_alike_share_bands() -> None:
    random = np.random.default_rng(1)
    common, own = random.integers(0, 1 << 60, 40), random.integers(0, 1 << 60, (3, 20))
    sets = [np.concatenate([common, own[0]]), np.concatenate([common, own[1]]), own[2]]
    owner = np.repeat(np.arange(3), [each.size for each in sets])
    signature = signatures(np.concatenate(sets), owner, 3, 128)
    assert (signature >= 0).all()
    assert (signature[0] == signature[1]).mean() == pytest.approx(0.5, abs=0.15)
    assert (signature[0] == signature[2]).mean() < 0.05
    keys = bands(signature, np.zeros(3, np.int64), 2)
    assert (keys[0] == keys[1]).sum() >= 2
    other = bands(signature[:1], np.ones(1, np.int64), 2)
    assert not (keys[0] == other[0]).any()


@given(st.integers(0, 10**15), st.integers(0, 32_000))
def test_arrivals_that_are_near_share_a_bin_of_one_grid(time: int, lag: int) -> None:
    width = np.array([64_000, 64_000])
    keys = bins(np.array([time, time + min(lag, 31_999)]), np.zeros(2, np.int64), width)
    assert (keys[:, 0] == keys[:, 1]).any()


# --- clocks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 120_000, -700_000])
def test_the_offset_of_a_host_is_seen(offset: int) -> None:
    trace = planted(7, sizes=(10, 10, 10), alone=20, seconds=200.0)
    broker = np.repeat(np.arange(50) % 2, np.diff(trace.starts))
    place = (trace.flat + offset * broker + 800_000) // 2_000
    total: dict[int, Floats] = {}
    for slab in range(21):
        inside = place // 5_000 == slab
        total_of_slab(place[inside] % 5_000, broker[inside], total)
    assert offset_us(total[1]) == pytest.approx(offset, abs=3_000)


def test_periodic_strangers_show_no_offset() -> None:
    random = np.random.default_rng(8)
    counts = random.poisson(3.0, 2 * FARTHEST_US // 2_000 + 1)
    for _ in range(3):
        counts[random.integers(100, 900)] += 300
    assert offset_us(counts) == 0
    assert offset_us(np.zeros(counts.size)) == 0
