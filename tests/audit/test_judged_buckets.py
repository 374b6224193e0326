"""What token buckets let through, logged and read back: an excess of 0, and of one message too
many, at its place."""

import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from srtm.audit.folder import read_sessions
from srtm.audit.judge import Audit, judge
from srtm.gateway.measure.admissions import AdmissionLog
from srtm.limits.bucket import TokenBucket
from tests.support.admission_logs import Disk, log_of, own, share
from tests.support.cases import cases

NS = 1_000_000_000
TOPIC = b"t"
BEGAN = 1_000 * NS  # monotonic; the wall clock is beyond it by
OFFSET = 1_790_000_000 * NS


@dataclass
class Broker:
    """A bucket with what waits for it, and its log."""

    bucket: TokenBucket
    log: AdmissionLog
    admitted: list[tuple[int, int]] = field(default_factory=list)

    def offer(self, count: int, now: int) -> None:
        when = self.bucket.take(count, now)
        if when is not None:
            self.log.admit(TOPIC, when, count)
            self.admitted.append((when, count))
            return
        left = count
        while left:  # the rest goes as its tokens come, as a topic lets it
            ready = max(now, self.bucket.ready_at(min(left, int(self.bucket.burst))))
            taken, first, step_ns = self.bucket.take_waiting(left, now, ready)
            if step_ns:
                self.log.admit_ramp(TOPIC, first, step_ns, taken)
            else:
                self.log.admit(TOPIC, first, taken)
            self.admitted += [(int(first + k * step_ns), 1) for k in range(taken)]
            left -= taken


def brokers(
    folder: Path, rate: float, burst: float, parts: int, each: bool = False
) -> list[Broker]:
    """Even shares of one contract, as a distributor hands them out. each: a batch that is bigger
    than a share goes all the same"""
    found = []
    for number in range(parts):
        log = log_of(Disk(folder, f"b{number}", f"p{number}"))
        log.clock(OFFSET, 0)
        word = share(rate / parts, burst / parts, (rate, burst))
        log.say(TOPIC, word, BEGAN)
        bucket = TokenBucket(rate / parts, burst / parts, BEGAN, owes=each or parts == 1)
        found.append(Broker(bucket, log))
    return found


def audited(folder: Path, given: tuple[float, float] | None = None, each: bool = False) -> Audit:
    return judge("t", read_sessions([folder], "t"), given, each=each)


STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),  # the broker
        st.sampled_from([0, 0, 1, 10, 70, 100, 1000, 20_000]),  # hundredths of a token's time
        st.integers(1, 12),
        st.sampled_from(["offer", "offer", "offer", "flush"]),
    ),
    min_size=1,
    max_size=60,
)


def played(
    folder: Path,
    rate: float,
    burst: float,
    parts: int,
    steps: list[tuple[int, int, int, str]],
    each: bool = False,
) -> list[Broker]:
    found, now = brokers(folder, rate, burst, parts, each), BEGAN
    for broker, gap, count, what in steps:
        each = found[broker % parts]
        # Ahead of all who waited: a topic's queue keeps order, and this has none.
        now = max(now + int(gap * 1e7 / rate), each.bucket.at)
        if what == "flush":
            each.log.flush(now)
        else:
            each.offer(count, now)
    for each in found:
        each.log.flush(max(now, each.bucket.at) + 1)
    return found


@given(
    st.sampled_from([1.0, 150.0, 12_345.678, 1e6]),
    st.sampled_from([6.0, 20.0, 75.5]),
    st.integers(1, 6),
    STEPS,
    st.booleans(),
)
@settings(max_examples=cases(150))
def test_what_buckets_let_through_keeps_to_the_contract(
    rate: float, burst: float, parts: int, steps: list[tuple[int, int, int, str]], each: bool
) -> None:
    with tempfile.TemporaryDirectory() as name:
        found = played(Path(name), rate, burst, parts, steps, each)
        audit = audited(Path(name), each=each)
    admitted = sum(count for each in found for _, count in each.admitted)
    assert audit.messages == admitted
    assert audit.excess == 0
    assert not audit.is_exceeded
    assert audit.unjudged == 0
    own_share = burst / parts
    biggest = max((n for broker in found for _, n in broker.admitted), default=0)
    assert audit.batch == (biggest if biggest > own_share else 0)
    for shown in audit.shares:
        assert shown.excess <= max(0.0, shown.batch - own_share) + audit.rounding


