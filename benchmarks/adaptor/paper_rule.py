"""At which window and period the paper's rule is at its best (SRTM section 5.4 leaves them open).

They are chosen on traffic of other shapes and seeds than those that judge: the least geometric mean
of p99 over the scenarios. The grid is what `srtm topic set` takes, from a second on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from rich.table import Table

from benchmarks.adaptor.scenarios import CHOOSING
from benchmarks.harness.report import number, table
from benchmarks.harness.side_by_side import side_by_side
from tb_adaptor.simulator.judge import nearest_rank
from tb_adaptor.simulator.run import Settings, simulate

WINDOWS, PERIODS = (1.0, 2.0, 3.0, 5.0, 10.0), (1.0, 2.0, 5.0, 10.0)
_LEAST_MS = 1.0
"""added to each p99, so that none of 0 decides alone"""


@dataclass(frozen=True)
class Chosen:
    """means_ms: of p99, by settings"""

    settings: Settings
    means_ms: Mapping[Settings, float]

    @property
    def words(self) -> str:
        return (
            f"`paper` is the paper's rule every {self.settings.every:g} s over a window of "
            f"{self.settings.window:g} s, its best on other traffic; `paper, 10 s` is as published"
        )

    def shown(self) -> Table:
        made = table(
            "the paper's rule on other traffic: geometric mean of p99, ms",
            "window",
            *(f"every {period:g} s" for period in PERIODS),
        )
        for window in WINDOWS:
            cells = (self.means_ms.get(Settings(window, period)) for period in PERIODS)
            made.add_row(f"{window:g} s", *("" if each is None else number(each) for each in cells))
        return made


def chosen(seeds: int, periods: Sequence[float], processes: int) -> Chosen:
    """The period is no longer than the window: what came between two would be seen by none."""
    arrivals = [(each.contract, [each.arrivals(n) for n in range(seeds)]) for each in CHOOSING]
    grid = [Settings(w, every) for w in WINDOWS for every in periods if every <= w]

    def mean_ms(settings: Settings) -> float:
        logs = []
        for contract, each in arrivals:
            waits = [simulate("paper", contract, one, None, settings).waits for one in each]
            p99 = nearest_rank(np.concatenate(waits), 0.99) * 1e3
            logs.append(np.log(p99 + _LEAST_MS))
        return float(np.exp(np.mean(logs)))

    jobs = [partial(mean_ms, settings) for settings in grid]
    means = dict(zip(grid, side_by_side(jobs, processes), strict=True))
    return Chosen(min(means, key=lambda each: means[each]), means)
