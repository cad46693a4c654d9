"""The output of a task: follow it, search in it, wrap it, save it."""

from __future__ import annotations

import contextlib
import re
from collections import deque
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, BinaryIO, ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer, Input, Static

from agentless.client import Breaker, BrokenOff, Client
from agentless.errors import AgentlessError
from agentless.model.units import format_size
from agentless.tui.board import Board, Row
from agentless.tui.lines import Lines, Piece
from agentless.words import printable, state

KEPT = 100_000
"""So many lines are kept, the last ones."""
LINE = 20_000
"""Characters of a line that are kept."""
STREAMS = {1: "stdout", 2: "stderr", 3: "agentless"}


class Log(Lines):
    """Lines of both streams. `only` is the one stream that is shown, None: all."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "go(-1)", "Up", show=False),
        Binding("down,j", "go(1)", "Down", show=False),
        Binding("pageup,b,ctrl+b", "page(-1)", "Page up", show=False),
        Binding("pagedown,space,ctrl+f", "page(1)", "Page down", show=False),
        Binding("home,g", "go(-1000000000)", "Begin", show=False),
        Binding("end,G", "go(1000000000)", "End", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._all: deque[tuple[int, str]] = deque(maxlen=KEPT)
        self._open = {1: "", 2: "", 3: ""}  # lines that have not ended yet
        self._shown: list[tuple[int, str]] = []
        self.only: int | None = None
        self.wraps = False
        self.follows = True
        self.sought = ""

    def add(self, frames: list[tuple[int, bytes]]) -> None:
        """Take in what has come."""
        for stream, data in frames:
            *whole, rest = (self._open[stream] + data.decode("utf-8", "replace")).split("\n")
            for line in whole:
                self._all.append((stream, _settled(line)))
            self._open[stream] = rest[-LINE:]
        self.lay_out()

    def lay_out(self) -> None:
        """Make the lines of the screen from those that have come."""
        there = [*self._all, *((stream, _settled(rest)) for stream, rest in self._open.items() if rest)]
        lines = [(stream, text) for stream, text in there if self.only in (None, stream)]
        if self.wraps:
            width = max(1, self.scrollable_content_region.width)
            lines = [
                (stream, text[at : at + width]) for stream, text in lines for at in range(0, max(1, len(text)), width)
            ]
        self._shown = lines
        self.redraw()
        if self.follows:
            self.scroll_to(y=self.length(), animate=False, force=True)

    def length(self) -> int:
        """Lines on the screen and beyond."""
        return len(self._shown)

    def draw(self, y: int) -> list[Piece]:
        """One line."""
        if y >= len(self._shown):
            return []
        stream, text = self._shown[y]
        style = {2: "warn", 3: "dim"}.get(stream, "")
        if not self.sought:
            return [(text, style)]
        pieces, at = [], 0
        for found in re.finditer(re.escape(self.sought), text, re.IGNORECASE):
            pieces += [(text[at : found.start()], style), (found.group(), "found")]
            at = found.end()
        return [*pieces, (text[at:], style)]

    def seek(self, by: int) -> bool:
        """Go to the next line (1), or the one before (-1), that has what is sought; whether there is one."""
        words, here = self.sought.lower(), self.scroll_offset.y
        order = range(here + 1, len(self._shown)) if by > 0 else range(here - 1, -1, -1)
        for y in [*order, *(range(len(self._shown)) if by > 0 else range(len(self._shown) - 1, -1, -1))]:
            if words in self._shown[y][1].lower():
                self.follows = False
                self.scroll_to(y=y, animate=False, force=True)
                return True
        return False

    def action_go(self, by: int) -> None:
        """Further by so many lines; at the end it follows."""
        end = max(0, self.length() - self.size.height)
        y = max(0, min(self.scroll_offset.y + by, end))
        self.follows = y >= end and by > 0
        self.scroll_to(y=y, animate=False, force=True)

    def action_page(self, by: int) -> None:
        """Further by so many screens."""
        self.action_go(by * max(1, self.size.height - 1))


class LogScreen(Screen[None]):
    """The log of a task."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back"),
        Binding("f", "follow", "Follow"),
        Binding("slash", "search", "Search", key_display="/"),
        Binding("n", "next(1)", "Next", show=False),
        Binding("N", "next(-1)", "The one before", show=False),
        Binding("w", "wrap", "Wrap"),
        Binding("1", "only(1)", "stdout"),
        Binding("2", "only(2)", "stderr"),
        Binding("S", "save", "Save"),
    ]
    CSS = """
    LogScreen > Static { height: 1; background: $panel; }
    LogScreen > Input { dock: bottom; display: none; height: 1; border: none; padding: 0; background: $panel; }
    LogScreen > Input.-open { display: block; }
    """

    def __init__(self, board: Board, task: Row, client: Client) -> None:
        super().__init__()
        self._board, self._row, self._client = board, task, client
        self.log_lines = Log()
        self._state = Static(markup=False)
        self._breaker, self._saving = Breaker(), Breaker()
        self._asks = ""
        self._note = "reading"
        self._waiting: list[tuple[int, bytes]] = []

    @property
    def about_task(self) -> Row:
        """The task as it is by now."""
        return self._board.tasks.get(self._row["id"], self._row)

    @property
    def about_node(self) -> str | None:
        """Where it is."""
        node: str | None = self.about_task["node"]
        return node

    def compose(self) -> ComposeResult:
        """A line about it, the lines, the keys."""
        yield self._state
        yield self.log_lines
        yield Input(compact=True)
        yield Footer(show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to read."""
        self.log_lines.focus()
        self.run_worker(self._read, thread=True)
        self.set_interval(0.1, self._take)
        self._describe()

    def on_unmount(self) -> None:
        """Stop reading, and saving."""
        self._breaker.break_off()
        self._saving.break_off()

    def board_changed(self, changed: set[str]) -> None:
        """Show how the task is now."""
        if "tasks" in changed:
            self._describe()

    def _read(self) -> None:
        try:
            with self._breaker.watching():
                for frame in self._client.frames(f"/v1/tasks/{self._row['id']}/logs", follow=True):
                    self._waiting.append(frame)
            self._note = "the end"
        except BrokenOff:
            return
        except AgentlessError as error:
            self._note = str(error)
        self.app.call_from_thread(self._describe)

    def _take(self) -> None:
        if self._waiting:
            frames, self._waiting = self._waiting, []
            self.log_lines.add(frames)
            if self._note == "reading":
                self._note = "following"
            self._describe()

    def _describe(self) -> None:
        log = self.log_lines
        parts = [
            f"{self.about_task['id']} {self.about_task['name'] or ''}".strip(),
            state(self.about_task),
            f"{log.length()} lines",
            self._note,
        ]
        parts += [f"only {STREAMS[log.only]}"] if log.only else []
        parts += ["wrapped"] if log.wraps else []
        parts += [f"/{log.sought}"] if log.sought else []
        parts += [] if log.follows else ["standing still (f follows)"]
        self._state.update("  ·  ".join(parts))

    def action_back(self) -> None:
        """Leave the line, or the screen."""
        line = self.query_one(Input)
        if line.has_class("-open"):
            line.remove_class("-open")
            self.log_lines.focus()
        else:
            self.app.pop_screen()

    def action_follow(self) -> None:
        """Go to the end, and stay there."""
        self.log_lines.follows = True
        self.log_lines.lay_out()
        self._describe()

    def action_wrap(self) -> None:
        """Show long lines on several, or cut."""
        self.log_lines.wraps = not self.log_lines.wraps
        self.log_lines.lay_out()
        self._describe()

    def action_only(self, stream: int) -> None:
        """Show this stream only, or both."""
        self.log_lines.only = None if self.log_lines.only == stream else stream
        self.log_lines.lay_out()
        self._describe()

    def action_next(self, by: int) -> None:
        """Go to the next place, or the one before."""
        if self.log_lines.sought and not self.log_lines.seek(by):
            self.notify(f"{self.log_lines.sought!r} is nowhere in it", severity="warning")
        self._describe()

    def action_search(self) -> None:
        """Ask what to look for."""
        self._open("search", "what to look for", self.log_lines.sought)

    def action_save(self) -> None:
        """Ask where to; in a browser that is the browser's business."""
        name = f"{self.about_task['id']}.log"
        if self.app.is_web:
            self.run_worker(partial(self._hand_out, name, self.log_lines.only), thread=True)
        else:
            self._open("save", "a file to write it to", name)

    def _open(self, asks: str, placeholder: str, value: str) -> None:
        self._asks = asks
        line = self.query_one(Input)
        line.placeholder, line.value = placeholder, value
        line.add_class("-open")
        line.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, or save."""
        event.stop()
        if self._asks == "save":
            self._save(event.value.strip())
            return
        self.action_back()
        self.log_lines.sought = event.value
        self.log_lines.lay_out()
        self.action_next(1)

    def _save(self, name: str) -> None:
        if not name:
            self.action_back()
            return
        try:
            path = Path(name).expanduser().absolute()
            file = path.open("xb")
        except FileExistsError:
            problem = "is there already; choose another name"
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
        except (RuntimeError, ValueError) as error:
            problem = f"cannot be the name of a file: {error}"
        else:
            self.action_back()
            self.run_worker(partial(self._write, file, path, self.log_lines.only), thread=True)
            return
        self.notify(f"{name} {problem}", severity="error", markup=False)

    def _write(self, file: BinaryIO, path: Path, only: int | None) -> None:
        size = self._fetch(file, only)
        with contextlib.suppress(OSError):  # what could not be written is said by now
            file.close()
        if size is None:
            path.unlink(missing_ok=True)
        else:
            self.notify(f"saved as {path}: {format_size(size)}", markup=False)

    def _hand_out(self, name: str, only: int | None) -> None:
        file = TemporaryFile()  # noqa: SIM115 - closed by who delivers it
        if self._fetch(file, only) is not None:
            self.app.call_from_thread(self.app.deliver_binary, file, save_filename=name)

    def _fetch(self, into: IO[bytes], only: int | None) -> int | None:
        """Write the log as it came, in a thread: how many bytes; None where it did not come whole, which is said."""
        size = 0
        try:
            with self._saving.watching():
                for stream, data in self._client.frames(f"/v1/tasks/{self._row['id']}/logs", follow=False):
                    if stream in (only or 1, only or 2):
                        size += into.write(data)
            into.flush()
        except BrokenOff:
            problem = "it was left before its end"
        except AgentlessError as error:
            problem = str(error)
        except OSError as error:
            problem = str(error.strerror)
        else:
            return size
        self.notify(f"the log was not saved: {problem}", severity="error", markup=False)
        return None


def _settled(line: str) -> str:
    """A line as a terminal would leave it: after the last return to its begin, without colours."""
    text = line.rstrip("\r")[-LINE:]
    if "\x1b" in text:
        text = Text.from_ansi(text).plain
    return printable(text.rpartition("\r")[2].replace("\t", "    "))