@given(
    st.sampled_from([1.0, 150.0, 12_345.678]),
    st.integers(1, 4),
    STEPS,
    st.integers(0, 1 << 20),
    st.integers(0, 100),
)
@settings(max_examples=cases(150))
@example(150.0, 1, [(0, 0, 1, "offer")], 0, 0)
def test_one_message_too_many_is_found_at_its_place(
    rate: float, parts: int, steps: list[tuple[int, int, int, str]], broker: int, gap: int
) -> None:
    """A full burst of each broker at one instant, and one message more within it or soon after;
    before and after it whatever buckets let through."""
    burst = 12.0 * parts
    with tempfile.TemporaryDirectory() as name:
        found = played(Path(name), rate, burst, parts, steps)
        full = int(max(each.bucket.at for each in found) + 2 * burst / rate * NS) + 1
        for each in found:
            each.offer(12, full)
        later = full + int(gap / 100 / rate * NS)  # less than what brings the next token
        found[broker % parts].log.admit(TOPIC, later, 1)
        for each in found:
            each.log.flush(later + 1)
        audit = audited(Path(name))
    assert audit.batch == 0
    assert audit.worst is not None
    tokens_since = (later - full) * rate / NS
    assert audit.excess == pytest.approx(1 - tokens_since, abs=1e-3)
    if gap < 99:
        assert audit.is_exceeded
        # Other brokers' admissions do not reach so near: only these are in the interval.
        assert audit.worst.ends - OFFSET == later
        assert audit.worst.begins - OFFSET == full
        assert audit.worst.messages == 12 * parts + 1


def test_a_batch_bigger_than_the_bucket_is_allowed_and_said(tmp_path: Path) -> None:
    (broker,) = brokers(tmp_path, 100.0, 10.0, 1)
    broker.offer(25, BEGAN)
    broker.log.flush(BEGAN + 1)
    audit = audited(tmp_path)
    assert audit.excess == 0
    assert audit.batch == 25
    assert not audit.is_exceeded
    broker.log.admit(TOPIC, BEGAN + 2, 1)
    broker.log.flush(BEGAN + 3)
    assert audited(tmp_path).is_exceeded


def test_one_batch_at_each_of_four_brokers_exceeds_the_contract(tmp_path: Path) -> None:
    """Each is as big as b, which the whole contract lets through once."""
    for broker in brokers(tmp_path, 200.0, 40.0, 4, each=True):
        broker.offer(40, BEGAN)
        broker.log.flush(BEGAN + 1)
    audit = audited(tmp_path)
    assert audit.is_exceeded
    assert audit.excess == pytest.approx(120.0, abs=1e-3)
    assert not audited(tmp_path, each=True).is_exceeded, "where the contract says so it was kept"


def test_limits_of_gateways_add_up_where_no_distributor_told_one(tmp_path: Path) -> None:
    for number in range(2):
        log = log_of(Disk(tmp_path, f"b{number}", f"p{number}"))
        log.clock(OFFSET, 0)
        log.say(TOPIC, own(50.0, 5.0), BEGAN)
        log.admit(TOPIC, BEGAN, 5)
        log.flush(BEGAN + 1)
    audit = audited(tmp_path)
    assert [(span.rate, span.burst) for span in audit.spans] == [(100.0, 10.0)]
    assert audit.excess == 0
    assert audited(tmp_path, given=(100.0, 8.0)).excess == pytest.approx(2.0)
