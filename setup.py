"""Compiles the gateway's hot modules with mypyc where a C compiler is there.

The same typed source runs either way: what is not compiled is interpreted, a fifth slower for each
message (benchmarks/gateway.py). SRTM_COMPILE=0 leaves it out.
"""

import os
import shutil
import sys

from setuptools import setup

HOT = [
    "kernel/stamps.py",
    "srtm/bucket.py",
    "srtm/gateway/batch.py",
    "srtm/gateway/client.py",
    "srtm/gateway/meter.py",
    "srtm/gateway/reactor.py",
    "srtm/gateway/run.py",
    "srtm/gateway/sketch.py",
    "srtm/gateway/topic.py",
    "srtm/gateway/tunnel.py",
    "srtm/gateway/upstream.py",
    "srtm/nsq/commands.py",
    "srtm/nsq/errors.py",
    "srtm/nsq/frames.py",
    "srtm/nsq/names.py",
]


def compiled() -> list[object]:
    """The extension modules, or none."""
    if os.environ.get("SRTM_COMPILE") == "0" or not (shutil.which("cc") or shutil.which("gcc")):
        print("srtm: not compiled: no C compiler, or SRTM_COMPILE=0", file=sys.stderr)
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("srtm: not compiled: mypy is not installed", file=sys.stderr)
        return []
    return list(mypycify([*HOT, "--ignore-missing-imports"], opt_level="3"))


setup(ext_modules=compiled())
