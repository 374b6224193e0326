"""`srtm adaptor simulate`, and what must hold of every run of it."""

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from distributor.cli.adaptor import adaptor
from srtm.limits.queueing import token_waits
from srtm.text.errors import UsageError
from tb_adaptor.policies import POLICIES
from tb_adaptor.share import Part
from tb_adaptor.simulator.bound import late_at_least, least_ms
from tb_adaptor.simulator.judge import excess, in_ms, unsplit_waits
from tb_adaptor.simulator.run import Arrivals, Settings, simulate
from tests.support.cases import cases

CONTRACT = Part(50.0, 12.0)


@st.composite
def traffic(draw: st.DrawFn) -> dict[str, Arrivals]:
    """Single messages at rates that change every few seconds, to two or three brokers."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = {}
    for name in draw(st.sampled_from([["a", "b"], ["a", "b", "c"]])):
        times = []
        for begins in range(0, 40, 8):
            rate = draw(st.sampled_from([0.0, 2.0, 15.0, 40.0]))
            times.append(random.uniform(begins, begins + 8, random.poisson(rate * 8)))
        sorted_ = np.sort(np.concatenate(times))
        found[name] = Arrivals(sorted_, np.ones(sorted_.size))
    return found


@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=cases(30))
@given(arrivals=traffic())
def test_no_policy_lets_in_more_than_the_contract(name: str, arrivals: dict[str, Arrivals]) -> None:
    outcome = simulate(name, CONTRACT, arrivals, None, Settings(5.0, 5.0, 1.0))
    assert excess(outcome, CONTRACT) == 0
    assert np.isfinite(outcome.went).all()
    assert (outcome.waits >= 0).all()
    assert outcome.shares[0][0] == 0
    instants = [at for at, _ in outcome.shares]
    assert instants == sorted(set(instants)), "one entry for an instant"
    for _, split in outcome.shares:
        assert sum(Fraction(part.rate) for part in split.values()) <= Fraction(CONTRACT.rate)
        assert sum(Fraction(part.burst) for part in split.values()) <= Fraction(CONTRACT.burst)
    waited, least = in_ms(outcome.waits), least_ms(CONTRACT, arrivals)
    for figure, bound in least.items():
        assert waited[figure] >= bound - 1e-6, figure


def test_the_bound_is_the_fewest_late_of_all_choices() -> None:
    random = np.random.default_rng(3)
    for _ in range(60):
        times, wait = np.sort(random.uniform(0, 3, 9)), float(random.uniform(0, 1))
        whole = Part(float(random.uniform(0.5, 3)), float(random.integers(1, 4)))
        most = 0
        for chosen in range(1 << times.size):
            kept = times[[bool(chosen >> n & 1) for n in range(times.size)]]
            if kept.size and token_waits(kept, *whole).max() <= wait + 1e-7:
                most = max(most, kept.size)
        assert late_at_least(times, whole, wait) == times.size - most


def test_a_percentile_of_one_bucket_is_no_bound_and_the_least_is() -> None:
    """A batch makes all behind it wait in one bucket; in another order it is late alone."""
    one = Arrivals(np.array([0.0, *np.arange(100) / 10]), np.array([60.0, *np.ones(100)]))
    contract = Part(10.0, 50.0)
    served = in_ms(unsplit_waits(contract, {"a": one}))
    least = least_ms(contract, {"a": one})
    assert least["p50"] == 0 < served["p50"]


def test_a_decision_needs_no_report_of_a_broker_that_waits_for_nothing() -> None:
    """As live: the distributor looks by itself, and of who has not reported it knows nothing."""
    busy = Arrivals(np.arange(0, 10, 1 / 45), np.ones(450))
    outcome = simulate("srtm", CONTRACT, {"a": busy, "b": Arrivals(np.empty(0), np.empty(0))})
    shrunk, split = outcome.shares[1]
    assert shrunk == pytest.approx(1.0), "at its first report, half a second after the other's"
    assert split["b"].rate < 25
    assert outcome.shares[2][1]["a"].rate > 40
    assert outcome.waits.max() < 0.8


def test_an_excess_is_found() -> None:
    arrivals = {"a": Arrivals(np.array([0.0]), np.array([9.0]))}
    arrivals["b"] = Arrivals(np.array([0.0]), np.array([9.0]))
    outcome = simulate("static", CONTRACT, arrivals)
    assert excess(outcome, CONTRACT) == 0, "one waits for the whole contract"
    at_once = replace(outcome, went=np.zeros(2))
    assert excess(at_once, CONTRACT) == pytest.approx(6)


def run(*words: str) -> Result:
    return CliRunner().invoke(adaptor, ["simulate", *words])


def written(folder: Path, text: str) -> str:
    file = folder / "arrivals.csv"
    file.write_text(text)
    return str(file)


SWAP = "seconds,broker,messages\n" + "".join(
    f"{at / 100:.2f},{'b1' if (at < 3_000) == (at % 8 > 0) else 'b2'},1\n" for at in range(6_000)
)


def test_ours_follows_a_swap_and_the_others_come_later(tmp_path: Path) -> None:
    done = run(written(tmp_path, SWAP), "--rate=120", "--burst=10", "--json")
    assert done.exit_code == 0, done.output
    rows = {row["policy"]: row for row in json.loads(done.stdout)}
    assert list(rows) == list(POLICIES)
    assert {row["excess"] for row in rows.values()} == {0}
    assert all(row["unsplit_ms"]["max"] == 0 for row in rows.values())
    p99 = {name: row["token_wait_ms"]["p99"] for name, row in rows.items()}
    assert p99["srtm"] < p99["paper"] < p99["even"]
    assert rows["even"]["shares"] == [[0.0, {"b1": [60.0, 5.0], "b2": [60.0, 5.0]}]]
    assert p99["static"] == p99["even"]
    first = rows["srtm"]["shares"][0]
    assert first == [0.0, {"b1": [60.0, 5.0], "b2": [60.0, 5.0]}]


def test_initial_shares_are_taken_and_a_table_is_shown(tmp_path: Path) -> None:
    shares = tmp_path / "shares.json"
    shares.write_text('{"b1": [100, 8], "b2": [20, 2]}')
    words = (written(tmp_path, SWAP), "--rate=120", "--burst=10", f"--initial={shares}")
    done = run(*words, "--policy=static", "--json")
    assert json.loads(done.stdout)[0]["shares"] == [[0.0, {"b1": [100, 8], "b2": [20, 2]}]]
    table = run(*words, "--policy=static", "--policy=srtm")
    assert table.exit_code == 0
    lines = table.output.splitlines()
    assert lines[0] == "token wait"
    assert lines[1].split()[:3] == ["policy", "mean", "ms"]
    assert lines[2].strip("─ ") == "", "a rule below the header"
    assert [line.split()[0] for line in lines[3:]] == ["static", "srtm", "one", "none"]


def test_hindsight_and_one_bucket_bound_the_policies(tmp_path: Path) -> None:
    file = written(tmp_path, SWAP)
    words = ("--rate=120", "--burst=10", "--policy=srtm", "--policy=hindsight", "--policy=unsplit")
    rows = {row["policy"]: row for row in json.loads(run(file, *words, "--json").stdout)}
    whole = rows["hindsight"]
    assert [at for at, _ in whole["shares"]] == [0]
    shifted = json.loads(run(file, *words, "--shift=30s", "--json").stdout)
    best = {row["policy"]: row for row in shifted}["hindsight"]
    assert [at for at, _ in best["shares"]] == [0, 30]
    p99 = [each["token_wait_ms"]["p99"] for each in (best, rows["srtm"], whole)]
    assert p99 == sorted(p99)
    assert rows["unsplit"]["token_wait_ms"] == rows["unsplit"]["unsplit_ms"]
    assert rows["unsplit"]["shares"] == [[0.0, {"unsplit": [120, 10]}]]
    assert {row["excess"] for row in rows.values()} == {0}


def test_all_that_can_be_named_is_listed() -> None:
    done = CliRunner().invoke(adaptor, ["policies", "--json"])
    listed = [each["policy"] for each in json.loads(done.stdout)]
    assert listed == [*POLICIES, "hindsight", "unsplit"]


def test_batches_wait_for_all_of_their_tokens(tmp_path: Path) -> None:
    file = written(tmp_path, "seconds,broker,messages\n0,a,2\n1,a,4\n1,a,1\n")
    done = run(file, "--rate=1", "--burst=4", "--policy=static", "--json")
    waits = json.loads(done.stdout)[0]["token_wait_ms"]
    assert waits["max"] == pytest.approx(2_000), "3 tokens at 1 s: the batch of 4 goes at 2 s"
    assert waits["p50"] == pytest.approx(1_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("", "line 1: the columns are missing", id="empty"),
        pytest.param("time,broker,n\n", "write seconds,broker,messages", id="other-columns"),
        pytest.param("seconds,broker,messages\n", "no arrivals", id="no-rows"),
        pytest.param("seconds,broker,messages\n2,a,1\n1,a,1\n", "line 3: 1 s after 2", id="order"),
        pytest.param("seconds,broker,messages\n-1,a,1\n", "they begin at 0", id="negative"),
        pytest.param("seconds,broker,messages\nnan,a,1\n", "they begin at 0", id="nan"),
        pytest.param(
            "seconds,broker,messages\n1763880000.1,a,1\n",
            "1763880000.1 s is more than ten days; count seconds from the first arrival",
            id="since-1970",
        ),
        pytest.param("seconds,broker,messages\n1,a,0\n", "a batch has 1 to", id="no-message"),
        pytest.param("seconds,broker,messages\n1,a,1.5\n", "a batch has 1 to", id="half-a-message"),
        pytest.param("seconds,broker,messages\n1,a,x\n", "are numbers", id="no-number"),
        pytest.param("seconds,broker,messages\n1,,1\n", "no broker", id="no-broker"),
        pytest.param("seconds,broker,messages\n1,a\n", "line 2: 2 columns", id="short"),
        pytest.param("seconds,broker,messages\n1,a,1\n1,b,1\n1,c,1\n", "each of 3", id="small-b"),
    ],
)
def test_a_bad_file_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    done = run(written(tmp_path, text), "--rate=10", "--burst=2")
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert "\n" not in str(done.exception)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("--rate=0", "--burst=2"), "--rate 0", id="no-rate"),
        pytest.param(("--rate=nan", "--burst=2"), "--rate nan", id="nan"),
        pytest.param(("--rate=1", "--burst=0.5"), "at least 1 message", id="small-b"),
        pytest.param(("--rate=1", "--burst=2", "--every=0s"), "--every", id="no-period"),
        pytest.param(("--rate=1", "--burst=2", "--initial=/nowhere"), "No such file", id="no-file"),
        pytest.param(("--rate=1", "--burst=2", "--shift=then"), "--shift", id="no-shift"),
    ],
)
def test_a_bad_flag_is_one_line(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    done = run(written(tmp_path, "seconds,broker,messages\n0,a,1\n"), *words)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ('{"b1": [100, 8]}', "each of them"),
        ('{"b1": [100, 8], "b2": [21, 2]}', "over the contract"),
        ('{"b1": [100, 8], "b2": [10, 0.5]}', "b_l at least 1"),
        ("[1]", "write"),
    ],
)
def test_bad_shares_are_one_line(tmp_path: Path, shares: str, said: str) -> None:
    file = tmp_path / "shares.json"
    file.write_text(shares)
    done = run(written(tmp_path, SWAP), "--rate=120", "--burst=10", f"--initial={file}")
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


@pytest.mark.parametrize("size", [40, 60])
@pytest.mark.parametrize("policy", sorted(POLICIES))
def test_batches_bigger_than_a_share_keep_to_the_contract(policy: str, size: int) -> None:
    """One at each of four brokers at once, and single messages besides."""
    contract = Part(200.0, 40.0)
    arrivals = {
        f"b{number}": Arrivals(np.array([1.0, 1.5, 2.0]), np.array([float(size), 1.0, 1.0]))
        for number in range(4)
    }
    found = simulate(policy, contract, arrivals)
    assert np.isfinite(found.went).all()
    assert excess(found, contract) == 0
