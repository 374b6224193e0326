"""Packing partitions into as few consumers as will do, moving as little rate as will do."""

from srtm.autoscaler.packing.any_fit import AS_GIVEN, DECREASING
from srtm.autoscaler.packing.bounds import lower_bound
from srtm.autoscaler.packing.exact import exact
from srtm.autoscaler.packing.few import few
from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.kafka import assign_range, assign_sticky
from srtm.autoscaler.packing.least_loaded import least_loaded, least_loaded_ffd
from srtm.autoscaler.packing.matching import keep_owners
from srtm.autoscaler.packing.model import Algorithm, Bin, Bins, Filled, Item, Packing
from srtm.autoscaler.packing.modified import MODIFIED
from srtm.autoscaler.packing.score import cardinal_bin_scores, rscore

ALGORITHMS: dict[str, Algorithm] = {
    **AS_GIVEN,
    **DECREASING,
    **MODIFIED,
    "least-loaded": least_loaded,
    "least-loaded-ffd": least_loaded_ffd,
    "exact": exact,
}

__all__ = [
    "ALGORITHMS",
    "Algorithm",
    "Bin",
    "Bins",
    "Filled",
    "Item",
    "Packing",
    "assign_range",
    "assign_sticky",
    "cardinal_bin_scores",
    "exact",
    "few",
    "finish",
    "keep_owners",
    "least_loaded",
    "least_loaded_ffd",
    "lower_bound",
    "rscore",
]
