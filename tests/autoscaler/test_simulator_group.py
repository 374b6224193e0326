"""A simulated group, worked by hand: who stands still, from when to when.

Events take 250 ms. Heartbeats come every 3 s: c0's at 0.5, 3.5, 6.5 ..., c1's at 1.0, 4.0, 7.0 ...,
c2's at 1.5, 4.5 ... A rebalance takes 500 ms, a start 5 s, a session 10 s.
"""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from srtm.autoscaler.decision import Handover, Member
from srtm.autoscaler.simulator.consumer import Partition
from srtm.autoscaler.simulator.group import Group
from srtm.autoscaler.simulator.setting import Setting
from srtm.limits.slo import SLO

EAGER, COOPERATIVE, DIRECT = Handover.EAGER, Handover.COOPERATIVE, Handover.DIRECT
SWAP = (Member("c0", (0, 1)), Member("c1", (2,)))
"""From c0: 0 and 2, c1: 1."""


def group_of(
    handover: Handover, *times: Sequence[float], initial: int = 2, **changes: float
) -> Group:
    setting = Setting(
        SLO(0.99, 0.5),
        mu=4.0,
        handover=handover,
        initial=initial,
        max_poll=int(changes.pop("max_poll", 500)),
        told_together=bool(changes.pop("told_together", False)),
        **changes,
    )
    group = Group(setting, [Partition(np.array(mine, dtype=np.float64)) for mine in times])
    for number, consumer in enumerate(group.consumers):
        consumer.heartbeat_phase = 0.5 * (number + 1)
    return group


def ends(group: Group) -> list[list[float]]:
    return [partition.ends.tolist() for partition in group.partitions]


def owned(group: Group) -> dict[str, list[int]]:
    """Who really has which partition."""
    number = {id(partition): n for n, partition in enumerate(group.partitions)}
    return {
        consumer.id: sorted(number[id(partition)] for partition in consumer.partitions)
        for consumer in group.consumers
        if consumer.partitions
    }


def changed(group: Group, at: float, members: Sequence[Member], until: float = 40.0) -> Group:
    group.advance(at)
    group.change(at, members, None)
    group.advance(until)
    return group


def test_partitions_are_dealt_out_at_the_start_and_nobody_stops() -> None:
    group = group_of(EAGER, [0.0], [0.0], [0.0])
    group.advance(2.0)
    assert owned(group) == {"c0": [0, 2], "c1": [1]}
    assert ends(group) == [[0.25], [0.25], [0.5]]
    assert group.rebalances == 0


# --- eager ----------------------------------------------------------------------------------------


def test_eager_each_stops_at_its_heartbeat_and_all_begin_together() -> None:
    """Told at 3.5 and 4.0; the last one plus 500 ms is 4.5."""
    group = changed(group_of(EAGER, [2.5, 3.75], [3.75, 4.25], [3.75]), 2.0, SWAP)
    assert ends(group) == [[2.75, 4.75], [4.0, 5.0], [4.75]]
    assert owned(group) == {"c0": [0, 1], "c1": [2]}
    assert (group.rebalances, group.stopped_seconds) == (1, 1.0)


def test_eager_told_together_all_go_on_until_the_last_heartbeat() -> None:
    group = group_of(EAGER, [3.5, 4.125], [], [], told_together=True)
    changed(group, 2.0, SWAP)
    assert ends(group) == [[3.75, 4.75], [], []]
    assert group.stopped_seconds == 0.5


def test_eager_a_poll_is_ended_first_and_the_others_wait_for_it() -> None:
    """c0 polls six events at 3.25 and ends them at 4.75: everybody begins at 5.25."""
    group = changed(group_of(EAGER, [3.25] * 6, [4.5], []), 2.0, SWAP)
    assert ends(group)[0] == [3.5, 3.75, 4.0, 4.25, 4.5, 4.75]
    assert ends(group)[1] == [5.5]


