"""`agentless nodes trust`: compare the host keys of nodes, and record them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple

import typer

from agentless.cli.app import complain
from agentless.cli.arguments import ManyNodes
from agentless.cli.client import client
from agentless.cli.output import print_line, say
from agentless.client.client import Client
from agentless.errors import NoAnswer, Refused, UsageError

Keys = list[dict[str, Any]]
"""Host keys as `GET /v1/host-keys` gives them."""


class Verdict(NamedTuple):
    """What became of a node's host key: a `problem` with its exit code, or none.

    `recorded`: only just. `changed`: another one is on record.
    """

    node: str
    problem: str = ""
    code: int = 0
    recorded: bool = False
    changed: bool = False


def trust(
    context: typer.Context,
    nodes: ManyNodes = None,
    everyone: Annotated[bool, typer.Option("--all", help="All nodes of the inventory.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Record without asking (you have compared them).")] = False,
) -> int:
    """Look at the host keys of nodes, and record them.

    A key that your ssh knows (~/.ssh/known_hosts) needs no recording. --all leaves out keys that have changed.
    """
    if bool(nodes) == everyone:
        raise UsageError("name the nodes, or say --all")
    from agentless.model.nodes.node import naming

    served, code = client(context), 0

    def agree(keys: Keys) -> bool:
        _show(keys)
        if not yes and not sys.stdin.isatty():
            raise Refused("nobody is here to compare the fingerprints; compare them, then use --yes")
        if not yes and not confirm_keys(len(distinct(keys))):
            raise Refused("nothing was recorded")
        return True

    for verdict in settled(served, served.get("/v1/host-keys", node=nodes), agree, changed_too=not everyone):
        if verdict.problem:
            fix = f", then run: agentless nodes trust {verdict.node}" if verdict.changed else ""
            complain(naming(verdict.node, f"{verdict.problem}{fix}"))
            code = code or verdict.code
        else:
            known = "recorded" if verdict.recorded else "its host key is on record"
            print_line(f"{verdict.node}: {known}, and it can be reached")
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
                problem, code = "its key was recorded and is refused all the same", Refused.exit_code
            if not problem and not key["trusted"]:
                ask.append(key)
            else:
                yield Verdict(key["node"], problem, code, key["node"] in shown, bool(key["recorded"]))
        if not ask:
            return
        if not agree(ask):
            for key in ask:
                yield Verdict(key["node"], f"the host key of {key['host']} is not trusted", Refused.exit_code)
            return
        shown = {key["node"]: key["fingerprint"] for key in ask}
        found = served.post("/v1/host-keys", shown)


def distinct(keys: Keys) -> Keys:
    """Each key once: that of a jump host is shown by all nodes behind it."""
    return list({(key["host"], key["fingerprint"]): key for key in keys}.values())


def confirm_keys(count: int) -> bool:
    """Ask whether these keys are the right ones."""
    say("To compare, run on the node: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    question = "Trust this key?" if count == 1 else f"Trust these {count} keys?"
    return typer.confirm(question, default=False, err=True)


def _untrustworthy(key: dict[str, Any], *, changed_too: bool) -> tuple[str, int]:
    """Why a key must not be recorded, and the exit code for that; empty if it may be."""
    if key["error"]:
        return key["error"].removeprefix(f"{key['node']}: "), NoAnswer.exit_code
    if key["revoked"]:
        return f"{key['host']} shows a host key that is marked as revoked; do not connect", 3
    if key["recorded"] and not changed_too:
        return f"WARNING: {key['host']} shows another host key than the one on record; ask its admin", 3
    return "", 0


def _show(keys: Keys) -> None:
    for key in distinct(keys):
        print_line(f"{key['node']}: {key['host']} shows the host key {key['fingerprint']}")
        if key["recorded"]:
            say(
                f"WARNING: on record is {', '.join(key['recorded'])}. Either the node was set up anew, or somebody "
                "stands in between. Ask its admin before you go on."
            )
