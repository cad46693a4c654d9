"""A task in full, in tabs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from agentless.client.client import Breaker, BrokenOff
from agentless.client.words import (
    WAITING,
    asked_for,
    command_line,
    gpu_place,
    happened,
    job_of,
    left,
    local,
    members,
    memory_in_use,
    ports,
    preempted,
    process_words,
    ran,
    state,
    tries,
    watts,
    where,
    whole,
)
from agentless.client.workflow_graph import neighbours
from agentless.errors import AgentlessError
from agentless.model.moment import format_moment
from agentless.model.text import printable
from agentless.model.units import counted, format_duration, format_size
from agentless.tui.data.actions import path_of
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.data.incoming import in_app
from agentless.tui.data.log_source import last_of
from agentless.tui.screens.details.base import Details
from agentless.tui.screens.details.curves import TaskCurves
from agentless.tui.screens.details.parts import Part, colour_of, explained, labelled, meter
from agentless.tui.screens.logs.screen import LogScreen
from agentless.tui.widgets import look
from agentless.tui.widgets.ending import EndingScroll
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.hanging import hung
from agentless.tui.widgets.lines import content, wrapped
from agentless.tui.widgets.tabs import Tabs

TAIL = 500
"""The last lines of the log that the tab shows."""
MOST = 1 << 16
"""The most bytes of them: a longer line would be laid out for seconds."""
STDERR = 2
BAR = 16
"""The width of a bar."""
BESIDE = 94
"""The least width for both bars of a GPU in a line."""
LAST = 10
"""The last lines of the log below the summary."""
_FROM = (("Mounts", "mounts", "source"), ("Volumes", "volumes", "name"), ("Uploads", "uploads", "source"))
"""What a task gets: the title, the field of its spec, and what says where that comes from."""
_AS_IT_IS = ("log", "script")
"""The tabs whose lines are somebody's text."""
_SCRIPT = "│ "
"""Before each row of a script."""
AGAIN = 2.0
"""Seconds until what grows is asked for again."""