def test_eager_only_the_poll_under_way_is_ended() -> None:
    """Polls of two: the second one ends at 3.75; the other events wait for 4.5."""
    group = changed(group_of(EAGER, [3.25] * 4, [], [], max_poll=2), 2.0, SWAP)
    assert ends(group)[0] == [3.5, 3.75, 4.75, 5.0]


def test_eager_a_leaver_goes_at_once_and_the_others_hear_of_it_later() -> None:
    group = changed(group_of(EAGER, [3.75], [2.5]), 2.0, [Member("c0", (0, 1))])
    assert group.consumers[1].left_at == 2.0
    assert ends(group) == [[4.5], [4.25]]  # c0 is told at 3.5 and begins at 4.0: oldest first
    assert group.stopped_seconds == 2.0


def test_leavers_do_not_wait_for_each_other() -> None:
    """c1 has a poll until 3.0; c2 has none and is gone at once."""
    group = group_of(EAGER, [], [2.0] * 4, [], initial=3)
    changed(group, 2.0 + 1 / 64, [Member("c0", (0, 1, 2))])
    assert [c.left_at for c in group.consumers] == [math.inf, 3.0, 2.0 + 1 / 64]


def test_a_joiner_needs_no_heartbeat() -> None:
    """Launched at 2.0 it joins at 7.0; c0 is told at 9.5 by its own heartbeat, then 500 ms."""
    group = group_of(EAGER, [7.0], [9.75], initial=1)
    changed(group, 2.0, [Member("c0", (0,)), Member(None, (1,))])
    assert group.consumers[1].joined_at == 7.0
    assert ends(group) == [[7.25], [10.25]]
    assert owned(group) == {"c0": [0], "c1": [1]}


# --- cooperative ----------------------------------------------------------------------------------


def test_cooperative_what_stays_goes_on_and_what_moves_stops_between_two_rebalances() -> None:
    """The first ends at 4.0 + 0.5; the second, told at 6.5 and 7.0, at 7.5."""
    group = changed(group_of(COOPERATIVE, [5.0], [4.0, 5.0], [4.0, 6.0]), 2.0, SWAP)
    assert ends(group) == [[5.25], [4.25, 7.75], [4.25, 7.75]]
    assert owned(group) == {"c0": [0, 1], "c1": [2]}
    assert group.stopped_seconds == 3.0


def test_cooperative_what_a_leaver_had_is_assigned_by_the_first_rebalance() -> None:
    group = changed(group_of(COOPERATIVE, [3.75], [2.5]), 2.0, [Member("c0", (0, 1))])
    assert group.consumers[1].left_at == 2.0
    assert ends(group) == [[4.0], [4.25]]  # told at 3.5, assigned at 4.0
    assert group.stopped_seconds == 2.0


def test_cooperative_a_poll_is_ended_before_its_partition_is_given_up() -> None:
    """c0's poll at 4.25 holds 16 events and ends at 8.25: the second rebalance counts from it, and
    ends at 10.0 + 0.5. Partition 1 has been without an owner since 4.5."""
    group = changed(group_of(COOPERATIVE, [4.25] * 8, [], [4.25] * 8 + [6.0]), 2.0, SWAP)
    assert ends(group)[2][7:] == [8.25, 10.75]
    assert group.stopped_seconds == 6.0


# --- direct ---------------------------------------------------------------------------------------


def test_direct_only_what_moves_stands_still_for_a_rebalance() -> None:
    group = changed(group_of(DIRECT, [2.25], [2.25], [2.25]), 2.0, SWAP)
    assert ends(group) == [[2.5], [2.75], [2.75]]
    assert (group.rebalances, group.stopped_seconds) == (1, 0.5)


def test_direct_the_owner_ends_its_poll_first() -> None:
    group = changed(group_of(DIRECT, [], [], [1.75] * 4 + [2.0]), 2.0, SWAP)
    assert ends(group)[2] == [2.0, 2.25, 2.5, 2.75, 3.5]


