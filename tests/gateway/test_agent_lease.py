"""The lease of a gateway's shares: epochs, ends, safe shares. No I/O, no clock."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.gateway.lease import Desired, Lease, read_desired, safe_share
from srtm.host.clock import NS
from srtm.limits.contract import MAX_GRACE_SECONDS, Limit, Mode
from srtm.text.errors import UsageError

BIG, SMALL = Limit(rate=1000, burst=40), Limit(rate=300, burst=12)


def desired(epoch: int, lease_seconds: float = 10, **limits: Limit) -> Desired:
    return Desired(epoch, lease_seconds, limits)


def test_an_answer_is_applied_whole_and_only_what_differs_is_changed() -> None:
    lease = Lease()
    assert lease.answered(desired(1, a=BIG, b=BIG), 0) == {"a": BIG, "b": BIG}
    assert lease.answered(desired(1, a=BIG, b=BIG), 1) == {}
    assert lease.answered(desired(2, a=SMALL, b=BIG), 2) == {"a": SMALL}
    assert lease.answered(desired(3, a=SMALL), 3) == {"b": None}
    assert lease.applied == {"a": SMALL}


def test_an_older_epoch_is_neither_applied_nor_a_renewal() -> None:
    lease = Lease()
    lease.answered(desired(7, a=SMALL), 0)
    assert lease.answered(desired(6, a=BIG), 5 * NS) is None
    assert lease.applied == {"a": SMALL}
    assert lease.ends_at == 10 * NS


def test_the_lease_counts_from_when_the_report_was_sent() -> None:
    lease = Lease()
    lease.answered(desired(1, lease_seconds=2.5, a=BIG), 4 * NS)
    assert lease.ends_at == 6_500_000_000


def test_an_answer_that_comes_late_shortens_no_lease() -> None:
    lease = Lease()
    lease.answered(desired(1, a=BIG), 5 * NS)
    lease.answered(desired(1, a=BIG), 3 * NS)
    assert lease.ends_at == 15 * NS


def test_at_its_end_the_safe_shares_hold_until_the_next_answer() -> None:
    lease = Lease()
    lease.answered(desired(1, a=BIG), 0)
    assert lease.expire(10 * NS - 1) == {}
    assert lease.expire(10 * NS) == {"a": Limit(rate=25, burst=1)}
    assert lease.ended
    assert lease.expire(20 * NS) == {}
    assert lease.answered(desired(1, a=BIG), 30 * NS) == {"a": BIG}
    assert not lease.ended


def test_a_lease_grace_keeps_the_share_for_longer() -> None:
    lease, kept = Lease(), BIG.model_copy(update={"lease_grace": 5.0})
    safe = Limit(rate=25, burst=1)
    assert lease.next_end_at is None
    lease.answered(desired(1, a=BIG, b=kept), 0)
    assert lease.next_end_at == 10 * NS
    assert lease.expire(10 * NS) == {"a": safe}
    assert (lease.ended, lease.kept, lease.is_over) == (True, {"b"}, False)
    assert lease.next_end_at == 15 * NS
    assert lease.expire(15 * NS - 1) == {}
    assert lease.expire(15 * NS) == {"b": safe_share(kept)}
    assert lease.is_over
    assert lease.answered(desired(1, a=BIG, b=kept), 30 * NS) == {"a": BIG, "b": kept}
    assert not lease.is_over
    lease.revoke()
    assert lease.expire(31 * NS) == {"a": safe, "b": safe_share(kept)}, "another one has them"
    assert lease.is_over


def test_a_share_that_was_taken_over_is_not_kept_on_a_host_that_has_just_started() -> None:
    lease, kept = Lease(), BIG.model_copy(update={"lease_grace": MAX_GRACE_SECONDS})
    lease.answered(desired(1, b=kept), 0)
    lease.revoke()
    assert lease.expire(1) == {"b": safe_share(kept)}


def test_before_the_first_answer_nothing_ends() -> None:
    assert Lease().expire(1 << 60) == {}


def test_after_a_restart_the_shares_of_before_are_safe_shares() -> None:
    lease = Lease()
    assert lease.begin({"a": BIG}) == {"a": Limit(rate=25, burst=1)}
    assert lease.ended
    assert lease.answered(desired(0), 0) == {"a": None}
    assert not Lease().begin({})


@given(st.floats(1, 1e6), st.floats(1e-3, 1e6))
def test_a_safe_share_is_no_more_than_the_share_and_its_own_safe_share(
    burst: float, rate: float
) -> None:
    share = Limit(rate=rate, burst=burst, mode=Mode.REJECT)
    safe = safe_share(share)
    assert safe.rate <= rate
    assert safe.burst == 1
    assert safe.mode is Mode.REJECT
    assert safe_share(safe) == safe


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("answer"), st.integers(1, 4), st.integers(0, 3)),
            st.tuples(st.just("wait"), st.integers(1, 12), st.just(0)),
        ),
        max_size=30,
    )
)
def test_no_more_than_the_safe_share_is_held_without_a_running_lease(
    steps: list[tuple[str, int, int]],
) -> None:
    """Shares by epoch, so that an older one is told from a newer."""
    lease, now, ends, newest = Lease(), 0, 0, 0
    held: dict[str, Limit] = {}
    for kind, number, late in steps:
        if kind == "wait":
            now += number * NS
        else:
            share = Limit(rate=100 * number, burst=10)
            sent = max(0, now - late * NS)
            changes = lease.answered(desired(number, lease_seconds=5, t=share), sent)
            assert (changes is None) == (number < newest)
            held.update({k: v for k, v in (changes or {}).items() if v is not None})
            if changes is not None:
                newest, ends = number, max(ends, sent + 5 * NS)
        held.update({k: v for k, v in lease.expire(now).items() if v is not None})
        if newest:
            rate = 100 * newest
            assert held["t"].rate == (rate if now < ends else rate / 10)


GOOD = {"topic": "t", "rate": 5.0, "burst": 2.0, "mode": "delay", "max_wait": None, "slo": None}


def test_an_answer_is_read() -> None:
    full = {**GOOD, "mode": "reject", "max_wait": "250ms", "slo": "0.99@1ms", "safe_rate": 2.5}
    found = read_desired({"epoch": 3, "lease_seconds": 10, "topics": [full], "later": 1})
    assert (found.epoch, found.lease_seconds) == (3, 10.0)
    limit = found.limits["t"]
    assert (limit.rate, limit.burst, limit.mode, limit.max_wait) == (5, 2, Mode.REJECT, 0.25)
    assert str(limit.slo) == "0.99@1ms"


def test_keys_are_known_as_long_as_the_topic_is_fair_over_them() -> None:
    fair, unfair = {**GOOD, "fair": "key"}, {**GOOD, "topic": "u"}
    document = {"epoch": 1, "lease_seconds": 9, "topics": [fair, unfair]}
    told = {"topic": "t", "version": "1", "publishers": [["p", "k"]]}
    other = {"topic": "u", "version": "1", "publishers": [["p", "k"]]}
    known = read_desired({**document, "keys": [told, other]}).keys_after({})
    assert known == {"t": ("1", {"p": "k"})}
    assert read_desired(document).keys_after(known) == known
    newer = {"topic": "t", "version": "2", "publishers": []}
    assert read_desired({**document, "keys": [newer]}).keys_after(known) == {"t": ("2", {})}
    assert read_desired({**document, "topics": [GOOD]}).keys_after(known) == {}
    assert Lease(applied=read_desired(document).limits).held()[0]["fair"] == "key"


def test_an_answer_may_ask_for_arrivals_an_empty_bucket_and_a_report_soon() -> None:
    plain = read_desired({"epoch": 1, "lease_seconds": 9, "topics": [GOOD]})
    assert (plain.observed, plain.emptied, plain.report_seconds) == (frozenset(), {}, 1.0)
    asking = {**GOOD, "arrivals": True, "emptied": 7}
    document = {"epoch": 2, "lease_seconds": 9, "topics": [asking], "report_seconds": 0.25}
    found = read_desired(document)
    assert (found.observed, found.emptied, found.report_seconds) == ({"t"}, {"t": 7}, 0.25)


@pytest.mark.parametrize(("asked", "taken"), [(0, 0.05), (-1, 0.05), (1e9, 1)])
def test_reports_are_neither_a_flood_nor_rare(asked: float, taken: float) -> None:
    document = {"epoch": 1, "lease_seconds": 9, "topics": [], "report_seconds": asked}
    assert read_desired(document).report_seconds == taken


def test_an_answer_without_topics_leaves_those_of_its_epoch() -> None:
    first = read_desired({"epoch": 1, "lease_seconds": 9, "topics": [{**GOOD, "arrivals": True}]})
    same = {"epoch": 1, "lease_seconds": 7, "topics": None, "suspended": ["u"], "newest": 9}
    found = read_desired(same, first)
    assert (found.limits, found.observed) == (first.limits, {"t"})
    assert (found.lease_seconds, found.suspended, found.newest) == (7, {"u"}, 9)
    for before in (None, read_desired({"epoch": 2, "lease_seconds": 9, "topics": []})):
        with pytest.raises(UsageError, match="not a desired state"):
            read_desired(same, before)


def test_what_did_not_change_is_not_checked_again() -> None:
    first = read_desired({"epoch": 1, "lease_seconds": 9, "topics": [GOOD, {**GOOD, "topic": "u"}]})
    changed = [dict(GOOD), {**GOOD, "topic": "u", "rate": 6.0}]
    second = read_desired({"epoch": 2, "lease_seconds": 9, "topics": changed}, first)
    assert second.limits["t"] is first.limits["t"]
    assert second.limits["u"].rate == 6
    third = read_desired({"epoch": 3, "lease_seconds": 9, "topics": []}, second)
    assert third.limits == {}


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(None, id="nothing"),
        pytest.param([], id="a-list"),
        pytest.param({"lease_seconds": 10, "topics": []}, id="no-epoch"),
        pytest.param({"epoch": "3", "lease_seconds": 10, "topics": []}, id="an-epoch-in-quotes"),
        pytest.param({"epoch": 3, "lease_seconds": 0, "topics": []}, id="a-lease-of-nothing"),
        pytest.param({"epoch": 3, "lease_seconds": 1e300, "topics": []}, id="a-lease-for-ever"),
        pytest.param({"epoch": 3, "lease_seconds": 10, "topics": 5}, id="topics-is-a-number"),
        pytest.param(
            {"epoch": 3, "lease_seconds": 10, "topics": [{**GOOD, "rate": 0}]}, id="a-rate-of-0"
        ),
        pytest.param(
            {"epoch": 3, "lease_seconds": 10, "topics": [], "keys": [{"topic": "t"}]},
            id="keys-of-nobody",
        ),
        pytest.param(
            {"epoch": 3, "lease_seconds": 10, "topics": [{**GOOD, "burst": 0.5}]},
            id="less-than-a-message-of-burst",
        ),
        pytest.param(
            {"epoch": 3, "lease_seconds": 10, "topics": [{**GOOD, "topic": "a b"}]},
            id="no-topic-name",
        ),
    ],
)
def test_an_answer_of_another_shape_is_refused_whole(document: Any) -> None:
    with pytest.raises(UsageError):
        read_desired(document)
