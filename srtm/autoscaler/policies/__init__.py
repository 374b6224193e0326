"""The policies of the papers, by name."""

from srtm.autoscaler.policies.provisioned import Trace, replicas_per_second
from srtm.autoscaler.policies.registry import DESCRIPTIONS, POLICIES, Factory
from srtm.autoscaler.policies.settings import Settings

__all__ = ["DESCRIPTIONS", "POLICIES", "Factory", "Settings", "Trace", "replicas_per_second"]
