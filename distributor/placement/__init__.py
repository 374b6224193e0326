"""Which publisher sends to which broker: pure functions, no clock, no I/O."""

from distributor.placement.policies import POLICIES, Policy
from distributor.placement.srtm import SubBucket, extend
from distributor.placement.sub_buckets import sub_buckets

__all__ = ["POLICIES", "Policy", "SubBucket", "extend", "sub_buckets"]
