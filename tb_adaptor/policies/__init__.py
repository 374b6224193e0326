"""How a contract is split anew from what brokers saw: one class each, pure, time passed in."""

from tb_adaptor.policies.policy import Policy, Rescale
from tb_adaptor.policies.registry import POLICIES

__all__ = ["POLICIES", "Policy", "Rescale"]
