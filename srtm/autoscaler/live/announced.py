"""Announced load as policies are shown it: for the next hour, by the wall clock. A wrong
announcement costs what it asks for, and no more."""

import csv
import logging
import math
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from cronsim import CronSim

from srtm.autoscaler.observation import Announcement
from srtm.consumer.announced import AnnouncedTable
from srtm.text.errors import UsageError

log = logging.getLogger("srtm.autoscale")

_AHEAD = timedelta(hours=1)
_AGAIN_SECONDS = 60.0
"""after which windows are made again, for what comes into view"""
_MOST_ROWS = 100_000
_MOST_BYTES = 16 << 20

_Window = tuple[float, float, float]
"""begin and end, in seconds since 1970, and events/s"""


class Announced:
    """The announcements of one file. A CSV that becomes wrong leaves what was read of it."""

    def __init__(self, tables: Sequence[AnnouncedTable], file: Path) -> None:
        """file: whose folder names of CSV files are relative to. Raises UsageError."""
        self._tables = tables
        try:
            self._rows = [_Rows(file.parent / each.csv, each) for each in tables if each.csv]
        except UsageError as error:
            raise UsageError(f"{file}: [[announced]]: csv: {error}") from None
        self._windows: list[_Window] = []
        self._made_at = -math.inf

    def now(self) -> tuple[Announcement, ...]:
        """What is announced for the next hour."""
        return self.at(time.time())

    def at(self, wall: float) -> tuple[Announcement, ...]:
        """What is announced for the hour from `wall` on, seconds since 1970."""
        changed = [each.look() for each in self._rows]
        if any(changed) or not 0 <= wall - self._made_at < _AGAIN_SECONDS:
            self._made_at = wall
            self._windows = list(self._made(datetime.fromtimestamp(wall, UTC)))
        return tuple(
            Announcement(max(0.0, begin - wall), end - wall, rate)
            for begin, end, rate in self._windows
            if end > wall
        )

    def _made(self, now: datetime) -> Iterator[_Window]:
        until = now + _AHEAD + timedelta(seconds=_AGAIN_SECONDS)
        for table in self._tables:
            yield from _windows(table, now, until)
        for rows in self._rows:
            yield from rows.between(now.timestamp(), until.timestamp())


def _windows(table: AnnouncedTable, now: datetime, until: datetime) -> Iterator[_Window]:
    """Those of one table that are not over at `now`, and begin before `until`."""
    if table.rate is None or table.lasting is None:
        return
    lasting = timedelta(seconds=table.lasting)
    if table.at is not None:
        begin = _aware(table.at, table)
        if begin + lasting > now and begin < until:
            yield begin.timestamp(), (begin + lasting).timestamp(), table.rate
        return
    merged: list[tuple[float, float]] = []
    for begin in CronSim(table.cron, (now - lasting).astimezone(table.timezone)):
        if begin >= until:
            break
        start, end = begin.timestamp(), (begin + lasting).timestamp()
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    yield from ((start, end, table.rate) for start, end in merged)


def _aware(when: datetime, table: AnnouncedTable) -> datetime:
    return when if when.tzinfo else when.replace(tzinfo=table.timezone)


class _Rows:
    """A CSV of rates, read again when its file changes."""

    def __init__(self, path: Path, table: AnnouncedTable) -> None:
        self._path = path
        self._table = table
        self._stamp = self._stat()
        self._fault = ""
        self._times, self._rates = self._read()

    def look(self) -> bool:
        """Has it changed? What is wrong now is told once, and changes nothing."""
        stamp = self._stat()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        try:
            self._times, self._rates = self._read()
        except UsageError as error:
            if str(error) != self._fault:
                log.error("%s; what was read before holds", error)
            self._fault = str(error)
            return False
        self._fault = ""
        return True

    def between(self, begin: float, end: float) -> Iterator[_Window]:
        """The last row announces nothing of its own: it ends the one before."""
        first = max(0, bisect_right(self._times, begin) - 1)
        for place, (start, stop) in enumerate(pairwise(self._times[first:]), first):
            if start >= end:
                return
            if stop > begin:
                yield start, stop, self._rates[place]

    def _stat(self) -> tuple[int, int]:
        try:
            found = self._path.stat()
        except OSError:
            return 0, 0
        return found.st_size, found.st_mtime_ns

    def _read(self) -> tuple[list[float], list[float]]:
        """Raises UsageError."""
        times: list[float] = []
        rates: list[float] = []
        try:
            if self._path.stat().st_size > _MOST_BYTES:
                raise UsageError(f"{self._path}: more than {_MOST_BYTES >> 20} MiB of rates")
            with self._path.open(newline="", encoding="utf-8-sig") as file:
                for number, row in enumerate(csv.reader(file), 1):
                    if not row or (number == 1 and row[0].strip() == "time"):
                        continue
                    at, rate = self._row(row, f"{self._path}: line {number}")
                    if times and at <= times[-1]:
                        raise UsageError(f"{self._path}: line {number}: times have to ascend")
                    times.append(at)
                    rates.append(rate)
                    if len(times) > _MOST_ROWS:
                        raise UsageError(f"{self._path}: more than {_MOST_ROWS:,} rows")
        except OSError as error:
            raise UsageError(f"{self._path}: {error.strerror}") from None
        except (UnicodeDecodeError, csv.Error) as error:
            raise UsageError(f"{self._path}: is no CSV: {error}") from None
        return times, rates

    def _row(self, row: list[str], where: str) -> tuple[float, float]:
        try:
            when, rate = datetime.fromisoformat(row[0].strip()), float(row[1])
            if len(row) != 2 or not 0 <= rate <= 1e12:
                raise ValueError
        except (ValueError, IndexError):
            raise UsageError(
                f"{where}: {','.join(row)[:80]!r} is no time,rate, such as "
                "2026-12-24T08:00:00+01:00,500"
            ) from None
        return _aware(when, self._table).timestamp(), rate
