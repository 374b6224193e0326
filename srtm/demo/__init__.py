"""`srtm demo`: one topic on real brokers of this machine, placed in two ways and compared."""

from srtm.demo.command import demo

__all__ = ["demo"]
