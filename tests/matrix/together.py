"""All engines in one inventory: doctor proves each, and an env of the oldest runs on all that have envs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.lab import Lab
from tests.matrix.engines import ENGINES, Engine
from tests.real.cli import Cli

_RED = {"limits"}
"""What is red on an engine that has no control groups to limit by."""


def problems(lab: Lab, engines: Sequence[Engine] = ENGINES) -> list[str]:
    """What is not as it should be. The first of the engines makes the env."""
    nodes = {f"n{number}": engine for number, engine in enumerate(engines)}
    text = f"version: 1\ndefaults: {{identity_file: {lab.identity}, image: lab/busybox}}\nnodes:\n"
    for name, engine in nodes.items():
        text += f"  {name}: {{host: {engine.node(lab, name).host}, {engine.inventory}}}\n"
    cli = Cli(lab, "together", text)
    try:
        return [*_doctor(cli, nodes), *_env(cli, nodes)]
    finally:
        cli.close()


def _doctor(cli: Cli, nodes: dict[str, Engine]) -> Iterator[str]:
    for check in cli.json("doctor", "--run", code=None):
        if check["ok"] is False and check["check"] not in _RED:
            yield f"{nodes[check['node']].name}: doctor --run: {check['check']}: {check['detail']}"


def _env(cli: Cli, nodes: dict[str, Engine]) -> Iterator[str]:
    cli("env", "create", "proof", "--from", "lab/busybox", "--on", "n0")
    cli("env", "exec", "proof", "--", "sh", "-c", "echo made >/file")
    cli("env", "save", "proof")
    for row in cli.json("env", "push", "proof")["nodes"]:
        if row["error"]:
            yield f"{nodes[row['node']].name}: env push: {row['error']}"
    for name, engine in nodes.items():
        done = cli("run", "--node", name, "--gpus", "1", "--container", "proof", "--", "cat", "/file", code=None)
        refused = engine.refuses.get("env push, submit --container")
        right = (
            done.code == 3 and refused in done.err and "not among" not in done.err if refused else done.out == "made\n"
        )
        if not right:
            yield f"{engine.name}: an env of {nodes['n0'].name}: {done}"
