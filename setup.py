"""Compiles the gateway's hot modules with mypyc where a C compiler is there, and the program of
kernel/ with clang.

The same typed source runs either way: what is not compiled is interpreted, a fifth slower for each
message (benchmarks/gateway/cost.py). SRTM_COMPILE=0 leaves it out.

What is in HOT was chosen by leaving out one part at a time: medians of the gateway's CPU for a
message, over all compiled, of 5 rounds in turn on 2 cores, with trace, admission log and a consumer
through the gateway; at 1,000 connections x 1, at 50 x 20, and at 5,000 messages/s that wait. The
tunnel: 1.03, 1.03, 1.03; the reactor: 1.03, 1.06, 1.01; srtm/gateway/measure: 1.00, 1.01, 1.00, so
it is not in. Without trace, log and consumer, 2 rounds of the first two: kernel/: 1.18, 1.04;
client and outbox: 1.13, 1.15; topic, bucket, backlogs and bodies: 1.22, 1.07. The others cannot be
left out alone: a compiled class takes no interpreted one for its native types.
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
    "srtm/limits/bucket.py",
    "srtm/gateway/arrival_order.py",
    "srtm/gateway/batch.py",
    "srtm/gateway/backlog.py",
    "srtm/gateway/backlogs.py",
    "srtm/gateway/bodies.py",
    "srtm/gateway/client.py",
    "srtm/gateway/fair_order.py",
    "srtm/gateway/layered.py",
    "srtm/gateway/outbox.py",
    "srtm/gateway/pool.py",
    "srtm/gateway/reactor.py",
    "srtm/gateway/run.py",
    "srtm/gateway/topic.py",
    "srtm/gateway/tunnel.py",
    "srtm/gateway/upstream.py",
    "srtm/nsq/commands.py",
    "srtm/nsq/connection.py",
    "srtm/nsq/errors.py",
    "srtm/nsq/frames.py",
    "srtm/nsq/layers/deflate.py",
    "srtm/nsq/layers/layer.py",
    "srtm/nsq/layers/snappy.py",
    "srtm/nsq/layers/tls.py",
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
