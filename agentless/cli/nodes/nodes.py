"""`agentless nodes`: list the nodes of the inventory, or show one in full."""

from __future__ import annotations

import typer

from agentless.cli.arguments import Json, NodeArgument
from agentless.cli.client import client
from agentless.cli.nodes.drain import drain, resume
from agentless.cli.nodes.gpus import GPU_COLUMNS
from agentless.cli.nodes.host_keys import trust
from agentless.cli.output import print_json, print_line
from agentless.cli.table import Column, show
from agentless.client.words import gib, local, or_dash, ssh_sessions


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        help="List nodes; show, trust, drain or resume them.", epilog="Alias: nodes list", invoke_without_command=True
    )
    group.callback()(nodes)
    group.command("list", hidden=True)(show_list)
    group.command("show")(show_node)
    group.command()(trust)
    group.command()(drain)
    group.command()(resume)
    app.add_typer(group, name="nodes")


def nodes(context: typer.Context, as_json: Json = False) -> None:
    """List the nodes in the inventory."""
    if context.invoked_subcommand is None:
        show_list(context, as_json)


def show_list(context: typer.Context, as_json: Json = False) -> None:
    """List the nodes in the inventory."""
    found = client(context).get("/v1/nodes")
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
    """Show the details of one node."""
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
        show(GPU_COLUMNS[1:], found["gpu_list"])
