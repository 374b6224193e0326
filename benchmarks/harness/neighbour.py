"""A busy neighbour: takes the core that it is pinned to for as long as it is told.

`python -m benchmarks.harness.neighbour CORE` reads a number of milliseconds from each line of stdin
and spins for so long. It asks for a real-time priority, so that the others of that core wait; it
says on stdout whether it got one.
"""

import os
import sys
import time


def main() -> None:
    os.sched_setaffinity(0, {int(sys.argv[1])})
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except PermissionError:
        print("ordinary", flush=True)
    else:
        print("real-time", flush=True)
    for line in sys.stdin:
        end = time.monotonic_ns() + int(line) * 1_000_000
        while time.monotonic_ns() < end:
            pass


if __name__ == "__main__":
    main()
