"""The simulator's bucket by stretches is srtm.limits.bucket.TokenBucket message by message."""

from collections import deque

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.host.clock import NS
from srtm.limits.bucket import TokenBucket
from tb_adaptor.share import Part
from tb_adaptor.simulator.bucket import Bucket
from tests.support.cases import cases

BATCHES = st.lists(
    st.tuples(st.integers(0, 3_000), st.integers(1, 12)), min_size=1, max_size=40
)  # milliseconds since the one before, messages
RESCALES = st.lists(
    st.tuples(st.integers(1, 30_000), st.floats(0.5, 30), st.floats(1, 15)), max_size=5
)


def one_by_one(
    part: Part, batches: list[tuple[float, int]], rescales: list[tuple[float, Part]]
) -> list[float]:
    """When each batch goes: the product's bucket, asked at each instant at which anything is."""
    bucket = TokenBucket(part.rate, part.burst, 0)
    events = [(at, 1, count, None) for at, count in batches]
    events += [(at, 0, 0, new) for at, new in rescales]
    events.sort(key=lambda event: (event[0], -event[1]))
    waiting: deque[tuple[int, int, int]] = deque()
    went = [0.0] * len(batches)
    place = 0

    def serve(until: int) -> None:
        while waiting:
            index, count, arrived = waiting[0]
            when = max(bucket.ready_at(count), arrived)
            if when > until:
                return
            assert bucket.take(count, when) is not None
            went[index] = when / NS
            waiting.popleft()

    for at, is_batch, count, new in events:
        now = int(at * NS)
        serve(now)
        if is_batch:
            waiting.append((place, count, now))
            place += 1
            serve(now)
        else:
            assert new is not None
            bucket.rescale(new.rate, new.burst, now)
    serve(1 << 62)
    return went


@settings(max_examples=cases(300))
@given(st.floats(0.5, 30), st.floats(1, 15), BATCHES, RESCALES)
def test_batches_go_when_the_products_bucket_lets_them(
    rate: float,
    burst: float,
    gaps: list[tuple[int, int]],
    rescaled: list[tuple[int, float, float]],
) -> None:
    times = np.cumsum([gap for gap, _ in gaps]) / 1e3
    counts = [count for _, count in gaps]
    rescales = sorted((at / 1e3, Part(r, b)) for at, r, b in rescaled)
    bucket = Bucket(Part(rate, burst), times, np.array(counts, dtype=float))
    for at, part in rescales:
        bucket.rescale(part, at)
    bucket.finish()
    expected = one_by_one(
        Part(rate, burst), list(zip(times.tolist(), counts, strict=True)), rescales
    )
    assert bucket.left == pytest.approx(expected, abs=1e-5)


def test_what_waits_is_counted() -> None:
    bucket = Bucket(Part(1.0, 2.0), np.array([0.0, 0.0, 5.0]), np.array([4.0, 1.0, 1.0]))
    bucket.advance(0.5)
    assert bucket.most_waiting == pytest.approx(3)
    assert bucket.waiting == 1, "the batch of 4 went with a debt of 2, once the bucket was full"
    bucket.finish()
    assert bucket.left == pytest.approx([0, 3, 5])
