"""Other people's files made a trace: times and units, odd rows, and the same rows in every form."""

import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from srtm.correlation.trace import open_trace
from srtm.text.errors import SrtmError, UsageError
from srtm.traces.foreign import sources
from srtm.traces.foreign.importing import Columns, Imported, Request, import_rows
from srtm.traces.foreign.sources import How
from srtm.traces.foreign.times import (
    LAST_NS,
    NOT_A_TIME,
    NS,
    OUT_OF_RANGE,
    nanoseconds,
    unit_of,
)
from tests.support.planted import planted
from tests.support.small_disk import fill, small_disk

PLANTED = planted(5, sizes=(4,), alone=2, bursts=10)
COLUMNS = Columns("time", "publisher", "topic", "bytes", "broker")


def taken(tmp_path: Path, text: str, name: str = "a.csv", **more: Any) -> Imported:
    path = tmp_path / name
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    columns = more.pop("columns", Columns("at", "who"))
    return import_rows(Request([path], tmp_path / "trace", columns, **more))


def reasons(made: Imported) -> dict[str, int]:
    return {why: found.rows for why, found in made.odd.reasons.items()}


def texts(*values: str | None) -> pa.Array:
    return pa.array(values, pa.string())


@pytest.mark.parametrize("unit", NS)
@given(ns=st.integers(0, LAST_NS))
def test_every_ns_is_read_from_its_decimals(unit: str, ns: int) -> None:
    written = f"{Decimal(ns) / NS[unit]:f}"
    spaced = f" {written}\t"
    exponent = f"{Decimal(ns) / NS[unit]:e}"
    found = nanoseconds(texts(written, spaced, exponent, None), unit)
    assert found.tolist() == [ns, ns, ns, NOT_A_TIME]


@given(ns=st.integers(0, LAST_NS - 1))
def test_every_ns_is_read_from_iso_8601(ns: int) -> None:
    date = str(np.datetime64(ns, "ns"))
    east = str(np.datetime64(ns + 5_400 * 10**9, "ns")) + "+01:30"
    forms = [date, date.replace("T", " "), f"{date}Z", east, east[:-3] + east[-2:]]
    assert nanoseconds(texts(*forms), "").tolist() == [ns] * len(forms)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("", NOT_A_TIME),
        ("NaN", NOT_A_TIME),
        ("inf", NOT_A_TIME),
        ("1e999999", OUT_OF_RANGE),
        ("-1", OUT_OF_RANGE),
        ("4102444801", OUT_OF_RANGE),
        ("9" * 19, OUT_OF_RANGE),
        ("9" * 400, OUT_OF_RANGE),
        ("0x10", NOT_A_TIME),
        ("1,5", NOT_A_TIME),
        ("2024-13-01T00:00:00", NOT_A_TIME),
        ("2024-01-01", NOT_A_TIME),
        ("1969-12-31T23:59:59Z", OUT_OF_RANGE),
        ("2100-01-02 00:00", OUT_OF_RANGE),
    ],
)
def test_what_is_no_time(text: str, found: int) -> None:
    good = "2024-01-01T00:00:00"
    assert nanoseconds(texts(text, good), "s").tolist() == [found, 1_704_067_200 * 10**9]


@pytest.mark.parametrize("values", [[2**62], [-5], [None]])
def test_whole_numbers_out_of_range(values: list[int | None]) -> None:
    (found,) = nanoseconds(pa.array(values, pa.int64()), "s").tolist()
    assert found == (NOT_A_TIME if values == [None] else OUT_OF_RANGE)


def test_other_types_of_parquet() -> None:
    at = 1_700_000_000_123
    expected = [at * 10**6]
    assert nanoseconds(pa.array([at], pa.timestamp("ms")), "").tolist() == expected
    assert nanoseconds(pa.array([at], pa.timestamp("ms", "Asia/Tokyo")), "").tolist() == expected
    assert nanoseconds(pa.array([at], pa.uint64()), "ms").tolist() == expected
    (of_float,) = nanoseconds(pa.array([at / 1e3, float("nan")]), "s").tolist()[:1]
    assert abs(of_float - expected[0]) < 1_000


