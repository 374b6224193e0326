"""`srtm autoscale` as a user runs it: figures, notes, plots, and one line for each mistake."""

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from srtm.autoscaler import autoscale_command
from srtm.autoscaler.comparison import policy_names
from srtm.autoscaler.decision import Action, Decision
from srtm.autoscaler.observation import Observation
from srtm.autoscaler.policies import POLICIES
from srtm.autoscaler.simulator.arrivals import ArrivalModel, arrivals_of, even_shares
from srtm.autoscaler.simulator.run import simulate
from srtm.autoscaler.simulator.setting import Setting
from srtm.cli.main import main
from srtm.limits.slo import SLO

KEYS = [
    "policy",
    "events",
    "sla_percent",
    "worst_window_percent",
    "keeps_slo",
    "replica_minutes",
    "mean_ms",
    "p50_ms",
    "p99_ms",
    "max_ms",
    "scale_ups",
    "scale_downs",
    "rebalances",
    "throughput",
]
RATES = [20.0 * (1 + second % 10) for second in range(30)]


@dataclass(frozen=True, slots=True)
class Answer:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


Srtm = Callable[..., Answer]


@pytest.fixture
def srtm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Srtm:
    def run(*arguments: str | Path) -> Answer:
        monkeypatch.setattr(sys, "argv", ["srtm", "autoscale", *map(str, arguments)])
        with pytest.raises(SystemExit) as stop:
            main()
        captured = capsys.readouterr()
        return Answer(int(stop.value.code or 0), captured.out, captured.err)

    return run


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    file = tmp_path / "workload.csv"
    file.write_text("".join(f"{second},{rate}\n" for second, rate in enumerate(RATES)))
    return file


# --- figures --------------------------------------------------------------------------------------


def test_json_is_one_object_for_each_policy_in_their_order(srtm: Srtm, workload: Path) -> None:
    names = ("peak", "closer1", "range")
    policies = [part for name in names for part in ("--policy", name)]
    answer = srtm("simulate", "--workload", workload, *policies, "--json")
    assert answer.code == 0
    assert [list(entry) for entry in answer.document] == [KEYS] * 3
    assert [entry["policy"] for entry in answer.document] == list(names)
    assert len({entry["events"] for entry in answer.document}) == 1


def test_the_flags_reach_the_simulation(srtm: Srtm, workload: Path) -> None:
    """Everything set to something else, against the same run made by hand."""
    answer = srtm(
        *("simulate", "--workload", workload, "--policy", "closer1", "--json"),
        *("--shares", "0.5,0.3,0.2", "--mu", "90", "--slo", "0.9@250ms", "--rebalance", "50ms"),
        *("--handover", "cooperative", "--startup", "2s", "--arrivals", "burst"),
        *("--lag-phase", "300ms", "--heartbeat", "1s", "--initial", "2", "--seed", "7"),
    )
    from srtm.autoscaler.comparison import Experiment, run_policy
    from srtm.autoscaler.decision import Handover

    setting = Setting(
        SLO(0.9, 0.25),
        mu=90.0,
        rebalance_seconds=0.05,
        handover=Handover.COOPERATIVE,
        startup_seconds=2.0,
        lag_phase=0.3,
        heartbeat_seconds=1.0,
        initial=2,
        seed=7,
    )
    experiment = Experiment(RATES, (0.5, 0.3, 0.2), ArrivalModel.BURST, setting)
    by_hand = run_policy("closer1", experiment, experiment.arrivals())
    assert answer.document == [by_hand.run.summary()]


def test_the_table_says_what_was_simulated(srtm: Srtm, workload: Path) -> None:
    answer = srtm("simulate", "--workload", workload, "--policy", "peak", "--policy", "closer2")
    assert answer.code == 0
    for words in (
        "30s",
        "poisson arrivals (seed 1)",
        "5 partitions",
        "0.99@500ms",
        "lag read 100ms",
    ):
        assert words in answer.out
    rows = [line.split() for line in answer.out.splitlines() if line.strip()]
    assert [row[0] for row in rows if row[0] in policy_names()] == ["peak", "closer2"]


