"""A lab to try things in by hand: `eval "$(python -m tests.lab up)"`, later `python -m tests.lab down`."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path

from .lab import Lab
from .processes import MARK
from .requirements import requirements
from .teardown import remove


def main() -> int:
    """Bring a lab up and leave it running, or remove it."""
    parser = argparse.ArgumentParser(prog="python -m tests.lab", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    up = commands.add_parser("up", help="start nodes, leave them running, print what a shell needs")
    down = commands.add_parser("down", help="remove them and all that runs on them")
    for command in (up, down):
        command.add_argument("dir", nargs="?", type=Path, default=Path("/tmp/agentless-lab"))
    up.add_argument("--nodes", type=int, help="how many (default: as many as --gpus has numbers)")
    up.add_argument("--gpus", default="2,2", metavar="N,…", help="GPUs per node, the last number for the rest")
    given = parser.parse_args()
    if given.command == "down":
        remove(given.dir.resolve())
        return 0
    if missing := requirements():
        print("no lab on this machine:", "; ".join(missing), file=sys.stderr)
        return 1
    counts = [int(word) for word in given.gpus.split(",")]
    nodes = given.nodes or len(counts)
    counts += counts[-1:] * nodes
    try:
        lab = Lab(given.dir, guarded=False)
    except FileExistsError as error:
        print(error, file=sys.stderr)
        return 1
    try:
        lab.add_nodes({f"node{i + 1}": counts[i] for i in range(nodes)})
    except BaseException:
        lab.close()
        raise
    _print_shell(lab)
    return 0


def _print_shell(lab: Lab) -> None:
    """Without the lab's mark: `down` would end the shell that has it."""
    for name, value in lab.env().items():
        if name != MARK:
            print(f"export {name}={shlex.quote(value)}" + (':"$PATH"' if name == "PATH" else ""))
    print(f"export AGENTLESS_INVENTORY={shlex.quote(str(lab.inventory))}")
    for node in lab.nodes.values():
        print(f"# {node.host} {len(node.gpu_uuids)} GPUs: ssh -F {lab.home}/.ssh/config {node.name} nvidia-smi")


if __name__ == "__main__":
    sys.exit(main())
