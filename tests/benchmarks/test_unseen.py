"""The benchmark `unseen` and the command `tune`: their cases and their arithmetic, no figures."""

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from benchmarks.autoscaler.unseen import run, tune
from benchmarks.autoscaler.unseen.cases import (
    HIGHEST,
    MIXED_MUS,
    MU,
    PARTITIONS,
    REPORTED_SEEDS,
    SHAPES,
    SHARES,
    TARGET_SECONDS,
    TUNING_SEEDS,
    Case,
    case,
    generated,
    reported,
)
from benchmarks.autoscaler.unseen.run import (
    BOUNDED,
    CONSTANT,
    Judged,
    Result,
    bars,
    geometric_mean,
    played,
    rivals_of,
)
from srtm.autoscaler.policies.srtm.tuning import TUNING
from srtm.autoscaler.simulator.arrivals import ArrivalModel
from srtm.limits.excess import worst_excess
from srtm.text.errors import UsageError

REPORTED = list(generated(REPORTED_SEEDS))


def short(warm: bool = True, seconds: int = 30) -> Case:
    return case(7, "walk", 0.99, "even", ArrivalModel.POISSON, warm, seconds)


def test_reported_cases_are_none_of_those_for_tuning() -> None:
    assert not set(REPORTED_SEEDS) & set(TUNING_SEEDS)
    others = list(generated(TUNING_SEEDS))
    assert not {each.name for each in REPORTED} & {each.name for each in others}
    pairs = zip(REPORTED, others, strict=True)
    assert not any(np.array_equal(a.rates, b.rates) for a, b in pairs)


def test_there_are_sixty_cases_or_more_of_every_kind() -> None:
    assert len(REPORTED) >= 60
    assert len({each.name for each in REPORTED}) == len(REPORTED)
    for word in (*SHAPES, *SHARES, "poisson", "burst", "cold", "warm", "90 %", "99 %", "99.9 %"):
        assert sum(word in each.name for each in REPORTED) >= 9, word


def test_a_group_of_one_consumer_for_each_partition_can_keep_every_case() -> None:
    for each in REPORTED:
        served = MU * (TARGET_SECONDS if each.model is ArrivalModel.BURST else 1.0)
        assert each.rates.shape == (PARTITIONS, 900)
        assert each.rates.max() <= HIGHEST * served + 1e-9
        assert each.rates.min() >= 0


def test_in_a_quarter_of_the_reported_cases_consumers_differ() -> None:
    mixed = [each for each in reported() if each.setting.mus]
    assert len(mixed) == len(REPORTED) // 3
    for each in mixed:
        assert each.setting.mus == MIXED_MUS
        assert each.setting.mu == MU, "as many events/s a consumer as in the others"
        served = MIXED_MUS[0] * (TARGET_SECONDS if each.model is ArrivalModel.BURST else 1.0)
        assert each.rates.max() <= HIGHEST * served + 1e-9
        assert "mixed" in each.name


def test_the_same_seed_makes_the_same_case() -> None:
    assert np.array_equal(short().rates, short().rates)
    assert short(warm=False).setting.initial == 1 <= short().setting.initial


def test_a_constant_group_changes_once_at_most() -> None:
    small = short()
    for name in rivals_of(small):
        if name.startswith(CONSTANT):
            result = played(small, name)
            assert result.policy == name
            assert result.changes <= 1


def result(share: float, minutes: float, policy: str = "srtm") -> Result:
    return Result(policy, share, minutes, 0)


def judged(ours: Result, *rivals: Result) -> Judged:
    return Judged(short(), ours, rivals)


DEAR, CHEAP = result(1.0, 90.0, "dear"), result(0.991, 40.0, "cheap")
POOR = result(0.9, 9.0, "poor")


