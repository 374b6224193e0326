"""The policy `srtm`."""

from srtm.autoscaler.policies.srtm.policy import Srtm

__all__ = ["Srtm"]
