"""What the benchmarks of live groups make of what consumers wrote down. Pure."""

from pathlib import Path

import pytest

from benchmarks.autoscaler.live import crashes, landau
from benchmarks.autoscaler.live.arms import ARMS, WORKLOADS, Fixed
from benchmarks.autoscaler.live.assignments import AsSeen
from benchmarks.autoscaler.live.autoscale import Outcome, agrees, predict
from benchmarks.autoscaler.live.cycles import Cycle, CycleFigures, read_cycles
from benchmarks.autoscaler.live.workers import Batch, moves_of, stays_of
from srtm.autoscaler.decision import Action, Decision, Handover, Member
from srtm.autoscaler.observation import ConsumerSeen, Observation, PartitionSeen
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.consumer.batch import Record
from srtm.consumer.figures import Phase


def each_20_ms(consumer: int, partition: int, begin: float, end: float) -> list[Batch]:
    count = round((end - begin) / 0.02)
    at = [begin + 0.02 * n for n in range(count)]
    return [Batch(each, each + 0.001, consumer, (partition,)) for each in at]


def test_a_move_is_timed_less_the_work_on_other_batches() -> None:
    """Partition 0 goes from 1 to 2 with 119 ms in between, of which 2 worked for 50."""
    batches = [
        *each_20_ms(1, 0, 0.0, 1.0),
        Batch(1.01, 1.06, 2, (1,)),
        *each_20_ms(2, 0, 1.1, 2.0),
    ]
    (move,) = moves_of(sorted(batches, key=lambda each: each.begun))
    assert (move.partition, move.stood) == (0, pytest.approx(0.119 - 0.05))


def test_who_stays_is_timed_around_each_change() -> None:
    """Partition 1 stays with 3, and stands for 199 ms while partition 0 moves; its gap of 399 ms
    later on is of no change."""
    batches = [
        *each_20_ms(1, 0, 0.0, 1.0),
        *each_20_ms(2, 0, 1.2, 5.0),
        *each_20_ms(3, 1, 0.0, 1.0),
        *each_20_ms(3, 1, 1.18, 4.0),
        *each_20_ms(3, 1, 4.38, 5.0),
    ]
    batches.sort(key=lambda each: each.begun)
    assert stays_of(batches, moves_of(batches), 2.0) == [pytest.approx(0.199)]


def test_every_arm_has_its_prediction() -> None:
    """At the arrivals of a quick run."""
    live = Outcome(sla=0.99, replica_minutes=1.0, lost=0, startup=2.0, rebalance=0.05)
    for workload in WORKLOADS:
        arrivals = workload.arrivals(1, 40)
        for arm in ARMS:
            found = predict(arm, workload, arrivals, live)
            assert 0 <= found.sla <= 1
            assert found.lost == 0
            fixed = workload.fixed(arrivals) * arrivals.seconds / 60
            if not arm.policy:
                assert found.replica_minutes == pytest.approx(fixed, rel=0.05)


def test_a_fixed_group_is_fixed() -> None:
    workload = WORKLOADS[0]
    arrivals = workload.arrivals(1, 40)
    setting = Setting(workload.slo, mu=workload.mu, handover=Handover.COOPERATIVE, initial=3)
    assert simulate(Fixed(3), arrivals, setting).replicas[-1][1] == 3


def test_the_simulator_assigns_as_kafka_did() -> None:
    """Partitions 0 and 1 carry the most: who has both falls behind."""
    workload = WORKLOADS[0]
    arrivals = workload.arrivals(1, 5)
    setting = Setting(workload.slo, mu=workload.mu, handover=Handover.COOPERATIVE, initial=4,
                      rebalance_seconds=0.05, heartbeat_seconds=0.5)  # fmt: skip
    apart = simulate(AsSeen(Fixed(4), [((0,), (1,), (2,), (3, 4))]), arrivals, setting)
    together = simulate(AsSeen(Fixed(4), [((0, 1), (2,), (3,), (4,))]), arrivals, setting)
    assert apart.sla_share > 0.99
    assert together.sla_share < 0.7


