"""Consumers' samples joined with gateways' arrivals."""

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srtm.consumer.ages import Ages as Told
from srtm.consumer.batch import Record
from srtm.host.offsets import SAME, Offset
from srtm.journey.ages import WAIT_NS, Ages
from srtm.journey.arrivals import MOST_MESSAGES, Arrivals
from srtm.journey.causes import Cause, Leg
from srtm.limits.bins import nearest_rank
from srtm.limits.slots import level_of, slot_of
from srtm.nsq.checksum import checksum
from tests.support.cases import cases

MS = 1_000_000
START = 1_790_000_000_000_000_000
SECOND = 1_000 * MS


def answer(*batches: tuple[int, int, int, int, list[bytes]], level: int = 0) -> dict[str, Any]:
    """Of a gateway: (written, answered, arrived, token, bodies) each, in ms from START."""
    rows = [
        [
            START + written * MS,
            START + answered * MS,
            [[START + arrived * MS, START + token * MS, 0.0, [checksum(body) for body in bodies]]],
        ]
        for written, answered, arrived, token, bodies in batches
    ]
    span = [START - SECOND, START + 100 * SECOND]
    return {"level": level, "span": span, "batches": rows}


def report(*samples: tuple[int, bytes, int, int, int], level: int = 0) -> dict[str, Any]:
    """Of a consumer: (received, body, bridge, queue, processing) each, in ms."""
    return {
        "count": len(samples),
        "level": level,
        "bridge": {},
        "consumer": {},
        "samples": [
            [START + received * MS, checksum(body), *(each * MS for each in parts)]
            for received, body, *parts in samples
        ],
    }


def batch_of(**change: Any) -> dict[str, Any]:
    """An answer about one message, but for the change."""
    told = {"answered": 2, "arrived": 0, "step": 0.0, "checksums": [5, 6, 7]} | change
    piece = [told["arrived"], 0, told["step"], told["checksums"]]
    return {"level": 0, "span": [0, 1], "batches": [[0, told["answered"], [piece]]]}


def test_the_weight_is_that_of_the_heaviest_sample_of_the_last_minute() -> None:
    ages = Ages(SECOND)
    assert ages.weight(0) == 1
    slots = [n for n in range(400) if level_of(slot_of(START + 20 * n * MS)) >= 3]
    received = 20 * slots[0]
    ages.handled(report((received, b"a", 0, 0, 0), level=3), SAME, 0)
    ages.settle(WAIT_NS)
    assert ages.weight(WAIT_NS) == 8
    ages.handled(report((received, b"b", 0, 0, 0)), SAME, 10 * SECOND)
    ages.settle(20 * SECOND)
    assert ages.weight(20 * SECOND) == 8
    assert ages.weight(70 * SECOND) == 1


def quantile(ages: Ages, cause: Cause) -> float:
    """In ms."""
    return nearest_rank(ages.causes[cause].recent_bins(WAIT_NS), 0.5) * 1e3


def test_an_age_is_the_sum_of_its_causes() -> None:
    ages = Ages(150 * MS)
    ages.arrived(answer((30, 34, 0, 20, [b"a"])), SAME)
    ages.handled(report((32, b"a", 10, 40, 5)), SAME, 0)
    ages.settle(WAIT_NS)
    expected = {
        Cause.TOKEN_WAIT: 20,
        Cause.GATEWAY: 12,
        Cause.BRIDGE: 10,
        Cause.QUEUE: 40,
        Cause.PROCESSING: 5,
    }
    for cause, milliseconds in expected.items():
        assert quantile(ages, cause) == pytest.approx(milliseconds, rel=0.02)
    assert nearest_rank(ages.age.recent_bins(WAIT_NS), 0.5) == pytest.approx(0.087, rel=0.02)
    assert (ages.matched, ages.unmatched, ages.take_late()) == (1, 0, (1, 0))


def test_a_sample_waits_for_a_gateway_that_tells_later() -> None:
    ages = Ages(SECOND)
    ages.handled(report((32, b"a", 0, 1, 1)), SAME, 0)
    ages.settle(WAIT_NS - 1)
    ages.arrived(answer((30, 34, 0, 20, [b"a"])), SAME)
    ages.settle(WAIT_NS)
    assert (ages.matched, ages.unmatched) == (1, 0)


def test_equal_bodies_are_told_apart_by_their_time() -> None:
    ages = Ages(SECOND)
    ages.arrived(answer((10, 12, 0, 0, [b"a"]), (50, 52, 40, 40, [b"a"])), SAME)
    ages.handled(report((51, b"a", 0, 0, 0)), SAME, 0)
    ages.settle(WAIT_NS)
    assert quantile(ages, Cause.GATEWAY) == pytest.approx(11, rel=0.02)


