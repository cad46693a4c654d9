"""The app: its views, its keys, and what they do."""

from __future__ import annotations

import contextlib
import os
import traceback
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult, SuspendNotSupported, SystemCommand
from textual.binding import ActiveBinding, Binding, BindingType
from textual.command import CommandPalette
from textual.filter import LineFilter
from textual.markup import escape
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import Theme
from textual.widgets import ContentSwitcher

from agentless import paths
from agentless.client.client import Breaker, BrokenOff, Client
from agentless.client.console import in_font
from agentless.client.stream import ProgramStream
from agentless.client.words import gpu_place
from agentless.errors import AgentlessError
from agentless.model.text import lines_of, printable
from agentless.model.units import counted
from agentless.tui.data.actions import (
    ACTIONS,
    MANY,
    Action,
    Target,
    about,
    applies,
    details,
    effect,
    inapplicable,
    outcome,
    path_of,
    path_of_vps,
    perform_all,
    question,
    started,
    undone,
)
from agentless.tui.data.cluster import ClusterState, Row, is_vps
from agentless.tui.data.copied import fields_of, fields_of_vps, mates
from agentless.tui.data.forwards import Forwards, browse, from_elsewhere, offered
from agentless.tui.data.incoming import Incoming, in_app
from agentless.tui.screens import shell
from agentless.tui.screens.ask import Ask
from agentless.tui.screens.details.batch import BatchScreen
from agentless.tui.screens.details.cluster import screen_of
from agentless.tui.screens.details.gpu import GpuDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.events import Events
from agentless.tui.screens.gpus import Gpus
from agentless.tui.screens.keys import Keys, keys_of
from agentless.tui.screens.logs.choose import ChooseTask
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.screens.nodes import Nodes
from agentless.tui.screens.overview.clusters import ClusterPanels
from agentless.tui.screens.overview.view import Overview
from agentless.tui.screens.palette import Everything, Palette
from agentless.tui.screens.places import Places, copied
from agentless.tui.screens.queue import Queue
from agentless.tui.screens.reports.base import Report
from agentless.tui.screens.reports.envs import EnvReport
from agentless.tui.screens.reports.timeline import Timeline
from agentless.tui.screens.reports.usage import UsageReport
from agentless.tui.screens.submit import SubmitForm
from agentless.tui.screens.tasks import Tasks
from agentless.tui.screens.vps.create import VpsForm
from agentless.tui.screens.vps.resize import Resize
from agentless.tui.screens.vps.snapshots import Snapshots
from agentless.tui.screens.vps.view import AllVps
from agentless.tui.screens.workflows.graph import WorkflowScreen
from agentless.tui.screens.workflows.view import Workflows
from agentless.tui.widgets.bar import Bar, Summary
from agentless.tui.widgets.colours import COLOURS, CYCLE, TERMINAL, THEMES, InFont, Plain, has_colours
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.table import Table

VIEWS = {
    "overview": "Overview", "gpus": "GPUs", "nodes": "Nodes", "tasks": "Tasks", "queue": "Queue", "events": "Events",
    "vps": "VPS", "workflows": "Workflows",
}  # fmt: skip
SEEN = "dashboard-seen"
"""A file in the config folder: the dashboard was opened before."""
_MAKERS: dict[str, Any] = {
    "overview": Overview, "gpus": Gpus, "nodes": Nodes, "tasks": Tasks, "queue": Queue, "events": Events,
    "vps": AllVps, "workflows": Workflows,
}  # fmt: skip
_REPORTS = {
    "timeline": ("t", "Timeline", "show who starts when, who ends when, and what is reserved"),
    "usage": ("u", "Usage", "show GPU-hours by owner, node or batch"),
    "envs": ("e", "Envs", "show envs, their versions, and where these are"),
}
_REPORT_SCREENS: dict[str, type[Report]] = {"timeline": Timeline, "usage": UsageReport, "envs": EnvReport}
_SCREENS = {
    "logs": LogScreen,
    "describe": TaskDetails,
    "snapshots": Snapshots,
    "workflow": WorkflowScreen,
    "batch": BatchScreen,
}
"""The screens that actions open: the same one is not opened twice on top of itself."""


