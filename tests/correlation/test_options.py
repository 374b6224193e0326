"""The flags of `envelope`, `statistics` and `what-if`: read, and refused before Spark starts."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from srtm.correlation.correlate_command import correlate
from srtm.text.errors import UsageError


def refused(command: str, *flags: str, **variables: str) -> str:
    done = CliRunner().invoke(correlate, [command, *flags], env=variables)
    assert isinstance(done.exception, UsageError)
    assert "\n" not in str(done.exception)
    return str(done.exception)


@pytest.mark.parametrize(
    ("command", "flags", "said"),
    [
        pytest.param("envelope", [], "--trace: needed", id="no-trace"),
        pytest.param("envelope", ["--trace=d", "--by=room"], "--by: ", id="no-such-by"),
        pytest.param("envelope", ["--trace=d", "--headroom=1"], "--headroom: ", id="no-headroom"),
        pytest.param("envelope", ["--trace=d", "--groups=g"], "--by group and", id="half-a-pair"),
        pytest.param("envelope", ["--trace=d", "--by=group"], "DIR go together", id="no-groups"),
        pytest.param("statistics", ["--trace=d", "--slo=soon"], "--slo: ", id="no-slo"),
        pytest.param("statistics", ["--trace=d", "--most=0"], "--most: ", id="none"),
        pytest.param("what-if", ["--trace=d", "--rate=0", "--burst=1"], "--rate: ", id="no-rate"),
        pytest.param("what-if", ["--trace=d", "--rate=5"], "one contract", id="no-burst"),
        pytest.param("what-if", ["--trace=d", "--rate=5", "--burst=5"], "by --topic", id="whose"),
    ],
)
def test_a_wrong_flag_is_one_line(command: str, flags: list[str], said: str) -> None:
    assert said in refused(command, *flags)


def test_a_file_and_the_environment_are_read_too(tmp_path: Path) -> None:
    file = tmp_path / "needs.toml"
    file.write_text('trace = "nowhere"\nmost = 0\n')
    assert f"{file}: most: " in refused("statistics", f"--config={file}")
    assert "--most: " in refused("statistics", "--trace=d", SRTM_CORRELATE_STATISTICS_MOST="0")
