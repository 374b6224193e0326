"""Arrival times: when a segment reached this host, not when a busy process came to read it."""

from kernel.errors import SourceUnavailable
from kernel.sources import choose_source
from kernel.stamps import Reader, StampSource

__all__ = ["Reader", "SourceUnavailable", "StampSource", "choose_source"]