class TaskDetails(Details):
    """A task: what it is and how it is, its last output, why it waits, its events, its files, and its script."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(at), f"nth({at})", show=False) for at in range(1, 8)),
        Binding("slash", "search", show=False, tooltip="search its log"),
    ]
    CSS = """
    TaskDetails > #title { height: auto; max-height: 2; padding: 0 1; }
    TaskDetails EndingScroll { padding: 1 1 0 1; }
    """

    def __init__(self, cluster: ClusterState, task: Row) -> None:
        super().__init__(cluster)
        self._row = task
        self._tabs = Tabs(self._titles())
        self._asked: dict[str, list[Part]] = {}

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield self._tabs
        with EndingScroll():
            yield Static(id="shown", markup=False)
            if self._row["gpus"]:
                yield TaskCurves(self.cluster, self._row)
        yield KeyLine()

    def on_mount(self) -> None:
        """What grows is asked for again while it is shown."""
        for curves in self.query(TaskCurves):
            curves.display = False
        self.set_interval(AGAIN, lambda: self.ask() if self._tabs.current in ("log", "events") else None)

    @property
    def about_task(self) -> Row:
        """The task in its present state."""
        return self.cluster.tasks.get(self._row["id"], self._row)

    @property
    def about_node(self) -> None:
        """None: what is shown, and acted on, is the task."""

    def cluster_changed(self, changed: set[str]) -> None:
        """Show it again, and ask again if the task has changed."""
        before, self._row = self._row, self.about_task
        if not (changed & self.KINDS and self.is_mounted):
            return
        self._tabs.set_titles(self._titles())
        self._show()
        if before["state"] != self._row["state"] or before["position"] != self._row["position"]:
            self._asked.clear()
            self.ask()

    def on_resize(self) -> None:
        """Lay the script out for the new width."""
        self._show()

    def action_tab(self, by: int) -> None:
        self._tabs.step(by)

    def action_nth(self, number: int) -> None:
        """Show a tab by its number."""
        if number <= len(self._tabs.titles):
            self._tabs.action_show(list(self._tabs.titles)[number - 1])

    def action_search(self) -> None:
        """Search its log: what is typed next must not be taken for the keys of actions."""
        self.app.push_screen(LogScreen(self.cluster, self.about_task, self.app.client, search=True))  # type: ignore[attr-defined]

    def on_tabs_shown(self) -> None:
        """Show what is known of it, and ask for the rest."""
        plots = self._tabs.current == "gpus"
        scroll = self.query_one(EndingScroll)
        scroll.can_focus = not plots  # else a click beside the plots took their keys away
        self.query_one("#shown").display = not plots
        for curves in self.query(TaskCurves):
            curves.display = plots
        self.set_focus(self.query_one(TaskCurves) if plots else scroll)
        self._show()
        (scroll.scroll_end if self._tabs.current == "log" else scroll.scroll_home)(animate=False)
        self.ask()

    # ------------------------------------------------------------------ parts

    def _titles(self) -> dict[str, str]:
        """The tabs that apply; why it waits comes first while it does."""
        waits = {"why": "Why it waits"} if self.about_task["state"] in WAITING else {}
        curves = {"gpus": "GPUs"} if self.about_task["started_at"] and self._row["gpus"] else {}
        more = {"log": "Log", **curves, "events": "Events", "files": "Files", "script": "Script"}
        return {"summary": "Summary", **waits, **more}

    def known(self) -> list[Part]:
        task = whole(self.about_task, self.cluster.tasks.values())
        parts: list[Part] = labelled(
            [
                ("command", command_line(task)),
                ("owner", task["owner"]),
                ("image", task["image"]),
                ("where", where(task) if task["node"] else ""),
                ("nodes", task.get("compute_nodes")),
                ("requested", asked_for(task)),
                *self._times(task),
                ("try", tries(task)),
                ("preempted", preempted(task)),
                ("reason", task["reason"]),
            ]
        )
        parts += self._gpus(task)
        parts += _group("Limits", [
            ("cores", task["cores"]),
            ("memory", format_size(task["memory_bytes"]) if task["memory_bytes"] else None),
            ("time limit", format_duration(task["time_limit"]) if task["time_limit"] else None),
            ("priority", task["priority"] or None),
            ("preemptible", "gives way to tasks that need its place" if task.get("preemptible") else None),
            ("preempts", ", ".join(task.get("victims") or ())),
        ])  # fmt: skip
        parts += _group("With others", [*self._batch(task), *self._siblings()])
        parts += _group("More", [
            ("parameters", ", ".join(f"{key}={value}" for key, value in task["parameters"].items())),
            ("variables", ", ".join(task["env_names"])),
            ("labels", ", ".join(f"{key}={value}" for key, value in task["labels"].items())),
            ("ports", ports(task)),
            ("forwarded", ", ".join(self.app.forwards.of(task))),  # type: ignore[attr-defined]
            ("job" if job_of(task) else "container", job_of(task) or (task["container"] or "")[:12]),
        ])  # fmt: skip
        return parts

    def _output(self) -> list[Part]:
        """The last lines of its log."""
        text = "".join(part if isinstance(part, str) else part[0] for part in self._asked.get("log", ()))
        lines = text.splitlines()[-LAST:]
        return [("\nLast output\n", "bold"), *(f"{line}\n" for line in lines)] if lines else []

    def _times(self, task: Row) -> list[tuple[str, object]]:
        unknown = "unknown" if task["state"] in ("pending", "submitted") else None
        return [
            ("created", local(task["created_at"])),
            ("expected start", local(task["expected_start"]) or unknown),
            ("started", local(task["started_at"])),
            ("ended", local(task["ended_at"])),
            ("time", ran(task) if task["started_at"] else ""),
            ("left", left(task).removesuffix(" left") if task["state"] == "running" and task["time_limit"] else None),
            ("exit code", task["exit_code"]),
        ]

    def _gpus(self, task: Row) -> list[Part]:
        """The GPUs that it holds now: utilization and memory."""
        held = [gpu for gpu in self.cluster.ordered_gpus() if task["id"] in gpu["tasks"]]
        parts: list[Part] = [("\nGPUs\n", "bold")] if held else []
        is_wide = self.size.width >= BESIDE
        wide = BAR if is_wide else BAR // 2
        for gpu in held:
            used, more = gpu["utilization_pct"], f" {look.of(gpu['temperature_c'], 'C'):>4} {watts(gpu['power_w']):>6}"
            parts += [
                (gpu_place(gpu).ljust(15), "dim"),
                "util ",
                *meter(look.load_share(gpu), wide, "utilization", alarm=self.cluster.is_wasted(gpu)),
                f"{look.of(used, '%'):>5}",
                "  " if is_wide else f"{more}\n{'':15}",
                "mem  ",
                *meter(share := look.memory_share(gpu), wide, "memory", alarm=look.is_full(share)),
                f"{memory_in_use(gpu):>14}{more if is_wide else ''}\n",
            ]
        for process in task["intruders"]:
            parts += [("intruder       ", "$text-error"), f"{printable(process_words(process))}\n"]
        return parts

    def _batch(self, task: Row) -> list[tuple[str, object]]:
        """Its batch, and how far that is."""
        mates = [
            each for each in self.cluster.tasks.values() if each["batch"] == task["batch"] and not each["retried_as"]
        ]
        if len(mates) < 2:
            return []
        counts = Counter(each["state"] for each in mates)
        words = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        return [("batch", f"{task['batch']}, {counted(len(mates), 'task')}: {words}; press B for all of them")]

    def _siblings(self) -> list[tuple[str, str]]:
        """The other members of its gang, and its place in a workflow."""
        task, known = self.about_task, self.cluster
        found = [("" if number else "gang", row) for number, row in enumerate(members(task, known.tasks.values()))]
        if task.get("workflow"):
            name = known.workflows.get(task["workflow"], {}).get("name", "")
            before, behind = neighbours(task, known.tasks_of(task["workflow"]).values())
            found.append(("workflow", f"{task['workflow']} {name}, job {task['job']}; press W for its graph"))
            found += [("requires", before), ("needed by", behind)]
        return found

    # ------------------------------------------------------------------ asked for

    def ask(self) -> None:
        """Ask for what the current tab shows; an earlier request is broken off."""
        self._breaker.break_off()
        self._breaker = Breaker()
        makers: dict[str, Callable[[], list[Part]]] = {
            "why": lambda: explained(self.get(f"{path_of(self._row)}/explain")),
            "log": lambda: _log(self._last_output()),
            "events": lambda: _events(self.get(f"{path_of(self._row)}/events")),
            "files": lambda: _files(self.about_task, self.get(f"{path_of(self._row)}/spec")),
            "script": lambda: _script(self.get(f"{path_of(self._row)}/script")),
        }
        name = self._tabs.current
        name = "log" if name == "summary" else name  # its last lines are below
        if name in makers:
            self.run_worker(partial(self._fill, name, makers[name], self._breaker), thread=True)

    def _fill(self, name: str, make: Callable[[], list[Part]], breaker: Breaker) -> None:
        try:
            with breaker.watching():
                parts = make()
        except BrokenOff:
            return
        if breaker is self._breaker:
            in_app(self.app, self._keep, name, parts)

    def _keep(self, name: str, parts: list[Part]) -> None:
        before = self._asked.get(name)
        self._asked[name] = parts
        shown = {"summary": "log"}.get(self._tabs.current, self._tabs.current)
        if self.is_mounted and name == shown and parts != before:
            scroll = self.query_one(EndingScroll)
            was_at_end = scroll.is_vertical_scroll_end
            self._show()
            if self._tabs.current == "log" and (was_at_end or before is None):
                scroll.scroll_end(animate=False)

    def _show(self) -> None:
        task = self.about_task
        title = printable(f"{task['id']}  {task['name'] or command_line(task)}")
        self.query_one("#title", Static).update(
            content((f"{title.strip()}  ", "bold"), (state(task), colour_of(task["state"])))
        )
        name = self._tabs.current
        width = self.size.width - 3
        known = self.known() if name == "summary" else self._asked.get(name, [("Loading …", "dim")])
        if name in _AS_IT_IS:
            text = content(*(_barred(known, width) if name == "script" else known))
        else:
            text = hung(content(*known), width)
        self.query_one("#shown", Static).update(text + content(*self._output()) if name == "summary" else text)

    def _last_output(self) -> list[tuple[int, bytes]] | str:
        """The end of its log, or why there is none."""
        client = self.app.client  # type: ignore[attr-defined]
        try:
            return last_of(client.frames(f"{path_of(self._row)}/logs", follow=False, tail=TAIL), MOST)
        except AgentlessError as error:
            return str(error)


def _group(title: str, fields: Sequence[tuple[str, object]]) -> list[Part]:
    """Fields below a title; nothing if none has a value."""
    parts = labelled(fields)
    return [(f"\n{title}\n", "bold"), *parts] if parts else []


def _log(found: list[tuple[int, bytes]] | str) -> list[Part]:
    if isinstance(found, str):
        return [f"{found}\n"]
    if not found:
        return [("No output yet", "dim")]
    return [(data.decode("utf-8", "replace"), "$text-warning" if stream == STDERR else "") for stream, data in found]


def _events(found: Any) -> list[Part]:
    if isinstance(found, str):
        return [f"{found}\n"]
    parts: list[Part] = []
    for event in found:
        parts += [
            (f"{format_moment(event['at'], 'seconds')}  ", "dim"),
            (happened(event), colour_of(event["task"]["state"])),
            f"  {printable(event['cause'])}\n",
        ]
    return parts


def _files(task: Row, spec: Any) -> list[Part]:
    """What comes in and what goes out."""
    if isinstance(spec, str):
        return [f"{spec}\n"]
    parts: list[Part] = []
    for title, field, of in (
        ("Mounts", "mounts", "source"),
        ("Volumes", "volumes", "name"),
        ("Uploads", "uploads", "source"),
    ):
        listed = [
            (each["target"], f"{each[of]}{' (read only)' * each.get('read_only', False)}") for each in spec[field]
        ]
        parts += _group(title, [(there, f"from {here}") for there, here in listed])
    outputs = [
        (each["state"], f"{each['path']} to {each['local']}: {each['words'] or format_size(each['bytes'])}")
        for each in task.get("outputs") or ()
    ]
    parts += _group("Outputs", outputs)
    return parts or [("No mounts, volumes, uploads or outputs", "dim")]


def _script(found: Any) -> list[Part]:
    if isinstance(found, str):
        return [(found, "")]
    return [(f"# {found['node']}, {found['address']}\n", "dim"), found["script"]]


def _barred(parts: list[Part], width: int) -> list[Part]:
    """The text of a script in rows with a bar: it marks what belongs to it, whatever values have line breaks."""
    return [part if isinstance(part, tuple) else "".join(_rows(part, width)) for part in parts]


def _rows(text: str, width: int) -> Iterator[str]:
    for line in text.split("\n"):
        for row in list(wrapped([(printable(line), "")], max(1, width - len(_SCRIPT)))) or [[]]:
            yield f"{_SCRIPT}{''.join(part for part, _ in row)}\n"
