"""SRTM's own experiments (section 6): simulated at its scale, measured at the machine's."""
