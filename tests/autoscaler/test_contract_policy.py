"""The policy `contract`: for ever, now, what it answers, and what it says that would help."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from srtm.autoscaler.decision import Action, Decision, Handover
from srtm.autoscaler.observation import ConsumerSeen, ConsumerState, Observation, PartitionSeen
from srtm.autoscaler.policies import POLICIES, Settings
from srtm.limits.ceiling import EXCEEDED, Ceiling
from srtm.limits.slo import SLO

MU = 100.0
EVEN = (0.2,) * 5


def look(
    groups: Sequence[Sequence[int]],
    *,
    at: float = 1.0,
    rates: Sequence[float] = (0.0,) * 5,
    lags: Sequence[float] = (0.0,) * 5,
    startup: float = 5.0,
    rebalance: float = 0.05,
    starting: int = 0,
) -> Observation:
    """Consumers c0, c1, ... with these partitions; the last `starting` of them still start."""
    states = [ConsumerState.RUNNING] * (len(groups) - starting)
    states += [ConsumerState.STARTING] * starting
    return Observation(
        at=at,
        partitions=tuple(
            PartitionSeen(p, rate, lag, (rate / 10,) * 10)
            for p, (rate, lag) in enumerate(zip(rates, lags, strict=True))
        ),
        consumers=tuple(
            ConsumerSeen(f"c{n}", MU, tuple(group), state)
            for n, (group, state) in enumerate(zip(groups, states, strict=True))
        ),
        new_mu=MU,
        rebalance_seconds=rebalance,
        startup_seconds=startup,
    )


def decide(
    ceiling: Ceiling,
    target: float,
    *seen: Observation,
    shares: tuple[float, ...] | None = EVEN,
    pooled: bool = False,
) -> Decision:
    settings = Settings(
        SLO(0.99, target),
        MU,
        handover=Handover.DIRECT,
        contract=ceiling,
        shares=shares,
        pooled=pooled,
    )
    policy = POLICIES["contract"](settings, None)
    return [policy.decide(each) for each in seen][-1]


def calm(groups: Sequence[Sequence[int]], seconds: int = 20, **keys: float) -> list[Observation]:
    """Nothing comes for so long."""
    return [look(groups, at=float(at), **keys) for at in range(1, seconds + 1)]  # type: ignore[arg-type]


def test_without_a_contract_it_says_where_to_give_one() -> None:
    with pytest.raises(ValueError, match=r"give \[group\] contract"):
        POLICIES["contract"](Settings(SLO(0.99, 0.5), MU), None)


@pytest.mark.parametrize(
    ("ceiling", "shares", "count"),
    [
        pytest.param(Ceiling(100, 50), EVEN, 1, id="one-serves-all"),
        pytest.param(Ceiling(101, 50), EVEN, 2, id="the-rate"),
        pytest.param(Ceiling(100, 51), EVEN, 2, id="the-burst"),
        pytest.param(Ceiling(300, 50), EVEN, 5, id="two-partitions-are-too-many"),
        pytest.param(Ceiling(250, 100), (0.4, 0.3, 0.1, 0.1, 0.1), 3, id="skewed"),
    ],
)
def test_as_few_as_are_enough_for_ever(
    ceiling: Ceiling, shares: tuple[float, ...], count: int
) -> None:
    decision = decide(ceiling, 0.5, look([range(5)]), shares=shares)
    assert (len(decision.members) or 1) == count
    assert "for ever" in decision.reason
    again = [member.partitions for member in decision.members] or [tuple(range(5))]
    assert decide(ceiling, 0.5, *calm(again), shares=shares).action is Action.NONE


def test_no_group_with_fewer_keeps_the_burst_in_time() -> None:
    """Every way to share out the partitions is tried."""
    random = np.random.default_rng(5)
    for _ in range(40):
        shares = tuple(float(each) for each in random.dirichlet(np.full(5, 3.0)))
        most = min(MU / max(shares), 400.0)
        ceiling = Ceiling(most * random.uniform(0.3, 1), most * 0.5 * random.uniform(0.2, 1))
        decision = decide(ceiling, 0.5, look([range(5)]), shares=shares)
        count = len(decision.members) or 1
        for owners in itertools.product(range(count - 1), repeat=5):
            sums = [math.fsum(s for s, o in zip(shares, owners, strict=True) if o == n)
                    for n in range(count - 1)]  # fmt: skip
            largest = max(sums)
            assert largest * ceiling.rate > MU or largest * ceiling.burst > MU * 0.5


@pytest.mark.parametrize(
    ("ceiling", "says"),
    [
        pytest.param(Ceiling(600, 20), "split the topic over more partitions", id="rate"),
        pytest.param(
            Ceiling(300, 300), "takes 600ms of a consumer and the target is 500ms", id="burst"
        ),
        pytest.param(Ceiling(300, 300), "make consumers serve 120/s", id="mu-that-would-do"),
        pytest.param(Ceiling(300, 300), "limit the burst to 250", id="burst-that-would-do"),
    ],
)
def test_what_cannot_be_kept_says_what_would_help(ceiling: Ceiling, says: str) -> None:
    decision = decide(ceiling, 0.5, look([range(5)]))
    assert len(decision.members) == 5
    assert says in " ".join(decision.notes)


def test_a_pool_that_is_too_slow_for_one_event_says_so() -> None:
    decision = decide(Ceiling(50, 5), 0.009, look([range(5)]), pooled=True)
    assert "an event takes 10ms of a consumer" in " ".join(decision.notes)


@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize(
    ("target", "startup", "fewer"),
    [
        pytest.param(0.5, 5.0, False, id="too-late-when-it-comes"),
        pytest.param(20.0, 5.0, True, id="time-enough-to-launch"),
        pytest.param(8.0, 60.0, False, id="a-long-start-up"),
    ],
)
def test_it_scales_in_only_where_it_can_be_back_in_time(
    pooled: bool, target: float, startup: float, fewer: bool
) -> None:
    groups = [[0, 1], [2, 3], [4]]
    decision = decide(Ceiling(240, 100), target, *calm(groups, 150, startup=startup), pooled=pooled)
    assert (decision.action is Action.DOWN) is fewer


@pytest.mark.parametrize(("pooled", "target"), [(False, 12.0), (True, 5.0)])
def test_a_burst_that_has_come_wants_the_group_that_is_enough_for_ever(
    pooled: bool, target: float
) -> None:
    before = calm([range(5)])
    burst = look([range(5)], at=21.0, rates=(108.0,) * 5, lags=(88.0,) * 5)
    ceiling = Ceiling(240, 300)
    assert decide(ceiling, target, *before, pooled=pooled).action is Action.NONE
    assert decide(ceiling, target, *before, burst, pooled=pooled).action is Action.UP


def test_it_waits_until_a_smaller_group_would_have_served_what_came() -> None:
    busy = [look([[0, 1], [2, 3], [4]], at=float(at), rates=(48.0,) * 5) for at in range(1, 30)]
    quiet = [replace(each, at=each.at + 29) for each in calm([[0, 1], [2, 3], [4]], 20)]
    ceiling = Ceiling(240, 100)
    actions = [decide(ceiling, 20.0, *busy, *quiet[:n]).action for n in (0, 11, 14)]
    assert actions == [Action.NONE, Action.NONE, Action.DOWN]


def test_a_change_is_waited_for_in_a_group() -> None:
    seen = look([[0, 1], [2, 3], [4]], starting=1)
    assert decide(Ceiling(400, 10), 0.5, seen).reason == "a change is under way"


def test_partitions_without_a_consumer_get_one() -> None:
    decision = decide(Ceiling(240, 50), 0.5, look([[0], [1]]))
    assert sorted(p for member in decision.members for p in member.partitions) == list(range(5))


def test_shares_are_measured_where_nobody_says_them() -> None:
    """Most of it comes to partition 0: with the others it is too much for one consumer."""
    rates = (60.0, 10.0, 10.0, 10.0, 10.0)
    seen = [look([range(5)], at=float(at), rates=rates) for at in range(1, 120)]
    decision = decide(Ceiling(160, 20), 0.5, *seen, shares=None)
    alone = next(m for m in decision.members if 0 in m.partitions)
    assert alone.partitions == (0,)
    assert len(decision.members) == 2


def test_more_than_the_contract_is_noted() -> None:
    seen = [look([range(5)], at=float(at), rates=(60.0,) * 5) for at in range(1, 5)]
    assert EXCEEDED in decide(Ceiling(100, 20), 0.5, *seen).notes
    assert EXCEEDED not in decide(Ceiling(300, 20), 0.5, *seen).notes
