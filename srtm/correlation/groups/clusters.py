"""Groups of one component of the graph of pairs, so that chance edges merge nothing.

Average linkage: two clusters become one only if more than half of the pairs between them are edges.
One chance edge between two groups, or a chain of them, is no half. Then what has one beat has one
clock: where phases and drifts of a periodic cluster fall into two heaps, wider apart than jitter
makes them, it is two groups that passed each other.
"""

from dataclasses import dataclass

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.sparse import csr_array, identity
from scipy.sparse.csgraph import connected_components
from scipy.spatial.distance import squareform

from srtm.correlation.groups.instants import Flags, Floats, Integers
from srtm.correlation.groups.settings import Settings

LARGEST = 2_000
"""Publishers whose distances are held as a matrix: 32 MB."""
_HALF = 0.5 - 1e-9
_STEPS = 20
_HEAPS = 1.2
_HEAPS_LEAST = 8.0
"""Two heaps are taken for two groups if they spare more than 1.2 n + 8 of the squares about the
mean, in units of jitter. Cutting one heap in half spares 0.64 n (2/pi); heaps that are 2 units
apart spare 1.3 n."""


@dataclass(frozen=True)
class Edges:
    """Pairs of publishers that coincide beyond doubt, numbered within their component.

    weight:   -log10 p; steady: do both keep a beat?
    lag, travel and their errors: as in Pairs, us
    """

    left: Integers
    right: Integers
    weight: Floats
    steady: Flags
    lag: Floats
    lag_error: Floats
    travel: Floats
    travel_error: Floats

    def among(self, members: Integers, count: int) -> "Edges":
        """The edges between members, numbered by their place in `members`; count: of all
        publishers."""
        place = np.full(count, -1)
        place[members] = np.arange(members.size)
        kept = (place[self.left] >= 0) & (place[self.right] >= 0)
        fields = {name: getattr(self, name)[kept] for name in self.__dataclass_fields__}
        fields |= {"left": place[fields["left"]], "right": place[fields["right"]]}
        return Edges(**fields)


def clusters(count: int, edges: Edges, settings: Settings) -> list[Integers]:
    """The members of each group of two or more, of publishers 0..count-1."""
    found: list[Integers] = []
    for piece in [np.arange(count)] if count <= LARGEST else _supported(count, edges):
        if piece.size > LARGEST:
            found.append(piece)
            continue
        inside = edges.among(piece, count)
        for members in _linked(piece.size, inside):
            for part in _one_clock(members, inside, piece.size, settings):
                found.append(piece[part])
    return [each for each in found if each.size > 1]


def _supported(count: int, edges: Edges) -> list[Integers]:
    """Components by edges whose ends share half of their neighbours (each its own neighbour)."""
    ones = np.ones(edges.left.size)
    graph = csr_array((ones, (edges.left, edges.right)), shape=(count, count))
    near = graph + graph.T + csr_array(identity(count))
    sizes = near.sum(axis=1)
    rows, columns = edges.left, edges.right
    shared = np.concatenate(
        [
            near[rows[at : at + 100_000]].multiply(near[columns[at : at + 100_000]]).sum(axis=1)
            for at in range(0, rows.size, 100_000)
        ]
    )
    kept = shared >= 0.5 * np.sqrt(sizes[rows] * sizes[columns])
    graph = csr_array((ones[kept], (rows[kept], columns[kept])), shape=(count, count))
    _, label = connected_components(graph, directed=False)
    return _by_label(label)


def _by_label(label: Integers) -> list[Integers]:
    order = np.argsort(label, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(label[order])) + 1)


def _linked(count: int, edges: Edges) -> list[Integers]:
    """Average linkage; among equals the surest pair is joined first."""
    if count < 2:
        return []
    distance = np.ones((count, count))
    rank = np.argsort(np.argsort(-edges.weight)) / max(edges.weight.size, 1)
    distance[edges.left, edges.right] = distance[edges.right, edges.left] = 1e-10 * rank
    np.fill_diagonal(distance, 0.0)
    tree = linkage(squareform(distance, checks=False), "average")
    return [each for each in _by_label(fcluster(tree, _HALF, "distance")) if each.size > 1]


def _one_clock(members: Integers, edges: Edges, count: int, settings: Settings) -> list[Integers]:
    """`members`, or its parts by clock."""
    inside = edges.among(members, count)
    if members.size < 4 or inside.steady.mean() < 0.5:
        return [members]
    apart = _split(members.size, inside, settings)
    if apart is None:
        return [members]
    return [
        part
        for half in (members[apart], members[~apart])
        for part in _one_clock(half, edges, count, settings)
    ]


def _split(count: int, edges: Edges, settings: Settings) -> Flags | None:
    """Which members are in one of two heaps; None: it is one heap."""
    phase_error = np.sqrt(np.median(edges.lag_error**2) / 2 + settings.delay_us**2 / 2)
    drift_error = np.sqrt(np.median(edges.travel_error**2) / 2 + settings.delay_us**2 / 2)
    points = np.column_stack(
        [
            _positions(count, edges, edges.lag) / phase_error,
            _positions(count, edges, edges.travel) / drift_error,
        ]
    )
    points -= points.mean(axis=0)
    axis = np.linalg.svd(points, full_matrices=False)[2][0]
    inside = points @ axis > 0
    for _ in range(_STEPS):
        if not 0 < inside.sum() < count:
            return None
        one, other = points[inside].mean(axis=0), points[~inside].mean(axis=0)
        near = ((points - one) ** 2).sum(axis=1) < ((points - other) ** 2).sum(axis=1)
        if (near == inside).all():
            break
        inside = near
    if not 0 < inside.sum() < count:
        return None
    spared = sum(part.sum() * (points[part].mean(axis=0) ** 2).sum() for part in (inside, ~inside))
    return inside if spared > _HEAPS * count + _HEAPS_LEAST else None


def _positions(count: int, edges: Edges, difference: Floats) -> Floats:
    """The position of each member on a line, by the differences right - left of pairs."""
    total = np.bincount(edges.right, difference, count) - np.bincount(edges.left, difference, count)
    degree = np.bincount(edges.right, minlength=count) + np.bincount(edges.left, minlength=count)
    position: Floats = total / (degree + 1)
    return position
