"""Whatever a user names as a file, each reader ends with one line that says what is wrong."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from click.testing import CliRunner

from distributor.cli.offline import read_offline
from distributor.cli.topic_file import read_publishers, read_topic_file
from srtm.autoscaler.simulator.workload import read_workload
from srtm.bridge.file import read_bridge_file
from srtm.cli.main import cli
from srtm.consumer.file import read_group_file
from srtm.consumer.scaled_file import read_scaled_file
from srtm.correlation.result import read_result
from srtm.correlation.what_if import read_placement
from srtm.deploy.file import read_plan
from srtm.gateway.state import SavedState
from srtm.host.atomic import read_json
from srtm.host.files import MOST_DEPTH, json_of
from srtm.http.bearer import read_token
from srtm.load.trace import read_trace
from srtm.options.model import read_toml
from srtm.report.result import read as read_report
from srtm.testbed.inventory import read_inventory
from srtm.text.errors import SrtmError, UsageError
from tb_adaptor.share import Part
from tb_adaptor.simulator.files import read_arrivals, read_shares

TOML: dict[str, Callable[[Path], object]] = {
    "options": read_toml,
    "deployment": read_plan,
    "testbed": read_inventory,
    "topic": read_topic_file,
    "bridge": read_bridge_file,
    "group": read_group_file,
    "pool": read_scaled_file,
}
JSON: dict[str, Callable[[Path], object]] = {
    "offline": read_offline,
    "shares": lambda path: read_shares(path, Part(1, 1), ["b"]),
    "state": lambda path: SavedState.read(str(path)),
    "deployment-json": read_json,
    "report": read_report,
    "result": lambda path: read_result(path.rename(path.parent / "groups.json").parent),
    "publishers": lambda path: read_publishers(path.rename(path.parent / "p.jsonl"), None),
}
ROWS: dict[str, Callable[[Path], object]] = {
    "workload": read_workload,
    "trace": read_trace,
    "placement": read_placement,
    "arrivals": read_arrivals,
    "publishers-csv": lambda path: read_publishers(path.rename(path.parent / "p.csv"), None),
    "token": lambda path: read_token(str(path), "--token"),
}

DEEP = 100_000
NO_TOML = {
    "arrays": f"a = {'[' * DEEP}{']' * DEEP}",
    "tables": "a = " + "{a = " * DEEP + "1" + "}" * DEEP,
    "arrays-over-lines": "a = " + "[\n" * DEEP,
    "a-key-of-many-parts": "a." * DEEP + "a = 1",
    "a-quoted-key-of-many-parts": "\"a\" . 'b'." * DEEP + "a = 1",
    "a-header-of-many-parts": f"[{'a.' * DEEP}a]",
    "many-digits": f"a = {'7' * 50_000}",
    "some-digits": f"a = {'7' * 4_000}",
    "hexadecimal-digits": f"a = 0x{'f' * 50_000}",
    "half-a-text": 'a = "' + '\\"' * DEEP,
    "half-a-long-text": 'a = """' + '"\\' * DEEP,
    "a-nul": "a = 'x\0y'",
    "a-nul-spelt": 'a = "x\\u0000y"',
    "half-a-character": 'a = "\\ud800"',
    "five-megabytes": "".join(f"key{number} = 1\n" for number in range(400_000)),
}
NO_JSON = {
    "arrays": "[" * DEEP + "]" * DEEP,
    "objects": '{"a": ' * DEEP + "1" + "}" * DEEP,
    "many-digits": f'{{"a": {"7" * 50_000}}}',
    "some-digits": f'{{"a": {"7" * 4_000}}}',
    "half-a-character": '{"a": "\\ud800"}',
    "a-text": '"a"',
    "nothing": "",
}
NO_ROWS = {
    "a-field-of-megabytes": "a,b,c\n" + "x" * 3_000_000,
    "a-nul": "id,key,rate\nx\0,y,z",
    "many-digits": "seconds,broker,messages\n0," + "7" * 50_000,
    "nothing": "",
}
BYTES = {
    "utf-16": "a = 1\n".encode("utf-16"),
    "latin-1": "a = 'é'".encode("latin-1"),
    "no-text": bytes(range(256)),
}


def one_line(read: Callable[[Path], object], path: Path) -> str:
    with pytest.raises(SrtmError) as caught:
        read(path)
    said = str(caught.value)
    assert "\n" not in said
    assert len(said) < 500
    return said


def cases(readers: dict[str, Callable[[Path], object]], texts: dict[str, str]) -> list[object]:
    """Each text for one reader, and two of them for the others, which read the same way."""
    everything = {**{what: text.encode() for what, text in texts.items()}, **BYTES}
    few = {what: everything[what] for what in [*list(texts)[:1], "utf-16"]}
    return [
        pytest.param(read, content, id=f"{of}-{what}")
        for number, (of, read) in enumerate(readers.items())
        for what, content in (few if number and readers is TOML else everything).items()
    ]


