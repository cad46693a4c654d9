"""`agentless env list` and `history`: the envs, and the versions of one."""

from __future__ import annotations

from typing import Any

import typer

from agentless.cli.arguments import EnvArgument, Json
from agentless.cli.client import client
from agentless.cli.formats import Kind, Output
from agentless.cli.output import say
from agentless.cli.pager import paged
from agentless.cli.table import Column
from agentless.client.words import date, or_dash
from agentless.model.images.env import check_name
from agentless.model.units import format_size
from agentless.rules.images.envs import assumed_words


def listed(context: typer.Context, as_json: Json = False, output: Output = None) -> None:
    """List envs, their versions, and the nodes that have them."""
    style = _ENVS.format(as_json, output)
    found = client(context).get("/v1/envs")
    with paged():
        style.show(found, _COLUMNS, "No envs. To create one: agentless env create NAME --from IMAGE")
        if style.is_table:
            _say_assumed(found)


def history(context: typer.Context, name: EnvArgument, as_json: Json = False, output: Output = None) -> None:
    """List the versions of an env, newest first; * marks the current one."""
    style = _VERSIONS.format(as_json, output)
    found = client(context).get(f"/v1/envs/{check_name(name)}")
    with paged():
        if style.word in ("json", "yaml"):
            style.print(found)
            return
        none = f"Env {name} has no versions yet. To save one: agentless env save {name}"
        style.show(found["versions"][::-1], _VERSION_COLUMNS, none)
        if style.is_table and found["node"]:
            say(f"Build container: {_builder(found)}")
        if style.is_table and found["versions"]:
            _say_assumed([found])


def _say_assumed(envs: list[dict[str, Any]]) -> None:
    for env in envs:
        if env["assumed"]:
            say(assumed_words(env["name"], env["version"]))


def _builder(env: dict[str, Any]) -> str:
    if env["node"] is None:
        return "-"
    state = env["state"] or "unknown"
    return f"{env['node']} ({_STATES.get(state, state)})"


def _holders(env: dict[str, Any]) -> str:
    return ", ".join(f"{node} (no answer)" if node in env["offline"] else node for node in env["nodes"]) or "-"


_STATES = {"exited": "stopped", "created": "stopped"}
"""What Docker calls a build container that does not run."""
_ENVS = Kind("view.EnvView", lambda env: str(env["name"]))
_COLUMNS = [
    Column("ENV", lambda env: env["name"]),
    Column("VERSION", lambda env: or_dash(env["version"]), right=True),
    Column("VERSIONS", lambda env: str(len(env["versions"])), right=True),
    Column("SIZE", lambda env: "-" if env["size_bytes"] is None else format_size(env["size_bytes"]), right=True),
    Column("BUILT ON", _builder),
    Column("CURRENT ON", _holders, wraps=True),
]
_VERSIONS = Kind("view.EnvVersionView", lambda each: str(each["image"]).removeprefix("agentless/"))
_VERSION_COLUMNS = [
    Column("VERSION", lambda each: f"{each['version']}{'*' if each['current'] else ''}"),
    Column("SAVED", lambda each: date(each["at"])),
    Column("BY", lambda each: each["by"] or "-"),
    Column("SIZE", lambda each: format_size(each["size_bytes"]), right=True),
    Column("NODES", lambda each: ", ".join(each["nodes"]) or "-"),
    Column("IMAGE ID", lambda each: each["id"], wide=True),
    Column("MESSAGE", lambda each: each["message"], wraps=True),
]
