"""`agentless env list` and `history`: the envs, and the versions of one."""

from __future__ import annotations

from typing import Any

import typer

from agentless.cli.arguments import EnvArgument, Json
from agentless.cli.client import client
from agentless.cli.output import print_json, say
from agentless.cli.table import Column, show, show_found
from agentless.client.words import date, or_dash
from agentless.model.images.env import check_name
from agentless.model.units import format_size
from agentless.rules.images.envs import assumed_words


def listed(context: typer.Context, as_json: Json = False) -> None:
    """List envs, their versions, and the nodes that have them."""
    found = client(context).get("/v1/envs")
    show_found(found, _COLUMNS, as_json, "there is no env; make one: agentless env create NAME --from IMAGE")
    if not as_json:
        _say_assumed(found)


def history(context: typer.Context, name: EnvArgument, as_json: Json = False) -> None:
    """List the versions of an env, newest first; * marks the current one."""
    found = client(context).get(f"/v1/envs/{check_name(name)}")
    if as_json:
        print_json(found)
    elif found["versions"]:
        show(_VERSIONS, found["versions"][::-1])
        _say_assumed([found])
    else:
        say(f"env {name} has no version yet; save one: agentless env save {name}")


def _say_assumed(envs: list[dict[str, Any]]) -> None:
    for env in envs:
        if env["assumed"]:
            say(assumed_words(env["name"], env["version"]))


def _builder(env: dict[str, Any]) -> str:
    if env["node"] is None:
        return "-"
    return f"{env['node']} ({env['state'] or 'not reached'})"


def _holders(env: dict[str, Any]) -> str:
    return ", ".join(f"{node} (offline)" if node in env["offline"] else node for node in env["nodes"]) or "-"


_COLUMNS = [
    Column("ENV", lambda env: env["name"]),
    Column("VERSION", lambda env: or_dash(env["version"]), right=True),
    Column("OF", lambda env: str(len(env["versions"])), right=True),
    Column("SIZE", lambda env: "-" if env["size_bytes"] is None else format_size(env["size_bytes"]), right=True),
    Column("BUILT ON", _builder),
    Column("CURRENT ON", _holders, wraps=True),
]
_VERSIONS = [
    Column("VERSION", lambda each: f"{each['version']}{'*' if each['current'] else ''}"),
    Column("SAVED", lambda each: date(each["at"])),
    Column("BY", lambda each: each["by"] or "-"),
    Column("SIZE", lambda each: format_size(each["size_bytes"]), right=True),
    Column("NODES", lambda each: ", ".join(each["nodes"]) or "-"),
    Column("MESSAGE", lambda each: each["message"], wraps=True),
]
