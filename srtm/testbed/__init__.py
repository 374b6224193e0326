"""Deployments over several hosts: `srtm testbed` runs `srtm up` on the part of each."""

from srtm.testbed.inventory import Inventory, Part, read_inventory
from srtm.testbed.testbed import Testbed, open_testbed
from srtm.units import Unit

__all__ = ["Inventory", "Part", "Testbed", "Unit", "open_testbed", "read_inventory"]
