"""Deployments on one host: `srtm up` runs nsqd, its gateways, the Load Distributor and nsqlookupd
from one TOML file."""