@pytest.mark.parametrize(
    ("read", "content"), [*cases(TOML, NO_TOML), *cases(JSON, NO_JSON), *cases(ROWS, NO_ROWS)]
)
def test_a_bad_file_is_one_line(
    tmp_path: Path, read: Callable[[Path], object], content: bytes
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    path.chmod(0o600)
    if read is read_json and content == b'"a"':
        return  # it is JSON, and its callers say what they need
    one_line(read, path)


READERS = {**TOML, **JSON, **ROWS}
RENAMED = ("result", "publishers", "publishers-csv")


@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "missing"])
@pytest.mark.parametrize("of", [each for each in READERS if each not in RENAMED])
def test_what_is_no_file_is_one_line(tmp_path: Path, of: str, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path, 0o600)
    elif kind == "folder":
        path.mkdir()
    elif kind == "device":
        path.symlink_to("/dev/zero")
    if kind == "missing" and of in ("state", "deployment-json"):
        READERS[of](path)  # the first start
        return
    assert str(path) in one_line(READERS[of], path)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("\ufeffname = 'b'\r\n# a.b.[[[\r\n[table]\r\nx = 1\r\n", id="of-windows"),
        pytest.param("name = 'b'\n[table]\nx = 1", id="no-end-of-line"),
        pytest.param(f"name = 'b' #{'[.' * 999}\ntable = {{x = 1}}", id="brackets-in-a-comment"),
    ],
)
def test_toml_that_is_well(tmp_path: Path, text: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(text.encode())
    assert read_toml(file) == {"name": "b", "table": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(f"'{'[.' * 999}'", "[." * 999, id="brackets-in-a-text"),
        pytest.param('"\\"[[["', '"[[[', id="an-escaped-quote"),
        pytest.param(f'"""a"{"[{" * 99}""b"""', f'a"{"[{" * 99}""b', id="quotes-in-a-long-text"),
        pytest.param(f"'''a'{'.' * 99}'''", f"a'{'.' * 99}", id="dots-in-a-long-text"),
        pytest.param(f'"""a"{"[" * 99}"""""', f'a"{"[" * 99}""', id="quotes-at-its-end"),
        pytest.param(f"[{'1.5, ' * 999}]", [1.5] * 999, id="many-fractions"),
        pytest.param(str(2**63 - 1), 2**63 - 1, id="the-longest-integer"),
    ],
)
def test_what_looks_deep_and_is_not(tmp_path: Path, text: str, value: object) -> None:
    file = tmp_path / "file"
    file.write_text(f"a = {text}\n")
    assert read_toml(file) == {"a": value}


@pytest.mark.parametrize(
    "before", ["", '"""a"""", ', '"""a""""", ', "'''a'''', "], ids=["", "4-quotes", "5", "4-single"]
)
@pytest.mark.parametrize(("more", "taken"), [(0, True), (1, False)])
def test_how_deep_toml_may_be(tmp_path: Path, before: str, more: int, taken: bool) -> None:
    depth = MOST_DEPTH + more - 1
    file = tmp_path / "file"
    file.write_text(f"\n\na = [{before}{'[' * depth}{']' * depth}]")
    if taken:
        read_toml(file)
        return
    with pytest.raises(UsageError, match=r"deeper than 64 \(at line 3\)"):
        read_toml(file)


def test_a_big_file_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "file"
    with file.open("wb") as out:
        out.truncate(50 << 20)
    with pytest.raises(UsageError, match="file: it is bigger than the 4 MiB that are read"):
        read_toml(file)


def test_json_that_can_be_read_and_not_written_is_a_fault_of_its_own() -> None:
    """Python goes deeper as it reads than as it writes."""
    for depth in (100, 900, 1_000, 10_000, 50_000, 100_000, 200_000):
        with suppress(ValueError):
            json_of(f'{"[" * depth}"\\ud83d\\ude00"{"]" * depth}')


def test_json_with_a_mark_before_it() -> None:
    assert json_of('\ufeff{"a": "\\ud83d\\ude00"}'.encode()) == {"a": "\U0001f600"}


@pytest.mark.parametrize(
    "command",
    [
        "gateway --config",
        "distributor --config",
        "up --check",
        "testbed up --check",
        "bridge check",
        "consume",
        "autoscale run",
        "topic register",
        "placement plan --offline",
        "adaptor simulate --rate 1 --burst 1",
        "load --trace",
    ],
)
def test_every_command_says_so(tmp_path: Path, command: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = CliRunner().invoke(cli, [*command.split(), str(pipe)])
    assert isinstance(result.exception, UsageError), (result.output, result.exception)
    assert f"{pipe}: it is a pipe or a device" in str(result.exception)
