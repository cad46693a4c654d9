"""`python -m agentless.demo ROOT --nodes 8,4,1`: simulated nodes with 8, 4 and 1 GPUs in the foreground.

`mig` in place of a number is a node with one GPU in slices.

Prints `ready INVENTORY` when all are up, and ends, with every process of theirs, on SIGTERM, on SIGINT, or when its
standard input ends: started with a pipe, it cannot outlive the one who started it. Until then it does what lines of
its input say: `unplug NODE`, `plug NODE`, `sicken NODE GPU`, `heal NODE GPU`.

With `--samples FILE` the cluster lives: loads move, and the hour before is in that file, for a controller.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import Literal

from agentless.demo.fleet import Fleet, demo_plans
from agentless.signals import defaults_for_children


async def run(root: Path, gpus: list[int | Literal["mig"]], samples: Path | None) -> None:
    """Run a fleet in `root` until it is asked to end."""
    loop = asyncio.get_running_loop()
    over = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    defaults_for_children()

    asked = asyncio.Queue[list[str]]()

    def read() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended first
            while text := os.read(0, 4096).decode(errors="replace"):
                for line in text.splitlines():
                    loop.call_soon_threadsafe(asked.put_nowait, line.split())
            loop.call_soon_threadsafe(over.set)

    # In a thread, since a loop waits for no file: /dev/null is one.
    threading.Thread(target=read, daemon=True).start()
    async with Fleet(root, demo_plans(gpus), samples) as fleet:
        print("ready", fleet.inventory, flush=True)
        doing = asyncio.create_task(_do(fleet, asked))
        await over.wait()
        doing.cancel()


async def _do(fleet: Fleet, asked: asyncio.Queue[list[str]]) -> None:
    """Execute lines, one after the other."""
    while True:
        match await asked.get():
            case ["unplug", name] if name in fleet.nodes:
                fleet.nodes[name].cut()
                print(f"{name} is unplugged", file=sys.stderr)
            case ["plug", name] if name in fleet.nodes:
                await fleet.nodes[name].restore()
                print(f"{name} is plugged in", file=sys.stderr)
            case ["sicken", name, index] if name in fleet.nodes and index.isdecimal():
                fleet.nodes[name].gpus.sicken(int(index))
            case ["heal", name, index] if name in fleet.nodes and index.isdecimal():
                fleet.nodes[name].gpus.show(int(index), {})
            case [_, *_]:
                print(
                    f"unknown command; use unplug NODE or plug NODE, where NODE is one of {', '.join(fleet.nodes)}",
                    file=sys.stderr,
                )


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(prog="python -m agentless.demo", description="Run simulated GPU nodes.")
    parser.add_argument("root", type=Path, help="an empty or new folder for the nodes")
    parser.add_argument("--nodes", default="8,4,1", help="number of GPUs of each node (default: 8,4,1)")
    parser.add_argument("--samples", type=Path, help="let loads move, and write the hour before into this file")
    arguments = parser.parse_args()
    try:
        words = arguments.nodes.split(",")
        gpus: list[int | Literal["mig"]] = ["mig" if word == "mig" else int(word) for word in words]
    except ValueError:
        parser.error(f"--nodes {arguments.nodes}: use numbers of GPUs, such as 8,4,1, or mig for a GPU in slices")
    if sys.stdin is None:
        parser.error("standard input is closed; connect a terminal or a pipe (the nodes stop when it closes)")
    if arguments.root.is_dir() and any(arguments.root.iterdir()):
        parser.error(f"{arguments.root} is not empty")
    # asyncio warns of every client that hangs up while it is being answered.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    asyncio.run(run(arguments.root, gpus, arguments.samples))


if __name__ == "__main__":
    main()
