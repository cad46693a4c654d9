"""The verbs that move envs: push, export, import, and build, which sends a context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import warn
from agentless.cli.arguments import EnvArgument, EnvVersionArgument, Json
from agentless.cli.client import client
from agentless.cli.envs.progress import follow
from agentless.cli.output import Quiet, confirm_done, print_json, say
from agentless.cli.progress import progress
from agentless.errors import UsageError
from agentless.model.images.env import check_name, parse_ref
from agentless.model.nodes.node import with_node
from agentless.model.units import counted, format_duration, format_size

_WAYS = {"auto": "auto", "controller": "controller", "straight": "straight", "shared_dir": "shared", "shared": "shared"}


def push(
    context: typer.Context,
    name: EnvVersionArgument,
    nodes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NODE]...", help="Node names (default: all)", autocompletion=complete.nodes),
    ] = None,
    via: Annotated[
        str,
        typer.Option(
            metavar="WAY",
            help="How to send the env: auto, controller, straight (node to node) or shared_dir",
        ),
    ] = "auto",
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Copy the current version of an env, or NAME:N, to nodes.

    Sends only the layers that a node lacks.
    """
    ref = parse_ref(name)
    if via not in _WAYS:
        raise UsageError(f"--via {via[:80]!r}: use auto, controller, straight or shared_dir")
    lines = client(context).progress(f"/v1/envs/{ref}/push", {"nodes": nodes or [], "via": _WAYS[via]})
    again = f"Interrupted. Finished layers are kept. To send the rest: agentless env push {name}"
    done = follow(lines, again)
    if as_json:
        print_json({key: value for key, value in done.items() if key != "kind"})
    else:
        _report(done)
    return next((row["exit_code"] for row in done["nodes"] if row["exit_code"]), 0)


def _report(done: dict[str, Any]) -> None:
    name = f"{done['env']}:{done['version']}"
    sent = [row for row in done["nodes"] if not row["error"] and row["how"] != "current"]
    there = [row["node"] for row in done["nodes"] if not row["error"] and row["how"] == "current"]
    for row in sent:
        confirm_done(f"{row['node']}: {_way(row)}")
    for row in done["nodes"]:
        if row["error"]:
            warn(with_node(row["node"], row["error"]))
    if there and len(there) == len(done["nodes"]):
        confirm_done(f"{name} is already on all nodes: {', '.join(there)}")
    else:
        total = format_size(sum(row["sent"] for row in sent))
        words = f"; already on {', '.join(there)}" if there else ""
        confirm_done(f"Sent {name} to {len(sent)} of {counted(len(done['nodes']), 'node')}, {total} in total{words}")


def _way(row: dict[str, Any]) -> str:
    ways = {"whole": "as a whole archive", "straight": "from node to node", "shared": "through the shared folder"}
    how = ways.get(row["how"], "")
    if row["layers"] and row["how"] != "whole":
        how = ", ".join(filter(None, (f"{row['layers_sent']} of {counted(row['layers'], 'layer')}", how)))
    sent, size = format_size(row["sent"]), format_size(row["size"])
    return f"{sent} of {size} in {format_duration(row['seconds'])}" + (f" ({how})" if how else "")


def build(
    context: typer.Context,
    name: EnvArgument,
    path: Annotated[Path, typer.Argument(metavar="[PATH]", help="Build context: a local folder")] = Path(),
    file: Annotated[
        Path | None, typer.Option("--file", "-f", metavar="FILE", help="Dockerfile (default: PATH/Dockerfile)")
    ] = None,
    on: Annotated[
        str | None, typer.Option(metavar="NODE", help="Node to build on (default: any)", autocompletion=complete.nodes)
    ] = None,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Description of the version")] = "",
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Build the next version of an env from a Dockerfile.

    Files that .dockerignore lists are not sent.

    agentless env build torch . -m "torch 2.5"
    """
    from agentless.cli.envs.context import dockerfile_of, packed
    from agentless.rules.images.dockerignore import bases

    if not path.is_dir():
        raise UsageError(f"{path} is not a folder; specify the folder with the Dockerfile")
    dockerfile, text = dockerfile_of(path, file)
    query = {"dockerfile": dockerfile, "base": bases(text), "node": on, "message": message}
    lines = client(context).upload(f"/v1/envs/{check_name(name)}/build", packed(path, dockerfile, text), **query)
    done = follow(lines, f"Interrupted. No version was saved. To check: agentless env history {name}")
    if as_json:
        print_json({key: value for key, value in done.items() if key != "kind"})
        return
    confirm_done(f"Built {name}:{done['version']}, {format_size(done['size_bytes'])}, on {done['node']}")
    if done["kept"]:
        say(done["kept"])


def export(
    context: typer.Context,
    name: EnvVersionArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write: NAME.tar.zst or NAME.tar")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file")] = False,
    _: Quiet = False,
) -> None:
    """Write the current version of an env, or NAME:N, to a file.

    docker load can read the file, too.
    """
    from agentless.cli.envs.archive import check_archive_path, write

    ref = parse_ref(name)
    check_archive_path(file)
    if file.exists() and not force:
        raise UsageError(f"{file} exists. To replace it: agentless env export --force")
    try:
        with progress(f"Exporting {ref}"):
            archive = client(context).frames(f"/v1/envs/{ref}/export")
            size = write(file, (data for _, data in archive))
    except KeyboardInterrupt:
        say("", "Interrupted. No file was written")
        raise
    confirm_done(f"Wrote {file}, {format_size(size)}")


def take_in(
    context: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File from env export or docker save")],
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Env name (default: its name when it was exported)")
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(metavar="NODE", help="Node to import on (default: any)", autocompletion=complete.nodes),
    ] = None,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Import an image from a file as a version of an env."""
    from agentless.cli.envs.archive import read

    if name is not None:
        check_name(name)
    lines = client(context).upload("/v1/env/import", read(file), env=name, node=on)
    done = follow(lines, "Interrupted. Nothing was imported")
    if as_json:
        print_json({key: value for key, value in done.items() if key != "kind"})
        return
    verb = "Imported" if done["new"] else "Already there:"
    confirm_done(f"{verb} {done['env']}:{done['version']}, {format_size(done['size_bytes'])}, on {done['node']}")
