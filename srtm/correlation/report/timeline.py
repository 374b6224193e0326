"""Groups from window to window as lives: from where each appeared to where it ended."""

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MOST_LIVES = 14
"""of a topic, those with most publishers and windows"""
MOST_WINDOWS = 240


@dataclass(frozen=True)
class Life:
    """One group. head: its first publisher; size: publishers, at its largest; first, last: numbers
    of its windows, from 0; appeared, ended: False where it was there at the edge of the trace
    already, or still."""

    head: str
    size: int
    first: int
    last: int
    appeared: bool
    ended: bool


@dataclass(frozen=True)
class Timeline:
    """begins: of each window, ns since 1970; lives: some of them, in order of time; appeared,
    ended: of all groups, how many did."""

    begins: tuple[int, ...]
    lives: tuple[Life, ...]
    appeared: int
    ended: int


@dataclass(frozen=True)
class Row:
    """head: its first publisher."""

    begins: int
    name: str
    size: int
    before: str | None
    after: str | None
    head: str = ""


def timelines(path: Path) -> dict[str, Timeline]:
    """The timelines of windows.parquet, by topic; none where there is no such file."""
    if not path.exists():
        return {}
    columns = ["topic", "begins", "name", "before", "after", "publishers"]
    found: dict[str, list[Row]] = defaultdict(list)
    for batch in pq.ParquetDataset(path).fragments:
        table: pa.Table = batch.to_table(columns=columns)
        members = table.column("publishers")
        sizes = pc.list_value_length(members).to_pylist()
        heads = pc.list_element(members, 0).to_pylist()
        rows = table.drop_columns("publishers").to_pylist()
        for row, size, head in zip(rows, sizes, heads, strict=True):
            found[row["topic"]].append(
                Row(row["begins"], row["name"], size, row["before"], row["after"], head)
            )
    return {topic: timeline(rows) for topic, rows in found.items()}


def timeline(rows: list[Row]) -> Timeline:
    """Windows without any group are there too, by the shortest step between two that have some."""
    begins = _windows(sorted({row.begins for row in rows}))
    number = {begin: at for at, begin in enumerate(begins)}
    by_place = {(number[row.begins], row.name): row for row in rows}
    lives = []
    for (at, _), row in sorted(by_place.items()):
        if row.before is not None and (at - 1, row.before) in by_place:
            continue
        life = _life(by_place, at, row, len(begins))
        lives.append(life)
    largest = sorted(lives, key=lambda each: -each.size * (each.last - each.first + 1))
    kept = sorted(largest[:MOST_LIVES], key=lambda each: (each.first, -each.size))
    return Timeline(
        begins=begins,
        lives=tuple(kept),
        appeared=sum(each.appeared for each in lives),
        ended=sum(each.ended for each in lives),
    )


def _windows(known: list[int]) -> tuple[int, ...]:
    if len(known) < 2:
        return tuple(known)
    step = min(b - a for a, b in pairwise(known))
    count = (known[-1] - known[0]) // step + 1
    return (
        tuple(known) if count > MOST_WINDOWS else tuple(known[0] + step * at for at in range(count))
    )


def _life(by_place: dict[tuple[int, str], Row], first: int, row: Row, windows: int) -> Life:
    last, size, head = first, row.size, row.head
    while row.after is not None and (last + 1, row.after) in by_place:
        last += 1
        row = by_place[last, row.after]
        size = max(size, row.size)
    return Life(head, size, first, last, first > 0, last < windows - 1)
