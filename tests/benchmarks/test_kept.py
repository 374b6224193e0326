"""What is kept of a run, and the page made from it."""

import json
from pathlib import Path

import pytest

from benchmarks.harness.bars import judge
from benchmarks.harness.report import Report, table
from benchmarks.harness.session import Session
from benchmarks.kept import PAGE, keep, page
from srtm.text.errors import UsageError


def test_the_page_in_the_repository_is_made_from_the_results_there() -> None:
    assert PAGE.read_text() == page()


def test_a_result_is_kept_and_shown_with_its_bars(tmp_path: Path) -> None:
    shown = table("shares", "policy", "p99 | ms")
    shown.add_row("srtm", "1.5")
    shown.add_row("", "")
    bars = [judge("p99", [1.0, 2.0, 4.0], at_most=1.5), judge("rate", [], at_least=1)]
    report = Report({"seeds": 3}, {"all": [1, 2]}, bars, [shown], ["a note"])
    document = Session(True, tmp_path).document("adaptor", report, "how shares follow", "by <i>")
    run = tmp_path / "run.json"
    run.write_text(json.dumps(document))
    kept = keep(run, tmp_path / "results")
    assert kept.name == "adaptor.json"
    assert "figures" not in json.loads(kept.read_text())
    text = page(tmp_path / "results")
    assert "## adaptor: how shares follow" in text
    assert "by &lt;i>" in text
    assert "--quick" in text
    assert "| policy | p99 \\| ms |\n|---|---|\n| srtm | 1.5 |\n" in text
    assert "| p99 | 2 | 1 .. 4 | <= 1.5 | **missed** |" in text
    assert "undecided: not measured" in text
    assert text.endswith("- a note\n")
    assert keep(kept, tmp_path / "again").read_text() == kept.read_text()


def test_a_file_that_is_no_result_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    file.write_text("{}")
    with pytest.raises(UsageError, match="not a result"):
        keep(file, tmp_path)
