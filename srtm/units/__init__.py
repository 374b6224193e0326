"""Detached processes with a name, for `srtm testbed`. It imports little: an ssh host without
systemd runs it for each question."""

from srtm.units.units import Running, Unit, Units, end_all, holders, seen

__all__ = ["Running", "Unit", "Units", "end_all", "holders", "seen"]
