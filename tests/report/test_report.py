"""Results of benchmarks as a page and as Markdown."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from srtm.report.report_command import HTML, MARKDOWN, report
from srtm.report.result import MOST_BYTES
from srtm.text.errors import UsageError
from tests.support.browser import document_of
from tests.support.results import bar, result, written

HOSTILE = '<script>document.title="run"</script><img src=x onerror=alert(1)>"\'&amp;'

FOUR = (
    result("adaptor", bar("p99, ms", 3.0, 2.0, False), bar("moves", 1.0, 2.0, True)),
    result("bridge", bar("lost", None, 1.0, None, "not measured")),
    result("packing", bar("seconds", 0.5, 2.0, True)),
    result("landau"),
)


def made(folder: Path, *arguments: str) -> tuple[Result, str, str]:
    done = CliRunner().invoke(report, [str(folder), *arguments], catch_exceptions=False)
    return done, (folder / HTML).read_text(), (folder / MARKDOWN).read_text()


def test_a_missed_bar_is_seen_at_once(tmp_path: Path) -> None:
    done, html, text = made(written(tmp_path, *FOUR))
    assert "missed: adaptor: p99, ms" in done.stdout
    head = html.partition("All results")[0]
    assert re.findall(r'class="chip (\w+)">(.*?)<', head) == [
        ("missed", "1 missed"),
        ("undecided", "1 undecided"),
        ("met", "2 met"),
    ]
    assert html.count('class="missed-row"') == 2  # in the index, and its own
    assert "| [adaptor](#adaptor-what-adaptor-shows) | 2 | 1 | **1** | 0 |" in text
    assert "| p99, ms | 3 | 2.7 .. 3.6 | <= 2 | **missed** |" in text
    assert "undecided: not measured" in text


def test_machine_commit_method_and_settings_are_there(tmp_path: Path) -> None:
    _, html, text = made(written(tmp_path, FOUR[0]))
    for page in (html, text):
        for said in ("AMD EPYC", "0123456, changed", "One thing in turns", "2026-11-25", "0.4"):
            assert said in page
    assert "rounds = 3" in html
    assert "24 GiB" in html or "25 GiB" in html
    assert "All results" not in html  # of one there is no index


def test_what_is_no_result_is_left_out_and_named(tmp_path: Path) -> None:
    written(tmp_path, FOUR[2])
    (tmp_path / "cut.json").write_text('{"benchmark": "adap')
    (tmp_path / "other.json").write_text('{"topics": []}')
    done, html, _ = made(tmp_path)
    lines = done.stderr.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith(f"left out: {tmp_path}/cut.json: not a result of")
    assert "2 files left out" in html
    assert "other.json" in html


def _changed(**fields: Any) -> str:
    return json.dumps(result("adaptor", bar("x", 1.0, 2.0, True)) | fields)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "no results there", id="an-empty-folder"),
        pytest.param("", "not a result", id="an-empty-file"),
        pytest.param("[1, 2]", "not a result", id="a-list"),
        pytest.param("\x00\xff", "not a result", id="no-JSON"),
        pytest.param(_changed(bars=[{"name": "x", "met": "perhaps"}]), "bars.0.met", id="a-word"),
        pytest.param(_changed(bars=[{"name": "x", "value": float("nan")}]), "bars.0.value",
                     id="not-a-number"),
        pytest.param(_changed(tables=[{"columns": "x", "rows": []}]), "tables.0.columns",
                     id="a-table-of-letters"),
        pytest.param("[" * 100_000, "not a result", id="deep"),
    ],
)  # fmt: skip
def test_where_nothing_can_be_read_one_line_says_so(
    tmp_path: Path, text: str | None, said: str
) -> None:
    if text is not None:
        (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=said) as found:
        made(tmp_path)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 700
    assert not (tmp_path / HTML).exists()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "x.json").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(UsageError, match=r"x\.json: it is bigger than the 64 MiB that are read"):
        made(tmp_path)


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such folder"):
        made(tmp_path / "none")


def test_a_plot_is_inside_the_page_if_it_is_one(tmp_path: Path) -> None:
    written(tmp_path, *FOUR[:2])
    (tmp_path / "adaptor.png").write_bytes(b"\x89PNG\r\n\x1a\nrest")
    (tmp_path / "bridge.png").write_text("<svg onload=alert(1)>")
    _, html, _ = made(tmp_path)
    assert html.count("<img") == 1
    assert 'src="data:image/png;base64,iVBORw0KGgpyZXN0"' in html


def hostile() -> dict[str, Any]:
    found = result(
        "adaptor",
        bar(HOSTILE, 1.0, 2.0, False, HOSTILE),
        shows=HOSTILE,
        method=HOSTILE,
        started_at=HOSTILE,
        settings={HOSTILE: HOSTILE},
        notes=[HOSTILE],
        commit={"id": HOSTILE},
        tables=[{"title": HOSTILE, "columns": [HOSTILE], "rows": [[HOSTILE]]}],
    )
    found["benchmark"] = HOSTILE
    found["machine"]["cpu"] = HOSTILE
    return found


def test_no_name_becomes_html(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(json.dumps(hostile()))
    _, html, text = made(tmp_path, "--title", HOSTILE)
    for page in (html, text):
        assert "<script" not in page
        assert "<img" not in page
    assert "&lt;script" in html
    assert "http" not in html.replace("http-equiv", "")  # nothing is loaded


def test_the_real_browser_shows_it_and_runs_nothing(tmp_path: Path) -> None:
    written(tmp_path, *FOUR)
    (tmp_path / "x.json").write_text(json.dumps(hostile()))
    _, html, _ = made(tmp_path)
    shown = document_of(tmp_path / HTML, tmp_path / "profile")
    assert "<title>Results</title>" in shown
    for element in ("<section", "<svg", "<tr", "<text", "<circle", "<path"):
        assert shown.count(element) == html.count(element)
    assert "<script" not in shown
    assert "<img" not in shown
