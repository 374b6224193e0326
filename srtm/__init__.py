"""SRTM: publish limits and latency SLOs for an unmodified NSQ."""

__version__ = "0.1.0"
