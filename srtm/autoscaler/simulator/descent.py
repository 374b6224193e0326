"""Betters a schedule by simulated runs: changes are shifted, left out, or lead to another group.

A change acts on the time around it only. So one run tries a move of every second change at once,
and each is judged by the late events and the bill of its own span of time; then those moves are
made that together save most replica-seconds within the error budget, and a run confirms it.
"""

import math
import random
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from srtm.autoscaler.simulator.path import Change, Schedule
from srtm.autoscaler.simulator.play import Played

Floats = NDArray[np.float64]

_SHIFTS = (-1, 1, -2, 2, -4, 4, -8, 8)
"""Ticks."""
_MARGIN_TICKS = 9
"""A change's span begins this long before it: the longest shift and one."""
_ATTEMPTS = 4
"""The most attempts at a set of moves, with less of the budget each time that a run comes out no
better."""


_EXCHANGE = 0.3
"""replica-seconds for a late event too many: what one is worth in the papers' workloads, at the
budget, lies between 0.01 and 1."""
_HEAT_SECONDS = 3.0
"""replica-seconds: a move that costs so much more is taken once in e times, at first. A tick of
one replica costs one, and what changes the whole trace is left to the first schedules."""

Play = Callable[[Schedule], Played | None]
"""Runs a schedule; None when no runs are left."""
Move = Callable[[Schedule, int], Schedule | None]
"""The schedule with its i-th change moved, or None where that cannot be."""


def descend(best: Played, play: Play, groups: int, allowed: float) -> Played:
    """The best schedule found with at most `allowed` late events, from one that may have more."""
    moves = [_shift(ticks) for ticks in _SHIFTS]
    moves += [_leave_out, *(_lead_to(group) for group in range(groups))]
    improved = True
    while improved:
        improved = False
        for parity in (0, 1):
            found = _sweep(best, play, moves, parity, allowed)
            if found is not None:
                best, improved = found, True
    return best


def _sweep(
    best: Played, play: Play, moves: list[Move], parity: int, allowed: float
) -> Played | None:
    """Try each move on the changes of one parity; play the best selection of them."""
    changes = range(parity, len(best.schedule), 2)
    if not changes:
        return None
    cuts = [0]
    for i in changes[1:]:
        cuts.append(max(cuts[-1] + 1, best.schedule[i].tick - _MARGIN_TICKS))
    base_late, base_bill = np.add.reduceat(best.late, cuts), np.add.reduceat(best.bill, cuts)
    options: list[list[tuple[float, float, Move | None]]] = [[(0.0, 0.0, None)] for _ in changes]
    for move in moves:
        trial, moved = _apply(best.schedule, dict.fromkeys(changes, move))
        if not moved or (run := play(trial)) is None:
            continue
        late = np.add.reduceat(run.late, cuts) - base_late
        bill = np.add.reduceat(run.bill, cuts) - base_bill
        for row, i in enumerate(changes):
            if i in moved:
                options[row].append((float(bill[row]), float(late[row]), move))
    left = allowed - best.late_events
    for _ in range(_ATTEMPTS):
        chosen = _select(options, left)
        picked = {i: move for i, (_, _, move) in zip(changes, chosen, strict=True) if move}
        if not picked or (run := play(_apply(best.schedule, picked)[0])) is None:
            return None
        if rank(run, allowed) < rank(best, allowed):
            return run
        left -= max(run.late_events - allowed, 0.25 * abs(left), 1.0)
    return None


def rank(played: Played, allowed: float) -> tuple[float, float]:
    """The rank of a run, less is better: first the late events over the budget, then the bill (to a
    microsecond, past which it is rounding)."""
    return max(0.0, played.late_events - allowed), round(played.replica_seconds, 6)


