"""The policy `contract`: as few consumers as keep the target whatever a contract lets come."""

from srtm.autoscaler.policies.contract.policy import Contracted

__all__ = ["Contracted"]
