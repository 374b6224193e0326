"""What stands between NSQ's bytes and the wire after IDENTIFY: TLS, snappy or deflate. No I/O.

Each layer takes bytes at any cut and gives what is whole; the gateway, its connections to nsqd and
every client of ours use the same ones. They import nothing that reads or waits: frames, `srtm.text`
and libraries that do the arithmetic.
"""

from srtm.nsq.layers.deflate import DeflateLayer
from srtm.nsq.layers.layer import Layer, LayerError, Stack
from srtm.nsq.layers.snappy import SnappyLayer
from srtm.nsq.layers.tls import TlsLayer

__all__ = ["DeflateLayer", "Layer", "LayerError", "SnappyLayer", "Stack", "TlsLayer"]
