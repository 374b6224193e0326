"""Deployments on one host: `srtm up` runs nsqd, its gateways, the Load Distributor and nsqlookupd
from one TOML file."""

from srtm.address import Address, free_addresses
from srtm.deploy.deployment import DeployedBroker, Deployment, find
from srtm.deploy.file import Plan, plan_of, read_plan
from srtm.deploy.up import Running, Up, running

__all__ = [
    "Address",
    "DeployedBroker",
    "Deployment",
    "Plan",
    "Running",
    "Up",
    "find",
    "free_addresses",
    "plan_of",
    "read_plan",
    "running",
]
