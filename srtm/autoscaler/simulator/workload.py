"""Workloads: one rate (events/s) for each second, read from a file or generated."""

import csv
import math
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import numpy as np

from srtm.host.files import open_rows
from srtm.text.errors import UsageError

_STEP_ERROR = 0.5
"""seconds; clocks that write a row a second are not that far off"""


def read_workload(path: Path) -> list[float]:
    """The last column of a CSV file, one row a second, with or without a header.

    Raises UsageError with the line: a value that is no rate, an empty line between rows, or a first
    column of times (seconds, milli-, micro- or nanoseconds since 1970, or dates as ISO 8601) whose
    rows are not a second apart: another step is another workload, and a gap is a missing row.
    """
    rows: list[tuple[int, list[str]]] = []
    try:
        with open_rows(path) as file:
            reader = csv.reader(file)
            for row in reader:
                rows.append((reader.line_num, [cell.strip() for cell in row]))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: not a CSV file") from error
    while rows and not any(rows[-1][1]):
        rows.pop()
    if rows and any(rows[0][1]) and all(_time(cell) is None for cell in rows[0][1]):
        rows.pop(0)  # the header
    if not rows:
        raise UsageError(f"{path}: no rows; one row a second is needed, last column events/s")
    rates = [_rate(f"{path}, line {number}", row) for number, row in rows]
    _check_times(path, rows)
    return rates


def _rate(where: str, row: list[str]) -> float:
    if not any(row):
        raise UsageError(f"{where}: an empty line; a second without events is a row with 0")
    try:
        rate = float(row[-1])
    except ValueError:
        raise UsageError(
            f"{where}: {row[-1]!r} is not a number; the last column is events/s"
        ) from None
    if not 0 <= rate < math.inf:
        raise UsageError(f"{where}: {rate:g} events/s; a rate is 0 or more, and finite")
    return rate


def _check_times(path: Path, rows: list[tuple[int, list[str]]]) -> None:
    times = [(number, _time(row[0])) for number, row in rows if len(row) > 1]
    known = [(number, time) for number, time in times if time is not None]
    if len(known) < len(rows):
        return  # the first column is something else
    usual = known[1][1] - known[0][1] if len(known) > 1 else 1.0
    if usual > 0 and abs(usual - 1.0) > _STEP_ERROR:  # else the column is something else
        raise UsageError(
            f"{path}: its rows are {usual:g} s apart; one row a second is needed: repeat each rate "
            "for every second of its time, or leave the times out to take a row for a second"
        )
    for (_, before), (number, time) in pairwise(known):
        if abs(time - before - usual) > usual / 2:
            raise UsageError(
                f"{path}, line {number}: {time - before:g} s after the row before it; one row a "
                "second is needed, also where nothing came"
            )


def _time(cell: str) -> float | None:
    """Seconds; None where the cell is no time."""
    try:
        return _seconds(float(cell))
    except ValueError:
        pass
    try:
        date = datetime.fromisoformat(cell)
    except ValueError:
        return None
    # Without a zone, a change to summer time must not look like an hour of missing rows.
    return (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()


def _seconds(number: float) -> float:
    """A number of seconds since 1970 has at most ten digits until the year 2286; a longer one is of
    milli-, micro- or nanoseconds."""
    for unit in (1e9, 1e6, 1e3):
        if abs(number) >= 1e8 * unit:
            return number / unit
    return number


def iot_like(seconds: int = 600, peak: float = 350.0) -> list[float]:
    """A day of devices in ten minutes: up in two steps to `peak`, a plateau, and down again; the
    shape of the first workload of CLOSER and ICCBDC."""
    shape = [
        (0.0, 0.0), (0.05, 0.12), (0.12, 0.35), (0.22, 0.32), (0.35, 0.8), (0.45, 1.0),
        (0.6, 0.95), (0.7, 0.55), (0.8, 0.6), (0.9, 0.25), (1.0, 0.02),
    ]  # fmt: skip
    at, level = zip(*shape, strict=True)
    time = (np.arange(seconds) + 0.5) / seconds
    return [float(rate) for rate in peak * np.interp(time, at, level)]


def taxi_like(seconds: int = 7200, mean: float = 182.0, seed: int = 1) -> list[float]:
    """Slow waves with noise of a few percent: the shape of CLOSER's second workload."""
    random = np.random.default_rng(seed)
    time = np.arange(seconds) / seconds
    wave = 1 + 0.55 * np.sin(2 * np.pi * (2.2 * time - 0.2)) + 0.25 * np.sin(2 * np.pi * 7.3 * time)
    noise = random.normal(0, 0.03, seconds)
    return [float(rate) for rate in np.maximum(0, mean * wave * (1 + noise))]


def web_like(seconds: int = 210, peak: float = 500.0, seed: int = 1) -> list[float]:
    """Bursts of a popular site: a random level with jumps, scaled so that its maximum is `peak`
    (Li-Ku's experiment names no slice of its log)."""
    random = np.random.default_rng(seed)
    level, levels = 0.35, []
    for _ in range(seconds):
        if random.random() < 0.04:  # a crowd comes or goes, about every 25 s
            level = random.uniform(0.15, 0.9)
        levels.append(level * random.lognormal(0, 0.12))
    smoothed = np.convolve(levels, np.ones(3) / 3, mode="same")
    return [float(rate) for rate in peak * smoothed / smoothed.max()]


def iccbdc_ramp() -> list[list[float]]:
    """ICCBDC section 4.1: rates of P0..P4 for each of 600 seconds, by partition."""
    time = np.arange(600)

    def ramp(start: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        rate = 15.0 + np.clip(time - start, 0, 45)
        return np.where(time >= 480, 15.0, rate)

    flat = np.full(600, 15.0)
    rows = [ramp(120), ramp(120), ramp(240), ramp(360), flat]
    return [[float(rate) for rate in row] for row in rows]
