"""`python -m tests.faults [NAME …] [--quick]`: let things break on real nodes, and print what became of it.

Exits with 1 unless nothing was lost and nothing was there twice. NAME is a part of a fault's name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.matrix import FAULTS, IN_BRIEF, run, table
from tests.faults.scene import Scene
from tests.lab import Lab, requirements


def main() -> int:
    """Run the faults that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="part of a name: " + "; ".join(FAULTS))
    parser.add_argument("--quick", action="store_true", help="a few injections of each")
    given = parser.parse_args()
    every = IN_BRIEF if given.quick else FAULTS
    wanted = [name for name in every if not given.names or any(part in name for part in given.names)]
    if not wanted:
        parser.error(f"no fault is called like that; there is: {'; '.join(FAULTS)}")
    if missing := requirements():
        print(f"no real nodes on this machine: {'; '.join(missing)}", file=sys.stderr)
        return 1
    rows = []
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_nodes({"node1": 2, "node2": 2})
        scene = Scene(lab, quick=given.quick)
        for name in wanted:
            print(f"{name} …", file=sys.stderr, flush=True)
            began = time.monotonic()
            rows.append(row := run(name, scene))
            words = (
                f"{row.injected} injections in {time.monotonic() - began:.0f} s, the truth within {row.slowest:.1f} s"
            )
            print(f"  {words}; {len(row.lost)} lost, {len(row.double)} double", file=sys.stderr, flush=True)
            for problem in row.double:
                print(f"  {problem}", file=sys.stderr, flush=True)
        print(table(rows))
        scene.close()
    return int(any(row.lost or row.double for row in rows))


if __name__ == "__main__":
    sys.exit(main())
