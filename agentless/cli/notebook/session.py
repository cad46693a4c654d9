"""Jupyter in front: its address, its browser, and what Ctrl-C means."""

from __future__ import annotations

import contextlib
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

import typer

from agentless import paths
from agentless.cli.notebook.browser import forget_address, open_address
from agentless.cli.output import print_end, print_line, say
from agentless.cli.progress import progress
from agentless.cli.ssh.settings import inventory_or_none
from agentless.cli.submit.steps import showing
from agentless.cli.tasks.exit_code import own_code
from agentless.cli.tasks.logs import copy_log
from agentless.client.client import Client
from agentless.client.notebook import NO_JUPYTER, NO_PIP, Ended, Jupyter, Server
from agentless.client.ssh.background import forward_in_background
from agentless.client.ssh.forward import Forward, Listener
from agentless.client.ssh.proxy import reach
from agentless.client.words import WAITING
from agentless.errors import AgentlessError, Refused
from agentless.model.tasks.port import Port
from agentless.model.tasks.task_id import first_try

_LOOKS = 0.3
"""Seconds between two looks at whether the task has started."""
_ENDS = 10.0
"""Seconds until the end of a task is known, whose container answers no more."""
_LINES = 20
"""Lines of the log that are shown if Jupyter could not start."""


@dataclass(frozen=True)
class Notebook:
    """A notebook by its name; `is_vps`: its container goes on without it."""

    name: str
    task: str
    is_vps: bool


class Session:
    """Shows a notebook until it ends, or until Ctrl-C. The first of `listeners` is Jupyter's."""

    def __init__(
        self, context: typer.Context, served: Client, shown: Notebook, listeners: list[Listener], *, browser: bool
    ) -> None:
        self._context, self._served, self._shown = context, served, shown
        self._listeners = listeners
        self._browser = browser

    def run(self) -> int:
        """The exit code: 0 if it goes on or was stopped here, else that of its task."""
        try:
            server = self._ready()
            self._show(server)
            ended = self._served.wait(self._shown.task)
        except KeyboardInterrupt:
            return self._leave()
        finally:
            forget_address(self._shown.task)
        print_end(ended)
        return own_code(ended)

    def _ready(self) -> Server:
        """The server, once it takes its token."""
        self._await_start()
        jupyter = Jupyter(self._served, self._shown.task)
        with progress("Waiting for Jupyter"):
            try:
                server = jupyter.start() if self._shown.is_vps else jupyter.wait()
            except AgentlessError as error:
                self._explain(error)
            try:
                connection = reach(*self._place(), self._shown.task, server.port)
            except OSError as error:
                raise Refused(f"cannot reach Jupyter on port {server.port} in the container: {error}") from None
            server.greet(connection)
        return server

    def _await_start(self) -> None:
        task = self._served.get(f"/v1/tasks/{self._shown.task}")
        if task["state"] in WAITING:
            why = f": {task['reason']}" if task["reason"] else ""
            say(f"{self._shown.name}  {task['state']}{why}")
        mine = first_try(task["id"])
        words = f"Starting {self._shown.name}"
        with showing(self._served, lambda event: first_try(event["task"]["id"]) == mine, time.time(), words):
            while task["state"] != "running" and task["ended_at"] is None:
                if task["state"] == "paused":
                    raise Refused(f"{self._shown.name} is paused; to go on, run: agentless resume {task['id']}")
                time.sleep(_LOOKS)
                task = self._served.asked(f"/v1/tasks/{self._shown.task}")

    def _explain(self, error: AgentlessError) -> NoReturn:
        """Say why there is no server."""
        code = error.code if isinstance(error, Ended) else None
        if self._shown.is_vps:
            if code == NO_JUPYTER:
                install = f"agentless vps ssh {self._shown.name} -- pip install jupyterlab"
                raise Refused(f"VPS {self._shown.name} has no Jupyter; to install it, run: {install}")
            if code == NO_PIP:
                raise Refused(
                    f"VPS {self._shown.name} has neither Jupyter nor pip; create one from an image that has Python, "
                    "such as: agentless vps create NAME 1x --image python:3.12-slim"
                )
            raise error
        task = self._served.wait(self._shown.task, within=_ENDS)
        if task["ended_at"] is None:
            self._say_that_it_runs()
            raise error
        if task["exit_code"] in (NO_PIP, NO_JUPYTER):
            raise Refused(no_jupyter(task, has_pip=task["exit_code"] == NO_JUPYTER))
        if task["container"] is None:
            raise Refused(f"{self._shown.name} is {task['state']}: {task['reason']}")
        with contextlib.suppress(AgentlessError):
            copy_log(self._served, self._shown.task, {"tail": _LINES})
        raise Refused(f"Jupyter did not start; its log: agentless logs {self._shown.task}")

    def _show(self, server: Server) -> None:
        first, *others = self._listeners
        listeners = [Listener(Port(server.port, first.port.local), first.sockets), *others]
        forward_in_background(Forward(*self._folders(), self._shown.task, say), listeners)
        url = server.url(first.port.local)
        print_line(url, flush=True)
        opened = self._browser and open_address(url, self._shown.task)
        words = "Opening it in your browser. " if opened else ""
        say(f"{words}Ctrl-C {'asks whether to stop it' if sys.stdin.isatty() else 'leaves it running'}")

    def _folders(self) -> tuple[Any, Any]:
        return paths.state_dir(), inventory_or_none(self._context)

    def _place(self) -> tuple[str, str]:
        state, inventory = self._folders()
        return str(state), str(inventory or "")

    def _leave(self) -> int:
        """Stop it if the user wants that, else say how to come back."""
        what = f"Jupyter in {self._shown.name}" if self._shown.is_vps else self._shown.name
        if not self._is_to_stop(what):
            self._say_that_it_runs()
            return 0
        if self._shown.is_vps:
            Jupyter(self._served, self._shown.task).stop()
            say(f"Stopped {what}")
            return 0
        self._served.post(f"/v1/tasks/{self._shown.task}/stop", {"grace": None})
        with progress(f"Stopping {what}"):
            ended = self._served.wait(self._shown.task)
        print_end(ended)
        return 0

    def _say_that_it_runs(self) -> None:
        stop = "" if self._shown.is_vps else f"    Stop it: agentless stop {self._shown.name}"
        say(f"It keeps running. Connect again: agentless notebook {self._shown.name}{stop}")

    def _is_to_stop(self, what: str) -> bool:
        if not sys.stdin.isatty():
            return False
        say("")
        with contextlib.suppress(typer.Abort, KeyboardInterrupt):
            return typer.confirm(f"Stop {what}", default=False, err=True)
        say("")
        return False


def no_jupyter(task: dict[str, Any], *, has_pip: bool) -> str:
    """How the image of a task, or another one, gets Jupyter."""
    if task["env"]:
        name = task["env"].partition(":")[0]
        return (
            f"env {name} has no Jupyter; to install it, run: agentless env exec {name} -- pip install jupyterlab; "
            f"agentless env save {name}"
        )
    if not task["image"]:
        return f"{task['node']} has no Jupyter for tasks without an image; install it there, so that PATH has it"
    base = task["image"] if has_pip else "python:3.12-slim"
    return (
        f"image {task['image']} has no Jupyter; to make an env that has it, run: agentless env create jupyter --from "
        f"{base}; agentless env exec jupyter -- pip install jupyterlab; agentless env save jupyter; "
        "agentless notebook --container jupyter"
    )