def test_direct_the_new_owner_ends_its_poll_first_too() -> None:
    """c1 polls eight of partition 1 at 2.25, until 4.25; partition 2 is its own from 2.5 on."""
    group = group_of(DIRECT, [], [2.25] * 8, [2.25])
    changed(group, 2.0, [Member("c0", (0,)), Member("c1", (1, 2))])
    assert ends(group)[2] == [4.5]
    assert group.stopped_seconds == 2.25


def test_direct_a_leaver_is_billed_to_the_end_of_its_poll() -> None:
    group = changed(group_of(DIRECT, [], [1.75] * 4 + [2.0]), 2.0, [Member("c0", (0, 1))])
    assert group.consumers[1].left_at == 2.75
    assert ends(group)[1][-1] == 3.5


def test_a_decision_may_name_another_hand_over_than_the_groups() -> None:
    group = group_of(EAGER, [2.25], [2.25], [2.25])
    group.advance(2.0)
    group.change(2.0, SWAP, DIRECT)
    group.advance(9.0)
    assert ends(group) == [[2.5], [2.75], [2.75]]


# --- changes that overtake each other -------------------------------------------------------------


@pytest.mark.parametrize("handover", list(Handover))
def test_a_launch_that_is_called_off_stops_nobody(handover: Handover) -> None:
    group = group_of(handover, [3.75], [3.75])
    group.advance(2.0)
    group.change(2.0, [Member("c0", (0,)), Member("c1", ()), Member(None, (1,))], None)
    changed(group, 3.0, [Member("c1", (1,)), Member("c0", (0,))])
    assert (group.consumers[2].left_at, group.consumers[2].joined_at) == (3.0, math.inf)
    assert ends(group) == [[4.0], [4.0]]
    assert group.rebalances == 0


@pytest.mark.parametrize("handover", list(Handover))
def test_a_change_during_a_rebalance_is_carried_out_after_it(handover: Handover) -> None:
    group = group_of(handover, [30.0], [30.0], [30.0], startup_seconds=0.25)
    group.advance(2.0)
    group.change(2.0, SWAP, None)
    group.advance(2.1)
    assert group.rebalancing
    changed(group, 2.1, [Member("c1", (0,)), Member("c0", (1,)), Member(None, (2,))])
    assert owned(group) == {"c0": [1], "c1": [0], "c2": [2]}
    assert group.rebalances == 2
    assert ends(group) == [[30.25]] * 3


def test_who_joined_during_a_rebalance_and_is_not_wanted_after_it_leaves() -> None:
    group = group_of(EAGER, [], [], [], startup_seconds=0.5)
    group.advance(2.0)
    group.change(2.0, SWAP, None)
    group.advance(2.25)
    group.change(2.25, [*SWAP, Member(None, ())], None)
    group.advance(3.0)  # it has joined
    changed(group, 3.0, SWAP)
    assert group.consumers[2].joined_at == 2.75
    assert group.consumers[2].left_at == 4.5
    assert owned(group) == {"c0": [0, 1], "c1": [2]}


# --- deaths ---------------------------------------------------------------------------------------


def test_a_dead_members_partitions_stand_still_until_its_session_ends() -> None:
    """Noticed at 12.0; c0 is told at 12.5 and has everything at 13.0."""
    group = group_of(EAGER, [], [2.5])
    group.schedule_failure(2.0, 1)
    group.advance(11.9)
    assert owned(group) == {"c0": [0]}
    assert [c.id for c in group.wanted] == ["c0", "c1"]  # nobody knows yet
    group.advance(40.0)
    assert group.consumers[1].left_at == 2.0
    assert ends(group) == [[], [13.25]]
    assert {c.id: ids for c, ids in group.wanted.items()} == {"c0": (0, 1)}


def test_all_dead_then_a_new_one_takes_everything_up() -> None:
    group = group_of(EAGER, [2.5], [2.5])
    group.schedule_failure(2.0, 0)
    group.schedule_failure(2.0, 0)
    group.advance(13.0)
    assert not group.wanted
    assert not owned(group)
    changed(group, 13.0, [Member(None, (0, 1))])
    assert ends(group) == [[18.75], [19.0]]


