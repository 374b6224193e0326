"""Deployments over several hosts: `srtm testbed` runs `srtm up` on the part of each."""

from srtm.testbed.inventory import Inventory, Part, read_inventory

__all__ = ["Inventory", "Part", "read_inventory"]
