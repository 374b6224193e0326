"""The demo, shortened: real brokers, one topic over 1, 2 and 3 of them."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers import program


@pytest.mark.timeout(120)
def test_the_demo_compares_one_two_and_three_brokers_and_draws_it(tmp_path: Path) -> None:
    program("nsqd")
    plot = tmp_path / "demo.png"
    shown = subprocess.run(
        [sys.executable, "-m", "srtm", "demo", "--seconds", "3", "--out", str(plot)],
        capture_output=True,
        text=True,
        timeout=110,
    )
    assert shown.returncode == 0, shown.stderr + shown.stdout
    rows = [
        line.split()
        for line in shown.stdout.splitlines()
        if line.split()[:1] in (["1"], ["2"], ["3"])
    ]
    rows = [row for row in rows if row[5] in ("met", "missed")]
    assert [row[0] for row in rows] == ["1", "2", "3"]
    waits = {row[0]: float(row[6]) for row in rows}
    predicted = {row[0]: float(row[7]) for row in rows}
    # The same arrivals through a bucket on paper: what was measured is what was predicted, up to
    # the moments at which a busy machine really sent.
    assert waits["3"] == pytest.approx(predicted["3"], rel=0.2, abs=0.5)
    assert waits["1"] <= waits["3"] + 0.01
    assert plot.read_bytes().startswith(b"\x89PNG")