def _select(
    options: list[list[tuple[float, float, Move | None]]], left: float
) -> list[tuple[float, float, Move | None]]:
    """One option of each change, least bill with at most `left` more late events: by a price of a
    late event, the lowest that keeps within the budget."""

    def at(price: float) -> list[tuple[float, float, Move | None]]:
        return [min(row, key=lambda option: option[0] + price * option[1]) for row in options]

    low, high = 1e-4, 1e3
    for _ in range(40):
        price = (low * high) ** 0.5
        if sum(late for _, late, _ in at(price)) <= left:
            high = price
        else:
            low = price
    return at(high)


def _apply(schedule: Schedule, moves: dict[int, Move]) -> tuple[Schedule, set[int]]:
    """Apply the moves from the last change to the first, so that a change that is left out moves no
    index still to come. Returns the schedule, and the indexes of the changes that were moved."""
    moved = set()
    for i in sorted(moves, reverse=True):
        changed = moves[i](schedule, i)
        if changed is not None:
            schedule = changed
            moved.add(i)
    return schedule, moved


def _shift(ticks: int) -> Move:
    def move(schedule: Schedule, i: int) -> Schedule | None:
        tick = schedule[i].tick + ticks
        earliest = schedule[i - 1].tick + 1 if i else 0
        if tick < earliest or (i + 1 < len(schedule) and tick >= schedule[i + 1].tick):
            return None
        return (*schedule[:i], Change(tick, schedule[i].group), *schedule[i + 1 :])

    return move


def _leave_out(schedule: Schedule, i: int) -> Schedule:
    return tidy((*schedule[:i], *schedule[i + 1 :]))


def _lead_to(group: int) -> Move:
    def move(schedule: Schedule, i: int) -> Schedule | None:
        if schedule[i].group == group:
            return None
        return tidy((*schedule[:i], Change(schedule[i].tick, group), *schedule[i + 1 :]))

    return move


def tidy(schedule: Schedule) -> Schedule:
    """The schedule without changes to the group that is there."""
    kept: list[Change] = []
    group = 0
    for change in schedule:
        if change.group != group:
            kept.append(change)
            group = change.group
    return tuple(kept)


def merit(played: Played, allowed: float) -> float:
    """What a run comes to, less is better: the bill, and a price for each late event too many."""
    return played.replica_seconds + _EXCHANGE * max(0.0, played.late_events - allowed)


def wander(best: Played, play: Play, groups: int, allowed: float, steps: int) -> None:
    """Simulated annealing from `best`: each step plays one random move, and goes on from there if
    it is better, or by chance. The caller keeps what was played."""
    chance = random.Random(1)
    here = best
    for step in range(steps):
        heat = _HEAT_SECONDS * (1 - step / steps)
        run = play(_disturbed(here, groups, chance))
        if run is None:
            return
        worse = merit(run, allowed) - merit(here, allowed)
        if worse <= 0 or chance.random() < math.exp(-worse / heat):
            here = run


def _disturbed(here: Played, groups: int, chance: random.Random) -> Schedule:
    """One change shifted, left out or to another group, or a pair put in: away and back."""
    schedule = here.schedule
    kind = chance.choice(("near", "near", "near", "far", "out", "group", "pair", "pair"))
    if not schedule or kind == "pair":
        first, length = chance.randrange(len(here.late)), chance.randint(3, 60)
        return _inserted(schedule, first, length, chance.randrange(groups))
    i = chance.randrange(len(schedule))
    if kind == "out":
        return _leave_out(schedule, i)
    if kind == "group":
        return _lead_to(chance.randrange(groups))(schedule, i) or schedule
    reach = 3 if kind == "near" else 30
    return _shift(chance.randint(-reach, reach))(schedule, i) or schedule


def _inserted(schedule: Schedule, first: int, ticks: int, group: int) -> Schedule:
    """`group` from tick `first` for some ticks, or to the next change if that comes earlier."""
    before = [change for change in schedule if change.tick < first]
    after = [change for change in schedule if change.tick > first]
    back = before[-1].group if before else 0
    if not after or after[0].tick > first + ticks:
        after.insert(0, Change(first + ticks, back))
    return tidy((*before, Change(first, group), *after))
