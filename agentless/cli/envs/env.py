"""`agentless env`: its verbs, and those that make, save and remove envs."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.arguments import EnvArgument, EnvVersionArgument, Json
from agentless.cli.client import client
from agentless.cli.command import WithCommand
from agentless.cli.confirm import Yes, confirm
from agentless.cli.envs.listing import history, listed
from agentless.cli.envs.moves import build, export, push, take_in
from agentless.cli.envs.progress import follow, rows
from agentless.cli.envs.shell import execute, shell, start, stop
from agentless.cli.output import Quiet, confirm_done, print_json, say
from agentless.cli.progress import progress
from agentless.errors import Refused, UsageError
from agentless.model.images.env import EnvRef, check_name, parse_ref
from agentless.model.units import counted, format_size


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(help="Build environments (envs), and copy them to nodes.", no_args_is_help=True)
    group.command()(create)
    group.command()(build)
    group.command()(shell)
    group.command("exec", cls=WithCommand)(execute)
    group.command()(start)
    group.command()(stop)
    group.command()(save)
    group.command("list")(listed)
    group.command()(history)
    group.command()(rollback)
    group.command()(push)
    group.command()(export)
    group.command("import")(take_in)
    group.command()(rm)
    group.command()(prune)
    app.add_typer(group, name="env")


def create(
    context: typer.Context,
    name: EnvArgument,
    image: Annotated[str, typer.Option("--from", metavar="IMAGE", help="Base image; pulled if missing")],
    on: Annotated[
        str | None, typer.Option(metavar="NODE", help="Node to build on (default: any)", autocompletion=complete.nodes)
    ] = None,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Create an env: a build container on a node to install into.

    agentless env create torch --from python:3.12-slim
    agentless env shell torch
    agentless env save torch -m "torch 2.5"
    """
    lines = client(context).progress(f"/v1/envs/{check_name(name)}", {"image": image, "node": on})
    done = follow(lines, f"Interrupted. To see whether {name} was created: agentless env list")
    if as_json:
        print_json(_plain(done))
        return
    confirm_done(f"Created env {name} on {done['node']} from {image}")
    say(f"Work in it: agentless env shell {name}    Save it as a version: agentless env save {name}")


def save(
    context: typer.Context,
    name: EnvArgument,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="Description of the version")] = "",
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Save the build container as the next version, and make it current."""
    lines = client(context).progress(f"/v1/envs/{check_name(name)}/save", {"message": message})
    done = follow(lines, f"The save continues. To see it: agentless env history {name}")
    if as_json:
        print_json(_plain(done))
        return
    if done["version"] is None:
        confirm_done(f"No changes in env {name} since its last version; nothing saved")
        return
    size, added = format_size(done["size_bytes"]), format_size(done["added_bytes"])
    confirm_done(f"Saved {name}:{done['version']}, {size}, {added} of it new")
    confirm_done(f"Changed paths: {done['changes']}")
    for path in [*done["paths"][:10], *["…"] * (len(done["paths"]) > 10)]:
        confirm_done(f"  {path}")
    if done["kept"]:
        say(done["kept"])


def rollback(
    context: typer.Context,
    name: EnvVersionArgument,
    force: Annotated[bool, typer.Option("--force", help="Discard unsaved changes in the build container")] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Make an older version current: the previous one, or NAME:N.

    This resets the build container to that version.
    """
    ref = parse_ref(name)
    lines = client(context).progress(f"/v1/envs/{ref}/rollback", {"force": force})
    done = follow(lines, f"Interrupted. To see the current version: agentless env history {ref.name}")
    if as_json:
        print_json(_plain(done))
        return
    confirm_done(f"{ref.name}:{done['version']} is the current version now")
    if done["kept"]:
        say(done["kept"])


def rm(
    context: typer.Context,
    name: EnvVersionArgument,
    build_container: Annotated[
        bool, typer.Option("--build-container", help="Remove only the build container; keep the versions")
    ] = False,
    force: Annotated[bool, typer.Option("--force", "--yes", "-y", help="Do not ask")] = False,
    as_json: Json = False,
    _: Quiet = False,
) -> int:
    """Remove an env with all its versions, or only version N, from all nodes."""
    served, ref = client(context), parse_ref(name)
    if build_container and ref.version is not None:
        raise UsageError(f"a version has no build container; use --build-container {ref.name}")
    found = served.get(f"/v1/envs/{ref.name}")
    if not force:
        option = "--build-container " if build_container else ""
        what = _container(found) if build_container else _what(ref, found)
        confirm(
            f"Remove {what}",
            "Nothing removed",
            unattended=Refused(
                f"Cannot ask for confirmation without a terminal. To remove {what} without asking: agentless env rm "
                f"--yes {option}{ref}"
            ),
        )
    with progress(f"Removing env {ref}"):
        done = served.delete(f"/v1/envs/{ref}" + ("/build-container" if build_container else ""))
    if as_json:
        print_json(done)
    else:
        for line in rows(done):
            confirm_done(f"Removed from {line}")
    return 1 if done["stays"] else 0


def _what(ref: EnvRef, found: dict[str, Any]) -> str:
    if ref.version is not None:
        return f"version {ref.version} of env {ref.name} from all nodes"
    versions = counted(len(found["versions"]), "version")
    return f"env {ref.name}, with its build container and {versions}, from all nodes"


def _container(found: dict[str, Any]) -> str:
    kept = "all its unsaved changes" if found["versions"] else "the whole env, which has no version"
    return f"the build container of env {found['name']}, and with it {kept}"


def prune(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing")] = False,
    yes: Yes = False,
    as_json: Json = False,
    _: Quiet = False,
) -> None:
    """Remove old versions that no task uses, and leftovers."""
    served = client(context)
    if not (dry_run or yes or as_json) and sys.stdin.isatty():
        with progress("Looking for unused versions"):
            found = served.post("/v1/env/prune", {"dry_run": True})
        for each in found["removed"]:
            say(f"{each['node']}: {each['what']}")
        if found["removed"]:
            confirm(f"Remove {counted(len(found['removed']), 'item')}, as listed above", "Nothing removed")
    with progress("Removing unused versions"):
        done = served.post("/v1/env/prune", {"dry_run": dry_run})
    if as_json:
        print_json(done)
        return
    for line in rows(done):
        confirm_done(f"{'Would be removed' if dry_run else 'Removed'} from {line}")
    if not done["removed"]:
        say("Nothing to remove")


def _plain(done: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in done.items() if key != "kind"}
