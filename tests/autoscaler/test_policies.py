"""What every policy of the registry keeps to, whatever is observed."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.autoscaler.decision import Action, Decision, Handover, Policy
from srtm.autoscaler.observation import (
    ConsumerSeen,
    ConsumerState,
    Observation,
    PartitionSeen,
)
from srtm.autoscaler.policies import DESCRIPTIONS, POLICIES, Settings, Trace
from srtm.limits.ceiling import Ceiling
from srtm.limits.slo import SLO

SETTINGS = Settings(SLO(0.99, 0.5), mu=200.0, contract=Ceiling(400.0, 60.0))
TRACE = Trace([100.0, 300.0, 350.0, 50.0], [0.2] * 5)
EVERY = [name for name in POLICIES if not name.startswith("landau-") or name == "landau-mwfp"]
"""One of Landau's stands for all: they differ in their packing, which has tests of its own."""
every_policy = pytest.mark.parametrize("name", EVERY)


def seen(
    rates: Sequence[float] | Mapping[int, float],
    groups: Mapping[str, Sequence[int]],
    lags: Sequence[float] | Mapping[int, float] | None = None,
    *,
    at: float = 0.0,
    mu: float | Mapping[str, float] = 200.0,
    starting: Sequence[str] = (),
    rebalancing: bool = False,
    rebalance_seconds: float = 0.05,
    staying: float | None = 0.01,
) -> Observation:
    """Partitions by their rates (0, 1, ... or by id), consumers by what they have."""
    by_id = rates if isinstance(rates, Mapping) else dict(enumerate(rates))
    if lags is None:
        waiting: Mapping[int, float] = {}
    else:
        waiting = lags if isinstance(lags, Mapping) else dict(enumerate(lags))
    served = {name: mu if not isinstance(mu, Mapping) else mu[name] for name in groups}
    return Observation(
        at=at,
        partitions=tuple(PartitionSeen(p, rate, waiting.get(p, 0.0)) for p, rate in by_id.items()),
        consumers=tuple(
            ConsumerSeen(
                name,
                served[name],
                tuple(partitions),
                ConsumerState.STARTING if name in starting else ConsumerState.RUNNING,
            )
            for name, partitions in groups.items()
        ),
        new_mu=mu if not isinstance(mu, Mapping) else 200.0,
        rebalancing=rebalancing,
        rebalance_seconds=rebalance_seconds,
        staying_seconds=staying,
    )


def make(name: str, settings: Settings = SETTINGS) -> Policy:
    return POLICIES[name](settings, TRACE)


def check(decision: Decision, observation: Observation) -> None:
    """A group that can be carried out, and a reason for it."""
    assert decision.reason
    if decision.action is Action.NONE:
        assert decision.members == ()
        return
    ids = sorted(p.id for p in observation.partitions)
    assert sorted(p for member in decision.members for p in member.partitions) == ids
    named = [member.consumer for member in decision.members if member.consumer is not None]
    assert set(named) <= {consumer.id for consumer in observation.consumers}
    assert len(set(named)) == len(named)
    assert 1 <= len(decision.members) <= max(len(ids), 1)
    had, has = len(observation.consumers), len(decision.members)
    if decision.action is Action.UP:
        assert has > had
    elif decision.action is Action.DOWN:
        assert has < had
    else:
        assert has == had


def drive(policy: Policy, observations: Sequence[Observation]) -> list[Decision]:
    decisions = []
    for observation in observations:
        decision = policy.decide(observation)
        check(decision, observation)
        decisions.append(decision)
    return decisions


# --- the registry --------------------------------------------------------------------------------


def test_every_name_is_there_and_described() -> None:
    papers = {"closer1", "closer2", "iccbdc", "li-ku", "li-ku-tuned", "linear", "keda", "flas"}
    papers |= {"range", "cooperative-sticky", "optimal", "peak"}
    papers |= {f"landau-{short}" for short in ("mwf", "mbf", "mwfp", "mbfp", "bfd", "nf", "nfd")}
    assert papers <= set(POLICIES)
    assert set(DESCRIPTIONS) == set(POLICIES)
    for name, shows in DESCRIPTIONS.items():
        assert make(name).name == name
        assert shows
        assert "\n" not in shows