@pytest.mark.parametrize("unit", NS)
def test_the_unit_of_today_s_numbers_is_found(unit: str) -> None:
    for seconds in (200_000_000, 1_700_000_000, 4_000_000_000):
        number = seconds * (NS["s"] // NS[unit])
        assert unit_of(pa.array([number, number + 1, None], pa.int64())) == unit
        assert unit_of(texts(str(number), f"{number}.5", "none")) == unit


@pytest.mark.parametrize("values", [["0.5", "1.5"], ["0", "0"], ["99999999"], ["5000000000"]])
def test_no_unit_is_guessed(values: list[str]) -> None:
    assert unit_of(texts(*values)) is None


def test_no_unit_is_obvious(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"a\.csv: column 'at' has times like 0\.5.*say --unit"):
        taken(tmp_path, "at,who\n0.5,a\n1.5,b\n")
    assert not list((tmp_path / "trace").iterdir())
    assert taken(tmp_path, "at,who\n0.5,a\n1.5,b\n", unit="s").first_ns == 5 * 10**8


def csv_of(table: pa.Table, path: Path) -> None:
    pacsv.write_csv(table, path)


def json_of(table: pa.Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()))


def zipped(table: pa.Table, path: Path) -> None:
    csv_of(table, path.with_suffix(""))
    path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))


def nested(table: pa.Table, path: Path) -> None:
    rows = ({"time": row.pop("time"), "of": row} for row in table.to_pylist())
    path.write_text("".join(json.dumps(row) + "\r\n" for row in rows))


def nested_parquet(table: pa.Table, path: Path) -> None:
    others = table.drop_columns(["time"])
    pq.write_table(
        pa.table({"time": table["time"], "of": others.to_struct_array()}), path, row_group_size=50
    )


WITHIN = Columns("time", "of.publisher", "of.topic", "of.bytes", "of.broker")


@pytest.mark.parametrize(
    ("name", "write", "columns"),
    [
        ("a.csv", csv_of, COLUMNS),
        ("a.csv.gz", zipped, COLUMNS),
        ("a.ndjson", json_of, COLUMNS),
        ("a.jsonl", nested, WITHIN),
        ("a.parquet", lambda table, path: pq.write_table(table, path), COLUMNS),
        ("b.parquet", nested_parquet, WITHIN),
    ],
)
def test_a_trace_comes_back_from_every_form(
    tmp_path: Path, name: str, write: Any, columns: Columns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "BATCH_ROWS", 64)
    table = PLANTED.table(brokers=("b0", "b1"))
    write(table, tmp_path / name)
    made = import_rows(Request([tmp_path / name], tmp_path / "trace", columns))
    assert made.file is not None
    assert not made.odd.reasons
    # What reads traces takes it for one, and it holds the same rows.
    assert open_trace(tmp_path / "trace").rows == made.rows == len(table)
    order = [(each, "ascending") for each in table.column_names]
    assert pq.read_table(made.file).sort_by(order).to_pylist() == table.sort_by(order).to_pylist()


def test_odd_rows_are_counted_by_reason(tmp_path: Path) -> None:
    text = (
        "at,who,n\n1700000000,a,1\nx,a,1\n-1,a,1\n1700000001,,1\n1700000002,b,-1\n"
        '1700000003,"b\nb",\n1,2\n1700000004,\udcff,1\n\n'
    )
    made = taken(tmp_path, text, columns=Columns("at", "who", size="n"))
    assert made.rows == 2
    assert reasons(made) == {
        "not 3 columns": 1,
        "at is no time in s": 1,
        "at is before 1970 or after 2100": 1,
        "who is empty, or no text": 2,
        "n is no number of bytes": 1,
    }
    assert "1 row left out: at is no time in s, such as 'x'" in made.odd.lines()


