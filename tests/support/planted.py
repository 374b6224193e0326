"""Traces with planted groups, by a seed."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from srtm.traces.names import file_name
from srtm.traces.version import VERSION, VERSION_KEY

Times = NDArray[np.int64]
BEGAN_SECONDS = 1_700_000_000
"""since 1970, of all of them"""


@dataclass(frozen=True)
class Planted:
    """times: us, of each publisher; label: its group, or a number of its own below 0."""

    times: list[Times]
    label: NDArray[np.int64]

    @property
    def starts(self) -> Times:
        return np.concatenate([[0], np.cumsum([each.size for each in self.times])]).astype(np.int64)

    @property
    def flat(self) -> Times:
        return np.concatenate(self.times)

    def table(self, topic: str = "t", brokers: Sequence[str] = ("b0",)) -> pa.Table:
        """Rows of a trace in no order; publisher n is at brokers[n % brokers]."""
        who = np.repeat(np.arange(len(self.times)), np.diff(self.starts))
        order = np.random.default_rng(0).permutation(who.size)
        who = who[order]
        return pa.table(
            {
                "time": (self.flat[order] + BEGAN_SECONDS * 1_000_000) * 1_000,
                "topic": pa.array([topic] * who.size, pa.string()),
                "publisher": [f"p{each}" for each in who],
                "broker": [brokers[each % len(brokers)] for each in who],
                "messages": np.ones(who.size, np.int32),
                "bytes": np.full(who.size, 100),
                "wait": pa.array([0] * who.size, pa.int64()),
                "outcome": pa.array(["admitted"] * who.size, pa.string()),
            }
        )

    def write(self, folder: Path, topic: str = "t", number: int = 1) -> pa.Table:
        """Its table, as a file of the trace in `folder`."""
        table = self.table(topic)
        write_table(table, folder, number)
        return table


def write_table(table: pa.Table, folder: Path, number: int = 1) -> None:
    """A file of a trace."""
    folder.mkdir(exist_ok=True)
    versioned = table.replace_schema_metadata({VERSION_KEY: str(VERSION)})
    pq.write_table(versioned, folder / file_name("b0", number, number))


def planted(
    seed: int,
    sizes: Sequence[int] = (5, 8, 12),
    alone: int = 10,
    jitter: float = 0.004,
    bursts: int = 30,
    own: float = 1.0,
    seconds: float = 300.0,
    periodic: bool = False,
    drift: float = 3e-3,
) -> Planted:
    """own: other messages of a member for each burst; alone: publishers of no group, with as many
    messages; periodic: bursts every seconds/bursts, by clocks with errors of `drift`."""
    random = np.random.default_rng(seed)

    def triggers() -> NDArray[np.float64]:
        if periodic:
            period = seconds / bursts * (1 + random.normal(0, drift))
            return np.arange(random.uniform(0, period), seconds, period)
        return np.sort(random.uniform(0, seconds, random.poisson(bursts)))

    def member(at: NDArray[np.float64]) -> Times:
        late = at + random.uniform(0, jitter, at.size)
        other = random.uniform(0, seconds, random.poisson(own * at.size))
        return np.sort((np.concatenate([late, other]) * 1e6).astype(np.int64))

    times, label = [], []
    for group, size in enumerate(sizes):
        at = triggers()
        times += [member(at) for _ in range(size)]
        label += [group] * size
    for each in range(alone):
        times.append(member(triggers()))
        label.append(-1 - each)
    return Planted(times, np.array(label))


def group_row(topic: str, name: str, *publishers: str) -> dict[str, Any]:
    """A row of a result's groups."""
    return {
        "topic": topic,
        "name": name,
        "publishers": list(publishers),
        "lift": 12.5,
        "q": 1e-9,
        "coincidences": 20,
        "share": 0.5,
        "periodic": False,
        "instants": [(BEGAN_SECONDS + each) * 1_000_000_000 for each in (10, 20, 30)],
    }


def recovered(planted: Planted, groups: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Precision and recall of the pairs that are in one group."""
    found = -1 - np.arange(planted.label.size)
    for number, members in enumerate(groups):
        found[[int(name[1:]) for name in members]] = number
    left, right = np.triu_indices(found.size, 1)
    true = planted.label[left] == planted.label[right]
    said = found[left] == found[right]
    both = int((true & said).sum())
    return both / max(int(said.sum()), 1), both / max(int(true.sum()), 1)