def test_of_groups_of_one_size_each_has_its_time_and_who_had_a_partition_keeps_it() -> None:
    class Turns:
        """Up to 2, down to 1, and so on."""

        name = "turns"

        def decide(self, seen: Observation) -> Decision:
            if len(seen.consumers) == 1:
                members = (Member(seen.consumers[0].id, (0, 1)), Member(None, (2,)))
                return Decision(Action.UP, members)
            return Decision(Action.DOWN, (Member(seen.consumers[0].id, (0, 1, 2)),))

    def told(consumers: dict[str, tuple[int, ...]]) -> list[tuple[str | None, tuple[int, ...]]]:
        running = tuple(ConsumerSeen(name, 1.0, parts) for name, parts in consumers.items())
        decision = policy.decide(Observation(0.0, partitions, running, 1.0))
        return [(each.consumer, each.partitions) for each in decision.members]

    partitions = tuple(PartitionSeen(number, 1.0, 0.0) for number in range(3))
    policy = AsSeen(Turns(), [((0,), (1, 2)), ((0, 2), (1,))])
    assert told({"a": (0, 1, 2)}) == [("a", (1, 2)), (None, (0,))]
    assert told({"a": (1, 2), "b": (0,)}) == [("a", (0, 1, 2))], "nobody saw a group of one"
    for _ in range(2):
        assert told({"a": (0, 1, 2)}) == [("a", (0, 2)), (None, (1,))]


@pytest.mark.parametrize(
    ("sla", "minutes", "same"),
    [(0.97, 1.09, True), (0.95, 1.0, False), (0.99, 1.2, False), (0.99, 0.95, True)],
)
def test_what_agrees(sla: float, minutes: float, same: bool) -> None:
    predicted = Outcome(0.99, 1.0, 0, 2.0, 0.05)
    assert agrees(Outcome(sla, minutes, 0, 2.0, 0.05), predicted) is same


def test_a_crash_lasts_until_somebody_else_has_the_partition() -> None:
    """1 crashes at 1.0; 2 takes partition 0 up once its batch in hand is done, nobody takes 1."""
    batches = [
        *each_20_ms(1, 0, 0.0, 1.0),
        *each_20_ms(1, 1, 0.0, 1.0),
        Batch(0.99, 1.09, 2, (0, 2)),
        Batch(1.1, 1.2, 1, (0,)),
        Batch(1.3, 1.4, 2, (0, 2)),
        Batch(1.5, 1.6, 2, (0,)),
    ]
    batches.sort(key=lambda each: each.begun)
    assert crashes.owners(batches) == {0: 2, 1: 1, 2: 2}
    assert crashes.taken_up(batches, {0, 1}, 1, 1.0) == {0: pytest.approx(0.3)}


def test_a_cycle_has_all_time_since_the_one_before(tmp_path: Path) -> None:
    out = tmp_path / "cycles.jsonl"
    assert read_cycles(out) == []
    figures = CycleFigures(out)
    records = [Record("events", 0, number, None, b"12345") for number in range(3)]
    for batch in (records, records[:1]):
        for phase in (Phase.GATHER, Phase.PROCESS, Phase.SINK, Phase.COMMIT, Phase.IDLE):
            figures.enter(phase)
        figures.served(batch, 0.1)
    first, second = read_cycles(out)
    assert (first.size, second.size) == (15, 5)
    assert list(first.phases) == list(map(str, Phase))
    assert first.seconds == sum(first.phases.values()) > 0


def a_read(partitions: int, repetition: int, rate: float) -> landau.Read:
    """Of 5 MB a cycle, after a first one that is slow."""
    phases = {"gather": 2.0 / rate, "sink": 3.0 / rate}
    slow = Cycle(5_000_000, {"gather": 100.0})
    cycle = Cycle(5_000_000, phases)
    return landau.Read(partitions, repetition, [slow, cycle, cycle])


@pytest.mark.parametrize(
    ("killed", "lost", "met"),
    [
        pytest.param([1.0, 3.0, 1.0], 0, [True, True, True], id="sooner-mostly"),
        pytest.param([3.0, 3.0, 1.0], 1, [True, False, False], id="later-and-one-is-lost"),
    ],
)
def test_bars_of_landau_s_consumer(killed: list[float], lost: int, met: list[bool]) -> None:
    reads = [a_read(p, n, 20.0 - p / 64) for n in range(3) for p in (1, 64)]
    assert reads[0].rate == pytest.approx(20.0, rel=0.01)
    found = crashes.Crashes({crashes.KILLED: killed, crashes.HIS: [2.0, 2.0, 2.0]}, lost, {})
    assert [bar.met for bar in landau.bars(reads, found, "")] == met
    assert [bar.met for bar in landau.bars(reads[::2], found, "one")][1] is None
