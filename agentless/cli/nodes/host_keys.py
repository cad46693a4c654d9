"""`agentless nodes trust`: compare the host keys of nodes, and record them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import typer

from agentless.cli.app import complain, warn
from agentless.cli.arguments import ManyNodes
from agentless.cli.client import client
from agentless.cli.output import print_line, say
from agentless.cli.progress import progress
from agentless.client.client import Client
from agentless.errors import NoAnswer, Refused, UsageError

Keys = list[dict[str, Any]]
"""Host keys as `GET /v1/host-keys` gives them."""


class Verdict(NamedTuple):
    """What became of a node's host key: a `problem` with its exit code, or none.

    `recorded`: only just. `changed`: another one is on record. `address` is the one of several that answers.
    """

    node: str
    problem: str = ""
    code: int = 0
    recorded: bool = False
    changed: bool = False
    address: str = ""


def trust(
    context: typer.Context,
    nodes: ManyNodes = None,
    everyone: Annotated[bool, typer.Option("--all", help="All nodes in the inventory")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; you have compared the keys")] = False,
) -> int:
    """Show the host keys of nodes, and record them once you confirm.

    Keys in your ~/.ssh/known_hosts are trusted already. --all skips keys that have changed.
    """
    if bool(nodes) == everyone:
        raise UsageError("Specify nodes, or --all")
    from agentless.model.nodes.node import naming

    served, code = client(context), 0

    def agree(keys: Keys) -> bool:
        _show(keys)
        if not yes and not sys.stdin.isatty():
            raise Refused("Cannot ask for confirmation without a terminal. Compare the fingerprints, then use --yes")
        if not yes and not confirm_keys(len(distinct(keys))):
            raise Refused("Nothing recorded")
        return True

    with progress("Reading host keys"):
        found = served.get("/v1/host-keys", node=nodes)
    for verdict in settled(served, found, agree, changed_too=not everyone):
        if verdict.problem:
            fix = f", then run: agentless nodes trust {verdict.node}" if verdict.changed else ""
            complain(naming(verdict.node, f"{verdict.problem}{fix}"))
            code = code or verdict.code
        else:
            known = "host key recorded" if verdict.recorded else "host key already trusted"
            place = f" at {verdict.address}" if verdict.address else ""
            print_line(f"{verdict.node}: {known}, node reachable{place}")
    return code


def settled(served: Client, found: Keys, agree: Callable[[Keys], bool], *, changed_too: bool) -> Iterator[Verdict]:
    """Record the host keys that `agree` accepts, and yield what became of each node.

    A node behind a jump host shows its own key only once the jump host's is recorded, so there may be more rounds.
    `changed_too`: `agree` decides about keys other than the one on record, too.
    """
    shown: dict[str, str] = {}
    while True:
        ask = []
        for key in found:
            problem, code = _untrustworthy(key, changed_too=changed_too)
            if not problem and key["fingerprint"] and key["fingerprint"] == shown.get(key["node"]):
                problem, code = "its host key is recorded, but SSH still refuses it", Refused.exit_code
            if not problem and not key["trusted"]:
                ask.append(key)
            else:
                yield Verdict(key["node"], problem, code, key["node"] in shown, bool(key["recorded"]), key["address"])
        if not ask:
            return
        if not agree(ask):
            for key in ask:
                yield Verdict(key["node"], f"the host key of {key['host']} is not trusted", Refused.exit_code)
            return
        shown = {key["node"]: key["fingerprint"] for key in ask}
        with progress("Connecting"):
            found = served.post("/v1/host-keys", shown)


def distinct(keys: Keys) -> Keys:
    """Each key once: that of a jump host is shown by all nodes behind it."""
    return list({(key["host"], key["fingerprint"]): key for key in keys}.values())


def confirm_keys(count: int) -> bool:
    """Ask whether these keys are the right ones."""
    say(
        "To print the fingerprint on the node: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub",
        "agentless keeps trusted keys in its own file; ~/.ssh/known_hosts stays as it is.",
    )
    question = "Does it match? Trust this key" if count == 1 else f"Do they match? Trust all {count} keys"
    return typer.confirm(question, default=False, err=True)


def _untrustworthy(key: dict[str, Any], *, changed_too: bool) -> tuple[str, int]:
    """Why a key must not be recorded, and the exit code for that; empty if it may be."""
    if key["error"]:
        return key["error"].removeprefix(f"{key['node']}: "), NoAnswer.exit_code
    if key["revoked"]:
        return f"{key['host']} presents a revoked host key; do not connect", 3
    if key["recorded"] and not changed_too:
        return f"WARNING: the host key of {key['host']} has changed; ask its admin", 3
    return "", 0


def _show(keys: Keys) -> None:
    for key in distinct(keys):
        place = f" at {key['address']}" if key["address"] else ""
        print_line(f"{key['node']}: {key['host']}{place} presents host key {key['fingerprint']}")
        if key["recorded"]:
            warn(
                f"WARNING: the recorded key is {', '.join(key['recorded'])}. Either the node was reinstalled, or "
                "somebody intercepts the connection. Ask its admin before you continue."
            )
