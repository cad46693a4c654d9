"""`agentless demo`: the main job on three simulated nodes, each step with the command that a user would type."""

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
from typing import Annotated

import typer

from agentless.errors import AgentlessError

_NODES = "8,4,1"


class DemoFailed(AgentlessError):
    """The simulation did not do what it should."""


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(demo)


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave the nodes up, for other shells, until Ctrl-C.")] = False,
) -> None:
    """Try agentless on three simulated nodes: no GPU, no Docker, nothing left behind."""
    root = Path(tempfile.mkdtemp(prefix="agentless-demo-"))
    try:
        with _fleet(root) as variables:
            environment = {**os.environ, **variables}
            try:
                _stay(variables) if keep else _walk(environment)
            finally:
                _agentless(environment, "controller", "stop", quiet=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def _fleet(root: Path) -> Iterator[dict[str, str]]:
    """The simulated nodes in a process of their own, which ends when its stdin does: whatever becomes of us.

    Gives the environment variables that make another shell use them.
    """
    command = [sys.executable, "-m", "agentless.demo", str(root / "fleet"), "--nodes", _NODES]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - Popen's types
        try:
            word, _, inventory = process.stdout.readline().strip().partition(" ")
            if word != "ready":
                raise DemoFailed("the simulated nodes did not come up")
            config = root / "config" / "agentless"
            config.mkdir(parents=True)
            shutil.copy(root / "fleet" / "known_hosts", config)
            yield {
                "AGENTLESS_INVENTORY": inventory,
                "XDG_CONFIG_HOME": str(root / "config"),
                "XDG_STATE_HOME": str(root / "state"),
            }
        finally:
            process.stdin.close()


def _stay(variables: dict[str, str]) -> None:
    print("Three SIMULATED nodes are up. In another shell:\n")
    print("  export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items()))
    print("  agentless gpus\n\nCtrl-C here ends them.", flush=True)
    with contextlib.suppress(KeyboardInterrupt):
        _sleep() if sys.stdin.isatty() else sys.stdin.read()
    print("\nending the simulated nodes ...")


def _sleep() -> None:
    import signal

    signal.pause()


def _walk(environment: dict[str, str]) -> None:
    print("This is a SIMULATION: real SSH servers and a real controller; the GPUs and Docker are stand-ins.")
    _step("Which GPUs are there?", environment, "gpus")
    _step(
        "Run a command on two GPUs of node1. Inside, it sees just those two.",
        environment, "submit", "node1::0,1", "--name", "train", "--",
        "sh", "-c", 'echo "my GPUs: $NVIDIA_VISIBLE_DEVICES"; trap "echo saved" TERM; sleep 600 & wait',
    )  # fmt: skip
    _step("What runs?", environment, "ps")
    _step("What has it printed?", environment, "logs", "train")
    _step(
        "Ask for one of its GPUs again, now or never: refused, with who holds it.",
        environment,
        "submit",
        "node1::1",
        "--no-queue",
        "--",
        "true",
        wants=3,
    )
    _step(
        "A GPU that somebody uses outside agentless: a task for it waits.",
        environment, "submit", _foreign(environment), "--name", "patient", "--", "true",
    )  # fmt: skip
    _step("Why does it wait, and what would help?", environment, "explain", "patient")
    _step("It need not wait any more.", environment, "stop", "patient")
    _step("End it: it gets SIGTERM, and time to save its work.", environment, "stop", "train")
    _step("Its last words?", environment, "logs", "train", "--tail", "1")
    _step(
        "Now the GPU is free, and a short task runs to its end.",
        environment,
        "submit",
        "node1::1",
        "--follow",
        "--",
        "echo",
        "hello from node1",
    )
    _step("What was there today?", environment, "ps", "--all")
    print("\nThat is the main job. Now your own machines: agentless init")


def _foreign(environment: dict[str, str]) -> str:
    gpus = json.loads(_agentless(environment, "gpus", "--json", quiet=True).stdout)
    gpu = next(gpu for gpu in gpus if gpu["state"] == "foreign")
    return f"{gpu['node']}::{gpu['index']}"


def _step(why: str, environment: dict[str, str], *words: str, wants: int = 0) -> None:
    print(f"\n# {why}\n$ agentless {shlex.join(words)}", flush=True)
    code = _agentless(environment, *words).returncode
    if code != wants:
        raise DemoFailed(f"this should have ended with {wants} and ended with {code}")
    if code:
        print(f"(exit code {code})", flush=True)


def _agentless(environment: dict[str, str], *words: str, quiet: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, "-m", "agentless", *words], env=environment, check=False, capture_output=quiet
    )