@pytest.mark.parametrize("handover", list(Handover))
def test_who_dies_before_the_hand_over_ends_takes_nothing_up(handover: Handover) -> None:
    group = group_of(handover, [30.0], [30.0], rebalance_seconds=4.0)
    group.schedule_failure(5.0, 1)
    changed(group, 2.0, [Member("c0", ()), Member("c1", (0, 1))])
    assert owned(group) == {"c0": [0, 1]}
    assert ends(group) == [[30.25], [30.5]]


def test_who_dies_in_a_long_poll_ends_it_alone() -> None:
    """c1 polls eight events at 1.75 and dies at 2.0; its poll ends at 3.75. c0 takes the partition
    up once, not before that."""
    group = group_of(DIRECT, [], [1.75] * 8 + [2.0, 30.0])
    group.schedule_failure(2.0, 1)
    changed(group, 2.5, [Member("c0", (0, 1))])
    assert owned(group) == {"c0": [0, 1]}
    assert ends(group)[1][7:] == [3.75, 4.5, 30.25]


def test_who_ends_its_last_poll_takes_nothing_up() -> None:
    """c1 dies at 2.25 in a poll until 3.75, and is given partition 0 at 2.5: noticed at 12.25."""
    group = group_of(DIRECT, [2.5], [1.75] * 8)
    group.schedule_failure(2.25, 1)
    changed(group, 2.0, [Member("c0", ()), Member("c1", (0, 1))])
    assert owned(group) == {"c0": [0, 1]}
    assert ends(group)[0] == [13.0]


def test_nobody_takes_up_what_a_dying_one_still_serves() -> None:
    """c1 dies at 2.0 in a poll until 5.75; c0 would be ready for the partition at 4.0."""
    group = group_of(EAGER, [], [1.75] * 16 + [2.0])
    group.schedule_failure(2.0, 1)
    changed(group, 2.0, [Member("c0", (0, 1))])
    assert ends(group)[1][15:] == [5.75, 6.0]


def test_a_failure_of_nobody_is_refused() -> None:
    group = group_of(EAGER, [])
    group.schedule_failure(2.0, 2)
    with pytest.raises(ValueError, match="at 2 s no consumer 2 can fail: 2 run"):
        group.advance(3.0)


# --- decisions that are none ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "line"),
    [
        pytest.param([Member("c7", (0, 1))], "consumer c7 is not in the group", id="unknown"),
        pytest.param(
            [Member("c0", (0,)), Member("c0", (1,))], "or is named twice", id="named-twice"
        ),
        pytest.param([Member("c0", (0,))], r"partitions \[0\] are assigned", id="left-out"),
        pytest.param([Member("c0", (0, 1)), Member("c1", (1,))], "once", id="assigned-twice"),
        pytest.param([], "each of the 2 must be", id="nobody"),
        pytest.param([Member("c0", (0, 1, 2))], "each of the 2 must be", id="no-such-partition"),
    ],
)
def test_a_decision_that_leaves_something_out_is_refused(members: list[Member], line: str) -> None:
    group = group_of(EAGER, [], [])
    with pytest.raises(ValueError, match=line):
        group.change(0.0, members, None)


def test_consumers_that_differ_are_launched_in_turn() -> None:
    setting = Setting(SLO(0.99, 0.5), initial=2, mus=(4.0, 2.0, 9.0))
    group = Group(setting, [Partition(np.zeros(0)) for _ in range(5)])
    members = [Member("c0", (0,)), Member("c1", (1,)), *(Member(None, (p,)) for p in (2, 3, 4))]
    group.change(0.0, members, DIRECT)
    assert [consumer.mu for consumer in group.consumers] == [4.0, 2.0, 9.0, 4.0, 2.0]
    assert setting.mu == 5.0, "what a policy is told of one that does not run yet"