def test_optimal_takes_no_time(srtm: Srtm, workload: Path) -> None:
    arguments = ("simulate", "--workload", workload, "--policy", "optimal", "--arrivals", "burst")
    slow = srtm(
        *arguments, "--startup", "10s", "--rebalance", "3s", "--lag-phase", "900ms", "--json"
    )
    quick = srtm(*arguments, "--startup", "0s", "--rebalance", "0s", "--lag-phase", "0s", "--json")
    assert slow.document == quick.document
    assert "optimal: takes no time to launch or to rebalance" in slow.err


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param("0.98,0.01,0.01", id="a-hot-partition"),
        pytest.param("1,0,0,0", id="partitions-without-events"),
        pytest.param("1", id="one-partition"),
    ],
)
def test_every_policy_takes_every_skew(srtm: Srtm, tmp_path: Path, shares: str) -> None:
    file = tmp_path / "short.csv"
    file.write_text("20\n" * 5 + "0\n" * 5 + "90\n" * 5)
    for name in policy_names():
        arguments = ("--workload", file, "--policy", name, "--shares", shares, "--mu", "50")
        arguments += ("--contract", "rate=90,burst=20")
        answer = srtm("simulate", *arguments, "--json")
        assert answer.code == 0, (name, answer.err)
        (figures,) = answer.document
        assert figures["policy"] == name
        assert figures["replica_minutes"] > 0


def test_clairvoyant_prints_its_lower_bound(srtm: Srtm, tmp_path: Path) -> None:
    file = tmp_path / "short.csv"
    file.write_text("20\n" * 5 + "60\n" * 5)
    answer = srtm(
        *("simulate", "--workload", file, "--policy", "clairvoyant", "--partitions", "2"),
        *("--mu", "50", "--json"),
    )
    assert answer.code == 0
    assert answer.document[0]["policy"] == "clairvoyant"
    assert "clairvoyant: " in answer.err


# --- notes ----------------------------------------------------------------------------------------


def test_what_cannot_be_met_runs_and_is_said(srtm: Srtm, tmp_path: Path) -> None:
    file = tmp_path / "hot.csv"
    file.write_text("250\n" * 20)
    arguments = ("simulate", "--workload", file, "--policy", "closer1", "--partitions", "1")
    hot = (*arguments, "--arrivals", "smooth", "--rebalance", "2s")
    table = srtm(*hot)
    assert table.code == 0
    assert "note: partition 0 gets 250 events/s at its peak, one consumer serves 200/s" in table.out
    assert "note: the SLO's 500ms is shorter than a rebalance of 2s" in table.out
    figures = srtm(*hot, "--json")
    assert figures.document[0]["sla_percent"] < 99
    assert "note: partition 0 gets 250" in figures.err


def test_a_policy_that_missed_its_slo_is_marked(srtm: Srtm, tmp_path: Path) -> None:
    """250/s in a second of twenty, for one consumer of 200/s: late in one stretch only."""
    file = tmp_path / "once.csv"
    file.write_text("\n".join(["20"] * 12 + ["450"] * 2 + ["20"] * 46))
    arguments = ("simulate", "--workload", file, "--policy", "peak", "--partitions", "1")
    answers = [
        srtm(*arguments, "--arrivals", "smooth", "--slo", slo)
        for slo in ("0.5@500ms", "0.5@500ms over 5s", "0.9@500ms")
    ]
    assert [("kept" in a.out, "MISSED" in a.out) for a in answers] == [
        (True, False),
        (False, True),
        (False, True),
    ]
    figures = srtm(
        *arguments, "--arrivals", "smooth", "--slo", "0.5@500ms over 5s", "--json"
    ).document[0]
    assert figures["worst_window_percent"] < 50 < figures["sla_percent"]
    assert figures["keeps_slo"] is False


class _Notes:
    name = "closer1"

    def decide(self, seen: Observation) -> Decision:
        notes = (f"partition 3 has {100 + seen.at:.1f} events", "once and for all")
        return Decision(Action.NONE, notes=notes if seen.at > 1 else notes[:1])


