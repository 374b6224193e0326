"""`srtm demo`: one topic on real brokers of this machine, placed in two ways and compared."""

from srtm.demo.demo_command import demo

__all__ = ["demo"]
