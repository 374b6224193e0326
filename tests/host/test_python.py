"""Programs that call one another."""

import subprocess
from pathlib import Path

from srtm.host.python import module


def test_no_module_is_taken_from_the_folder_that_a_program_runs_in(tmp_path: Path) -> None:
    for name in ("srtm", "six", "signal"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit(9)")
    command = [*module("srtm"), "--version"]
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 0
