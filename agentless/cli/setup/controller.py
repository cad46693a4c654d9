"""The verbs about the controller: run, status, stop."""

from __future__ import annotations

from pathlib import Path

import typer

from agentless import paths
from agentless.cli.arguments import Json
from agentless.cli.output import print_json, print_line
from agentless.client.client import Client
from agentless.client.words import local
from agentless.errors import ControllerError


def add_to(app: typer.Typer) -> None:
    group = typer.Typer(
        help="Show, stop or run the background process. It starts by itself, and exits when idle.", no_args_is_help=True
    )
    group.command()(run)
    group.command()(status)
    group.command()(stop)
    app.add_typer(group, name="controller")


def run(context: typer.Context) -> None:
    """Run the controller in the foreground, for a service manager."""
    import logging

    from agentless.controller import process
    from agentless.controller.log import Lines

    inventory = paths.find_inventory(context.find_root().obj)
    handler = logging.StreamHandler()
    handler.setFormatter(Lines("%(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.INFO)
    logging.getLogger("asyncssh").setLevel(logging.WARNING)
    state = paths.state_dir()
    process.run(
        state,
        inventory,
        ready=lambda: print_line(f"serving {inventory} on {state}/{paths.HTTP_SOCKET}", flush=True),
        for_ever=True,
    )


def status(as_json: Json = False) -> int:
    """Show whether a controller is running, and what it serves.

    Exits with code 1 if none is running.
    """
    served = Client(paths.state_dir(), None)
    if not served.is_running():
        if as_json:
            print_json(None)
        else:
            print_line(f"no controller is running for {paths.state_dir()}; the next command starts one")
        return 1
    found = served.get("/v1/controller")
    if as_json:
        print_json(found)
        return 0
    print_line(f"controller {found['version']}, process {found['pid']}, since {local(found['started_at'])}")
    nodes, tasks = found["nodes"], found["live_tasks"]
    ours = f"{tasks} live task{'s' * (tasks != 1)}"
    print_line(f"inventory {found['inventory']}, {nodes} node{'s' * (nodes != 1)}, {ours}")
    print_line(f"state in {found['state_dir']}")
    for warning in found["warnings"]:
        print_line(f"warning: {warning}")
    return 0


def stop() -> None:
    """Stop the controller; tasks keep running.

    The next command starts another controller.
    """
    served = Client(paths.state_dir(), None)
    if not served.is_running():
        print_line(f"no controller is running for {paths.state_dir()}")
        return
    end(served, paths.state_dir())
    print_line("the controller has stopped; tasks keep running")


def end(served: Client, state: Path) -> None:
    """End the controller of this state folder; raises ControllerError if it does not end."""
    pid = served.post("/v1/controller/stop")["pid"]
    if not _has_ended(state):
        raise ControllerError(f"the controller (process {pid}) did not stop; see controller.log in {state}")


def _has_ended(state: Path) -> bool:
    """Wait up to 15 s for the lock that a live controller holds. A zombie has a process id, but no lock."""
    import fcntl
    import time

    with (state / "lock").open() as lock:
        for _ in range(300):
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                time.sleep(0.05)
            else:
                return True
    return False
