"""`agentless demo`: a tour on four simulated nodes, each step with the command that you would type."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Annotated

import typer

from agentless.client.words import gpu_place
from agentless.errors import AgentlessError

_NODES = "8,4,1,mig"


class DemoFailed(AgentlessError):
    """The simulation did not behave as expected."""


def add_to(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Keep the nodes up for other shells until Ctrl-C")] = False,
) -> None:
    """Try agentless on four simulated nodes; no GPU or Docker needed."""
    root = Path(tempfile.mkdtemp(prefix="agentless-demo-"))
    try:
        with _fleet(root) as (variables, lines):
            environment = {**os.environ, **variables, "AGENTLESS_PAGER": ""}  # the tour must not stop in one
            try:
                if keep:
                    _stay(variables, lines)
                else:
                    _walk(environment)
                    _offer(environment, variables)
            finally:
                _agentless(environment, "controller", "stop", quiet=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def _fleet(root: Path) -> Iterator[tuple[dict[str, str], IO[str]]]:
    """Run the simulated nodes in a process that ends when its stdin closes, even if this one is killed.

    Yields the environment variables for another shell, and a file for the lines that unplug a node.
    """
    command = [sys.executable, "-m", "agentless.demo", str(root / "fleet"), "--nodes", _NODES]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - Popen's types
        try:
            word, _, inventory = process.stdout.readline().strip().partition(" ")
            if word != "ready":
                raise DemoFailed("the simulated nodes did not start")
            config = root / "config" / "agentless"
            config.mkdir(parents=True)
            shutil.copy(root / "fleet" / "known_hosts", config)
            variables = {
                "AGENTLESS_INVENTORY": inventory,
                "XDG_CONFIG_HOME": str(root / "config"),
                "XDG_STATE_HOME": str(root / "state"),
            }
            yield variables, process.stdin
        finally:
            process.stdin.close()


def _stay(variables: dict[str, str], lines: IO[str]) -> None:
    print(f"Three SIMULATED nodes are up. In another shell:\n\n  {_export(variables)}")
    print("  agentless gpus\n  agentless dashboard\n")
    print(
        "Type unplug node2 here to cut a node off, and plug node2 to bring it back. Ctrl-C ends the simulation.",
        flush=True,
    )
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            print(line, end="", file=lines, flush=True)
    print("\nEnding the simulated nodes ...")


def _export(variables: dict[str, str]) -> str:
    return "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())


def _walk(environment: dict[str, str]) -> None:
    print("This is a SIMULATION: real SSH servers and a real controller; the GPUs and Docker are stand-ins.")
    _step("Which GPUs are there?", environment, "gpus")
    _step(
        "Run a command on two GPUs of node1. Inside, it sees just those two.",
        environment, "submit", "node1::0,1", "--name", "train", "--",
        "sh", "-c", 'echo "my GPUs: $NVIDIA_VISIBLE_DEVICES"; trap "echo saved" TERM; sleep 600 & wait',
    )  # fmt: skip
    _step("What is running?", environment, "ps")
    _step("What did it print?", environment, "logs", "train")
    _step(
        "Request one of its GPUs without the queue: refused, with the task that holds it.",
        environment,
        "submit",
        "node1::1",
        "--no-queue",
        "--",
        "true",
        wants=3,
    )
    _step(
        "Request a GPU that somebody uses outside agentless: the task is pending.",
        environment, "submit", _foreign(environment), "--name", "patient", "--", "true",
    )  # fmt: skip
    _step("Why is it pending, and what would help?", environment, "explain", "patient")
    _step("Take it out of the queue.", environment, "stop", "patient")
    _step("Stop the first task: it gets SIGTERM, and time to save its work.", environment, "stop", "train")
    _step("What did it print at the end?", environment, "logs", "train", "--tail", "1")
    _step(
        "Now the GPU is free. Run a short task on it.",
        environment,
        "submit",
        "node1::1",
        "--follow",
        "--",
        "echo",
        "hello from node1",
    )
    _step("What ran today?", environment, "ps", "--all")
    print("\nThose are the basics. To use your own machines: agentless init")


def _offer(environment: dict[str, str], variables: dict[str, str]) -> None:
    """Offer the dashboard, with some tasks to see."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    print("\nTo try commands on the four nodes first, such as agentless submit 2x -- sleep 60, run in another shell:")
    print(f"  {_export(variables)}")
    print("Press Enter for the dashboard (q quits it), or Ctrl-C to end: ", end="")
    try:
        input()
    except (KeyboardInterrupt, EOFError):
        print()
        return
    for words in (("node1::0-3", "--name", "pretrain"), ("2x", "--name", "finetune"), ("8x", "--name", "big")):
        _agentless(environment, "submit", *words, "--", "sleep", "3600", quiet=True)
    _agentless(environment, "dashboard")


def _foreign(environment: dict[str, str]) -> str:
    gpus = json.loads(_agentless(environment, "gpus", "--json", quiet=True).stdout)
    gpu = next(gpu for gpu in gpus if gpu["state"] == "foreign")
    return gpu_place(gpu)


def _step(why: str, environment: dict[str, str], *words: str, wants: int = 0) -> None:
    print(f"\n# {why}\n$ agentless {shlex.join(words)}", flush=True)
    code = _agentless(environment, *words).returncode
    if code != wants:
        raise DemoFailed(f"expected exit code {wants}, got {code}")
    if code:
        print(f"(exit code {code})", flush=True)


def _agentless(environment: dict[str, str], *words: str, quiet: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "agentless", *words], env=environment, check=False, capture_output=quiet
    )
