"""Jobs that only compute, on all cores: nothing that they measure may be time."""

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar, cast

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
