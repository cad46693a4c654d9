"""Ends what a simulation has started when the simulation itself is gone, however it went. Run as a program of its own.

Its standard input is a pipe from the simulation: the kernel closes it also after `kill -9`. A process belongs to the
simulation in ROOT if its environment says AGENTLESS_STANDIN_DIR=ROOT/….
"""

import os
import signal
import sys
import time
from pathlib import Path


def belonging(root: str) -> list[int]:
    """The PIDs whose environment, as it was when they started, points into `root`. Ended ones have none."""
    mark = f"\0AGENTLESS_STANDIN_DIR={root}/".encode()
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                environ = Path("/proc", entry, "environ").read_bytes()
            except OSError:  # ended meanwhile, or somebody else's
                continue
            if mark in b"\0" + environ:
                found.append(int(entry))
    return found


def main() -> None:
    """Wait for the end of standard input, then kill until nothing is left, 10 s at most."""
    sys.stdin.buffer.read()
    for _ in range(1000):
        left = belonging(sys.argv[1])
        if not left:
            return
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        time.sleep(0.01)


if __name__ == "__main__":
    main()