@pytest.mark.parametrize("name", ["optimal", "peak"])
def test_without_a_trace_what_plans_by_one_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} provisions for a trace"):
        POLICIES[name](SETTINGS, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        pytest.param({"mu": 0.0}, "mu is 0.0", id="no service"),
        pytest.param({"mu": float("nan")}, "mu is nan", id="mu not a number"),
        pytest.param({"decision_seconds": 0.0}, "decision interval 0.0", id="no interval"),
        pytest.param({"f_up": 0.4}, "f_down 0.4 and f_up 0.4", id="thresholds equal"),
        pytest.param({"f_up": 1.1}, "f_up 1.1", id="more than a whole consumer"),
        pytest.param({"f_down": 0.0}, "f_down 0.0", id="never down"),
        pytest.param({"cooldown_seconds": -1.0}, "cooldown -1.0", id="cooldown in the past"),
    ],
)
def test_settings_out_of_range_are_refused(change: dict[str, float], said: str) -> None:
    given = {"slo": SLO(0.99, 0.5), "mu": 200.0, **change}
    with pytest.raises(ValueError, match=said):
        Settings(**given)  # type: ignore[arg-type]


# --- what cannot be met is said ------------------------------------------------------------------


@every_policy
def test_a_partition_above_mu_is_named_with_its_remedy(name: str) -> None:
    observation = seen([250, 10, 10], {"c0": [0, 1, 2]})
    decision = make(name).decide(observation)
    check(decision, observation)
    assert any("partition 0 brings more than the 200/s" in note for note in decision.notes)
    assert not any("partition 1 brings" in note for note in decision.notes)


@every_policy
def test_consumers_beyond_the_partitions_are_counted(name: str) -> None:
    observation = seen([10, 10], {"c0": [0], "c1": [1], "c2": [], "c3": []})
    notes = make(name).decide(observation).notes
    assert any("4 consumers and 2 partitions: 2 can have nothing to do" in note for note in notes)


@every_policy
def test_an_slo_shorter_than_one_event_is_named(name: str) -> None:
    quick = Settings(SLO(0.99, 0.004), SETTINGS.mu, contract=SETTINGS.contract)
    notes = make(name, quick).decide(seen([10, 10], {"c0": [0, 1]})).notes
    assert any(note.startswith("an event takes 0.005 s") for note in notes)


@every_policy
def test_an_slo_shorter_than_a_rebalance_is_named(name: str) -> None:
    slow = seen([10, 10], {"c0": [0, 1]}, rebalance_seconds=2.0)
    quick = seen([10, 10], {"c0": [0, 1]}, rebalance_seconds=0.5)
    assert any("a rebalance takes 2 s" in note for note in make(name).decide(slow).notes)
    assert not any("a rebalance takes" in note for note in make(name).decide(quick).notes)


# --- groups and topics that change ---------------------------------------------------------------


@every_policy
def test_nothing_arrives_anywhere(name: str) -> None:
    observations = [
        seen([0, 0, 0], {"c0": [0, 1, 2]}, at=float(at), staying=None) for at in range(40)
    ]
    assert all(d.action in (Action.NONE, Action.UP) for d in drive(make(name), observations))


@every_policy
def test_a_partition_that_appears_gets_an_owner(name: str) -> None:
    policy = make(name)
    before = [seen([50, 50], {"c0": [0, 1]}, at=float(at)) for at in range(3)]
    after = [seen([50, 50, 5], {"c0": [0, 1]}, at=float(at)) for at in range(3, 40)]
    decisions = drive(policy, before + after)[3:]
    acted = [decision for decision in decisions if decision.action is not Action.NONE]
    assert acted
    assert sorted(p for m in acted[0].members for p in m.partitions) == [0, 1, 2]


@every_policy
def test_a_partition_that_disappears_is_assigned_to_nobody(name: str) -> None:
    policy = make(name)
    before = [seen([190, 190, 190], {"c0": [0, 1, 2]}, at=float(at)) for at in range(3)]
    after = [seen({0: 190, 2: 190}, {"c0": [0, 1, 2]}, at=float(at)) for at in range(3, 40)]
    drive(policy, before + after)


@every_policy
def test_a_dead_consumers_partitions_get_an_owner(name: str) -> None:
    groups = {"c0": [0, 1], "c2": [4]}  # c1 had 2 and 3
    observations = [seen([40] * 5, groups, at=float(at)) for at in range(40)]
    decisions = drive(make(name), observations)
    assert any(decision.action is not Action.NONE for decision in decisions)


@every_policy
def test_all_consumers_gone_launches_new_ones(name: str) -> None:
    observations = [seen([40] * 5, {}, at=float(at), staying=None) for at in range(12)]
    decisions = drive(make(name), observations)
    ups = [decision for decision in decisions if decision.action is Action.UP]
    assert ups
    assert all(member.consumer is None for member in ups[0].members)


