"""Compiles the gateway's hot modules with mypyc where a C compiler is there, and the program of
kernel/ with clang.

The same typed source runs either way: what is not compiled is interpreted, a fifth slower for each
message (benchmarks/gateway/cost.py). SRTM_COMPILE=0 leaves it out.
"""

import os
import shutil
import subprocess
import sys

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

CLANG = "clang -O2 -g -Wall -target bpfel -fdebug-compilation-dir=. -c kernel/segments.bpf.c -o"

HOT = [
    "kernel/clock_stamps.py",
    "kernel/ebpf_stamps.py",
    "kernel/ring.py",
    "kernel/segments.py",
    "kernel/socket_stamps.py",
    "kernel/stamps.py",
    "kernel/streams.py",
    "srtm/bucket.py",
    "srtm/gateway/batch.py",
    "srtm/gateway/backlog.py",
    "srtm/gateway/backlogs.py",
    "srtm/gateway/bodies.py",
    "srtm/gateway/client.py",
    "srtm/gateway/measure/admissions.py",
    "srtm/gateway/measure/cadence.py",
    "srtm/gateway/measure/matching.py",
    "srtm/gateway/measure/meter.py",
    "srtm/gateway/measure/observed.py",
    "srtm/gateway/outbox.py",
    "srtm/gateway/measure/probe.py",
    "srtm/gateway/reactor.py",
    "srtm/gateway/run.py",
    "srtm/gateway/measure/sketch.py",
    "srtm/gateway/measure/trace.py",
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
    # In C, as it is system calls only; without it they are made one by one, from Python.
    sender = Extension("srtm.gateway._sender", ["srtm/gateway/_sender.c"], optional=True)
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("srtm: not compiled: mypy is not installed", file=sys.stderr)
        return [sender]
    return [sender, *mypycify([*HOT, "--ignore-missing-imports"], opt_level="3")]


class BuildWithProgram(build_py):
    """Puts the kernel's program into wheels. A checkout has it beside its source (Makefile)."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        if shutil.which("clang") is None:
            print("srtm: no clang: kernel/segments.bpf.o is not built", file=sys.stderr)
            return
        built = os.path.join(self.build_lib, "kernel", "segments.bpf.o")
        subprocess.run([*CLANG.split(), built], check=True)


setup(ext_modules=compiled(), cmdclass={"build_py": BuildWithProgram})
