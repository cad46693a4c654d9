"""`agentless nodes trust`: compare the host keys of nodes, and record them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import complain, warn
from agentless.cli.arguments import path_words
from agentless.cli.client import client
from agentless.cli.confirm import confirm
from agentless.cli.output import print_line, say
from agentless.cli.progress import progress
from agentless.errors import NoAnswer, Refused, UsageError


def trust(
    context: typer.Context,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="Node names", autocompletion=complete.nodes, callback=path_words),
    ] = None,
    everyone: Annotated[bool, typer.Option("--all", help="All nodes in the inventory")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask; you have compared the keys")] = False,
) -> int:
    """Show the host keys of nodes, and record them once you confirm.

    Keys in your ~/.ssh/known_hosts are trusted already. --all skips keys that have changed.
    """
    if bool(nodes) == everyone:
        raise UsageError("Specify nodes, or --all")
    served = client(context)
    with progress("Reading host keys"):
        found = served.get("/v1/host-keys", node=nodes)
    code, known = 0, "host key already trusted"
    while True:
        ask = []
        for key in found:
            problem, its_code = _untrustworthy(key, everyone)
            if problem:
                complain(problem)
                code = code or its_code
            elif key["trusted"]:
                print_line(f"{key['node']}: {known}, node reachable")
            else:
                ask.append(key)
        if not ask:
            return code
        _compare(ask, yes)
        shown = {key["node"]: key["fingerprint"] for key in ask}
        with progress("Connecting"):
            found, known = served.post("/v1/host-keys", shown), "host key recorded"
        for key in found:
            if key["fingerprint"] == shown[key["node"]]:
                raise Refused(f"{key['node']}: its host key is recorded, but SSH still refuses it")


def _untrustworthy(key: dict[str, Any], everyone: bool) -> tuple[str, int]:
    """Why a key must not be recorded, and the exit code for that; empty if it may be."""
    if key["error"]:
        return key["error"], NoAnswer.exit_code
    if key["revoked"]:
        return f"{key['node']}: {key['host']} presents a revoked host key; do not connect", 3
    if key["recorded"] and everyone:
        why = f"WARNING: the host key of {key['host']} has changed; ask its admin"
        return f"{key['node']}: {why}, then run: agentless nodes trust {key['node']}", 3
    return "", 0


def _compare(keys: list[dict[str, Any]], yes: bool) -> None:
    """Show these keys and ask once whether they match; raises Refused unless they do."""
    for key in {(key["host"], key["fingerprint"]): key for key in keys}.values():  # a jump host's is shared
        print_line(f"{key['node']}: {key['host']} presents host key {key['fingerprint']}")
        if key["recorded"]:
            warn(
                f"WARNING: the recorded key is {', '.join(key['recorded'])}. Either the node was reinstalled, or "
                "somebody intercepts the connection. Ask its admin before you continue."
            )
    if yes:
        return
    say("To print the fingerprint on the node: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    confirm(
        "Does it match? Trust this key" if len(keys) == 1 else f"Do they match? Trust all {len(keys)} keys",
        "Nothing recorded",
        unattended=Refused("No terminal to confirm at. Compare the fingerprints, then use --yes"),
    )
