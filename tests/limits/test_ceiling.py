"""What a contract lets come at most, and what its bucket can still have."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.limits.bucket import TokenBucket
from srtm.limits.ceiling import Ceiling, Level
from srtm.text.errors import UsageError

SLOT = 0.1


@pytest.mark.parametrize(
    ("spec", "burst"),
    [
        pytest.param("rate=1000,burst=200", 200.0, id="as-it-stands"),
        pytest.param("burst=200,rate=1e3,slo=0.99@5ms,mode=reject", 200.0, id="other-words-pass"),
        pytest.param("rate=1000,burst=200,batch=300", 300.0, id="a-batch-goes-whole"),
    ],
)
def test_it_reads_the_words_of_a_contract(spec: str, burst: float) -> None:
    found = Ceiling.parse(spec, "here")
    assert (found.rate, found.burst) == (1000.0, burst)
    assert Ceiling.parse(str(found), "here") == found


@pytest.mark.parametrize("spec", ["", "rate=5", "rate=5,burst=0", "rate=x,burst=2", "5,2"])
def test_what_is_no_contract_names_its_place(spec: str) -> None:
    with pytest.raises(UsageError, match="here"):
        Ceiling.parse(spec, "here")


def test_the_level_falls_by_what_comes_and_fills_up_again() -> None:
    level = Level(Ceiling(100.0, 50.0))
    assert level.messages == 50
    level.see([30.0], SLOT)
    assert level.messages == pytest.approx(30)
    level.see([0.0, 0.0, 0.0], SLOT)
    assert level.messages == 50
    assert not level.exceeded


@pytest.mark.parametrize(
    ("counts", "exceeded"),
    [
        pytest.param([50.0, 10.0, 10.0, 10.0], False, id="burst-and-rate"),
        pytest.param([70.0], False, id="within-two-slots-of-it"),
        pytest.param([90.0], True, id="at-once"),
        pytest.param([20.0] * 40, True, id="for-long"),
        pytest.param([90.0, 0.0], False, id="over-again"),
    ],
)
def test_more_than_the_contract_is_noticed(counts: list[float], exceeded: bool) -> None:
    level = Level(Ceiling(100.0, 50.0))
    for count in counts:
        level.see([count], SLOT)
    assert level.exceeded is exceeded


def test_nothing_is_exceeded_without_a_contract() -> None:
    level = Level(None)
    level.see([1e9], SLOT)
    assert not level.exceeded


@given(
    rate=st.floats(1, 500),
    burst=st.floats(1, 200),
    begun=st.floats(0, 1),
    asked=st.lists(st.tuples(st.floats(0, 0.3), st.integers(1, 40)), max_size=60),
)
def test_it_is_never_below_the_bucket_and_what_it_admits_exceeds_nothing(
    rate: float, burst: float, begun: float, asked: list[tuple[float, int]]
) -> None:
    """The bucket has any level at first; it says when each message goes."""
    bucket = TokenBucket(rate, burst, 0, tokens=begun * burst)
    now, times = 0.0, []
    for gap, count in asked:
        now += gap
        for _ in range(count):
            if bucket.available(round(now * 1e9)) and bucket.take(1, round(now * 1e9)) is not None:
                times.append(now)
    level, slots = Level(Ceiling(rate, burst)), int(now / SLOT) + 1
    counts = np.histogram(times, np.arange(slots + 1) * SLOT)[0]
    for number, count in enumerate(counts.tolist()):
        level.see([count], SLOT)
        assert not level.exceeded
        end = round((number + 1) * SLOT * 1e9)
        if end >= bucket.at:
            assert level.messages >= bucket.level(end) - 1e-6