class Dashboard(App[None]):
    """All views over one `ClusterState`, which the controller's stream keeps up to date."""

    TITLE = "agentless"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = App.COMMANDS | {Everything}
    BINDINGS: ClassVar[list[BindingType]] = [
        *(
            Binding(str(at), f"view('{name}')", title, show=False, tooltip="show this view")
            for at, (name, title) in enumerate(VIEWS.items(), 1)
        ),
        Binding("tab", "next_view(1)", show=False, priority=True),
        Binding("shift+tab", "next_view(-1)", show=False, priority=True),
        *(Binding(act.key, f"act('{act.name}')", act.title, show=act.shown, tooltip=act.help) for act in ACTIONS),
        *(
            Binding(key, f"report('{name}')", title, show=False, tooltip=tooltip)
            for name, (key, title, tooltip) in _REPORTS.items()
        ),
        Binding("question_mark", "keys", "Keys", show=False, key_display="?", tooltip="list all keys"),
        Binding("colon,ctrl+p", "command_palette", show=False),
        Binding("Z", "undo", "Undo", show=False, tooltip="undo the last drain, resume, pause or move"),
        Binding("S", "start_controller", "Start", show=False, tooltip="start the stopped controller"),
        Binding("q", "quit", "Quit", tooltip="quit the dashboard; tasks keep running"),
        Binding("ctrl+q", "quit", "Quit", show=False, tooltip="quit the dashboard; tasks keep running"),
        Binding("ctrl+c", "app.leave", show=False, priority=True),
        Binding("y", "copy", "Copy", show=False, tooltip="copy the selected row, or the name of what is open"),
        Binding("c", "colours", "Colors", show=False, tooltip="switch between dark, light and the terminal's own"),
    ]
    """The command palette lists those with a tooltip."""
    COMMAND_PALETTE_BINDING = "question_mark"
    """The key that the footer always shows."""
    CSS = """
    Screen { layout: vertical; }
    ContentSwitcher { height: 1fr; }
    Footer > FooterKey.-command-palette { margin: 0; }
    """

    _has_few_colours = False

    def __init__(self, client: Client, *, read_only: bool = False, only: str | None = None, place: str = "") -> None:
        super().__init__()
        for theme in THEMES:
            self.register_theme(theme)
        self.no_color = not has_colours(os.environ)
        if self.no_color or self.console.color_system in ("standard", None):
            self._has_few_colours = True
            self.set_reactive(App.theme, TERMINAL)
        self.stylesheet.set_variables(self.get_css_variables())  # with the variables of these themes
        self.client = client
        self.read_only = read_only
        self.views = {only: VIEWS[only]} if only else VIEWS
        self.reports = {} if only else {name: title for name, (_, title, _) in _REPORTS.items()}
        self.cluster = ClusterState()
        self.incoming = Incoming(self, client, self.cluster, self._show)
        self.forwards = Forwards(client, lambda words: in_app(self, self._say, words, "warning"))
        self.places = Places(self, client, self.cluster, place)
        self._offered: list[str] = []
        self._undo: Callable[[Client], str] | None = None
        self._breakers: set[Breaker] = set()  # of the requests under way

    # ------------------------------------------------------------------ screen

    def compose(self) -> ComposeResult:
        yield Bar(self.views)
        yield Summary(self.cluster)
        with ContentSwitcher(initial=next(iter(self.views))):
            for name in self.views:
                yield _MAKERS[name](self.cluster, id=name)
        yield KeyLine()

    def on_mount(self) -> None:
        """Show the saved theme, and begin to follow the controller."""
        with contextlib.suppress(OSError, ValueError):
            theme = (paths.config_dir() / "theme").read_text().strip()
            self.theme = theme if theme in self.available_themes else self.theme
        if self._has_few_colours:
            self.mutate_reactive(App.theme)  # it was set before there were widgets
        else:  # a theme for few colours is not for other terminals
            self.theme_changed_signal.subscribe(self, lambda theme: self._keep_theme(theme.name))
        if overview := self.query(Overview):
            overview.first().news.is_new = not (paths.config_dir() / SEEN).exists()
        self.screen.set_focus(self.view.starting_focus)
        self.set_interval(1.0, self._each_second)
        self.screen_change_signal.subscribe(self, self.places.tell)
        self.incoming.start(events="events" in self.views)

    def on_app_blur(self, event: events.AppBlur) -> None:
        """Keep the focus, and so the line of keys: a page begins without, and gets it with the first tap or key."""
        event.prevent_default()

    def _fatal_error(self) -> None:
        """End because of an error in the code: as Textual does, but no values, among which are secrets."""
        error = self._exception
        words = "".join(traceback.format_exception(error)) if error else "unexpected error"
        self._exit_renderables.append(Text(words.strip()))
        self._close_messages_no_wait()

    def on_unmount(self) -> None:
        self.incoming.close()
        self.forwards.close()
        with contextlib.suppress(OSError):
            paths.config_dir().mkdir(parents=True, exist_ok=True)
            (paths.config_dir() / SEEN).touch()
        for breaker in self._breakers.copy():
            breaker.break_off()

    @property
    def view(self) -> Any:
        return self.query_one(ContentSwitcher).visible_content

    def action_view(self, name: str) -> None:
        if name in self.views and len(self.screen_stack) == 1:
            self.query_one(ContentSwitcher).current = name
            self.query_one(Bar).show(name)
            self.view.update()
            self.screen.set_focus(self.view.starting_focus)
            self.refresh_bindings()
            self.places.tell()

    def go_to(self, path: str) -> None:
        """Show the place of a path, like `/tasks/ID`; see `Places`."""
        self.places.go_to(path)

    def action_next_view(self, by: int) -> None:
        """Show the next view; on a screen on top, go to the next tab or field."""
        if isinstance(self.screen, TaskDetails):
            self.screen.action_tab(by)
            return
        if len(self.screen_stack) > 1:
            (self.screen.focus_next if by > 0 else self.screen.focus_previous)()
            return
        names = list(self.views)
        self.action_view(names[(names.index(self.view.id) + by) % len(names)])

    @property
    def available_themes(self) -> dict[str, Theme]:
        """The themes that this terminal can show: with few colours, only its own."""
        themes = super().available_themes
        return {name: themes[name] for name in themes if themes[name].ansi or not self._has_few_colours}

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """The colours of ours that Textual's other themes lack."""
        return COLOURS

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Replace Textual's filter for no colours: it depends on the first theme, and shows black on black."""
        colours = [Plain()] if self.no_color else super().get_line_filters()
        return [InFont(signs), *colours] if (signs := in_font(os.environ)) else colours

    def action_copy(self) -> None:
        """Copy the selected row, or the name of what is open."""
        if words := copied(self.screen, self.view):
            self.copy_to_clipboard(words)
            self._say(f"Copied: {words}")

    def action_colours(self) -> None:
        """Change between dark, light, and the terminal's own colours."""
        if self.no_color:
            self._say("Colors are off: NO_COLOR is set, or this terminal has none", "warning")
            return
        themes = [name for name in CYCLE if name in self.available_themes]
        self.theme = themes[(themes.index(self.theme) + 1) % len(themes) if self.theme in themes else 0]

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """The commands of the palette: each action of the screen once, with all of its keys."""
        commands: dict[str, list[ActiveBinding]] = {}
        for active in screen.active_bindings.values():
            if active.enabled and active.binding.tooltip:
                action = active.binding.action
                if action == "open" and not isinstance(self.view, (Overview, Gpus, Nodes)):
                    action = "act('describe')"  # the same action by another key
                commands.setdefault(action, []).append(active)
        for action, found in commands.items():
            keys = ", ".join(self.get_key_display(active.binding) for active in found)
            act = next((act for act in ACTIONS if action == f"act('{act.name}')"), None)
            targets = self._targets(act) if act else []
            name = about(act, targets[0]) if act and len(targets) == 1 else counted(len(targets), "marked task")
            named = f" · {name}" if targets and name else ""
            binding = found[-1].binding
            yield SystemCommand(
                f"{binding.description}: {binding.tooltip}",
                escape(printable(f"Key {keys}{named}")),  # Textual takes it for markup
                partial(self._run, screen, found[-1]),
            )
        if not self.no_color:
            yield SystemCommand("Theme: choose other colors", "From a list", self.action_change_theme)

    def action_command_palette(self) -> None:
        if not isinstance(self.screen, CommandPalette):
            self.push_screen(Palette())

    async def _run(self, screen: Screen[Any], active: ActiveBinding) -> None:
        """Do what a key does on the screen that the command palette was opened on."""
        if screen is self.screen:
            await self.run_action(active.binding.action, active.node)

    # ----------------------------------------------------------------- actions

    @property
    def target(self) -> Target:
        """The task, node and workflow that actions apply to: those of the screen on top, or of the chosen row."""
        shows = next((s for s in reversed(self.screen_stack[1:]) if hasattr(s, "about_task")), self.view)
        workflow = getattr(shows, "about_workflow", None)
        return Target(shows.about_task, self.cluster.nodes.get(shows.about_node or ""), workflow)

    @property
    def _front(self) -> Screen[Any]:
        """The screen on top, or the one that the command palette was opened on."""
        return next(s for s in reversed(self.screen_stack) if not isinstance(s, CommandPalette))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does anything now; the line of keys leaves out the others."""
        if action == "start_controller":
            return self.cluster.stopped
        if action == "view":
            return parameters[0] in self.views and self._front is self.screen_stack[0]
        if action == "report":
            return self._front is self.screen_stack[0] and bool(self.reports)
        if action != "act":
            return True
        act = next(act for act in ACTIONS if act.name == parameters[0])
        if act.name == "submit" and (self._front is not self.screen_stack[0] or isinstance(self.view, Workflows)):
            return False  # what is shown has no tasks to add to
        if isinstance(self._front, (Ask, ChooseTask, Keys, Resize, SubmitForm, shell.Opening)) or (
            self.read_only and act.changes
        ):
            return False
        screen = _SCREENS.get(act.name)
        if screen and any(isinstance(each, screen) for each in self.screen_stack):
            return False
        return applies(act.name, self.target) or any(applies(act.name, each) for each in self._targets(act))

    def action_report(self, name: str) -> None:
        self.push_screen(_REPORT_SCREENS[name](self.cluster))

    def action_act(self, name: str) -> None:
        """Perform an action, after a question if it needs one."""
        act, target = next(act for act in ACTIONS if act.name == name), self.target
        for table in self.view.query(Table):
            table.hold()
        match name:
            case "submit":
                form = VpsForm if isinstance(self.view, AllVps) else SubmitForm
                self.push_screen(form(self.cluster, self.client, self._wanted()))
            case "again" if target.task:
                self.do(partial(self._repeat, target.task))
            case "logs" if target.task:
                self.push_screen(LogScreen(self.cluster, target.task, self.client))
            case "shell" if target.task:
                self.open_shell(shell.of_task(self.client, target.task))
            case "describe" if target.task:
                self.push_screen(TaskDetails(self.cluster, target.task))
            case "batch" if target.task:
                self.push_screen(BatchScreen(self.cluster, target.task["batch"], self.client))
            case "workflow" if target.task:
                self.push_screen(WorkflowScreen(self.cluster, target.task["workflow"]))
            case "snapshots" if target.task:
                self.push_screen(Snapshots(self.cluster, self.client, target.task))
            case "resize" if target.task:
                self.push_screen(Resize(target.task), partial(self._resize, target.task))
            case "forward" if target.task:
                self._ask_for_port(act, target, target.task)
            case _ if not (targets := self._targets(act)):
                self._say(f"{act.title} applies to none of the marked rows; press Esc to unmark them", "warning")
            case _ if act.effect:
                self._ask(act, targets)
            case _:
                self._perform(act, targets)

    def _targets(self, act: Action) -> list[Target]:
        """What an action applies to: the tasks or nodes of the marked rows, where it fits, or else what is chosen."""
        table = getattr(self.view, "table", None)
        if act.name not in MANY or self._front is not self.screen_stack[0] or not isinstance(table, Table):
            return [self.target]
        if not (rows := table.body.marked):
            return [self.target]
        marked = [Target(self.view.task_of(row), None) for row in rows]
        if act.name in ("drain", "resume_node"):
            names = dict.fromkeys(self.view.node_of(row) or "" for row in rows)
            marked = [Target(None, self.cluster.nodes.get(name)) for name in names]
        return [target for target in marked if applies(act.name, target)]

    def _ask(self, act: Action, targets: list[Target]) -> None:
        """Ask before an action."""
        words, more = question(act, targets)
        text = "Reason (optional, shown to everybody)" if act.reason else ""
        asked = Ask(words, more, effect=effect(act, targets), verb=act.title.partition(" ")[0], text=text)
        self.clear_notifications()  # they could cover it
        self.push_screen(asked, lambda reason: self._answered(act, targets, reason))

    def _ask_for_port(self, act: Action, target: Target, task: Row) -> None:
        ports = offered(task)
        question = Ask(
            f"Forward a port of {about(act, target)}?",
            [*details(act, target), *self.forwards.of(task)],
            effect="It is reached on loopback of this machine, as long as the dashboard is open.",
            verb="Forward",
            text=" or ".join(ports) or "PORT, or PORT:LOCAL, like 8888 or 8888:9999",
            given=next(iter(ports), ""),
        )
        self.push_screen(question, lambda text: self._forward(task, text))

    def do(self, work: Callable[[], None]) -> None:
        """Work in a thread, and show its error."""
        breaker = Breaker()

        def run() -> None:
            try:
                with breaker.watching():
                    work()
            except AgentlessError as error:
                in_app(self, self._say, str(error), "error")
            except BrokenOff:
                pass
            self._breakers.discard(breaker)

        self._breakers.add(breaker)
        self.run_worker(run, thread=True)

    def notify(self, message: str, *, title: str = "", severity: SeverityLevel = "information", **more: Any) -> None:
        """Add a title with the severity, which must be readable without its colour."""
        title = title or {"error": "Error", "warning": "Warning"}.get(severity, "")
        super().notify(message, title=title, severity=severity, **more)

    def _say(self, words: str, severity: SeverityLevel = "information") -> None:
        """Show a notification in place of earlier ones."""
        self.clear_notifications()
        self.notify("\n".join(lines_of(words)), severity=severity, markup=False)

    def _repeat(self, task: Row) -> None:
        """Open the form for a copy of this task."""
        spec = self.client.get(f"{path_of(task)}/spec")
        needs = [self.client.get(f"/v1/tasks/{mate}/spec")["needs"] for mate in mates(spec)]
        form, fields = (VpsForm, fields_of_vps) if is_vps(task) else (SubmitForm, fields_of)
        in_app(self, self.push_screen, form(self.cluster, self.client, fields(task, spec, needs), spec))

    def open_shell(self, wanted: shell.Shell) -> None:
        """Open a shell, which has the terminal until it ends."""
        self.push_screen(shell.Opening(wanted), partial(self._lend, wanted))

    def _lend(self, wanted: shell.Shell, opened: ProgramStream | AgentlessError | None) -> None:
        """Give the terminal to the shell that was opened."""
        if not isinstance(opened, ProgramStream):
            if opened:
                self._say(str(opened), "error")
            return
        greeting = f"Shell in {wanted.where}; type exit to return to the dashboard"
        try:
            ended = shell.run(self, opened, greeting)
        except SuspendNotSupported:
            self._say(f"This terminal cannot open a shell; in another one, run: {wanted.command}", "error")
        except AgentlessError as error:
            self._say(str(error), "error")
        else:
            if ended:
                self.exit()

    def _resize(self, vps: Row, body: Row | None) -> None:
        def work() -> None:
            found = started(self.client.post(f"{path_of_vps(vps)}/resize", body))
            in_app(self, self._say, outcome(found))

        if body is not None:
            self.do(work)

    def _forward(self, task: Row, text: str | None) -> None:
        def work() -> None:
            port = self.forwards.open(task, text or "")
            words = f"{port.url} leads to port {port.there} of {task['name'] or task['id']}"
            if self.is_web:  # whether the browser is on this machine is not known
                words += f", on the machine of this dashboard. From another one, first run: {from_elsewhere(port.port)}"
            elif not browse(port.url):
                words += "; open it in a browser"
            in_app(self, self._say, words)

        if text:
            self.do(work)

    def _wanted(self) -> dict[str, str]:
        """The initial fields of the form: the chosen GPU, if it is free."""
        gpu = self.view.chosen if self.view.id in ("overview", "gpus") else None
        return {"target": gpu_place(gpu)} if gpu and gpu["state"] == "free" else {}

    def _answered(self, act: Action, targets: list[Target], reason: str | None) -> None:
        if reason is not None:
            self._perform(act, targets, reason)

    def _perform(self, act: Action, targets: list[Target], reason: str = "") -> None:
        def work() -> None:
            words, found = perform_all(self.client, act, targets, reason)
            self._undo = undone(act.name, targets[0], found) if len(targets) == 1 else None
            in_app(self, self._say, f"{words} (press Z to undo)" if self._undo else words)

        if table := getattr(self.view, "table", None):
            table.body.clear_marks()
        self.do(work)

    def action_undo(self) -> None:
        """Take back the last action, if it can be."""
        undo, self._undo = self._undo, None
        if undo is None:
            self._say("Nothing to undo: only drain, resume, pause and the place in the queue can be undone", "warning")
        else:
            self.do(partial(self._take_back, undo))

    def _take_back(self, undo: Callable[[Client], str]) -> None:
        try:
            words = undo(self.client)
        except Exception:
            self._undo = undo  # it was refused, and can be tried again
            raise
        in_app(self, self._say, f"Undone: {words}")

    def _offer(self) -> None:
        """Update the line of keys if other actions apply now."""
        if not self.is_running:  # messages of views that are already gone
            return
        offered = [act.name for act in ACTIONS if self.check_action("act", (act.name,))]
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    async def action_leave(self) -> None:
        """Leave the form as Esc does, else the dashboard, even while the form waits for an answer."""
        if isinstance(self.screen, SubmitForm) and not self.screen.busy:
            self.screen.action_leave()
        else:
            await self.action_quit()

    def on_key(self, event: events.Key) -> None:
        """Say why the key of an action does nothing for what is shown."""
        acts = [act for act in ACTIONS if act.key == event.character]
        is_there = self._front is self.screen_stack[0] or hasattr(self._front, "about_task")
        if not acts or not is_there or event.key in self.screen.active_bindings:
            return
        if not any(applies(act.name, self.target) for act in acts):
            self._say(inapplicable(acts[0].key, self.target))
        elif self.read_only:
            self._say("This dashboard is read only")

    def action_keys(self) -> None:
        if not isinstance(self.screen, Keys):
            self.push_screen(Keys(keys_of(self.screen), self.places.title))

    def on_table_chosen(self) -> None:
        self._offer()

    def on_cluster_map_chosen(self) -> None:
        self._offer()

    def on_table_opened(self) -> None:
        view = self.view
        if isinstance(view, Gpus) and view.chosen:
            self.push_screen(GpuDetails(self.cluster, view.chosen))
        elif isinstance(view, Nodes) and view.about_node:
            self.push_screen(screen_of(self.cluster, view.about_node))
        elif isinstance(view, Workflows) and view.chosen:
            self.push_screen(WorkflowScreen(self.cluster, view.chosen["id"]))
        elif view.about_task:
            self.push_screen(TaskDetails(self.cluster, view.about_task))
        elif view.about_node:
            self.push_screen(screen_of(self.cluster, view.about_node))

    def on_cluster_map_opened(self) -> None:
        if self.view.chosen:
            self.push_screen(GpuDetails(self.cluster, self.view.chosen))

    def on_cluster_panels_opened(self, message: ClusterPanels.Opened) -> None:
        self.push_screen(screen_of(self.cluster, message.name))

    def on_submit_form_submitted(self, message: SubmitForm.Submitted) -> None:
        if self.is_running:
            self.action_view(message.view)
            self.view.action_clear()  # a filter may hide it
            self.view.table.choose(message.name)

    def _keep_theme(self, name: str) -> None:
        with contextlib.suppress(OSError):
            paths.config_dir().mkdir(parents=True, exist_ok=True)
            fresh = paths.config_dir() / "theme.new"
            fresh.write_text(name + "\n")
            fresh.replace(fresh.with_suffix(""))

    # ---------------------------------------------------------------- incoming

    def _each_second(self) -> None:
        """Update the times, which change without a message."""
        self.incoming.tick()
        self._show({"tasks"})

    def action_start_controller(self) -> None:
        self.incoming.restart()

    def _show(self, changed: set[str]) -> None:
        """Update what is on the screen."""
        if not self.is_running or not self.screen_stack:
            return
        if changed != {"events"}:
            self.query_one(Summary).update()
        if "controller" in changed:
            self.refresh_bindings()
        if changed & self.view.KINDS:
            self.view.update()
            self._offer()
        for screen in self.screen_stack[1:]:
            if hasattr(screen, "cluster_changed"):
                screen.cluster_changed(changed)
        self.places.tell()
