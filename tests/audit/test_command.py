"""`srtm audit`: what it prints, its exit codes, and what is said of a slip."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from srtm.audit.audit_command import audit
from srtm.text.errors import UsageError
from tests.support.admission_logs import Disk, log_of, share

NS = 1_000_000_000
OFFSET = 1_790_000_000 * NS


def run(*words: str | Path) -> Result:
    return CliRunner().invoke(audit, list(map(str, words)))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve messages within 10 ms, a quarter of a second later; b = 10 and r = 100/s."""
    log = log_of(Disk(tmp_path))
    log.clock(OFFSET, 16 * NS)
    log.say(b"t", share(100.0, 10.0, (100.0, 10.0)), NS)
    for k in range(12):
        log.admit(b"t", NS + NS // 4 + k * NS // 1000, 1)
    log.flush(2 * NS, is_end=True)
    return tmp_path


def test_an_excess_is_exit_code_1_with_its_place_and_its_length(folder: Path) -> None:
    found = run("t", folder)
    assert found.exit_code == 1
    lines = found.output.splitlines()
    assert lines[0].startswith("topic t: 12 messages, 2026-09-21T14:13:21.000000Z to ")
    assert lines[1] == "  b1: 12 messages, 1 process, 0.9 over its own share"
    assert lines[2] == (
        "contract: 100/s, burst 10 from 2026-09-21T14:13:21.000000Z, told by the Load Distributor"
    )
    assert lines[3] == "excess: 0.9 messages; the contract was EXCEEDED"
    assert lines[4] == (
        "  fullest interval: 12 messages in 0.011 s from 2026-09-21T14:13:21.250000Z; "
        "b + r t is 11.1"
    )
    assert len(lines) == 5


def test_json_is_one_object(folder: Path) -> None:
    document = json.loads(run("t", folder, "--json").output)
    assert document["excess"] == pytest.approx(0.9)
    assert document["exceeded"] is True
    assert document["complete"] is True
    assert document["gaps"] == []
    assert document["interval"]["since"] == pytest.approx(1_790_000_001.25)
    assert document["interval"]["seconds"] == pytest.approx(0.011)
    assert document["interval"]["messages"] == 12
    assert document["interval"]["allowed"] == pytest.approx(11.1)
    assert document["contract"] == [
        {"since": 1_790_000_001.0, "source": "distributor", "rate": 100.0, "burst": 10.0}
    ]
    assert document["brokers"]["b1"]["messages"] == 12


def test_a_contract_that_is_given_counts(folder: Path) -> None:
    kept = run("t", folder, "--rate", "100", "--burst", "11")
    assert kept.exit_code == 0
    assert "excess: 0 messages; the contract was kept" in kept.output
    assert "given" in kept.output


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        pytest.param(["--rate", "5"], "--rate and --burst go together", id="rate-alone"),
        pytest.param(["--burst", "5"], "--rate and --burst go together", id="burst-alone"),
        pytest.param(["--rate", "0", "--burst", "5"], "--rate 0", id="no-rate"),
        pytest.param(["--rate", "nan", "--burst", "5"], "--rate nan", id="rate-is-no-number"),
        pytest.param(["--rate", "5", "--burst", "0.5"], "--burst 0.5", id="less-than-a-message"),
        pytest.param(["--rate", "5", "--burst", "inf"], "--burst inf", id="endless-burst"),
        pytest.param(["--clock-error", "5"], "--clock-error: '5' is not a duration", id="no-unit"),
    ],
)
def test_a_slip_is_one_line(folder: Path, flags: list[str], words: str) -> None:
    found = run("t", folder, *flags)
    assert isinstance(found.exception, UsageError)
    assert words in str(found.exception)
    assert "\n" not in str(found.exception)