@every_policy
def test_more_consumers_than_partitions_never_stay_in_a_new_group(name: str) -> None:
    groups = {"c0": [0], "c1": [1], "c2": [], "c3": [], "c4": []}
    drive(make(name), [seen([150, 150], groups, at=float(at)) for at in range(400)])


@every_policy
@pytest.mark.parametrize(
    "mus",
    [
        pytest.param({"c0": 50.0, "c1": 400.0}, id="the second is faster"),
        pytest.param({"c0": 400.0, "c1": 50.0}, id="the first is faster"),
    ],
)
def test_consumers_of_unequal_speed(name: str, mus: dict[str, float]) -> None:
    groups = {"c0": [0, 1, 2], "c1": [3, 4]}
    observations = [seen([60] * 5, groups, [20] * 5, at=float(at), mu=mus) for at in range(40)]
    drive(make(name), observations)


@every_policy
def test_while_consumers_start_and_partitions_move(name: str) -> None:
    starting = {"c0": [0, 1], "c1": [2, 3], "c2": [4]}
    observations = [
        seen([90] * 5, starting, [200] * 5, at=float(at), starting=["c1", "c2"], rebalancing=at > 4)
        for at in range(10)
    ]
    drive(make(name), observations)


# --- time ----------------------------------------------------------------------------------------


@every_policy
def test_a_minute_without_observations_is_noted(name: str) -> None:
    policy = make(name)
    at = [float(second) for second in (*range(20), *range(80, 100))]
    decisions = drive(policy, [seen([30] * 5, {"c0": [0, 1, 2, 3, 4]}, at=second) for second in at])
    gaps = [any("no observation for 61 s" in n for n in d.notes) for d in decisions]
    assert [index for index, gap in enumerate(gaps) if gap] == [20]


@every_policy
def test_a_clock_that_goes_back_is_noted_and_the_policy_goes_on(name: str) -> None:
    policy = make(name)
    load = [[60] * 5, [5] * 5]
    at = [float(second) for second in (*range(1000, 1040), *range(100, 300))]
    observations = [
        seen(load[index // 20 % 2], {"c0": [0, 1, 2, 3, 4]}, [300] * 5, at=second, staying=1.0)
        for index, second in enumerate(at)
    ]
    decisions = drive(policy, observations)
    back = [any("the clock went back by 939 s" in n for n in d.notes) for d in decisions]
    assert [index for index, noted in enumerate(back) if noted] == [40]
    if name not in ("peak", "optimal"):
        # The group never changes here, so a policy that is not stuck in the future acts again
        # well before the old time returns.
        assert any(d.action is not Action.NONE for d in decisions[41:200])


# --- anything at all -----------------------------------------------------------------------------

_rates = st.one_of(st.just(0.0), st.floats(0, 1000, allow_subnormal=False))


@st.composite
def histories(draw: st.DrawFn) -> list[Observation]:
    """A few observations of a topic whose partitions and members come and go at random."""
    at = 0.0
    history = []
    for _ in range(draw(st.integers(1, 6))):
        ids = draw(st.lists(st.integers(0, 11), min_size=1, max_size=8, unique=True))
        names = [f"c{number}" for number in range(draw(st.integers(0, 10)))]
        owners = draw(st.lists(st.integers(-1, len(names) - 1), min_size=12, max_size=12))
        mu = draw(st.floats(1, 500))
        mus = {name: draw(st.sampled_from([mu, 2 * mu, mu / 7])) for name in names}
        history.append(
            seen(
                {p: draw(_rates) for p in ids},
                {name: [p for p in range(12) if owners[p] == n] for n, name in enumerate(names)},
                {p: draw(_rates) for p in ids},
                at=at,
                mu=mus if mus else mu,
                starting=[name for name in names if draw(st.booleans())],
                rebalancing=draw(st.booleans()),
                rebalance_seconds=draw(st.sampled_from([0.0, 0.5, 2.0])),
                staying=draw(st.one_of(st.none(), st.floats(0, 5))),
            )
        )
        at += draw(st.sampled_from([-30.0, 0.0, 1.0, 1.0, 5.0, 60.0]))
    return history


@every_policy
@given(history=histories(), handover=st.sampled_from(Handover), w_sla=st.floats(0.001, 5))
def test_whatever_is_observed_the_group_can_be_carried_out(
    name: str, history: list[Observation], handover: Handover, w_sla: float
) -> None:
    settings = Settings(SLO(0.99, w_sla), mu=100.0, handover=handover, contract=SETTINGS.contract)
    drive(make(name, settings), history)
