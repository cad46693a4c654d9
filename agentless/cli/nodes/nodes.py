"""The verbs about nodes and their GPUs: nodes, gpus, doctor."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import complain
from agentless.cli.common import Json, client, named, print_json, print_line, say
from agentless.cli.nodes.drain import drain, resume
from agentless.cli.table import Column, show
from agentless.client.client import Client
from agentless.client.words import gib, idle, local, memory_in_use, or_dash, process_words, ssh_sessions
from agentless.errors import NoAnswer, Refused, UsageError

NodeArgument = Annotated[str, typer.Argument(metavar="NODE", autocompletion=complete.nodes, callback=named)]
ManyNodes = Annotated[
    list[str] | None, typer.Argument(metavar="[NODE]...", autocompletion=complete.nodes, callback=named)
]
OptionalNode = Annotated[str | None, typer.Argument(metavar="[NODE]", autocompletion=complete.nodes)]


def _who(gpu: dict[str, Any]) -> str:
    if not gpu["task"] or gpu["state"] == "unhealthy" or gpu["shares"] > 1:
        return "; ".join(filter(None, (gpu["reason"], gpu["reserved"])))
    beside = "".join(f" + {process_words(process)}" for process in gpu["intruders"][:1])
    reserved = f"; {gpu['reserved']}" if gpu["reserved"] else ""
    owner = "" if gpu["mine"] else f" {gpu['owner']}"
    return f"{gpu['task']}{owner}{idle(gpu)}{beside}{reserved}"


_GPU_COLUMNS = [
    Column("NODE", lambda gpu: gpu["node"]),
    Column("GPU", lambda gpu: str(gpu["index"]), right=True),
    Column("MODEL", lambda gpu: or_dash(gpu["name"] and gpu["name"].removeprefix("NVIDIA ").removeprefix("GeForce "))),
    Column("STATE", lambda gpu: gpu["state"]),
    Column("UTIL", lambda gpu: or_dash(gpu["utilization_pct"], "%"), right=True),
    Column("MEMORY", memory_in_use, right=True),
    Column("TEMP", lambda gpu: or_dash(gpu["temperature_c"], "C"), right=True),
    Column("WHO", _who, wraps=True),
]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(
        help="List nodes, look at one, record a host key, take one out for a while.", invoke_without_command=True
    )
    group.callback()(nodes)
    group.command("show")(show_node)
    group.command()(trust)
    group.command()(drain)
    group.command()(resume)
    app.add_typer(group, name="nodes")
    app.command()(gpus)
    app.command()(doctor)


def nodes(context: typer.Context, as_json: Json = False) -> None:
    """List the nodes of the inventory."""
    if context.invoked_subcommand is not None:
        return
    served = client(context)
    found = served.get("/v1/nodes")
    if as_json:
        print_json(found)
        return
    show(
        [
            Column("NODE", lambda node: node["name"]),
            Column("STATE", lambda node: node["state"]),
            Column("FREE", lambda node: f"{node['gpus_free']}/{node['gpus']}", right=True),
            Column("CORES", lambda node: or_dash(node["cores"]), right=True),
            Column("MEMORY", lambda node: gib(node["memory_mib"]), right=True),
            Column("DOCKER", lambda node: or_dash(node["docker"])),
            Column("DRIVER", lambda node: or_dash(node["driver"])),
            Column("REASON", lambda node: node["reason"], wraps=True),
        ],
        found,
    )


def show_node(context: typer.Context, node: NodeArgument, as_json: Json = False) -> None:
    """Show all that is known of one node."""
    served = client(context)
    found = served.get(f"/v1/nodes/{node}")
    found["gpu_list"] = served.get("/v1/gpus", node=node)
    if as_json:
        print_json(found)
        return
    lines = {
        "node": found["name"],
        "state": found["state"],
        "reason": found["reason"],
        "address": f"{found['address']} by {found['connection']}",
        "cores": found["cores"],
        "memory": gib(found["memory_mib"]),
        "docker": found["docker"],
        "driver": found["driver"],
        "labels": ", ".join(f"{key}={value}" for key, value in found["labels"].items()),
        "sampled": local(found["sampled_at"]),
        "ssh": found["sessions"] and ssh_sessions(found["sessions"]),
    }
    for key, value in lines.items():
        if value not in (None, ""):
            print_line(f"{key:>8}  {value}")
    if found["gpu_list"]:
        print_line("")
        show(_GPU_COLUMNS[1:], found["gpu_list"])


def gpus(
    context: typer.Context,
    node: OptionalNode = None,
    free: Annotated[bool, typer.Option("--free", help="Only those that can be had now.")] = False,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay, and show them as they change.")] = False,
    as_json: Json = False,
) -> None:
    """List all GPUs: which are free, and who uses the others."""
    served = client(context)
    if watch:
        _watch_gpus(served, node, free=free)
    found = [gpu for gpu in served.get("/v1/gpus", node=node) if gpu["state"] == "free" or not free]
    if as_json:
        print_json(found)
        return
    if found:
        show(_GPU_COLUMNS, found)
    for each in served.get("/v1/nodes"):
        if each["reason"] and node in (None, each["name"]):
            from agentless.model.nodes.node import naming

            say(naming(each["name"], each["reason"], f"{each['name']} is {each['state']}"))
    for ill in dict.fromkeys(gpu["node"] for gpu in found if gpu["state"] == "unhealthy"):
        say(f"unhealthy GPUs of {ill} stay out until: agentless nodes resume {ill} [--gpu N]")
    if not found:
        say("no free GPU" if free else "no GPU is known")


def _watch_gpus(served: Client, node: str | None, *, free: bool) -> None:
    from agentless.cli.watch import watch

    if node is not None:
        served.get(f"/v1/nodes/{node}")  # says so when there is none
    watch(
        served,
        lambda board: show(
            _GPU_COLUMNS,
            [g for g in board.ordered_gpus() if node in (None, g["node"]) and (g["state"] == "free" or not free)],
        ),
    )


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
    served = client(context)
    found = served.get("/v1/host-keys", node=nodes)
    code, known = 0, "its host key is on record"
    while True:
        ask = []
        for key in found:
            problem, its_code = _untrustworthy(key, everyone)
            if problem:
                complain(problem)
                code = code or its_code
            elif key["trusted"]:
                print_line(f"{key['node']}: {known}, and it can be reached")
            else:
                ask.append(key)
        if not ask:
            return code
        _compare(ask, yes)
        shown = {key["node"]: key["fingerprint"] for key in ask}
        found, known = served.post("/v1/host-keys", shown), "recorded"
        for key in found:
            if key["fingerprint"] == shown[key["node"]]:
                raise Refused(f"{key['node']}: its key was recorded and is refused all the same")


def _untrustworthy(key: dict[str, Any], everyone: bool) -> tuple[str, int]:
    """Why a key is not to be recorded, and the exit code for it; empty when it may be."""
    if key["error"]:
        return key["error"], NoAnswer.exit_code
    if key["revoked"]:
        return f"{key['node']}: {key['host']} shows a host key that is marked as revoked; do not connect", 3
    if key["recorded"] and everyone:
        why = f"WARNING: {key['host']} shows another host key than the one on record; ask its admin"
        return f"{key['node']}: {why}, then run: agentless nodes trust {key['node']}", 3
    return "", 0


def _compare(keys: list[dict[str, Any]], yes: bool) -> None:
    """Show these keys and ask once whether they are right; raises Refused unless they are."""
    for key in {(key["host"], key["fingerprint"]): key for key in keys}.values():  # a jump host has several behind it
        print_line(f"{key['node']}: {key['host']} shows the host key {key['fingerprint']}")
        if key["recorded"]:
            say(
                f"WARNING: on record is {', '.join(key['recorded'])}. Either the node was set up anew, or somebody "
                "stands in between. Ask its admin before you go on."
            )
    if yes:
        return
    if not sys.stdin.isatty():
        raise Refused("nobody is here to compare the fingerprints; compare them, then use --yes")
    say("On the node this prints it: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub")
    question = "Is it the same? Record it" if len(keys) == 1 else f"Are they the same? Record all {len(keys)}"
    if not typer.confirm(question, default=False, err=True):
        raise Refused("nothing was recorded")


def doctor(context: typer.Context, nodes: ManyNodes = None, as_json: Json = False) -> int:
    """Check nodes: can they be reached, does Docker work, is there a GPU, may Docker hand it out."""
    served = client(context)
    found = served.get("/v1/doctor", node=nodes)
    bad = [check for check in found if check["ok"] is False]
    if as_json:
        print_json(found)
        return int(bool(bad))
    marks = {True: "ok", False: "FAIL", None: "-"}
    show(
        [
            Column("NODE", lambda check: check["node"]),
            Column("CHECK", lambda check: check["check"]),
            Column("", lambda check: marks[check["ok"]]),
            Column("DETAIL", lambda check: check["detail"], wraps=True),
        ],
        found,
    )
    return int(bool(bad))