@pytest.mark.parametrize(
    ("ours", "rivals", "kept", "ratio"),
    [
        pytest.param(result(0.99, 30.0), (DEAR, CHEAP, POOR), True, 0.75, id="cheaper"),
        pytest.param(result(0.9891, 50.0), (DEAR, CHEAP), True, 1.25, id="within-a-tenth"),
        pytest.param(result(0.9889, 30.0), (DEAR, CHEAP), False, 0.75, id="beyond-a-tenth"),
        pytest.param(result(0.97, 30.0), (POOR,), True, 30 / 9, id="better-than-the-best"),
    ],
)
def test_what_has_to_be_kept(
    ours: Result, rivals: tuple[Result, ...], kept: bool, ratio: float
) -> None:
    found = judged(ours, *rivals)
    assert found.kept is kept
    assert found.ratio == pytest.approx(ratio)


def test_the_bars_are_of_all_cases_and_of_those_that_keep() -> None:
    good = judged(result(0.99, 20.0), CHEAP)
    dear = judged(result(0.995, 60.0), CHEAP)
    missed = judged(result(0.5, 1.0), CHEAP)
    share, mean, worst, better = bars([good, dear, missed])
    assert share.value == pytest.approx(200 / 3)
    assert mean.value == pytest.approx(math.sqrt(0.5 * 1.5))
    assert worst.value == pytest.approx(1.5)
    assert better.value == 0.0
    (beaten,) = bars([judged(result(0.98, 50.0), CHEAP)])[3:4]
    assert beaten.value == 1.0
    assert [share.met, mean.met, worst.met] == [False, True, False]
    assert {bar.met for bar in bars([good], "short")} == {None}
    assert [bar.met for bar in bars([])] == [None] * 4
    assert math.isnan(geometric_mean([]))


def test_a_report_shows_every_case(figure: Any) -> None:
    shown = [judged(result(0.99, 20.0), CHEAP), judged(result(0.5, 1.0), CHEAP)]
    for made in (run.table_of(shown), run.shapes_table(shown)):
        Console(width=200, quiet=True).print(made)
    assert run.table_of(shown).row_count == 2
    json.dumps([each.document() for each in shown], allow_nan=False)
    run.draw(figure, shown)


def test_the_objective_is_of_replica_time_and_of_late_events_beyond_the_allowed() -> None:
    small = short()
    least = float(small.rates.sum()) / MU / 60
    assert tune.parts_of(small, result(1.0, 2 * least)) == pytest.approx((math.log(2), 0))
    assert tune.parts_of(small, result(0.96, least)) == pytest.approx((0, math.log(4)))


def test_tuning_takes_what_scores_best_and_leaves_what_is_no_better() -> None:
    best, scores = tune.tune({"price": (28.0,), "wider": (1.0,)}, [short()], 1)
    assert len(scores) == 3
    assert scores[1].objective == scores[0].objective, "the constant as it is"
    assert best in (TUNING, replace(TUNING, wider=1))
    assert tune.table_of(scores).row_count == 3


@pytest.mark.parametrize("text", ["prize=1", "price", "price=a", "windows=3"])
def test_what_cannot_be_tried_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--try"):
        tune.choices([text])


def test_a_contract_that_the_arrivals_just_keep_to() -> None:
    for model in (ArrivalModel.POISSON, ArrivalModel.BURST):
        each = case(7, "spikes", 0.99, "even", model, True, 60)
        times = np.sort(np.concatenate(each.arrivals.times))
        ceiling = each.ceiling
        assert worst_excess(times, ceiling.rate, ceiling.burst) == pytest.approx(0.0, abs=1e-6)
        assert played(each, BOUNDED).minutes > 0


def test_what_a_contract_saves_is_held_against_ours_without_one() -> None:
    ours = result(0.995, 50.0)
    some = [
        Judged(short(), ours, (CHEAP,), result(0.996, 40.0)),
        Judged(short(), ours, (CHEAP,), result(0.5, 45.0)),
    ]
    kept, minutes = bars(some)[-2:]
    assert (kept.value, kept.met) == (-1.0, False)
    assert minutes.value == pytest.approx(math.sqrt(0.8 * 0.9))
    assert minutes.met
