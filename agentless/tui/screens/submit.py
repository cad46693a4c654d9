"""The form to submit a task, with a preview of what would happen to it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Horizontal, VerticalScroll
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import Button, Input, Label, OptionList, Static, TextArea
from textual.widgets.option_list import Option

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.errors import AgentlessError, UsageError
from agentless.model.text import lines_of, printable
from agentless.rules.submit.options import OPTIONS
from agentless.rules.submit.task_request import TaskRequest
from agentless.tui.data.cluster import ClusterState, Row, is_vps
from agentless.tui.data.form import TASK, FormKind, in_fields, request_of, submission_of
from agentless.tui.screens.ask import Ask
from agentless.tui.screens.details.parts import Part, explained
from agentless.tui.widgets.fields import CommandField, Field, Variables
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.lines import content

LOOK_AFTER = 0.25
"""Seconds without a key until the preview is asked for."""


class SubmitForm(Screen[None]):
    """A form with the fields `given`, or for a copy of the task that has the spec `like`.

    `busy`: the task was sent, and there is no answer yet.
    """

    KIND: ClassVar[FormKind] = TASK
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "submit", "Submit", tooltip="submit the task"),
        Binding("escape", "leave", "Back", tooltip="discard the form"),
        Binding("down", "images", "Images", show=False, tooltip="choose an image in use"),
    ]
    SCOPED_CSS: ClassVar[bool] = False  # a scope would be the name of the class, also of one derived from it
    CSS = """
    SubmitForm #sides { height: 1fr; }
    SubmitForm #fields { height: auto; max-height: 100%; padding: 0 1; }
    SubmitForm #fields Horizontal { height: auto; }
    SubmitForm #fields Label { width: 13; color: $text-muted; }
    SubmitForm #fields Input { width: 1fr; }
    SubmitForm #fields TextArea { height: 3; width: 1fr; padding: 0; }
    SubmitForm #fields CommandField { height: auto; max-height: 3; }
    SubmitForm:ansi TextArea > .text-area--placeholder { text-style: dim; }
    SubmitForm OptionList { display: none; height: auto; max-height: 6; margin-left: 13; border: none; }
    SubmitForm OptionList.-open { display: block; }
    SubmitForm #preview { padding: 0 1; height: 1fr; border-top: solid $panel; }
    SubmitForm.-wide #sides { layout: horizontal; }
    SubmitForm.-wide #fields { width: 1fr; height: 100%; }
    SubmitForm.-wide #preview { width: 1fr; height: 100%; border-top: none; border-left: solid $panel; }
    SubmitForm Button { margin: 0 1 0 13; }
    """

    class Submitted(Message):
        """A task was submitted: its name in the view that shows it."""

        def __init__(self, name: str, view: str) -> None:
            self.name, self.view = name, view
            super().__init__()

    def __init__(
        self, cluster: ClusterState, client: Client, given: Mapping[str, str], like: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__()
        self._cluster, self._client, self._given, self._like = cluster, client, given, like
        self._timer: Timer | None = None
        self._breaker = Breaker()
        self._opened: list[str] = []
        self._refused: list[str] = []
        self.busy = False
        self._started = ""

    def compose(self) -> ComposeResult:
        with Container(id="sides"):
            with VerticalScroll(id="fields"):
                for name, label, hint in self.KIND.lines:
                    given = self._given.get(name, "")
                    with Horizontal():
                        yield Label(label)
                        if name == "command":
                            yield CommandField(given, tab_behavior="focus", placeholder=hint, id=name, compact=True)
                        else:
                            yield Field(given, placeholder=hint, id=name, compact=True)
                    if name == "image":
                        yield OptionList(*self._images(), compact=True)
                with Horizontal():
                    yield Label("Variables")
                    yield Variables(
                        self._given.get("env", ""),
                        placeholder=OPTIONS["env"].hint,
                        id="env",
                        tab_behavior="focus",
                        compact=True,
                    )
                yield Button(f"{self.KIND.verb} (Ctrl+S)", variant="primary", id="submit", compact=True)
            with VerticalScroll(id="preview"):
                yield Static(id="verdict")
        yield KeyLine()

    def on_mount(self) -> None:
        """Focus the first field that is empty and needed."""
        self._opened = self._texts()
        needed = self.KIND.needed
        missing = next((name for name in needed if not self._given.get(name)), needed[0])
        self.set_focus(self.query_one(f"#{missing}"))
        self.call_after_refresh(self._look)

    def on_resize(self, event: events.Resize) -> None:
        """Show the preview beside the fields on a wide screen, else below."""
        self.set_class(event.size.width >= 120, "-wide")

    def on_input_changed(self) -> None:
        """Ask for a new preview, after a pause; not for texts whose refusal is on the screen."""
        if not self.busy and self._texts() != self._refused:
            self._refused = []
            self._look_away()
            self._timer = self.set_timer(LOOK_AFTER, self._look)

    def on_text_area_changed(self) -> None:
        self.on_input_changed()

    def on_button_pressed(self) -> None:
        self.action_submit()

    def action_images(self) -> None:
        """Open the list of images that are in use."""
        found = self.query_one(OptionList)
        if self.focused is not None and self.focused.id == "image" and found.option_count:
            found.add_class("-open")
            self.set_focus(found)
        else:
            self.focus_next()

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Take the chosen image."""
        self.query_one("#image", Input).value = event.option.id or ""
        self.query_one(OptionList).remove_class("-open")
        self.set_focus(self.query_one("#image"))

    def action_leave(self) -> None:
        """Close the list of images, or the form; ask first if something was typed."""
        images = self.query_one(OptionList)
        if images.has_class("-open"):
            images.remove_class("-open")
            self.set_focus(self.query_one("#image"))
        elif self.busy:
            self.notify(f"{self.KIND.doing}; press Ctrl+C to quit without waiting for the answer", severity="warning")
        elif self._texts() == self._opened:
            self.dismiss()
        else:
            self.app.push_screen(Ask("Discard this form?", effect="Your input is lost.", verb="Discard"), self._left)

    def _left(self, answer: str | None) -> None:
        if answer is not None:
            self.dismiss()

    def action_submit(self) -> None:
        if self.busy:
            return
        self._look_away()
        try:
            asked = self._asked()
        except UsageError as error:
            self._refuse([str(error)])
            return
        self.busy = True
        self._tell([(f"{self.KIND.doing} …\n", "dim")])
        self.run_worker(lambda: self._submit(asked), thread=True)

    def on_screen_resume(self) -> None:
        """Leave if the answer came while another screen was on top."""
        self._go()

    def on_unmount(self) -> None:
        """Break off the requests; if the submit was under way, say so."""
        self._breaker.break_off()
        if self.busy:
            self.app.exit(message="Quit while submitting; run agentless ps to see whether the task was created")

    # ------------------------------------------------------------------ inside

    def _images(self) -> list[Option]:
        images = sorted({task["image"] for task in self._cluster.tasks.values() if task["image"]})
        return [Option(content(printable(image)), id=image) for image in images]

    def _texts(self) -> list[str]:
        """The contents of all fields."""
        return [field.value for field in self.query(Input)] + [area.text for area in self.query(TextArea)]

    def _text(self, name: str) -> str:
        return self.query_one(f"#{name}", TextArea).text

    def _asked(self, *, preview: bool = False) -> TaskRequest:
        lines = {field.id or "": field.value for field in self.query(Input)}
        areas = {area.id or "": area.text for area in self.query(TextArea)}
        return submission_of(self.KIND, lines | areas, preview=preview)

    def _look_away(self) -> None:
        """Ignore the answer to the last preview."""
        if self._timer:
            self._timer.stop()
        self._breaker.break_off()
        self._breaker = Breaker()

    def _look(self) -> None:
        if self.busy or self._texts() == self._refused:
            return
        if not (self.query_one("#target", Input).value.strip() or self._text("command").strip()):
            self._tell([("A preview appears here as you type.\n", "dim")])
            return
        try:
            asked = self._asked(preview=True)
        except UsageError as error:
            self._tell([(f"{error}\n", "$text-warning")])
            return
        self.run_worker(partial(self._explain, asked, self._breaker), thread=True)

    def _explain(self, asked: TaskRequest, breaker: Breaker) -> None:
        parts: list[Part] = []
        for target in asked.targets or ("",):
            request = request_of(self.KIND, asked, self._like) | {"targets": [target] if target else [], "sweep": []}
            try:
                with breaker.watching():
                    found: Any = self._client.post("/v1/explain", request)
            except BrokenOff:
                return
            except AgentlessError as error:
                found = str(error)
            parts += explained(found)
        if self._like and self._like["secret_env"]:
            names = ", ".join(self._like["secret_env"])
            parts.insert(0, (f"Secret values are not copied. Enter them again: {names}\n", "$text-warning"))
        if len(asked.sweep) > 1:
            parts.insert(0, (f"Sweep: {len(asked.sweep)} commands\n", "bold"))
        self.call_later(self._looked, parts, breaker)

    def _looked(self, parts: list[Part], breaker: Breaker) -> None:
        if breaker is self._breaker and not self.busy:
            self._tell(parts)

    def _submit(self, asked: TaskRequest) -> None:
        try:
            with self._breaker.watching():
                starts = self._send(request_of(self.KIND, asked, self._like))
        except BrokenOff:
            return
        except AgentlessError as error:
            self.call_later(self._answered, [], [str(error)])
            return
        tasks = [start["task"] for start in starts if start["task"]]
        self.call_later(self._answered, tasks, [line for start in starts for line in start["message"].splitlines()])

    def _send(self, request: Row) -> list[Row]:
        """Send the request; what became of each task."""
        starts: list[Row] = self._client.submit(request)
        return starts

    def _answered(self, tasks: list[Row], problems: list[str]) -> None:
        self.busy = False
        self._refuse(problems)
        for problem in problems:
            self.app.notify("\n".join(lines_of(in_fields(problem))), severity="error", markup=False)
        if tasks:
            first = tasks[0]
            name = first["name"] if is_vps(first) else first["id"]
            words = f"{name} is {first['state']}" + (f" on {first['node']}" if first["node"] else "")
            self.app.notify(printable(words if len(tasks) == 1 else f"{len(tasks)} tasks; {words}"), markup=False)
            self._started = name
            self._go()

    def _refuse(self, problems: list[str]) -> None:
        """Show why these texts cannot be submitted. A preview may still be due."""
        self._refused = self._texts()
        self._tell([(f"{problem}\n", "$text-error") for problem in problems])

    def _go(self) -> None:
        """Leave once a task was submitted and no other screen is on top."""
        if self._started and self.is_active:
            self.dismiss()
            self.app.post_message(self.Submitted(self._started, self.KIND.view))

    def _tell(self, parts: list[Part]) -> None:
        said = [(in_fields(part[0]), part[1]) if isinstance(part, tuple) else in_fields(part) for part in parts]
        self.query_one("#verdict", Static).update(content(*said))
