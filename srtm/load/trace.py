"""Recorded workloads: CSV, events/s in the last column, one row for each second."""

import csv
from pathlib import Path

from srtm.host.files import open_rows
from srtm.text.errors import UsageError


def read_trace(path: Path) -> tuple[float, ...]:
    """The events/s of each second. Rows before the first figure are a header. Raises UsageError."""
    try:
        with open_rows(path) as file:
            rows = [(number, row) for number, row in enumerate(csv.reader(file), 1) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"trace {path}: {getattr(error, 'strerror', None) or error}") from None
    rates: list[float] = []
    for number, row in rows:
        try:
            rate = float(row[-1])
        except ValueError:
            if not rates:
                continue
            raise UsageError(
                f"trace {path}, line {number}: {row[-1]!r} is not a number of events/s"
            ) from None
        if not 0 <= rate < float("inf"):
            raise UsageError(f"trace {path}, line {number}: a rate cannot be {rate}")
        rates.append(rate)
    if not rates:
        raise UsageError(f"trace {path}: no line ends with a number of events/s")
    return tuple(rates)
