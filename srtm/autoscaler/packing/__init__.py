"""Packing partitions into as few consumers as will do, moving as little rate as will do."""

from srtm.autoscaler.packing.any_fit import (
    best_fit,
    best_fit_decreasing,
    first_fit,
    first_fit_decreasing,
    next_fit,
    next_fit_decreasing,
    worst_fit,
    worst_fit_decreasing,
)
from srtm.autoscaler.packing.bounds import lower_bound
from srtm.autoscaler.packing.exact import exact
from srtm.autoscaler.packing.finish import finish
from srtm.autoscaler.packing.kafka import assign_range, assign_sticky
from srtm.autoscaler.packing.least_loaded import least_loaded, least_loaded_ffd
from srtm.autoscaler.packing.matching import keep_owners
from srtm.autoscaler.packing.model import Algorithm, Bin, Bins, Filled, Item, Packing
from srtm.autoscaler.packing.modified import (
    modified_best_fit,
    modified_best_fit_partition,
    modified_worst_fit,
    modified_worst_fit_partition,
)
from srtm.autoscaler.packing.score import cardinal_bin_scores, rscore

ALGORITHMS: dict[str, Algorithm] = {
    "next-fit": next_fit,
    "first-fit": first_fit,
    "best-fit": best_fit,
    "worst-fit": worst_fit,
    "next-fit-decreasing": next_fit_decreasing,
    "first-fit-decreasing": first_fit_decreasing,
    "best-fit-decreasing": best_fit_decreasing,
    "worst-fit-decreasing": worst_fit_decreasing,
    "mwf": modified_worst_fit,
    "mbf": modified_best_fit,
    "mwfp": modified_worst_fit_partition,
    "mbfp": modified_best_fit_partition,
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
    "best_fit",
    "best_fit_decreasing",
    "cardinal_bin_scores",
    "exact",
    "finish",
    "first_fit",
    "first_fit_decreasing",
    "keep_owners",
    "least_loaded",
    "least_loaded_ffd",
    "lower_bound",
    "modified_best_fit",
    "modified_best_fit_partition",
    "modified_worst_fit",
    "modified_worst_fit_partition",
    "next_fit",
    "next_fit_decreasing",
    "rscore",
    "worst_fit",
    "worst_fit_decreasing",
]