def test_an_arrival_that_nobody_tells_is_counted() -> None:
    ages = Ages(50 * MS)
    ages.handled(report((32, b"a", 0, 60, 1)), SAME, 0)
    ages.settle(WAIT_NS)
    assert (ages.matched, ages.unmatched, ages.take_late()) == (0, 1, (1, 1))


def test_clocks_of_two_hosts_are_corrected_by_what_is_known_of_them() -> None:
    """The consumer's clock is 500 ms before the gateway's: its queue seems negative."""
    ages = Ages(SECOND)
    gateway, consumer = Offset(3 * MS, -200 * MS), Offset(2 * MS, 300 * MS)
    ages.arrived(answer((30, 34, 30, 30, [b"a"])), gateway)
    ages.handled(report((32, b"a", 0, -480, 0)), consumer, 0)
    ages.settle(WAIT_NS)
    assert quantile(ages, Cause.QUEUE) == pytest.approx(20, rel=0.02)
    assert ages.clock_error_ns == 5 * MS


def test_what_a_gateway_leaves_out_is_not_missed() -> None:
    """It tells of a quarter of the slots; each sample of them stands for four messages."""
    told, left_out = (
        next(n for n in range(1000) if (level_of(slot_of(START + n * 20 * MS)) >= 2) is yes)
        for yes in (True, False)
    )
    ages = Ages(SECOND)
    batches = [(n * 20, n * 20, n * 20, n * 20, [b"%d" % n]) for n in sorted((told, left_out))]
    ages.arrived(answer(*batches, level=2), SAME)
    samples = ((told * 20, b"%d" % told, 0, 1, 1), (left_out * 20, b"?", 0, 1, 1))
    ages.handled(report(*samples), SAME, 0)
    ages.settle(WAIT_NS)
    assert (ages.matched, ages.unmatched) == (4, 0)


@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 1 << 32))
@settings(max_examples=cases(20))
def test_whatever_both_leave_out_the_ages_are_those_of_all(
    of_gateway: int, of_consumer: int, seed: int
) -> None:
    drawn = random.Random(seed)
    ages = Ages(50 * MS)
    all_ages = []
    batches, samples, slots = [], [], []
    for number in range(2_000):
        at = number * 7
        wait, queue = drawn.randrange(0, 40), drawn.randrange(0, 40)
        all_ages.append(wait + 1 + queue)
        slot = level_of(slot_of(START + (at + wait + 1) * MS))
        slots.append(slot)
        if slot >= of_gateway:
            batches.append((at + wait + 1, at + wait + 1, at, at + wait, [b"%d" % number]))
        if slot >= of_consumer:
            samples.append((at + wait + 1, b"%d" % number, 0, queue, 0))
    batches.sort()
    ages.arrived(answer(*batches, level=of_gateway), SAME)
    for begin in range(0, len(samples), 1000):
        ages.handled(report(*samples[begin : begin + 1000], level=of_consumer), SAME, 0)
    ages.settle(WAIT_NS)
    seen, late = ages.take_late()
    assert ages.unmatched == 0
    level = max(of_gateway, of_consumer)
    known = [age for age, slot in zip(all_ages, slots, strict=True) if slot >= level]
    assert (seen, late) == (len(known) << level, sum(age > 50 for age in known) << level)
    share = sum(age > 50 for age in all_ages) / 2_000
    # Six standard deviations of a share among so many.
    assert late / seen == pytest.approx(share, abs=6 * (share * (1 - share) / len(known)) ** 0.5)


def test_a_consumer_reports_what_is_joined() -> None:
    """The document of `srtm consume`, as it is."""
    told, ages = Told("t"), Ages(SECOND)
    headers = (("nsq-time", b"%d" % (START + 32 * MS)),)
    told.see([Record("t", 0, 0, None, b"a", headers)], START + 50 * MS, START + 60 * MS)
    ages.arrived(answer((30, 34, 0, 20, [b"a"])), SAME)
    ages.handled(told.report()["topics"]["t"], SAME, 0)
    ages.settle(WAIT_NS)
    assert ages.matched == 1
    assert sum(ages.legs[Leg.CONSUMER].recent_bins(0).values()) == 1
    assert sum(ages.legs[Leg.BROKER].recent_bins(0).values()) == 1


