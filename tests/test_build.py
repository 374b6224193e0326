"""What is compiled is what is written, and what is documented is what is coded."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import click
import pytest

from benchmarks.__main__ import cli as benchmarks
from srtm.cli.main import cli as srtm
from tests.docs.generated import pages
from tests.support.programs import run_srtm

ROOT = Path(__file__).parent.parent
HOT = re.findall(r'^    "(.*\.py)",$', (ROOT / "setup.py").read_text(), re.M)
PRODUCT = {"srtm", "distributor", "tb_adaptor", "kernel"}
README = " ".join((ROOT / "README.md").read_text().split())


@pytest.mark.parametrize("module", [*HOT, "srtm/gateway/_sender.c"])
def test_a_compiled_module_is_not_older_than_its_source(module: str) -> None:
    source = ROOT / module
    for compiled in source.parent.glob(f"{source.stem}.cpython-*.so"):
        assert compiled.stat().st_mtime >= source.stat().st_mtime, "stale: run make setup"


def _srtm(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "srtm", *arguments], capture_output=True, text=True, cwd=ROOT
    )


@pytest.mark.parametrize(
    "command",
    [
        "gateway",
        "up",
        "topic",
        "distributor",
        "placement",
        "broker",
        "autoscale",
        "bridge",
        "correlate",
        "stat",
        "load",
        "demo",
    ],
)
def test_every_command_has_help_and_is_in_the_readme(command: str) -> None:
    shown = _srtm(command, "--help")
    assert shown.returncode == 0
    assert len(shown.stdout.splitlines()) > 5
    assert f"srtm {command}" in README


def _flags(command: click.Command) -> set[str]:
    """Of a command and of all below it."""
    own = {flag for each in command.params for flag in each.opts}
    if not isinstance(command, click.Group):
        return own
    context = click.Context(command)
    below = [command.get_command(context, name) for name in command.list_commands(context)]
    return own.union(*(_flags(each) for each in below if each))


def test_every_flag_of_the_pages_exists() -> None:
    of_others = {"--broadcast-address", "--broadcast-tcp-port", "--broadcast-http-port",
                 "--data-path", "--node-id", "--mem-queue-size", "--max-msg-size",
                 "--max-body-size",
                 "--master", "--help"}  # fmt: skip
    found = {
        flag
        for page in pages()
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z0-9-]+", page.read_text())
    }
    assert found - _flags(srtm) - _flags(benchmarks) - of_others == set()


def test_the_targets_of_the_readme_are_in_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for target in re.findall(r"`?make ([a-z]+)", README):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_nothing_heavy_is_imported_by_the_core() -> None:
    code = "import srtm.gateway.server, sys; print([m for m in sys.modules if m.split('.')[0] in "
    code += "('scipy', 'matplotlib', 'pyspark', 'kafka', 'pandas', 'pyarrow')])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert shown.stdout.strip() == "[]", shown.stderr


def test_a_wheel_has_the_product_and_its_extras_and_no_benchmarks(tmp_path: Path) -> None:
    copy, wheels = tmp_path / "copy", tmp_path / "wheels"
    for part in (*PRODUCT, "benchmarks", "tests"):
        shutil.copytree(
            ROOT / part, copy / part, ignore=shutil.ignore_patterns("*.so", "__pycache__")
        )
    for file in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, copy)
    build = [*(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
             *("--no-build-isolation", "--wheel-dir", str(wheels), str(copy))]  # fmt: skip
    environment = {**os.environ, "SRTM_COMPILE": "0"}
    subprocess.run(build, check=True, capture_output=True, env=environment, timeout=110)
    [file] = wheels.glob("srtm-*.whl")
    with zipfile.ZipFile(file) as wheel:
        names = {name.split("/")[0] for name in wheel.namelist()}
        [metadata] = [name for name in wheel.namelist() if name.endswith("/METADATA")]
        assert b"Provides-Extra: plots" in wheel.read(metadata)
    assert {name for name in names if ".dist-info" not in name} == PRODUCT
    shown = [*(sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--no-index"),
             f"{file}[plots]"]  # fmt: skip
    subprocess.run(shown, check=True, capture_output=True, timeout=60)


def test_the_shell_completes_commands() -> None:
    program = Path(sys.executable).with_name("srtm")
    words = {"COMP_WORDS": "srtm sta", "COMP_CWORD": "1", "_SRTM_COMPLETE": "bash_complete"}
    shown = subprocess.run([program], env={**os.environ, **words}, capture_output=True, text=True)
    assert shown.stdout == "plain,stat\n"
    assert "_SRTM_COMPLETE=bash_source" in README


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("gatway",), "srtm: No such command 'gatway' (did you mean 'gateway'?); see srtm --help"),
        (("topic", "lst"), "No such command 'lst' (did you mean 'list'?); see srtm topic --help"),
        (("xyzzy",), "srtm: No such command 'xyzzy'; see srtm --help"),
    ],
)
def test_a_wrong_command_is_told_which_one_it_looks_like(given: tuple[str, ...], said: str) -> None:
    answer = run_srtm(*given)
    assert answer.returncode == 2
    assert said in answer.stderr


@pytest.mark.parametrize("group", ["topic", "placement", "broker", "autoscale", "testbed"])
def test_help_cuts_no_sentence(group: str) -> None:
    assert "..." not in run_srtm(group, "--help").stdout.partition("Commands:")[2]
