"""An open-loop load generator for NSQ: `srtm load`, and `run_load` for programs."""

from srtm.load.result import LoadResult
from srtm.load.runner import Progress, run_load
from srtm.load.settings import LoadSettings
from srtm.load.trace import read_trace

__all__ = ["LoadResult", "LoadSettings", "Progress", "read_trace", "run_load"]
