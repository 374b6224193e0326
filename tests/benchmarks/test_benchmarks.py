"""The benchmarks' own arithmetic, verdicts and output. No test judges a time."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from benchmarks.__main__ import cli
from benchmarks.catalogue import BENCHMARKS, Entry
from benchmarks.gateway import cost as gateway
from benchmarks.gateway import limiter
from benchmarks.gateway.drl_figures import Split, batch_means, interval, pool
from benchmarks.gateway.drl_penalty import bars, draw, fitted_burst, table_of
from benchmarks.gateway.record import record_of
from benchmarks.harness.arms import nodes
from benchmarks.harness.bars import Bar, judge
from benchmarks.harness.report import Report, table
from benchmarks.harness.session import Session
from benchmarks.harness.trial import Generator, Trial, as_json, ratios, trial
from srtm.limits.bucket import TokenBucket
from srtm.limits.contract import Limit
from srtm.limits.excess import worst_excess
from srtm.limits.queueing import token_waits
from srtm.text.errors import SrtmError
from tests.support.servers import program

# --- bars -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "how", "met"),
    [
        pytest.param([2.0], {"at_least": 2.0}, True, id="just-enough"),
        pytest.param([1.9], {"at_least": 2.0}, False, id="too-little"),
        pytest.param([0.5], {"at_most": 0.5}, True, id="just-low-enough"),
        pytest.param([0.6], {"at_most": 0.5}, False, id="too-much"),
        pytest.param([1.0, 3.0, 9.0], {"at_least": 2.0}, True, id="the-median-counts"),
        pytest.param([1.0, 3.0, 9.0], {"at_least": 2.0, "quick": True}, None, id="quick-straddles"),
        pytest.param([3.0, 9.0], {"at_least": 2.0, "quick": True}, True, id="quick-is-sure"),
        pytest.param([0.1, 1.0], {"at_least": 2.0, "quick": True}, False, id="quick-is-sure-of-no"),
        pytest.param([0.1], {"at_least": 2.0, "repeats": 2}, None, id="one-repetition-of-two"),
        pytest.param([9.0], {"at_least": 2.0, "doubt": "late"}, None, id="a-doubt"),
        pytest.param([], {"at_least": 2.0}, None, id="nothing-measured"),
        pytest.param([float("inf")], {"at_most": 2.0}, False, id="nothing-arrived"),
    ],
)
def test_a_bar_is_met_missed_or_undecided(
    values: list[float], how: dict[str, Any], met: bool | None
) -> None:
    bar = judge("b", values, **how)
    assert bar.met is met
    assert bool(bar.why) == (met is None)
    assert bar.verdict == {True: "met", False: "MISSED", None: "undecided"}[met]
    if values:
        assert (bar.value, bar.low, bar.high) == (np.median(values), min(values), max(values))


def test_a_bar_has_one_side() -> None:
    with pytest.raises(ValueError, match="either at_least or at_most"):
        judge("b", [1.0])
    with pytest.raises(ValueError, match="either at_least or at_most"):
        judge("b", [1.0], at_least=1.0, at_most=2.0)


def test_a_bar_s_document_names_its_side() -> None:
    keys = ["name", "value", "low", "high", "at_least", "met", "why"]
    assert list(judge("b", [1.0], at_least=1.0).document()) == keys
    assert judge("b", [1.0], at_most=1.0).document()["at_most"] == 1.0
    assert judge("b", [float("inf")], at_most=1.0).document()["value"] is None


# --- the command ------------------------------------------------------------------------------


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, words)


def with_bars(monkeypatch: pytest.MonkeyPatch, *found: Bar) -> None:
    """The command runs a benchmark that measures nothing and has these bars."""
    program("nsqd")

    def benchmark(session: Session) -> Report:
        session.plan(1)
        session.step("nothing")
        shown = table("nothing", "load", "figure")
        return Report(
            {"load": 1}, {"ratio": [1.0]}, list(found), [shown], ["a note"], lambda f: None
        )

    monkeypatch.setattr(Entry, "load", lambda entry: benchmark)


def test_list_names_every_benchmark() -> None:
    listed = run("list")
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == list(BENCHMARKS)
    assert all(callable(entry.load()) for entry in BENCHMARKS.values())


MET = judge("kept", [1.0], at_least=1.0)
MISSED = judge("not kept", [0.5], at_least=1.0)
UNSURE = judge("who knows", [], at_least=1.0)


@pytest.mark.parametrize(
    ("found", "flags", "code"),
    [
        pytest.param([MET, UNSURE], ["--strict"], None, id="met-and-undecided-pass"),
        pytest.param([MET, MISSED], [], None, id="missed-without-strict-passes"),
        pytest.param([MET, MISSED], ["--strict"], 1, id="missed-fails-when-strict"),
    ],
)
def test_strict_fails_on_a_missed_bar(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    found: list[Bar],
    flags: list[str],
    code: int | None,
) -> None:
    with_bars(monkeypatch, *found)
    ended = run("run", "limiter", "--out", str(tmp_path), *flags)
    if code is None:
        assert ended.exit_code == 0, ended.output
    else:
        assert isinstance(ended.exception, SrtmError)
        assert ended.exception.exit_code == code
    for bar in found:
        assert bar.verdict in ended.output
    assert (tmp_path / "limiter.json").exists()


def test_the_document_has_every_key(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with_bars(monkeypatch, MET, MISSED, UNSURE)
    assert run("run", "limiter", "--quick", "--out", str(tmp_path)).exit_code == 0
    document = json.loads((tmp_path / "limiter.json").read_text())
    assert list(document) == [
        *("benchmark", "shows", "method"),
        *("started_at", "seconds", "quick", "settings", "machine", "commit"),
        *("figures", "tables", "bars", "notes"),
    ]
    assert set(document["machine"]) == {
        *("cpu", "cores", "memory_bytes", "kernel", "python", "nsqd", "compiled", "load_average"),
    }
    assert set(document["machine"]["load_average"]) == {"start", "end"}
    assert set(document["commit"]) == {"id", "dirty"}
    assert document["quick"] is True
    assert document["figures"] == {"ratio": [1.0]}
    assert [bar["met"] for bar in document["bars"]] == [True, False, None]
    assert (tmp_path / "limiter.png").exists()


def test_without_matplotlib_there_is_no_picture(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, figure: Any
) -> None:
    with_bars(monkeypatch)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert run("run", "limiter", "--out", str(tmp_path)).exit_code == 0
    assert [path.name for path in tmp_path.iterdir()] == ["limiter.json"]


# --- conformance ------------------------------------------------------------------------------

INSTANTS = st.lists(st.integers(0, 10_000), max_size=40).map(sorted)


@given(INSTANTS, st.floats(0.1, 1e4), st.floats(1, 50))
def test_the_worst_excess_is_that_of_the_worst_interval(
    instants: list[int], rate: float, allowance: float
) -> None:
    times = np.array(instants) / 1e3
    each = [
        (last - first + 1) - allowance - rate * (times[last] - times[first])
        for first in range(len(times))
        for last in range(first, len(times))
    ]
    assert worst_excess(times, rate, allowance) == pytest.approx(
        max(each, default=-allowance), abs=1e-9, rel=1e-9
    )


@given(INSTANTS, st.floats(0.5, 1e3), st.integers(1, 20))
def test_an_exact_bucket_conforms(instants: list[int], rate: float, burst: int) -> None:
    times = np.array(instants) / 1e3
    admissions = times + token_waits(times, rate, burst)
    assert worst_excess(admissions, rate, burst) <= 1e-6


# --- the record -------------------------------------------------------------------------------


def answer(arrivals: list[list[int]], admissions: list[list[float]], lost: int = 0) -> Any:
    return {"arrivals": arrivals, "admissions": admissions, "lost": lost}


def test_waits_are_matched_first_in_first_out() -> None:
    ns = 1_000_000_000
    record = record_of(
        [
            answer([[5 * ns, 2]], [[5 * ns, 0.0, 1]]),
            answer([[7 * ns, 1], [6 * ns, 1]], [[8 * ns, 0.5 * ns, 3]]),
        ]
    )
    assert record.origin_ns == 5 * ns
    assert record.arrivals.tolist() == [0, 0, 1, 2]
    assert record.admissions.tolist() == [0, 3, 3.5, 4]
    assert record.waits().tolist() == [0, 3, 2.5, 2]


def test_a_late_read_swaps_waits_and_keeps_their_sum() -> None:
    # The second one was stamped first and read late: it went at its stamp, ahead of who waited.
    record = record_of([answer([[100, 1], [40, 1]], [[40, 0.0, 1], [900, 0.0, 1]])])
    assert record.waits().sum() * 1e9 == pytest.approx(900 - 100)
    assert record.read_late == 0.5


@pytest.mark.parametrize(
    ("document", "said"),
    [
        pytest.param(answer([[1, 2]], [[1, 0.0, 1]]), "2 messages arrived and 1 were", id="waits"),
        pytest.param(answer([], [], lost=3), "lost 3 entries", id="lost"),
    ],
)
def test_an_incomplete_record_is_refused(document: Any, said: str) -> None:
    with pytest.raises(SrtmError, match=said):
        record_of([document]).waits()


def test_an_empty_record() -> None:
    assert record_of([answer([], [])]).waits().size == 0


@given(st.lists(st.integers(0, 3_000_000), min_size=1, max_size=60), st.integers(1, 5))
def test_a_record_of_the_gateway_s_bucket_is_the_exact_bucket(gaps: list[int], burst: int) -> None:
    rate, stamp = 1_000.0, 10**15
    bucket = TokenBucket(rate, burst, stamp)
    arrivals, admissions = [], []
    for gap in gaps:
        stamp += gap
        arrivals.append([stamp, 1])
        ready = max(stamp, bucket.ready_at(1), bucket.at)
        when = bucket.take(1, ready)
        assert when is not None
        admissions.append([when, 0.0, 1])
    record = record_of([answer(arrivals, admissions)])
    assert record.waits() == pytest.approx(record.exact_waits(rate, burst), abs=1e-7)


# --- the gateway benchmark --------------------------------------------------------------------


def a_trial(
    acknowledged: float = 1.0,
    p99_ms: float = 1.0,
    lag_ms: float = 0.0,
    cpu: float = 1.0,
    received: float = 100.0,
    grew: int = 0,
    busy: float = 0.5,
) -> Trial:
    document = {
        "settings": {"duration_seconds": 11.0, "warmup_seconds": 1.0, "outstanding": None},
        "rates_per_second": {"offered": 100.0, "acknowledged": acknowledged, "received": received},
        "end_to_end_latency": {"p99_ms": p99_ms},
        "send_lag": {"p99_ms": lag_ms},
        "generator": {"cpu_us_per_message": 5.0, "cpu_seconds": busy, "seconds": 1.0},
        "problems": [],
    }
    return Trial(document, {"nsqd": cpu / 2, "gateway": cpu / 2}, 8.0, 1_000, grew)


@pytest.mark.parametrize(
    ("found", "carried"),
    [
        pytest.param(a_trial(received=99.5), True, id="nearly-all-arrived"),
        pytest.param(a_trial(received=98.5), False, id="too-little-arrived"),
        pytest.param(a_trial(grew=500), False, id="the-backlog-grew"),
        pytest.param(a_trial(received=101.0, grew=-50), True, id="the-backlog-shrank"),
    ],
)
def test_what_carried_means(found: Trial, carried: bool) -> None:
    assert gateway.is_carried(found) is carried


@pytest.mark.parametrize("limit", [9_000, 12_345, 34_567, 70_000])
def test_bisection_ends_just_under_what_is_carried(limit: float) -> None:
    found = gateway.bisect(10_000, 60_000, 6, lambda rate: rate <= limit)
    step = 50_000 / 2**6
    assert found <= max(limit, 10_000)
    assert min(limit, 60_000) - found <= step or found == 10_000


@pytest.mark.parametrize(
    ("theirs", "ours", "late"),
    [
        pytest.param(a_trial(p99_ms=2), a_trial(p99_ms=2.2), False, id="no-lag"),
        pytest.param(
            a_trial(p99_ms=2, lag_ms=1), a_trial(p99_ms=2.2, lag_ms=1), True, id="mostly-lag"
        ),
        pytest.param(
            a_trial(p99_ms=2, lag_ms=0.1), a_trial(p99_ms=2.2, lag_ms=0.1), False, id="a-little-lag"
        ),
        pytest.param(
            a_trial(p99_ms=10, lag_ms=1), a_trial(p99_ms=90, lag_ms=20), False, id="too-bad-anyway"
        ),
        pytest.param(a_trial(p99_ms=1, lag_ms=2), a_trial(p99_ms=1, lag_ms=2), True, id="all-lag"),
    ],
)
def test_a_late_generator_leaves_p99_undecided(theirs: Trial, ours: Trial, late: bool) -> None:
    said = gateway.generator_was_late([{"alone": theirs, "behind": ours}], 1.3)
    assert bool(said) is late


def gateway_trials(**ours: Any) -> gateway.Trials:
    whole = {"alone": a_trial(), "behind": a_trial(**ours), "tunnel": a_trial()}
    cut = {"alone": a_trial(), "behind": a_trial(**ours)}
    return {"a": [whole, cut], "b": [cut, cut], "c": [cut, whole], "d": [cut, cut, {}]}


def verdicts(found: list[Bar]) -> list[bool | None]:
    return [bar.met for bar in found]


@pytest.mark.parametrize(
    ("ours", "met"),
    [
        pytest.param(
            {"acknowledged": 3, "p99_ms": 0.5}, [True, True, True, True, True], id="better"
        ),
        pytest.param(
            {"acknowledged": 0.5, "p99_ms": 2, "cpu": 2}, [False] * 5, id="worse-in-everything"
        ),
        pytest.param(
            {"acknowledged": 0.5, "busy": 0.99},
            [None, None, True, True, False],
            id="the-generator-was-the-limit",
        ),
    ],
)
def test_the_gateway_s_bars(ours: dict[str, Any], met: list[bool | None]) -> None:
    assert verdicts(gateway.bars(gateway_trials(**ours), quick=True)) == met


def test_a_round_in_which_nothing_arrived() -> None:
    nothing = a_trial(p99_ms=float("inf"))
    p99 = [
        ratios([{"alone": theirs, "behind": ours}], lambda found: found.p99_ms, "behind", "alone")
        for theirs, ours in ((nothing, a_trial()), (a_trial(), nothing), (nothing, nothing))
    ]
    assert p99 == [[], [float("inf")], []]


NO_TIME: gateway.Trials = {name: [{}] for name in "abcd"}


def test_a_gateway_run_that_had_no_time_is_undecided() -> None:
    assert verdicts(gateway.bars(NO_TIME, quick=True)) == [None] * 5


@pytest.mark.parametrize("trials", [NO_TIME, gateway_trials()], ids=["no-time", "some"])
def test_the_gateway_s_tables_and_picture(trials: gateway.Trials, figure: Any) -> None:
    tables = gateway.tables(trials)
    assert len(tables) == 2
    Console(width=200, quiet=True).print(*tables)
    gateway.draw(figure, trials)


# --- the DRL penalty --------------------------------------------------------------------------


def test_the_fitted_burst_is_the_paper_s_or_smaller() -> None:
    assert fitted_burst(1.1, 0.99) == 26
    assert fitted_burst(1.1, 0.90) == 13


def a_split(brokers: int, seed: int, factor: float = 1.0) -> Split:
    """2,000 msg/s for 30 s as numpy draws them; measured is `factor` times the exact wait."""
    rng = np.random.default_rng(seed)
    share = Limit(rate=2200.0 / brokers, burst=13.0 / brokers)
    arrivals = np.sort(rng.random(60_000) * 30)
    owner = rng.integers(0, brokers, arrivals.size)
    exact = np.zeros(arrivals.size)
    for broker in range(brokers):
        mine = owner == broker
        exact[mine] = token_waits(arrivals[mine], share.rate, share.burst)
    load = {
        "end_to_end_latency": {"p50_ms": 1.0, "p95_ms": 2.0, "p99_ms": 3.0},
        "send_lag": {"p99_ms": 0.1},
    }
    return Split(
        offered=(2000.0 / brokers,) * brokers,
        share=share,
        arrivals=arrivals,
        measured=exact * factor,
        exact=exact,
        unsplit=token_waits(arrivals, 2200.0, 13.0),
        warmup=2.0,
        scheduled_mean=float(exact[arrivals >= 2].mean()),
        sketch_mean=float(exact.mean()),
        read_late=0.0,
        load=load,
    )


def test_a_gateway_that_keeps_to_the_bucket_passes(figure: Any) -> None:
    pooled = pool([a_split(count, seed) for seed in range(3) for count in (2, 6)], 10)
    found = bars(pooled, (2, 6))
    assert verdicts(found) == [True] * 4
    assert verdicts(bars(pooled, (2, 3, 6))) == [True, None, True] * 2
    assert "k = 2" in found[0].name
    json.dumps([each.document() for each in pooled] + [a_split(2, 1).document()])
    Console(width=200, quiet=True).print(table_of(pooled, 200, Limit(rate=2200, burst=13)))
    draw(figure, pooled)


def test_a_gateway_that_is_two_percent_off_fails() -> None:
    pooled = pool([a_split(3, 1, 1.02)], 10)
    found = bars(pooled, [3])[0]
    assert found.met is False
    assert found.value == pytest.approx(0.02)


def test_an_arrival_process_that_the_generator_bent_is_no_poisson_process() -> None:
    split = a_split(6, 1)
    bent = replace(split, scheduled_mean=split.scheduled_mean * 3)
    assert "not Poisson" in bars(pool([bent, bent], 10), [6])[1].why


@pytest.mark.parametrize(
    ("means", "doubt"),
    [
        pytest.param([1.0, 1.1, 0.9, 1.2] * 6, "", id="enough-to-tell"),
        pytest.param([1.0, 1.1, 0.9, 1.2], "4 batches, and 20 are needed", id="few-batches"),
        pytest.param([0.0] + [1.0] * 23, "1 of 24 batches have no wait", id="a-quiet-batch"),
        pytest.param([0.1] * 23 + [9.0], "the interval is +-", id="one-long-spell"),
    ],
)
def test_when_an_interval_decides_nothing(means: list[float], doubt: str) -> None:
    said = interval(means, 0.95).doubt
    assert said.startswith(doubt)
    assert bool(said) == bool(doubt)


def test_batch_means_cover_the_time_after_the_warmup() -> None:
    split = a_split(2, 1)
    means = batch_means(split, 7)
    assert len(means) == 7
    assert np.mean(means) == pytest.approx(split.mean(split.measured), rel=0.05)


def test_an_interval_of_even_batches_is_near_student_s_and_a_skewed_one_reaches_up() -> None:
    even = interval(np.random.default_rng(1).normal(10, 1, 30).tolist(), 0.95)
    assert even.low < even.mean < even.high
    assert (even.high - even.low) / 2 == pytest.approx(2.045 * 1 / 30**0.5, rel=0.25)
    skewed = interval(np.random.default_rng(1).exponential(1, 30).tolist(), 0.95)
    assert skewed.high - skewed.mean > 1.3 * (skewed.mean - skewed.low)
    assert skewed.distance(skewed.high) == pytest.approx(1)
    assert skewed.distance(skewed.low) == pytest.approx(1)
    assert skewed.distance(skewed.mean) == 0


def test_an_interval_of_equal_batches_is_a_point() -> None:
    found = interval([2.0] * 20, 0.95)
    assert (found.low, found.mean, found.high) == (2.0, 2.0, 2.0)
    assert (found.distance(2.0), found.distance(2.1)) == (0.0, 1.0)


# --- against real servers ---------------------------------------------------------------------


def test_the_limiter_s_runs_on_real_servers(tmp_path: Path, figure: Any) -> None:
    program("nsqd")
    with nodes(tmp_path, {"one": []}) as started:
        node = started["one"]
        found = limiter._conformance(node, "bursts", 150, 0.4)
        assert found.problems == []
        assert found.missing_on_wire == 0
        assert found.record.waits().size > 100
        assert found.excess <= limiter.TOLERANCE
        assert found.explained is not None
        assert found.wire_excess <= found.explained + limiter.TOLERANCE
        node.create("cost")
        spent = trial(
            node,
            "cost",
            ["--publishers=5", "--rate=200"],
            consume_from=node.gateway_tcp,
            seconds=0.8,
            warmup=0.2,
        )
    assert set(spent.cpu_us) == {"nsqd", "gateway"}
    assert spent.document["counts"]["lost"] == 0
    assert spent.window_messages > 0
    conformances, costs = {"bursts": [found]}, [{"no contract": spent}]
    assert verdicts(limiter.bars(conformances)) == [True]
    Console(width=200, quiet=True).print(*limiter.tables(conformances, costs))
    limiter.draw(figure, conformances)
    json.dumps([found.document(), as_json(costs)])


def test_a_generator_that_cannot_start_says_why() -> None:
    with pytest.raises(SrtmError, match=r"load generator failed: .*write HOST:PORT"):
        Generator(["--nsqd-tcp-address=here"], 0.1).result()
