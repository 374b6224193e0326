"""Jobs of a benchmark on several cores give what they give one after the other."""

import os
from functools import partial

import pytest

from benchmarks.harness.session import side_by_side


@pytest.mark.parametrize("processes", [1, 2])
def test_results_come_in_the_order_of_the_jobs(processes: int) -> None:
    offset = 10  # of a closure: no job has to be picklable
    jobs = [partial(lambda number: number + offset, number) for number in range(20)]
    assert list(side_by_side(jobs, processes)) == list(range(10, 30))


def test_one_process_runs_a_job_when_its_result_is_asked_for() -> None:
    ran: list[int] = []
    results = side_by_side([partial(ran.append, number) for number in range(3)], 1)
    next(results)
    assert ran == [0]


def test_several_processes_are_others_than_this_one() -> None:
    assert os.getpid() not in set(side_by_side([os.getpid] * 4, 2))


@pytest.mark.parametrize("processes", [1, 2])
def test_a_job_that_fails_says_why(processes: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(side_by_side([lambda: 1 // 0], processes))
