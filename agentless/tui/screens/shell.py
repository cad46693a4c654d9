"""A shell in the container of a task or env, which has the terminal of the dashboard until it ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.screen import ModalScreen
from textual.widgets import Static

from agentless.client.client import Client
from agentless.client.stream import ProgramStream
from agentless.client.terminal import TerminalSession, Window, raw, standard
from agentless.errors import AgentlessError
from agentless.model.tasks.task_id import numbered
from agentless.model.terminal import Size
from agentless.model.text import printable
from agentless.tui.data.cluster import Row
from agentless.tui.data.incoming import in_app


@dataclass(frozen=True, slots=True)
class Shell:
    """A shell that `opened` opens: where it is, in words, and the `command` for another terminal."""

    where: str
    command: str
    opened: Callable[[Size], ProgramStream]


def of_task(client: Client, task: Row) -> Shell:
    """A shell in a running task."""
    opened = partial(_opened, client, numbered(task["id"]), "tasks")
    return Shell(f"task {task['id']} on {task['node']}", f"agentless shell {task['id']}", opened)


def of_env(client: Client, env: str) -> Shell:
    """A shell in the build container of an env, which is made of the current version if there is none."""
    return Shell(f"env {env}", f"agentless env shell {env}", partial(_opened, client, env, "envs"))


def _opened(client: Client, name: str, kind: str, size: Size) -> ProgramStream:
    return client.terminal(name, size=size, of=kind)


class Opening(ModalScreen[ProgramStream | AgentlessError | None]):
    """Returns the terminal with a shell in it, or the error; None if the user has left before."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "dismiss", "Cancel")]
    CSS = """
    Opening { align: center middle; }
    Opening > Static { width: auto; border: round $primary; background: $surface; padding: 0 1; }
    """

    def __init__(self, wanted: Shell) -> None:
        super().__init__()
        self._wanted = wanted

    def compose(self) -> ComposeResult:
        yield Static(printable(f"Opening a shell in {self._wanted.where} … (Esc cancels)"), markup=False)

    def on_mount(self) -> None:
        size = Size(self.app.size.width, self.app.size.height)
        self.run_worker(lambda: self._open(size), thread=True)

    def _open(self, size: Size) -> None:
        found: ProgramStream | AgentlessError
        try:
            found = self._wanted.opened(size)
        except AgentlessError as error:
            found = error
        in_app(self.app, self._opened, found)

    def _opened(self, found: ProgramStream | AgentlessError) -> None:
        if self.is_current:
            self.dismiss(found)
        elif isinstance(found, ProgramStream):
            found.close()


def run(app: App[None], terminal: ProgramStream, greeting: str) -> bool:
    """Pass keys and output on until the program ends; returns whether something else ended it, and the dashboard.

    Raises SuspendNotSupported for a terminal that cannot be given away, and the error that ended the program.
    """
    with terminal, app.suspend():
        window = _window(app._driver)  # noqa: SLF001 - Textual gives it no name
        session = TerminalSession(terminal, window)
        with raw(window.keys) if os.isatty(window.keys) else contextlib.nullcontext():
            window.out.write(f"\r\n\x1b[2m{printable(greeting)}\x1b[0m\r\n".encode())
            window.out.flush()
            session.run()
    return bool(session.ended_by)


def _window(driver: Driver | None) -> Window:
    """The browser, if a driver gives it, else the terminal of this process."""
    return getattr(driver, "window", None) or standard()
