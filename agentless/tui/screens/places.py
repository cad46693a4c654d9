"""The places of the dashboard: which one is shown, and the way to another. A browser has them as addresses."""

from __future__ import annotations

from functools import partial
from typing import Any

from textual.css.query import NoMatches
from textual.screen import Screen

from agentless.client.client import Client
from agentless.client.words import gpu_number, gpu_place
from agentless.errors import AgentlessError
from agentless.model.tasks.task_id import is_task_id, numbered
from agentless.model.text import cut, printable
from agentless.model.units import counted
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.data.place import OVERVIEW, Place, parsed
from agentless.tui.screens.details.cluster import ClusterDetails, screen_of
from agentless.tui.screens.details.gpu import GpuDetails
from agentless.tui.screens.details.node import NodeDetails
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.screens.reports.base import Report
from agentless.tui.screens.workflows.graph import WorkflowScreen


class Places:
    """Goes to places, and tells the page of a browser where the app is.

    `start` is the path that the page was opened at. It is gone to once the rows of the cluster are known.
    """

    def __init__(self, app: Any, client: Client, cluster: ClusterState, start: str) -> None:
        self._app, self._client, self._cluster = app, client, cluster
        self._wanted = start
        self._told: dict[str, object] = {}
        self._replaces = bool(start)  # the page has an address already

    @property
    def here(self) -> Place:
        """The place of the topmost screen that has one."""
        open_ = (place_of(screen) for screen in reversed(self._app.screen_stack))
        return next((place for place in open_ if place), Place(self._app.view.id))

    def go_to(self, path: str) -> None:
        """Show the place of a path, which may be anything. A dialog or form on top gets Esc instead, and may ask."""
        app, self._wanted = self._app, ""
        if len(app.screen_stack) > 1 and place_of(app.screen) is None:
            app.simulate_key("escape")
            self._tell(again=True)
            return
        self._replaces = True
        place = parsed(path)
        if place is None or place.view not in self._views:
            self._miss(path)
            return
        while len(app.screen_stack) > 1 and self.here != place:
            app.pop_screen()
        if self.here == place:
            self._tell(again=True)
        elif not place.about:
            self._show(place.view)
        else:
            self._open(place, path)

    def tell(self, *_: object) -> None:
        """Tell the page of the place, its title and the problems, if any of that has changed."""
        app = self._app
        if not (app.is_web and app.is_running and app.screen_stack):
            return
        if self._wanted and self._cluster.now:
            app.call_later(self.go_to, self._wanted)
            self._wanted = ""
        elif not self._wanted:
            app.call_later(self._tell)  # not now: there may be several changes on the way

    def _tell(self, *, again: bool = False) -> None:
        app = self._app
        try:
            here = self.here
        except NoMatches:  # the app is about to end
            return
        problems = len(self._cluster.problems())
        title = self._title(here)
        words = [counted(problems, "problem")] if problems else []
        told = {
            "type": "place",
            "path": here.path,
            "title": printable(" · ".join([*words, title, "agentless"])),
            "problems": problems,
            "background": app.theme_variables["background"],
        }
        if app.is_web and (again or told != self._told):
            self._told = told
            app._driver.write_meta({**told, "replaces": self._replaces})  # noqa: SLF001 - Textual has no other way
        self._replaces = False

    @property
    def _views(self) -> dict[str, str]:
        """The titles of all views and reports that have an address."""
        return {**self._app.views, **self._app.reports}

    @property
    def title(self) -> str:
        """What is shown, in words."""
        return self._title(self.here)

    def _title(self, here: Place) -> str:
        return here.title or self._views.get(here.view, "")

    def _show(self, view: str) -> None:
        if view in self._app.reports:
            self._app.action_report(view)
        else:
            self._app.action_view(view)
        self._tell(again=True)

    def _miss(self, path: str, why: str = "") -> None:
        """Say that there is no such place, and show the overview."""
        app = self._app
        while len(app.screen_stack) > 1:
            app.pop_screen()
        why = why or f"Not found: {cut(printable(path), 80)}"
        app.notify(f"{printable(why)}; showing the overview", severity="warning", markup=False)
        self._show(next(iter(app.views)) if OVERVIEW not in app.views else OVERVIEW)

    def _open(self, place: Place, path: str) -> None:
        screen = self._screen(place)
        if screen is not None:
            self._push(place, screen)
        elif place.view == "tasks" and is_task_id(place.about):
            self._app.run_worker(partial(self._ask, place, path), thread=True)
        else:
            self._miss(path)

    def _push(self, place: Place, screen: Screen[Any]) -> None:
        self._app.action_view(place.view)
        self._app.push_screen(screen)
        self._tell(again=True)

    def _screen(self, place: Place) -> Screen[Any] | None:
        """The screen of a place, if the rows of the cluster have what it is about."""
        cluster, about = self._cluster, place.about
        match place.view:
            case "tasks":
                return self._of_task(cluster.tasks.get(about), place.part)
            case "vps":
                vps = next((vps for vps in cluster.vps() if vps["name"] == about), None)
                return self._of_task(vps, "")
            case "nodes" if about in cluster.nodes or about in cluster.clusters:
                return screen_of(cluster, about)
            case "gpus":
                found = (gpu for gpu in cluster.gpus_of(about) if str(gpu_number(gpu)) == place.part)
                return next((GpuDetails(cluster, gpu) for gpu in found), None)
            case "workflows" if about in cluster.workflows:
                return WorkflowScreen(cluster, about)
        return None

    def _of_task(self, task: Row | None, part: str) -> Screen[Any] | None:
        if task is None:
            return None
        return LogScreen(self._cluster, task, self._client) if part else TaskDetails(self._cluster, task)

    def _ask(self, place: Place, path: str) -> None:
        """Ask for a task that the rows of the cluster lack, in a thread: one that ended long ago."""
        try:
            screen = self._of_task(self._client.get(f"/v1/tasks/{numbered(place.about)}"), place.part)
        except AgentlessError:
            in_app(self._app, self._miss, path)
        else:
            in_app(self._app, self._push, place, screen)


def copied(screen: Screen[Any], view: Any) -> str:
    """What the key for copying takes: the name of what is open, the chosen GPU, or the cells of the chosen row."""
    if place := place_of(screen):
        return place.name
    if view not in screen.walk_children() or not view.chosen:  # a dialog, or no rows
        return ""
    if not hasattr(view, "table"):
        return gpu_place(view.chosen)
    cells = (column.piece(view.chosen)[0].strip() for column in view.table.columns)
    return "\t".join(cell for cell in cells if cell)


def place_of(screen: Screen[Any]) -> Place | None:
    """The place of a screen; None of a dialog, a form, and the screen of the views."""
    match screen:
        case Report():
            return Place(screen.NAME)
        case LogScreen():
            return Place("tasks", screen.about_task["id"], "log")
        case TaskDetails():
            return Place("tasks", screen.about_task["id"])
        case GpuDetails():
            return Place("gpus", screen.gpu["node"], str(gpu_number(screen.gpu)))
        case NodeDetails() | ClusterDetails():
            return Place("nodes", screen.about_node)
        case WorkflowScreen():
            return Place("workflows", screen.about_workflow["id"]) if screen.about_workflow else None
    return None