def test_equal_bodies_take_no_longer_to_find() -> None:
    """Nor more room: those that nsqd received together answer for each other."""
    arrivals = Arrivals()
    for number in range(2_000):
        arrivals.add(answer((number, number + 1, number, number, [b"beat"] * 10)), SAME)
    assert len(arrivals._order) <= 2 * 2_000
    assert max(map(len, arrivals._cells.values())) <= 40
    found = arrivals.find(START + 1_500 * MS, checksum(b"beat"))
    assert found is not None
    assert found.has(START + 1_500 * MS)


def test_a_big_batch_is_found_without_its_checksums() -> None:
    document = answer((10, 40, 5, 8, []))
    arrivals = Arrivals()
    arrivals.add(document, SAME)
    found = arrivals.find(START + 30 * MS, checksum(b"one of many"))
    assert found is not None
    assert found.arrived == START + 5 * MS
    assert arrivals.find(START + 50 * MS, checksum(b"later")) is None


@pytest.mark.parametrize("seconds", [0, 1, 30, 800])
def test_a_slow_nsqd_is_matched_too(seconds: int) -> None:
    arrivals = Arrivals()
    arrivals.add(answer((10, 10 + seconds * 1000, 5, 8, [b"a"])), SAME)
    for at in (0, seconds / 3, seconds):
        assert arrivals.find(START + 10 * MS + int(at * SECOND), checksum(b"a")) is not None
    assert arrivals.find(START, checksum(b"a")) is None


def test_arrivals_are_forgotten_from_the_oldest() -> None:
    arrivals = Arrivals()
    batches = MOST_MESSAGES // 10_000 + 3
    for number in range(batches):
        bodies = [b"%d %d" % (number, each) for each in range(10_000)]
        arrivals.add(answer((number, number, 0, 0, bodies)), SAME)
    assert len(arrivals._order) == MOST_MESSAGES
    assert arrivals.find(START, checksum(b"0 0")) is None
    last = batches - 1
    assert arrivals.find(START + last * MS, checksum(b"%d 0" % last)) is not None


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([], id="a-list"),
        pytest.param({}, id="nothing"),
        pytest.param({"level": 99, "span": [0, 0], "batches": []}, id="no-level"),
        pytest.param({"level": 0, "span": [0, 0], "batches": [[1]]}, id="half-a-batch"),
        pytest.param(
            {"level": 0, "span": [0, 0], "batches": [[1, 2, [[1, 2, "x", []]]]]}, id="no-number"
        ),
        pytest.param({"level": 0, "span": [0, float("inf")], "batches": []}, id="no-time"),
        pytest.param({"level": 20, "span": [0, 1 << 60], "batches": []}, id="a-span-of-years"),
        pytest.param(batch_of(arrived=-(10**400)), id="no-arrival"),
        pytest.param(batch_of(step=1e308), id="no-step"),
        pytest.param(batch_of(step=float("nan")), id="a-step-that-is-none"),
        pytest.param(batch_of(answered=-1), id="answered-before-it-was-written"),
        pytest.param(batch_of(checksums=[5] * 100_000), id="too-many"),
        pytest.param(batch_of(checksums=["5"]), id="no-checksum"),
    ],
)
def test_what_is_no_answer_of_a_gateway_is_refused(document: Any) -> None:
    with pytest.raises(ValueError, match="/arrivals"):
        Ages(SECOND).arrived(document, SAME)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"count": -1}, id="fewer-than-none"),
        pytest.param({"count": None}, id="no-count"),
        pytest.param({"level": 64}, id="no-level"),
        pytest.param({"bridge": {str(n): 1 for n in range(5000)}}, id="too-many-bins"),
        pytest.param({"consumer": {"0": -5}}, id="a-bin-below-zero"),
        pytest.param({"consumer": []}, id="no-bins"),
        pytest.param({"samples": [[1, 2]]}, id="half-a-sample"),
        pytest.param({"samples": [[1 << 70, 2, 3, 4, 5]]}, id="no-time"),
        pytest.param({"samples": 5}, id="no-samples"),
        pytest.param({"samples": [[1.5, 2, 3, 4, 5]]}, id="a-broken-time"),
        pytest.param({"count": 10**400}, id="more-than-there-can-be"),
        pytest.param({"bridge": {"0": 10**400}}, id="a-bin-of-more"),
        pytest.param({"bridge": {"999999": 1}}, id="a-bin-of-a-thousand-years"),
    ],
)
def test_what_is_no_report_of_a_consumer_is_refused(change: dict[str, Any]) -> None:
    ages = Ages(SECOND)
    with pytest.raises(ValueError):
        ages.handled(report() | change, SAME, 0)
    assert ages.count == 0
