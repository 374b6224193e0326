"""One run of a benchmark: how long it may take, where its servers live, what a person sees."""

import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from benchmarks.harness.machine import commit, load_average, machine
from benchmarks.harness.report import Report, plain

QUICK_SECONDS = 42.0
"""What --quick measures in; ending the servers and drawing take a few seconds of the 50."""


class Session:
    """quick: the short form; live: real servers too, where a benchmark models them; folder: a
    temporary one, gone with the run; minutes: how long it is to last, where one says so; hosts:
    an inventory whose brokers run, None: brokers of its own on this host."""

    def __init__(
        self,
        quick: bool,
        folder: Path,
        progress: Progress | None = None,
        live: bool = False,
        minutes: float | None = None,
        hosts: Path | None = None,
    ) -> None:
        self.minutes = minutes
        self.hosts = hosts
        self.quick = quick
        self.live = live
        self.folder = folder
        self._progress = progress
        self._task = progress.add_task("starting", total=None) if progress else None
        self._began = time.monotonic()
        self._started_at = datetime.now(UTC)
        self._load_average = load_average()

    @property
    def seconds_left(self) -> float:
        """The seconds that a quick run has left; without end for any other."""
        if not self.quick:
            return float("inf")
        return QUICK_SECONDS - (time.monotonic() - self._began)

    @property
    def processes(self) -> int:
        """The number of processes for jobs that only compute; a quick run does one job after the
        other until time is up."""
        return 1 if self.quick else len(os.sched_getaffinity(0))

    def plan(self, steps: int) -> None:
        """How many times `step` will be called, about."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, total=steps)

    def step(self, doing: str) -> None:
        """The next part begins."""
        if self._progress is not None and self._task is not None:
            self._progress.update(self._task, description=doing, advance=1)
            self._progress.refresh()

    def document(
        self, name: str, report: Report, shows: str = "", method: str = ""
    ) -> dict[str, Any]:
        """NAME.json, which `srtm report` reads."""
        return {
            "benchmark": name,
            "shows": shows,
            "method": method,
            "started_at": self._started_at.isoformat(timespec="seconds"),
            "seconds": round(time.monotonic() - self._began, 1),
            "quick": self.quick,
            "settings": report.settings,
            "machine": machine()
            | {"load_average": {"start": self._load_average, "end": load_average()}},
            "commit": commit(),
            "figures": report.figures,
            "tables": [plain(each) for each in report.tables],
            "bars": [bar.document() for bar in report.bars],
            "notes": report.notes,
        }


@contextmanager
def session(
    quick: bool,
    live: bool = False,
    minutes: float | None = None,
    hosts: Path | None = None,
) -> Iterator[Session]:
    """The session of one run, with a progress bar on a terminal; the bar is drawn on each step
    only, by no thread."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with tempfile.TemporaryDirectory(prefix="srtm-bench-") as folder:
        if not console.is_terminal:
            yield Session(quick, Path(folder), live=live, minutes=minutes, hosts=hosts)
            return
        with Progress(*columns, console=console, auto_refresh=False, transient=True) as progress:
            yield Session(quick, Path(folder), progress, live, minutes, hosts)


T = TypeVar("T")

_jobs: Sequence[Callable[[], object]] = ()


def side_by_side(jobs: Sequence[Callable[[], T]], processes: int) -> Iterator[T]:
    """What each job returns, in the order of the jobs, each as soon as it is there. With one
    process a job runs when its result is asked for, so that who asks no more saves the rest.

    The children are forked and have the jobs from there, so only results have to be picklable.
    """
    if processes < 2:
        yield from (job() for job in jobs)
        return
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _inherit, (jobs,)) as pool:
        for result in pool.map(_done, range(len(jobs))):
            yield cast(T, result)


def _inherit(jobs: Sequence[Callable[[], object]]) -> None:
    global _jobs
    _jobs = jobs


def _done(place: int) -> object:
    return _jobs[place]()