def test_notes_that_differ_in_numbers_are_one_line(
    srtm: Srtm, workload: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(POLICIES, "closer1", lambda settings, trace: _Notes())
    answer = srtm("simulate", "--workload", workload, "--policy", "closer1", "--handover", "direct")
    notes = [line for line in answer.out.splitlines() if line.startswith("note:")]
    assert notes == [
        "note: closer1: partition 3 has 100.1 events (and 29 more like it)",
        "note: closer1: once and for all (and 28 more like it)",
    ]


# --- the list -------------------------------------------------------------------------------------


def test_policies_are_listed_with_a_line_each(srtm: Srtm) -> None:
    listed = srtm("policies")
    names = [line.split()[0] for line in listed.out.splitlines()]
    assert names == list(policy_names())
    assert {"closer1", "closer2", "iccbdc", "li-ku", "linear", "keda", "flas", "range"} < set(names)
    assert {"cooperative-sticky", "optimal", "peak", "clairvoyant", "srtm"} < set(names)
    assert all(len(line.split()) > 2 for line in listed.out.splitlines())
    as_json = srtm("policies", "--json").document
    assert [entry["policy"] for entry in as_json] == names
    assert all(entry["description"] for entry in as_json)


# --- plots ----------------------------------------------------------------------------------------


def test_out_gets_the_figures_and_the_picture(srtm: Srtm, workload: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    folder = tmp_path / "deep" / "out"
    answer = srtm(
        *("simulate", "--workload", workload, "--policy", "peak", "--policy", "closer1"),
        *("--out", folder, "--json"),
    )
    assert answer.code == 0
    assert sorted(file.name for file in folder.iterdir()) == ["simulation.json", "simulation.png"]
    assert json.loads((folder / "simulation.json").read_text()) == answer.document
    assert (folder / "simulation.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_run(
    srtm: Srtm, workload: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name)
    )
    folder = tmp_path / "out"
    answer = srtm("simulate", "--workload", workload, "--policy", "peak", "--out", folder)
    assert (answer.code, answer.out) == (3, "")
    assert "plots need matplotlib; pip install matplotlib" in answer.err
    assert not folder.exists()


def test_the_curves_are_those_of_the_run() -> None:
    plots = pytest.importorskip("srtm.autoscaler.simulator.plots")
    arrivals = arrivals_of([100.0, 0.0, 100.0], even_shares(2), ArrivalModel.BURST, 1)

    class Nothing:
        name = "nothing"

        def decide(self, seen: Observation) -> Decision:
            return Decision(Action.NONE)

    run = simulate(Nothing(), arrivals, Setting(SLO(0.99, 0.5)))
    seconds, p99 = plots.p99_per_second(run)
    assert seconds.tolist() == [0.5, 2.5]
    assert p99 == pytest.approx([0.495, 0.495])
    latency, share = plots.cdf(run)
    assert latency[0] == pytest.approx(0.005)
    assert (latency[-1], share[-1]) == (pytest.approx(0.5), 1.0)
    assert (np.diff(share) > 0).all()
    dead = simulate(Nothing(), arrivals, Setting(SLO(0.99, 0.5)), failures=[(1.0, 0)])
    assert plots.cdf(dead)[1][-1] == 0.5
    assert np.isnan(plots.p99_per_second(dead)[1]).tolist() == [False, True]


# --- mistakes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        pytest.param(("--policy", "closer3"), "did you mean 'closer", id="a-slip-in-a-name"),
        pytest.param(("--policy", "xyzzy"), "`srtm autoscale policies` lists", id="no-such-policy"),
        pytest.param(("--policy", "peak"), "'peak' is given twice", id="a-policy-twice"),
        pytest.param(("--partitions", "0"), "0 partitions: a topic has one", id="no-partitions"),
        pytest.param(("--shares", "0.5,0.4"), "must sum to 1", id="shares-of-0.9"),
        pytest.param(("--shares", "0.5,half"), "--shares: '0.5,half' is no list", id="words"),
        pytest.param(("--shares", "nan,1"), "each must be between 0 and 1", id="a-share-of-nan"),
        pytest.param(
            ("--shares", "0.5,0.5", "--partitions", "3"), "give one of them", id="shares-disagree"
        ),
        pytest.param(("--mu", "0"), "mu is 0.0; it must be more than 0", id="mu-of-0"),
        pytest.param(("--mu", "nan"), "mu is nan", id="mu-of-nan"),
        pytest.param(("--slo", "99%"), "--slo: '99%' is not an SLO", id="no-slo"),
        pytest.param(("--slo", "99@1s"), "--slo: SLO percentile 99.0", id="a-slo-in-percent"),
        pytest.param(("--rebalance", "2"), "--rebalance: '2' is not a duration", id="no-unit"),
        pytest.param(("--startup", "-1s"), "--startup: '-1s' is not a duration", id="below-0"),
        pytest.param(("--handover", "slow"), "--handover: must be", id="no-such-hand-over"),
        pytest.param(("--arrivals", "fast"), "--arrivals: must be", id="no-such-arrivals"),
        pytest.param(("--heartbeat", "0s"), "heartbeat is 0.0; it must", id="no-heartbeat"),
        pytest.param(("--initial", "0"), "starts with 1 consumer or more", id="nobody"),
        pytest.param(("--seed", "-1"), "--seed: must be greater", id="a-seed-below-0"),
        pytest.param(("--out", "/proc/none/out"), "--out /proc/none/out: ", id="nowhere-to-write"),
    ],
)
def test_mistakes_get_one_line(
    srtm: Srtm, workload: Path, flags: tuple[str, ...], line: str
) -> None:
    answer = srtm("simulate", "--workload", workload, "--policy", "peak", *flags)
    assert (answer.code, answer.out) == (2, "")
    assert line in answer.err
    assert answer.err.startswith("srtm: ")
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("0,5\n1,nan\n", "line 2: nan events/s", id="nan"),
        pytest.param("0,5\n1,-5\n", "line 2: -5 events/s", id="below-0"),
        pytest.param("0,5\n1,5\n5,5\n", "line 3: 4 s after the row before it", id="a-hole"),
        pytest.param("", "no rows", id="empty"),
        pytest.param("1e12\n", "1e+12 events and a simulation holds 100,000,000", id="huge"),
    ],
)
def test_bad_workloads_get_one_line(srtm: Srtm, tmp_path: Path, text: str, line: str) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(text)
    answer = srtm("simulate", "--workload", file, "--policy", "peak")
    assert (answer.code, answer.out) == (2, "")
    assert line in answer.err
    assert answer.err.count("\n") == 1


