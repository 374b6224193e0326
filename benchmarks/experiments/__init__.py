"""SRTM's own experiments (section 6): simulated at its scale, and on real brokers at the machine's."""
