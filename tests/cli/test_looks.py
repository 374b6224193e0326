"""`--interval` and `--count`, and how often they let a command look."""

from itertools import islice

import click
import pytest
from click.testing import CliRunner

from srtm.cli.looks import Looks, count_option, default_count, looks_options


@pytest.mark.parametrize("count", [1, 2, 5])
def test_it_looks_so_often(count: int) -> None:
    assert len(list(Looks(0.0, count))) == count


def test_with_none_it_looks_for_ever() -> None:
    assert len(list(islice(Looks(0.0, 0), 1_000))) == 1_000


@click.command
@looks_options
def show(looks: Looks) -> None:
    click.echo(f"{looks.interval_seconds} {looks.count}")


@click.command
@count_option(in_pipe=3)
def watch(count: int | None) -> None:
    click.echo(default_count(3) if count is None else count)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        pytest.param([], "2.0 1\n", id="once-into-a-pipe"),
        pytest.param(["--interval=100ms"], "0.1 0\n", id="an-interval-is-meant-to-repeat"),
        pytest.param(["--interval=100ms", "--count=3"], "0.1 3\n", id="so-often"),
        pytest.param(["--count=0"], "2.0 0\n", id="for-ever"),
    ],
)
def test_what_the_options_give(arguments: list[str], says: str) -> None:
    assert CliRunner().invoke(show, arguments).stdout == says


def test_another_count_in_a_pipe() -> None:
    assert CliRunner().invoke(watch, []).stdout == "3\n"
    assert "3 in a pipe" in " ".join(CliRunner().invoke(watch, ["--help"]).stdout.split())