def test_odd_lines_of_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MOST_LINE_BYTES", 1 << 20)
    good = '{"at": 1700000000, "who": "a"}'
    lines = [
        good, "[1]", '{"at": 1700000000', '{"at": true, "who": "a"}', '{"who": "a"}',
        '{"at": 1700000000, "who": "\\ud800"}', '{"at": 1700000000, "who": {"a": 1}}',
        "[" * 100_000, '{"at": 1700000000, "who": "' + "x" * (9 << 20) + '"}', good,
    ]  # fmt: skip
    made = taken(tmp_path, "\n".join(lines), "a.jsonl")
    assert made.rows == 2
    assert reasons(made) == {
        "a line that is no JSON object": 3,
        "a line of more than 1 MiB": 1,
        "at is no time in s": 2,
        "who is empty, or no text": 2,
    }


def test_names_are_cut_and_numbers_are_names(tmp_path: Path) -> None:
    made = taken(tmp_path, f"1700000000;7\n1700000001;{'é' * 300}\n", how=How(None, ";", False),
                 columns=Columns("1", "2"), as_topic="sensors")  # fmt: skip
    assert made.file is not None
    rows = pq.read_table(made.file).to_pylist()
    assert [row["publisher"] for row in rows] == ["7", "é" * 256]
    assert {row["topic"] for row in rows} == {"sensors"}
    assert made.step_ns == 10**9


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.csv", "at,b\n1700000000,x\n", r"a\.csv: no column 'who'; it has at, b"),
        ("a.csv", "", r"a\.csv: it cannot be read as csv: Empty CSV file"),
        ("a.csv", "at,who\n", "no row can be taken: there is none"),
        ("a.csv", "at,who\n,a\n", "no row can be taken: 1 row left out: at is no time, such as ''"),
        ("a.parquet", "at,who\n", r"a\.parquet: it cannot be read as parquet"),
        ("a.csv.gz", "at,who\n", r"a\.csv\.gz: .*"),
        ("a.log", "at,who\n", r"a\.log: its name tells no format; say --format"),
        ("a.csv", f"at,who\n1700000000,{'x' * (9 << 20)}\n", r"a\.csv: it cannot be read as csv"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, name: str, text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as error:
        taken(tmp_path, text, name)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 500
    assert not list((tmp_path / "trace").iterdir())


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        ("at", pa.array([True]), "column 'at' is bool, which is no time"),
        ("at", pa.array([[1]]), r"no column 'at'; it has at\.list\.element, who"),
        ("who", pa.array([1.5]), "column 'who' is double, which is no name"),
    ],
)
def test_columns_of_a_wrong_type(tmp_path: Path, name: str, values: pa.Array, said: str) -> None:
    columns = {"at": pa.array([1_700_000_000]), "who": pa.array(["a"])} | {name: values}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match=said):
        import_rows(Request([tmp_path / "a.parquet"], tmp_path / "trace", Columns("at", "who")))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.csv: No such file or directory"):
        import_rows(Request([tmp_path / "none.csv"], tmp_path / "trace", Columns("at", "who")))


def test_rows_are_not_imported_twice(tmp_path: Path) -> None:
    taken(tmp_path, "at,who\n1700000000,a\n")
    with pytest.raises(UsageError, match=r"holds imported-0000000001\.parquet already"):
        taken(tmp_path, "at,who\n1700000000,a\n")


def test_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    rows = "".join(f"{1_700_000_000 + n},p{n * 7919 % 10_007}\n" for n in range(50_000))
    (tmp_path / "a.csv").write_text("at,who\n" + rows)
    with small_disk(tmp_path / "disk", "256k") as disk:
        (disk / "trace").mkdir()
        fill(disk)
        request = Request([tmp_path / "a.csv"], disk / "trace", Columns("at", "who"))
        with pytest.raises(SrtmError, match=r"--trace .*: No space left on device"):
            import_rows(request)
        assert not list((disk / "trace").iterdir())
