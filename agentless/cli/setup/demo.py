"""`agentless demo`: a tour on simulated nodes that live, each step with the command that you would type."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from agentless.errors import AgentlessError, UsageError

if TYPE_CHECKING:
    from agentless.cli.setup.people import People

_MOST_NODES = 100
_PAUSE = 0.7
"""Seconds before a step, so that a person can read the one before."""


class DemoFailed(AgentlessError):
    """The simulation did not behave as expected."""


def add_to(app: typer.Typer) -> None:
    app.command()(demo)


def demo(
    nodes: Annotated[
        int, typer.Option("--nodes", "-n", min=1, max=_MOST_NODES, metavar="N", help="Number of nodes")
    ] = 4,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Open the dashboard over them at once")] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the nodes up for other shells until Ctrl-C")] = False,
) -> None:
    """Try agentless on simulated nodes; no GPU or Docker needed."""
    on_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    if dashboard and not on_terminal:
        raise UsageError("--dashboard needs a terminal; without it, the demo writes to a pipe, too")
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _end)
    print(f"This is a SIMULATION on {nodes} node{'s' if nodes > 1 else ''}: real SSH servers and a real controller;")
    print("the GPUs and Docker are stand-ins.", flush=True)
    root = Path(tempfile.mkdtemp(prefix="agentless-demo-"))
    try:
        from agentless.cli.setup.people import People, sizes

        with _fleet(root, sizes(nodes)) as (variables, tell):
            os.environ.update(variables, AGENTLESS_PAGER="")  # the tour must not stop in one
            try:
                with People(nodes, tell) as people:
                    if dashboard:
                        _watch(people)
                    if keep:
                        _stay(people, nodes, variables, tell, is_begun=dashboard)
                    elif not dashboard:
                        people.begin()
                        _walk(people)
                        if on_terminal:
                            _offer(people, nodes, variables)
            finally:
                _agentless("controller", "stop", quiet=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _end(number: int, _frame: object) -> None:
    """A terminal that is closed leaves nothing behind, either."""
    sys.exit(128 + number)


@contextlib.contextmanager
def _fleet(root: Path, sizes: Sequence[str]) -> Iterator[tuple[dict[str, str], Callable[[str], None]]]:
    """Run the simulated nodes in a process that ends when its stdin closes, even if this one is killed.

    Yields the environment variables for another shell, and what takes the lines that unplug a node.
    """
    samples = root / "state" / "agentless" / "samples.sqlite"
    samples.parent.mkdir(mode=0o700, parents=True)
    command = [sys.executable, "-m", "agentless.demo", str(root / "fleet"), "--nodes", ",".join(sizes)]
    command += ["--samples", str(samples)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdin is not None and process.stdout is not None  # noqa: S101, PT018 - Popen's types
        try:
            word, _, inventory = process.stdout.readline().strip().partition(" ")
            if word != "ready":
                raise DemoFailed("the simulated nodes did not start")
            config = root / "config" / "agentless"
            shutil.copytree(root / "fleet" / "templates", config / "templates")
            shutil.copy(root / "fleet" / "known_hosts", config)
            variables = {
                "AGENTLESS_INVENTORY": inventory,
                "XDG_CONFIG_HOME": str(root / "config"),
                "XDG_STATE_HOME": str(root / "state"),
            }
            yield variables, partial(print, file=process.stdin, flush=True)
        finally:
            process.stdin.close()


def _watch(people: People) -> None:
    """Show the dashboard, and what other people do meanwhile."""
    people.begin()
    people.go_on()
    _agentless("dashboard")


def _stay(
    people: People, nodes: int, variables: dict[str, str], tell: Callable[[str], None], *, is_begun: bool
) -> None:
    if not is_begun:
        people.begin()
        people.go_on()
    print(f"{_counted(nodes)} are up. In another shell:\n\n  {_export(variables)}")
    print("  agentless gpus\n  agentless dashboard\n")
    print(
        f"Other people use them; {people.YOURS} are reserved for you. {people.TROUBLE if nodes >= 3 else ''}".rstrip()
    )
    away = f"node{min(nodes, 2)}"
    print(f"Type unplug {away} here to cut a node off, and plug {away} to bring it back. Ctrl-C ends the simulation.")
    sys.stdout.flush()
    with contextlib.suppress(KeyboardInterrupt):
        for line in sys.stdin:
            tell(line.rstrip("\n"))
    print("\nEnding the simulated nodes ...")


def _counted(nodes: int) -> str:
    return f"{nodes} SIMULATED node{'s' if nodes > 1 else ''}"


def _export(variables: dict[str, str]) -> str:
    return "export " + " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())


def _walk(people: People) -> None:
    _step("Which GPUs are there?", "gpus")
    _step(
        "Run a command on two GPUs of node1. Inside, it sees just those two.",
        "submit", "node1::0,1", "--name", "train", "--",
        "sh", "-c", 'echo "my GPUs: $NVIDIA_VISIBLE_DEVICES"; trap "echo saved" TERM; sleep 600 & wait',
    )  # fmt: skip
    _step("What is running?", "ps")
    _step("What did it print?", "logs", "train")
    _step(
        "Request one of its GPUs without the queue: refused, with the task that holds it.",
        "submit",
        "node1::1",
        "--no-queue",
        "--",
        "true",
        wants=3,
    )
    _step(
        "Request a GPU that somebody uses outside agentless: the task is pending.",
        "submit", people.foreign(), "--name", "patient", "--", "true",
    )  # fmt: skip
    _step("Why is it pending, and what would help?", "explain", "patient")
    _step("Take it out of the queue.", "stop", "patient")
    _step("Stop the first task: it gets SIGTERM, and time to save its work.", "stop", "train")
    _step("What did it print at the end?", "logs", "train", "--tail", "1")
    _step(
        "Now the GPU is free. Run a short task on it.",
        "submit",
        "node1::1",
        "--follow",
        "--",
        "echo",
        "hello from node1",
    )
    _step("What ran today?", "ps", "--all")
    print("\nThose are the basics. To use your own machines: agentless init")


def _offer(people: People, nodes: int, variables: dict[str, str]) -> None:
    """Offer the dashboard, over nodes that other people use, too."""
    print(f"\nTo try commands on the {_counted(nodes)} first, such as agentless submit 2x -- sleep 60, run in another")
    print(f"shell:\n  {_export(variables)}")
    print("Press Enter for the dashboard (q quits it), or Ctrl-C to end: ", end="")
    try:
        input()
    except (KeyboardInterrupt, EOFError):
        print()
        return
    people.go_on()
    _agentless("dashboard")


def _step(why: str, *words: str, wants: int = 0) -> None:
    if sys.stdout.isatty():
        time.sleep(_PAUSE)
    print(f"\n# {why}\n$ agentless {shlex.join(words)}", flush=True)
    code = _agentless(*words).returncode
    if code != wants:
        raise DemoFailed(f"expected exit code {wants}, got {code}")
    if code:
        print(f"(exit code {code})", flush=True)


def _agentless(*words: str, quiet: bool = False) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([sys.executable, "-m", "agentless", *words], check=False, capture_output=quiet)
