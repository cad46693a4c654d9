"""The logs of one or two tasks: follow, search, go to a line or a time, wrap, save."""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.screen import Screen
from textual.widgets import Input

from agentless.client.client import Client
from agentless.model.text import printable
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.local_files import NoAnswer, in_time
from agentless.tui.screens.logs.choose import ChooseTask
from agentless.tui.screens.logs.pane import LogPane
from agentless.tui.screens.logs.saving import Saving
from agentless.tui.widgets.footer import KeyLine


class LogScreen(Screen[None]):
    """The log of a task, or of two side by side. Keys are for the one that has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q", "back", "Back", tooltip="leave this screen"),
        Binding("f", "follow", "Follow", tooltip="go to the end and show new output"),
        Binding("slash", "search", "Search", key_display="/", tooltip="search the log"),
        Binding("n", "next(1)", "Next", show=False, tooltip="go to the next match"),
        Binding("N", "next(-1)", "Previous", show=False, tooltip="go to the previous match"),
        Binding("J", "jump", "Jump", tooltip="go to a line, a percentage or a time"),
        Binding("w", "wrap", "Wrap", tooltip="wrap or cut long lines"),
        Binding("1", "only(1)", "stdout", show=False, tooltip="show only stdout, or both"),
        Binding("2", "only(2)", "stderr", show=False, tooltip="show only stderr, or both"),
        Binding("vertical_line", "beside", "Beside", key_display="|", tooltip="show another log beside this one"),
        Binding("X", "save", "Export", tooltip="write the whole log to a file"),
    ]
    DEFAULT_CSS = """
    LogScreen > Horizontal { height: 1fr; }
    LogScreen > Input { display: none; height: 1; border: none; padding: 0; background: $panel; }
    LogScreen > Input.-open { display: block; }
    """

    def __init__(self, cluster: ClusterState, task: Row, client: Client, *, search: bool = False) -> None:
        super().__init__()
        self._search_first = search
        self._cluster, self._client = cluster, client
        self._panes = [LogPane(cluster, task, client)]
        self._pane = self._panes[0]
        self._saving = Saving(self, client)
        self._asks = ""

    @property
    def about_task(self) -> Row:
        """The task in its present state."""
        return self._pane.about_task

    @property
    def about_node(self) -> None:
        """None: what is shown, and acted on, is the task."""

    def compose(self) -> ComposeResult:
        yield Horizontal(*self._panes)
        yield Input(compact=True)
        yield KeyLine()

    def on_mount(self) -> None:
        self.set_focus(self._pane.log_lines)
        if self._search_first:
            self.action_search()

    def on_unmount(self) -> None:
        """Break off saving."""
        self._saving.break_off()

    def on_descendant_focus(self) -> None:
        """The keys are for the log that has the focus."""
        focused = [pane for pane in self._panes if pane.log_lines is self.focused]
        self._pane = focused[0] if focused else self._pane
        for pane in self._panes:
            pane.set_front(is_front=pane is self._pane, alone=len(self._panes) == 1)

    def cluster_changed(self, changed: set[str]) -> None:
        """Show the state of the tasks."""
        if "tasks" in changed:
            for pane in self._panes:
                pane.describe()

    def action_back(self) -> None:
        """Leave the input line, end a search, leave the second log, or the screen."""
        line = self.query_one(Input)
        if line.has_class("-open"):
            line.remove_class("-open")
            self.set_focus(self._pane.log_lines)
        elif self._pane.end_search():
            return
        elif len(self._panes) > 1:
            self._close(self._pane)
        else:
            self.app.pop_screen()

    def action_follow(self) -> None:
        """Go to the end, and stay there."""
        self._pane.log_lines.show_end()

    def action_wrap(self) -> None:
        """Wrap long lines, or cut them."""
        self._pane.wrap()

    def action_only(self, stream: int) -> None:
        """Show only this stream, or both."""
        self._pane.show_only(stream)

    def action_next(self, by: int) -> None:
        """Go to the next match, or the one before."""
        self._pane.search_on(by)

    def action_search(self) -> None:
        self._open("search", "Search for", self._pane.log_lines.sought)

    def action_jump(self) -> None:
        """Ask for a place."""
        times = ", or a time: 14:30, 10min (ago), 2026-05-01T12:00" if self._pane.has_times else ""
        self._open("jump", f"Go to a line: 1200, or a percentage: 40%{times}", "")

    def action_beside(self) -> None:
        """Ask for a second log; with two, close the one in front."""
        if len(self._panes) > 1:
            self._close(self._pane)
        else:
            self.app.push_screen(ChooseTask(self._cluster, self.about_task["id"]), self._show_beside)

    def action_save(self) -> None:
        """Ask for a path; a browser asks for it itself."""
        name = re.sub(r"[^\w.-]", "_", self.about_task["id"]) + ".log"
        if self.app.is_web:
            self._saving.hand_out(self.about_task, name, self._pane.log_lines.only)
        else:
            self._open("save", "Save the log to file", name)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, go to a place, or save."""
        event.stop()
        if self._asks == "save":
            self._save(event.value.strip())
            return
        self.action_back()
        if self._asks == "search":
            self._pane.search(event.value)
        elif event.value.strip():
            self._pane.jump(event.value.strip())

    # ------------------------------------------------------------------ inside

    def _open(self, asks: str, placeholder: str, value: str) -> None:
        self._asks = asks
        line = self.query_one(Input)
        line.placeholder, line.value = placeholder, value
        line.add_class("-open")
        self.set_focus(line)

    def _show_beside(self, task: Row | None) -> None:
        if task is not None:
            pane = LogPane(self._cluster, task, self._client)
            pane.add_class("-second")
            self._panes.append(pane)
            self.query_one(Horizontal).mount(pane)
            self.call_after_refresh(self.set_focus, pane.log_lines)

    def _close(self, pane: LogPane) -> None:
        self._panes.remove(pane)
        self._panes[0].remove_class("-second")
        pane.remove()
        self.set_focus(self._panes[0].log_lines)
        self.on_descendant_focus()

    def _save(self, name: str) -> None:
        if not name:
            self.action_back()
            return
        try:
            path = Path(name).expanduser().absolute()
            file = in_time(name, lambda: path.open("xb"))
        except FileExistsError:
            problem = "already exists; choose another name"
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
        except (RuntimeError, ValueError) as error:
            problem = f"is not a file name: {error}"
        except NoAnswer as error:
            self.notify(printable(str(error)), severity="error", markup=False)
            return
        else:
            self.action_back()
            self._saving.write(self.about_task, file, path, self._pane.log_lines.only)
            return
        self.notify(printable(f"{name} {problem}"), severity="error", markup=False)
