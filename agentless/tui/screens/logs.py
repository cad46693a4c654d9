"""The log of a task: follow, search, wrap, save."""

from __future__ import annotations

import contextlib
import re
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.client.words import state
from agentless.errors import AgentlessError
from agentless.model.text import printable
from agentless.model.units import format_size
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.log_text import LogText
from agentless.tui.widgets.log_lines import Log

STREAMS = {1: "stdout", 2: "stderr"}
FOLLOWING = "Following"


class LogScreen(Screen[None]):
    """The log of a task."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back", tooltip="leave this screen"),
        Binding("f", "follow", "Follow", tooltip="go to the end and show new output"),
        Binding("slash", "search", "Search", key_display="/", tooltip="search the log"),
        Binding("n", "next(1)", "Next", show=False, tooltip="go to the next match"),
        Binding("N", "next(-1)", "Previous", show=False, tooltip="go to the previous match"),
        Binding("w", "wrap", "Wrap", tooltip="wrap or cut long lines"),
        Binding("1", "only(1)", "stdout", tooltip="show only stdout, or both"),
        Binding("2", "only(2)", "stderr", tooltip="show only stderr, or both"),
        Binding("S", "save", "Save", tooltip="save the whole log to a file"),
    ]
    CSS = """
    LogScreen > Static { height: auto; max-height: 4; background: $panel; }
    LogScreen > Input { dock: bottom; display: none; height: 1; border: none; padding: 0; background: $panel; }
    LogScreen > Input.-open { display: block; }
    """

    def __init__(self, cluster: ClusterState, task: Row, client: Client) -> None:
        super().__init__()
        self._cluster, self._row, self._client = cluster, task, client
        self.log_lines = Log()
        self._state = Static(markup=False)
        self._breaker, self._saving = Breaker(), Breaker()
        self._asks = ""
        self._note = "Loading …"
        self._text = LogText()

    @property
    def about_task(self) -> Row:
        """The task in its present state."""
        return self._cluster.tasks.get(self._row["id"], self._row)

    @property
    def about_node(self) -> str | None:
        node: str | None = self.about_task["node"]
        return node

    def compose(self) -> ComposeResult:
        yield self._state
        yield self.log_lines
        yield Input(compact=True)
        yield Footer(compact=True)

    def on_mount(self) -> None:
        self.set_focus(self.log_lines)
        self.run_worker(self._read, thread=True)
        self.set_interval(0.1, self._take)
        self._describe()

    def on_unmount(self) -> None:
        """Break off reading and saving."""
        self._breaker.break_off()
        self._text.close()
        self._saving.break_off()

    def cluster_changed(self, changed: set[str]) -> None:
        """Show the state of the task."""
        if "tasks" in changed:
            self._describe()

    def on_log_moved(self) -> None:
        """Show whether it follows."""
        self._describe()

    def _read(self) -> None:
        try:
            with self._breaker.watching():
                for frame in self._client.followed(f"{path_of(self._row)}/logs"):
                    self._text.add(*frame)
            self._note = "No more output"
        except BrokenOff:
            return
        except AgentlessError as error:
            self._note = str(error)
        self.app.call_from_thread(self._describe)

    def _take(self) -> None:
        if came := self._text.take():
            self.log_lines.add(*came)
            if self._note == "Loading …":
                self._note = FOLLOWING
            self._describe()

    def _describe(self) -> None:
        log, task = self.log_lines, self.about_task
        kept, total = log.counts()
        part = (
            f"last {kept:,} of {total:,} lines (press S to save all)"
            if kept < total
            else f"{total:,} line{'s' * (total != 1)}"
        )
        paused = self._note == FOLLOWING and not log.follows
        parts = [
            f"{task['id']} {task['name'] or ''}".strip(),
            state(task),
            part,
            "Paused; press f to follow" if paused else self._note,
        ]
        parts += [f"only {STREAMS[log.only]} (press {log.only} for both)"] if log.only else []
        parts += ["wrapped"] if log.wraps else []
        parts += [f"/{log.sought}"] if log.sought else []
        self._state.update(printable(" · ".join(parts)))

    def action_back(self) -> None:
        """Leave the input line, or the screen."""
        line = self.query_one(Input)
        if line.has_class("-open"):
            line.remove_class("-open")
            self.set_focus(self.log_lines)
        else:
            self.app.pop_screen()

    def action_follow(self) -> None:
        """Go to the end, and stay there."""
        self.log_lines.show_end()
        self._describe()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self.log_lines.wraps = not self.log_lines.wraps
        self.log_lines.lay_out()
        self._describe()

    def action_only(self, stream: int) -> None:
        """Show only this stream, or both."""
        self.log_lines.only = None if self.log_lines.only == stream else stream
        self.log_lines.lay_out()
        self._describe()

    def action_next(self, by: int) -> None:
        """Go to the next match, or the one before."""
        if self.log_lines.sought and not self.log_lines.seek(by):
            self.notify(f"{self.log_lines.sought!r} not found", severity="warning", markup=False)
        self._describe()

    def action_search(self) -> None:
        self._open("search", "Search for", self.log_lines.sought)

    def action_save(self) -> None:
        """Ask for a path; a browser asks for it itself."""
        name = re.sub(r"[^\w.-]", "_", self.about_task["id"]) + ".log"
        if self.app.is_web:
            self.run_worker(partial(self._hand_out, name, self.log_lines.only), thread=True)
        else:
            self._open("save", "Save the log to file", name)

    def _open(self, asks: str, placeholder: str, value: str) -> None:
        self._asks = asks
        line = self.query_one(Input)
        line.placeholder, line.value = placeholder, value
        line.add_class("-open")
        self.set_focus(line)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, or save."""
        event.stop()
        if self._asks == "save":
            self._save(event.value.strip())
            return
        self.action_back()
        self.log_lines.sought = event.value
        self.log_lines.redraw()
        self.action_next(1)

    def _save(self, name: str) -> None:
        if not name:
            self.action_back()
            return
        try:
            path = Path(name).expanduser().absolute()
            file = path.open("xb")
        except FileExistsError:
            problem = "already exists; choose another name"
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
        except (RuntimeError, ValueError) as error:
            problem = f"is not a file name: {error}"
        else:
            self.action_back()
            self.run_worker(partial(self._write, file, path, self.log_lines.only), thread=True)
            return
        self.notify(printable(f"{name} {problem}"), severity="error", markup=False)

    def _write(self, file: BinaryIO, path: Path, only: int | None) -> None:
        size = self._fetch(file, only)
        with contextlib.suppress(OSError):  # what could not be written is said by now
            file.close()
        if size is None:
            path.unlink(missing_ok=True)
        else:
            self.notify(f"Saved to {path}: {format_size(size)}", markup=False)

    def _hand_out(self, name: str, only: int | None) -> None:
        file = TemporaryFile()  # noqa: SIM115 - closed by who delivers it
        if self._fetch(file, only) is not None:
            self.app.call_from_thread(self.app.deliver_binary, file, save_filename=name)

    def _fetch(self, into: IO[bytes], only: int | None) -> int | None:
        """Write the log in a thread; returns its bytes, or None after an error, which is shown."""
        size = 0
        try:
            with self._saving.watching():
                for stream, data in self._client.frames(f"{path_of(self._row)}/logs", follow=False):
                    if stream in (only or 1, only or 2):
                        size += into.write(data)
            into.flush()
        except BrokenOff:
            problem = "closed before it was complete"
        except AgentlessError as error:
            problem = str(error)
        except OSError as error:
            problem = str(error.strerror)
        else:
            return size
        self.notify(printable(f"The log was not saved: {problem}"), severity="error", markup=False)
        return None
