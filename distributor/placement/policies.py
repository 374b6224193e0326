"""The placement policies by name."""

from collections.abc import Callable, Iterable

from distributor.model import Broker, Placement, Publisher
from distributor.placement.baselines import conc, lb, max_min, single
from distributor.placement.srtm import srtm
from srtm.limits.contract import Contract

Policy = Callable[[Contract, Iterable[Broker], Iterable[Publisher]], Placement]
"""The one signature. Pure: the same input in any order gives the same placement. Raises ValueError
for names or ids given twice and for no publishers."""

POLICIES: dict[str, Policy] = {
    "srtm": srtm,
    "max-min": max_min,
    "conc": conc,
    "lb": lb,
    "single": single,
}
