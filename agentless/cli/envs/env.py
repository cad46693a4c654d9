"""The verbs of envs: made, worked in, saved, shown, taken away. Those that move them are in `env_moves`."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.common import Json, client, print_json, print_line, say
from agentless.cli.envs.moves import build, export, push, take_in
from agentless.cli.envs.progress import follow, rows
from agentless.cli.submit.command import WithCommand, command_of
from agentless.cli.table import Column, show
from agentless.client.words import date, or_dash
from agentless.errors import Refused, UsageError
from agentless.model.images.env import check_name, parse_ref
from agentless.model.units import counted, format_size
from agentless.rules.images.envs import assumed_words

EnvArgument = Annotated[str, typer.Argument(metavar="NAME", help="The env.", autocompletion=complete.envs)]


def add_to(app: typer.Typer) -> None:
    """Add the verbs."""
    group = typer.Typer(help="Make environments, and bring them to nodes.", no_args_is_help=True)
    group.command()(create)
    group.command()(build)
    group.command()(shell)
    group.command("exec", cls=WithCommand)(execute)
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
    image: Annotated[str, typer.Option("--from", metavar="IMAGE", help="What it begins as; pulled if it is missing.")],
    on: Annotated[
        str | None, typer.Option(metavar="NODE", help="Where it is made; default: any.", autocompletion=complete.nodes)
    ] = None,
    as_json: Json = False,
) -> None:
    """Make an env: a build container on a node, in which you install what you need.

    agentless env create torch --from python:3.12-slim

    agentless env shell torch

    agentless env save torch -m "torch 2.5"
    """
    lines = client(context).progress(f"/v1/envs/{check_name(name)}", {"image": image, "node": on})
    done = follow(lines, f"agentless env list shows whether {name} was made")
    if as_json:
        print_json(_plain(done))
        return
    print_line(f"env {name} is on {done['node']}, from {image}")
    say(f"work in it: agentless env shell {name}    make it a version: agentless env save {name}")


def shell(context: typer.Context, name: EnvArgument) -> int:
    """Open a shell in the build container; its exit code is the shell's. Without one, one is made of the env."""
    return _terminal(context, name, ())


def execute(context: typer.Context, name: EnvArgument) -> int:
    """Run the command after -- in the build container. Its streams stay apart, and its exit code is the command's.

    agentless env exec torch -- pip install numpy
    """
    command = command_of(context)
    if not command:
        raise UsageError(f"no command: write it after '--', for example: agentless env exec {name} -- pip list")
    return _terminal(context, name, command)


def _terminal(context: typer.Context, name: str, command: tuple[str, ...]) -> int:
    from agentless.client.terminal import TerminalSession, raw, standard

    window = standard()
    size = window.size() if window.size else None
    with client(context).terminal(check_name(name), command, size, of="envs") as terminal:
        if not window.size:
            return TerminalSession(terminal, window).run()
        with raw(window.keys):
            return TerminalSession(terminal, window).run()


def save(
    context: typer.Context,
    name: EnvArgument,
    message: Annotated[str, typer.Option("--message", "-m", metavar="TEXT", help="What it is for.")] = "",
    as_json: Json = False,
) -> None:
    """Make the build container as it is now the next version, which is the current one then."""
    lines = client(context).progress(f"/v1/envs/{check_name(name)}/save", {"message": message})
    done = follow(lines, f"The save goes on; see: agentless env history {name}")
    if as_json:
        print_json(_plain(done))
        return
    if done["version"] is None:
        print_line(f"nothing has changed in env {name}; there is no new version")
        return
    print_line(
        f"{name}:{done['version']}  {format_size(done['size_bytes'])}, {format_size(done['added_bytes'])} of it new"
    )
    print_line(f"paths: {done['changes']}")
    for path in done["paths"][:10]:
        print_line(f"  {path}")
    if len(done["paths"]) > 10:
        print_line("  …")
    if done["kept"]:
        say(done["kept"])


def listed(context: typer.Context, as_json: Json = False) -> None:
    """List the envs: where their build containers are, their versions, and which nodes have the current one."""
    found = client(context).get("/v1/envs")
    if as_json:
        print_json(found)
    elif found:
        show(_COLUMNS, found)
        _tell_assumed(found)
    else:
        say("there is no env; make one: agentless env create NAME --from IMAGE")


def history(context: typer.Context, name: EnvArgument, as_json: Json = False) -> None:
    """List the versions of an env, the newest first; * is the current one."""
    found = client(context).get(f"/v1/envs/{check_name(name)}")
    if as_json:
        print_json(found)
    elif found["versions"]:
        show(_VERSIONS, found["versions"][::-1])
        _tell_assumed([found])
    else:
        say(f"env {name} has no version yet; save one: agentless env save {name}")


def rollback(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME[:N]", autocompletion=complete.envs)],
    force: Annotated[
        bool, typer.Option("--force", help="Reset the build container also when what is in it was not saved.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Make an older version the current one: the one before it, or NAME:N. The build container is reset to it."""
    ref = parse_ref(name)
    lines = client(context).progress(f"/v1/envs/{ref}/rollback", {"force": force})
    done = follow(lines, f"agentless env history {ref.name} shows the current version")
    if as_json:
        print_json(_plain(done))
        return
    print_line(f"{ref.name}:{done['version']} is the current version")
    if done["kept"]:
        say(done["kept"])


def rm(
    context: typer.Context,
    name: EnvArgument,
    force: Annotated[bool, typer.Option("--force", "--yes", "-y", help="Do not ask.")] = False,
    as_json: Json = False,
) -> int:
    """Remove an env from all nodes: its build container and all its versions."""
    served = client(context)
    found = served.get(f"/v1/envs/{check_name(name)}")
    if not force:
        if not sys.stdin.isatty():
            raise Refused(f"nothing was removed; agentless env rm --force {name} does it without asking")
        count = counted(len(found["versions"]), "version")
        if not typer.confirm(f"Remove env {name} with {count} from all nodes", default=False, err=True):
            raise Refused("nothing was removed")
    done = served.delete(f"/v1/envs/{name}")
    if as_json:
        print_json(done)
    else:
        for line in rows(done):
            print_line(f"removed from {line}")
    return 1 if done["stays"] else 0


def prune(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be removed.")] = False,
    as_json: Json = False,
) -> None:
    """Remove what nobody needs: versions before the current one that no task and no container uses, and leftovers."""
    done = client(context).post("/v1/env/prune", {"dry_run": dry_run})
    if as_json:
        print_json(done)
        return
    for line in rows(done):
        print_line(f"{'would be removed' if dry_run else 'removed'} from {line}")
    if not done["removed"]:
        say("there is nothing to remove")


def _tell_assumed(envs: list[dict[str, Any]]) -> None:
    for env in envs:
        if env["assumed"]:
            say(assumed_words(env["name"], env["version"]))


def _plain(done: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in done.items() if key != "kind"}


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