@pytest.mark.parametrize("flag", ["--workload", "--policy"])
def test_what_is_required(srtm: Srtm, workload: Path, flag: str) -> None:
    given = {"--workload": str(workload), "--policy": "peak"}
    del given[flag]
    answer = srtm("simulate", *(part for pair in given.items() for part in pair))
    assert answer.code == 2
    assert f"{flag}: needed" in answer.err


# --- help, and what it loads ----------------------------------------------------------------------


def test_help_names_every_flag_and_default(srtm: Srtm) -> None:
    text = srtm("simulate", "--help").out
    for name in autoscale_command.simulate.params:
        assert name.opts[0] in text
    for default in ("200", "0.99@500ms", "500ms", "eager", "5s", "poisson", "100ms", "3s"):
        assert f"[default: {default}" in " ".join(text.split())


def test_the_list_of_commands_loads_no_numpy() -> None:
    code = (
        "import sys; sys.argv = ['srtm', '--help']\n"
        "from srtm.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "sys.exit('numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "autoscale" in done.stdout


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        pytest.param((), "give --contract rate=1000,burst=200", id="no-contract"),
        pytest.param(("--contract", "rate=100"), "--contract: burst: needed", id="half-of-one"),
        pytest.param(("--contract", "100,20"), "'100' is not one of rate, burst", id="no-words"),
    ],
)
def test_what_sizes_by_a_contract_needs_one(
    srtm: Srtm, tmp_path: Path, flags: tuple[str, ...], says: str
) -> None:
    file = tmp_path / "short.csv"
    file.write_text("20\n" * 5)
    answer = srtm("simulate", "--workload", file, "--policy", "contract", *flags)
    assert answer.code == 2
    assert says in answer.err
    assert answer.err.count("\n") == 1


def test_consumers_by_a_contract_are_simulated(srtm: Srtm, tmp_path: Path) -> None:
    """It names what would help, and what comes beyond the contract."""
    file = tmp_path / "short.csv"
    file.write_text("20\n" * 10 + "500\n" * 3)
    flags = ("--policy", "contract", "--mu", "50", "--contract", "rate=100,burst=200")
    answer = srtm("simulate", "--workload", file, *flags, "--shares", "0.6,0.4")
    assert answer.code == 0
    assert "contract: partition 0 has 60.0% of the contract rate=100,burst=200" in answer.out
    assert "make consumers faster" in answer.out
    assert "contract: more comes than the contract allows" in answer.out
