"""What the pages say: blocks can be pasted, links lead somewhere, tables are the code's."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.docs.generated import ROOT, pages, renewed
from tests.docs.runner import LANGUAGES, Block, blocks, cannot_run, needs_kafka, page_script, run

PAGES = [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages()]
_SETS_UP = "make "
"""Blocks of `make` are what this suite itself runs in."""


def runnable(page: Path) -> list[Block]:
    return [each for each in blocks(page.read_text()) if _SETS_UP not in each.text]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_says_what_it_is(page: Path) -> None:
    for block in blocks(page.read_text()):
        assert block.language in LANGUAGES, block.text
    assert page.read_text().count("```") == 2 * len(blocks(page.read_text()))


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES)
def test_generated_tables_are_those_of_the_code(page: Path) -> None:
    assert renewed(page.read_text()) == page.read_text(), "run make docs"


def test_no_figure_is_typed_beside_the_results_that_it_comes_from() -> None:
    text = (ROOT / "benchmarks/README.md").read_text()
    for made in (r"<!-- generated: .*?<!-- end -->", r"```.*?```", r"`[^`]*`"):
        text = re.sub(made, "", text, flags=re.S)
    assert (
        re.findall(r"\d[\d,.]* ?(?:[mu]?s|[kMG]i?B|%|x|/s|msg/s|messages|times)(?!\w)", text) == []
    )


def together() -> Iterator[Any]:
    """Pages with blocks that run; those that need a Kafka share one."""
    running = [page for page in pages() if any(each.runs for each in runnable(page))]
    with_kafka = [page for page in running if needs_kafka(runnable(page))]
    for some in [with_kafka, *([page] for page in running if page not in with_kafka)]:
        yield pytest.param(some, id="+".join(str(page.relative_to(ROOT)) for page in some))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("some", [*together()])
def test_every_block_works_when_it_is_pasted(
    some: list[Path], tmp_path_factory: pytest.TempPathFactory
) -> None:
    found = [runnable(page) for page in some]
    if why := next(filter(None, map(cannot_run, found)), ""):
        pytest.skip(why)
    folder = tmp_path_factory.mktemp("p")  # sockets' paths are short
    done = run(found, folder, 230)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 180


def test_the_changelog_is_in_sections() -> None:
    sections: list[list[str]] = []
    for line in (ROOT / "CHANGELOG.md").read_text().splitlines():
        if line.startswith("## "):
            sections.append([])
        elif line.startswith("### "):
            sections[-1].append(line.removeprefix("### "))
    assert sections
    for found in sections:
        assert found == [name for name in ("Added", "Changed", "Fixed") if name in found] != []


def test_a_server_is_waited_for() -> None:
    file = Block("toml", '# a.toml\nhttp-address = "127.0.0.1:9"\n')
    page = [file, Block("sh", "srtm up a.toml &   # until Ctrl-C\n")]
    assert page_script(page).splitlines()[-1] == "ready 9 4180"
