"""The plain answer on one machine: a sparse matrix of publishers and time bins, and its square.

Bins of 8 ms, twice, half a bin apart; pairs that share as many bins as the floor says, then
connected components. No p, no lags, no support: what one writes in an hour.
"""

import time
from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from benchmarks.correlation.planted import Labels

_BIN_US = 8_000
_FLOOR = 0.3
_ROWS = 2_000
"""publishers whose pairs are held at once"""


def plain(folder: Path) -> tuple[Labels, list[str], float]:
    """The group of each publisher, below 0 for none; their names; seconds with reading."""
    began = time.perf_counter()
    table = pq.read_table(folder, columns=["publisher", "time_us"])
    encoded = pc.dictionary_encode(table.column("publisher").combine_chunks())
    names = encoded.dictionary.to_pylist()
    who = encoded.indices.to_numpy().astype(np.int64)
    at = table.column("time_us").to_numpy()
    at = at - at.min()
    shape = (len(names), int(at.max()) // _BIN_US + 2)
    grids = []
    for shift in (0, _BIN_US // 2):
        ones = np.ones(who.size, np.int32)
        grid = csr_array((ones, (who, (at + shift) // _BIN_US)), shape=shape)
        grid.data[:] = 1
        grids.append((grid, grid.T.tocsr()))
    counts = grids[0][0].sum(axis=1)
    left, right = [], []
    for begin in range(0, shape[0], _ROWS):
        rows = slice(begin, begin + _ROWS)
        shared = grids[0][0][rows] @ grids[0][1]
        shared = shared.maximum(grids[1][0][rows] @ grids[1][1]).tocoo()
        a, b = shared.row + begin, shared.col
        kept = (a < b) & (shared.data >= _FLOOR * np.maximum(counts[a], counts[b]))
        left.append(a[kept])
        right.append(b[kept])
    a, b = np.concatenate(left), np.concatenate(right)
    graph = csr_array((np.ones(a.size, np.int8), (a, b)), shape=(shape[0],) * 2)
    _, label = connected_components(graph, directed=False)
    alone = np.bincount(label)[label] == 1
    found = np.where(alone, -1 - np.arange(label.size), label)
    return found.astype(np.int64), names, time.perf_counter() - began
