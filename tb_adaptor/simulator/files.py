"""Files of `srtm adaptor simulate`: arrivals in CSV, shares at the beginning in JSON."""

import csv
import math
from pathlib import Path

import numpy as np

from srtm.host.files import json_in, open_rows
from srtm.text.errors import UsageError
from tb_adaptor.share import Part
from tb_adaptor.simulator.run import Arrivals

_COLUMNS = ["seconds", "broker", "messages"]
_MOST_MESSAGES = 10_000_000
"""in one batch: more is a slip"""
_MOST_SECONDS = 864_000.0
"""Reports and decisions are replayed for each second, whether anything comes or not."""


def read_arrivals(path: Path) -> dict[str, Arrivals]:
    """The arrivals by broker, in order of each broker's first. Raises UsageError with the line at
    fault."""
    times: dict[str, list[float]] = {}
    counts: dict[str, list[float]] = {}
    last = 0.0
    try:
        with open_rows(path) as file:
            rows = csv.reader(file)
            header = [each.strip() for each in next(rows, [])]
            if header != _COLUMNS:
                raise UsageError(
                    f"{path}: line 1: the columns are {', '.join(header) or 'missing'}; write "
                    f"{','.join(_COLUMNS)}"
                )
            for row in rows:
                if row:
                    at, broker, messages = _row(row, f"{path}: line {rows.line_num}", last)
                    times.setdefault(broker, []).append(at)
                    counts.setdefault(broker, []).append(messages)
                    last = at
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"{path}: no CSV file: {error}") from None
    if not times:
        raise UsageError(f"{path}: no arrivals; a row is one batch, such as 0.25,b1,1")
    return {name: Arrivals(np.array(times[name]), np.array(counts[name])) for name in times}


def _row(row: list[str], where: str, last: float) -> tuple[float, str, float]:
    if len(row) != len(_COLUMNS):
        raise UsageError(f"{where}: {len(row)} columns, not {len(_COLUMNS)}")
    broker = row[1].strip()
    try:
        at, messages = float(row[0]), float(row[2])
    except ValueError:
        raise UsageError(f"{where}: seconds and messages are numbers") from None
    if not broker:
        raise UsageError(f"{where}: no broker")
    if not (math.isfinite(at) and at >= 0):
        raise UsageError(f"{where}: seconds {row[0].strip()}; they begin at 0")
    if at > _MOST_SECONDS:
        raise UsageError(
            f"{where}: {at:.15g} s is more than ten days; count seconds from the first arrival"
        )
    if at < last:
        raise UsageError(f"{where}: {at:g} s after {last:g} s; sort the rows by time")
    if not (messages.is_integer() and 1 <= messages <= _MOST_MESSAGES):
        raise UsageError(f"{where}: {row[2].strip()} messages; a batch has 1 to {_MOST_MESSAGES:,}")
    return at, broker, messages


def read_shares(path: Path, contract: Part, brokers: list[str]) -> dict[str, Part]:
    """{broker: [r_l, b_l]} for each of `brokers`, within the contract. Raises UsageError."""
    try:
        document = json_in(path)
        split = {str(name): Part(float(r), float(b)) for name, (r, b) in document.items()}
    except OSError as error:
        raise UsageError(f"--initial {path}: {error.strerror}") from None
    except (ValueError, TypeError, AttributeError):
        raise UsageError(f'--initial {path}: write {{"b1": [100, 10], "b2": [50, 5]}}') from None
    if split.keys() != set(brokers):
        raise UsageError(f"--initial {path}: shares are of {', '.join(brokers)}, each of them")
    for name, part in split.items():
        if not (0 < part.rate < math.inf and 1 <= part.burst < math.inf):
            raise UsageError(f"--initial {path}: {name}: r_l is above 0 and b_l at least 1")
    rate = math.fsum(part.rate for part in split.values())
    burst = math.fsum(part.burst for part in split.values())
    if rate > contract.rate or burst > contract.burst:
        raise UsageError(
            f"--initial {path}: the shares sum to {rate:g}/s and {burst:g}, over the contract "
            f"{contract.rate:g}/s and {contract.burst:g}"
        )
    return split
