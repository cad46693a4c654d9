"""The verbs that move envs: push, export, import, and build, which sends a context."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import EnvArgument, EnvVersionArgument, Json
from agentless.cli.client import client
from agentless.cli.envs.progress import follow
from agentless.cli.output import print_json, print_line, say
from agentless.errors import UsageError
from agentless.model.images.env import check_name, parse_ref
from agentless.model.units import counted, format_size

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
            help="How to send it: auto, controller, straight (node to node) or shared_dir",
        ),
    ] = "auto",
    as_json: Json = False,
) -> int:
    """Copy the current version of an env, or NAME:N, to nodes.

    Sends only the layers that a node lacks.
    """
    ref = parse_ref(name)
    if via not in _WAYS:
        raise UsageError(f"--via {via[:80]!r}: write auto, controller, straight or shared_dir")
    lines = client(context).progress(f"/v1/envs/{ref}/push", {"nodes": nodes or [], "via": _WAYS[via]})
    again = f"Interrupted. What has arrived stays; the same command again sends the rest: agentless env push {name}"
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
        print_line(f"{row['node']}: {_way(row)}")
    for row in done["nodes"]:
        if row["error"]:
            say(f"agentless: {row['node']}: {row['error'].removeprefix(row['node'] + ': ')}")
    if there and len(there) == len(done["nodes"]):
        print_line(f"{name} is current everywhere: {', '.join(there)}")
    else:
        total = sum(row["sent"] for row in sent)
        words = f"; it was on {', '.join(there)} already" if there else ""
        print_line(
            f"{name} sent to {len(sent)} of {counted(len(done['nodes']), 'node')}, {total:,} bytes in all{words}"
        )


def _way(row: dict[str, Any]) -> str:
    ways = {"whole": "as a whole archive", "straight": "straight from node to node", "shared": "by the shared folder"}
    how = ways.get(row["how"], "")
    if row["layers"] and row["how"] != "whole":
        how = ", ".join(filter(None, (f"{row['layers_sent']} of {counted(row['layers'], 'layer')}", how)))
    return f"{row['sent']:,} bytes of {format_size(row['size'])} in {row['seconds']:.1f} s" + (
        f" ({how})" if how else ""
    )


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
) -> None:
    """Build the next version of an env from a Dockerfile.

    Files that .dockerignore lists are not sent.

    agentless env build torch . -m "torch 2.5"
    """
    from agentless.cli.envs.context import dockerfile_of, packed
    from agentless.rules.images.dockerignore import bases

    if not path.is_dir():
        raise UsageError(f"{path} is no folder; the context of a build is one")
    dockerfile, text = dockerfile_of(path, file)
    query = {"dockerfile": dockerfile, "base": bases(text), "node": on, "message": message}
    lines = client(context).upload(f"/v1/envs/{check_name(name)}/build", packed(path, dockerfile, text), **query)
    done = follow(lines, f"Interrupted; nothing was made: agentless env history {name}")
    if as_json:
        print_json({key: value for key, value in done.items() if key != "kind"})
        return
    print_line(f"{name}:{done['version']}  {format_size(done['size_bytes'])} on {done['node']}")
    if done["kept"]:
        say(done["kept"])


def export(
    context: typer.Context,
    name: EnvVersionArgument,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="File to write: NAME.tar.zst or NAME.tar")],
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file")] = False,
) -> None:
    """Write the current version of an env, or NAME:N, to a file.

    docker load can read the file, too.
    """
    from agentless.cli.envs.archive import check_archive_path, write

    ref = parse_ref(name)
    check_archive_path(file)
    if file.exists() and not force:
        raise UsageError(f"{file} is there already; agentless env export --force replaces it")
    try:
        archive = client(context).frames(f"/v1/envs/{ref}/export")
        size = write(file, (data for _, data in archive))
    except KeyboardInterrupt:
        say("", "Interrupted; no file was written")
        raise
    print_line(f"{file}: {format_size(size)}")


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
) -> None:
    """Import an image from a file as a version of an env."""
    from agentless.cli.envs.archive import read

    if name is not None:
        check_name(name)
    lines = client(context).upload("/v1/env/import", read(file), env=name, node=on)
    done = follow(lines, "Interrupted; nothing was taken in")
    if as_json:
        print_json({key: value for key, value in done.items() if key != "kind"})
        return
    words = "" if done["new"] else ", as it was already"
    print_line(f"{done['env']}:{done['version']}  {format_size(done['size_bytes'])} on {done['node']}{words}")
