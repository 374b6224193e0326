"""The arithmetic of the faults benchmark, and a few faults over a real testbed."""

import time

import pytest

from benchmarks.faults.run import (
    CASES,
    LATE_SECONDS,
    Case,
    Row,
    _carry_out,
    around,
    back_after,
    holds,
)
from benchmarks.faults.world import TOPICS, World
from srtm.testbed.faults import FAULTS
from tests.support.cases import LONG
from tests.support.deployments import need_nsq
from tests.support.netns import need_namespaces
from tests.support.testbeds import short_folder


def rows(*late: tuple[float, float], until: float = 30.0) -> list[Row]:
    """Ten a second; late ones have no answer."""
    times = [number / 10 for number in range(int(until * 10))]
    return [Row(at, None if any(a <= at < b for a, b in late) else 0.01) for at in times]


def test_late_is_what_came_too_late_or_not_at_all() -> None:
    assert Row(0.0, None).is_late
    assert Row(0.0, LATE_SECONDS + 0.01).is_late
    assert not Row(0.0, LATE_SECONDS).is_late


def test_an_slo_without_messages_does_not_hold() -> None:
    assert holds(rows(), 0, 1)
    assert not holds([], 0, 1)
    assert not holds(rows((0.0, 0.2)), 0, 1)  # 2 of 10


@pytest.mark.parametrize(
    ("late", "back"),
    [
        pytest.param([(10, 12)], 0.0, id="back-with-its-end"),
        pytest.param([(10, 15)], 3.0, id="back-later"),
        pytest.param([(10, 12), (14, 20)], 8.0, id="late-again-when-a-lease-ends"),
        pytest.param([(10, 30)], None, id="never-back"),
    ],
)
def test_back_is_what_lasts(late: list[tuple[float, float]], back: float | None) -> None:
    found = around(rows(*late), 10.0, 12.0, 29.0)
    assert found.before
    assert found.late == 1.0
    assert found.back_after == (back if back is None else pytest.approx(back, abs=0.21))


def test_what_was_not_looked_at_long_enough_is_not_back() -> None:
    assert back_after(rows(), 10.0, 10.5) is None


def test_every_fault_has_a_case() -> None:
    assert {each.fault for each in CASES} == set(FAULTS)


@pytest.mark.timeout(300)
def test_nothing_is_lost_and_nothing_let_in_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of mechanism once: a process, a filter, a relay, a disk, a store."""
    need_nsq(monkeypatch)
    need_namespaces()
    wanted = ["kill -9 nsqd", "one-way partition", "disk full", "torn store",
              "lost and reordered reports"]  # fmt: skip
    if LONG:
        wanted += ["slow link", "two distributors"]
    cases: list[Case] = [each for each in CASES if each.name in wanted]
    with short_folder() as folder, World(folder) as world:
        for case in cases:
            run = _carry_out(world, case, lasts=1.0, after=1.0)
            assert run.why == ""
            assert run.ended > run.began
        time.sleep(1.0)
        messages = world.end_publishing()
        for topic in TOPICS:
            stored = world.stored(topic)
            acknowledged = {body for body, _, _, ok in messages[topic] if ok}
            sent = {body for body, _, was_sent, _ in messages[topic] if was_sent}
            assert len(acknowledged) > 20
            assert acknowledged <= stored
            assert stored <= sent
            assert not world.audit(topic).is_exceeded
