"""The form to submit a task, with a preview of what would happen to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.geometry import Size
from textual.message import Message
from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Button, Static

from agentless.client.client import Breaker, BrokenOff, Client
from agentless.client.files.snapshot import sent
from agentless.errors import AgentlessError
from agentless.model.text import lines_of, printable
from agentless.rules.submit.task_request import TaskRequest
from agentless.tui.data.cluster import ClusterState, Row, is_vps
from agentless.tui.data.form import TASK, FormField, FormKind, checked, in_fields, previews_of, with_files_of
from agentless.tui.data.local_files import in_time
from agentless.tui.data.picks import ASKED, ask, has_picks, picks
from agentless.tui.screens.ask import Ask
from agentless.tui.screens.details.parts import Part, explained
from agentless.tui.widgets.fields import Area, Flag, Fold, LineField, Picks, made
from agentless.tui.widgets.footer import KeyLine
from agentless.tui.widgets.hanging import Hanging
from agentless.tui.widgets.lines import content

LOOK_AFTER = 0.25
"""Seconds without a key until the fields are checked and the preview is asked for."""
_WIDE, _WIDEST = 110, 165
"""The columns from which on the preview is beside the fields, and the panels are beside both."""


class _Scrolled(VerticalScroll, inherit_bindings=False, can_focus=False):
    """Scrolls to what has the focus; the arrows are for the fields."""


class SubmitForm(Screen[None]):
    """A form with the fields `given`, or for a copy of the task that has the spec `like`.

    `busy`: the task was sent, and there is no answer yet.
    """

    KIND: ClassVar[FormKind] = TASK
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+s", "submit", "Submit", tooltip="submit the task"),
        Binding("escape", "leave", "Back", tooltip="discard the form"),
        Binding("down", "down", "List", show=False, tooltip="open the list of this field, or go to the next one"),
        Binding("up", "up", show=False),
        Binding("question_mark", "app.keys", "Keys", show=False, key_display="?"),
    ]
    is_modal = True
    """The keys of the views do nothing here: they are letters."""
    SCOPED_CSS: ClassVar[bool] = False  # a scope would be the name of the class, also of one derived from it
    CSS = """
    SubmitForm #sides { height: 1fr; }
    SubmitForm #form { height: auto; max-height: 68%; padding: 0 1; scrollbar-size-vertical: 1; }
    SubmitForm #first, SubmitForm #more, SubmitForm .panel { height: auto; }
    SubmitForm .field { height: 1; padding: 0 0 0 18; width: 1fr; border: none; }
    SubmitForm .field.-listed { padding: 0 2 0 18; }
    SubmitForm Area.field { height: auto; max-height: 5; }
    SubmitForm CommandField.field { max-height: 3; }
    SubmitForm .field > .field--label { color: $text-muted; }
    SubmitForm .field:focus > .field--label { color: $text-primary; text-style: bold; }
    SubmitForm .field.-wrong > .field--label { color: $text-error; text-style: bold; }
    SubmitForm:ansi .field > .field--label { color: ansi_default; text-style: dim; }
    SubmitForm:ansi .field:focus > .field--label { color: ansi_default; text-style: bold reverse; }
    SubmitForm:ansi TextArea > .text-area--placeholder { text-style: dim; }
    SubmitForm Flag { background: $surface; }
    SubmitForm Flag:focus { background-tint: $foreground 5%; text-style: reverse; }
    SubmitForm Fold { height: 1; }
    SubmitForm Fold:focus { background: $block-cursor-background; color: $block-cursor-foreground; }
    SubmitForm Fold.-wrong { color: $text-error; }
    SubmitForm .error { color: $text-error; margin: 0 1 0 18; height: auto; }
    SubmitForm Picks { height: auto; max-height: 8; margin-left: 18; border: none; padding: 0; background: $panel; }
    SubmitForm #preview { padding: 0 1; height: 1fr; border-top: solid $panel; scrollbar-size-vertical: 1; }
    SubmitForm #help { padding: 0 1; height: 2; color: $text-muted; }
    SubmitForm:ansi #help { text-style: dim; }
    SubmitForm #verdict.-old { text-style: dim; }
    SubmitForm.-wide #sides { layout: horizontal; }
    SubmitForm.-wide #form { width: 3fr; height: 100%; max-height: 100%; }
    SubmitForm.-wide #preview { width: 2fr; height: 100%; border-top: none; border-left: solid $panel; }
    SubmitForm.-wide #help { height: 1; }
    SubmitForm.-widest #form { layout: horizontal; width: 5fr; }
    SubmitForm.-widest #first, SubmitForm.-widest #more { width: 1fr; }
    SubmitForm.-widest #more { padding-left: 2; }
    SubmitForm Button { margin: 0 0 0 17; }
    SubmitForm.-widest Button { margin: 1 0 0 0; }
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
        self._panels = self.KIND.panels
        self._fields: dict[str, LineField | Area | Flag] = {}
        self._folds: dict[str, Fold] = {}
        self._opened = self._values()
        self._refused: dict[str, str] | None = None
        self._errors: dict[str, Static] = {}
        self._tried = self._has_preview = False
        self._picks: Picks | None = None
        self._answers: dict[str, list[Row]] = {}
        self._asked_for: set[str] = set()
        self._timer: Timer | None = None
        self._breaker, self._asking = Breaker(), Breaker()
        self.busy = False
        self._started = ""

    def compose(self) -> ComposeResult:
        self._lay_out(self.app.size)  # before there are widgets, whose styles would be found twice
        with Container(id="sides"):
            with _Scrolled(id="form"):
                with Vertical(id="first"):
                    yield from self._made(self.KIND.shown)
                with Vertical(id="more"):
                    for heading in self._panels:
                        self._folds[heading] = Fold(heading, self._labels(heading), self._filled(heading))
                        yield self._folds[heading]
                    yield Button(f"{self.KIND.verb} (Ctrl+S)", variant="primary", id="submit", compact=True)
            with VerticalScroll(id="preview", can_focus=False):
                yield Hanging(id="verdict")
        yield Static(id="help", markup=False)
        yield KeyLine()

    @property
    def focus_chain(self) -> list[Widget]:
        """The widgets that Tab goes through, also those of a panel that has no place on the screen yet."""
        found = [widget for widget in self.query() if widget.focusable]
        return [widget for widget in found if all(each.display for each in widget.ancestors_with_self)]

    def on_mount(self) -> None:
        """Focus the first field that is empty and needed."""
        needed = self.KIND.needed
        missing = next((name for name in needed if not self._given.get(name)), needed[0])
        self.set_focus(self._fields[missing])
        self.call_after_refresh(self._look)

    def on_resize(self, event: events.Resize) -> None:
        """Show the preview beside the fields on a wide screen, and the panels where all of them fit."""
        self._lay_out(event.size)
        width, height = event.size
        if width >= _WIDEST and height >= 6 + sum(map(len, self._panels.values())) + len(self._panels):
            self.call_after_refresh(self._open_all)
        self.call_after_refresh(self._show_picks)

    def on_input_changed(self) -> None:
        """Check the fields and ask for a new preview, after a pause."""
        if self._picks is not None:
            self._picks.is_narrowed = True
            self._show_picks()
        self._changed()

    def on_text_area_changed(self) -> None:
        self._changed()

    def on_flag_changed(self) -> None:
        self._changed()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Say what the field is for."""
        about = getattr(event.widget, "about", None)
        self.query_one("#help", Static).update(printable(about.help) if about else "", layout=False)
        self.call_after_refresh(self._show_focused)  # what was just opened has no place before that

    def _show_focused(self) -> None:
        if self.focused is not None:
            self.focused.scroll_visible(animate=False)

    def on_descendant_blur(self) -> None:
        """Close the list of the field, and check what was typed."""
        self._close_picks()
        if self.is_active and not self.busy:
            self._mark(self._wrong(self._values()))

    async def turn(self, fold: Fold) -> None:
        """Open or close a panel."""
        if fold.is_open:
            self._close(fold)
        else:
            await self._open(fold)

    def on_button_pressed(self) -> None:
        self.action_submit()

    def on_option_list_option_selected(self) -> None:
        """A click takes what is in the list."""
        self.take_pick()

    def action_down(self) -> None:
        """Open the list of the field, move in it, or go to the next field."""
        field = self.focused
        if self._picks is not None:
            self._picks.action_cursor_down()
        elif isinstance(field, LineField) and has_picks(field.about.name):
            self._open_picks(field)
        else:
            self.focus_next()

    def action_up(self) -> None:
        if self._picks is not None:
            self._picks.action_cursor_up()
        else:
            self.focus_previous()

    def take_pick(self) -> bool:
        """Put what is chosen in the list into its field; whether there is a list."""
        if self._picks is None:
            return False
        field, text = self._picks.field, self._picks.taken
        self._close_picks()
        field.value = text
        field.cursor_position = len(text)
        self.set_focus(field)
        return True

    def action_leave(self) -> None:
        """Close the list, or the form; ask first if something was typed."""
        if self._picks is not None:
            self._close_picks()
        elif self.busy:
            self.notify(f"{self.KIND.doing}; press Ctrl+C to quit without waiting for the answer", severity="warning")
        elif self._values() == self._opened:
            self.dismiss()
        else:
            self.app.push_screen(Ask("Discard this form?", effect="Your input is lost.", verb="Discard"), self._left)

    def _left(self, answer: str | None) -> None:
        if answer is not None:
            self.dismiss()

    def action_submit(self) -> None:
        """Submit, or go to the first field with a mistake."""
        if self.busy:
            return
        self._look_away()
        self._close_picks()
        self._tried = True
        values = self._values()
        asked, wrong = checked(self.KIND, values)
        self._mark(wrong)
        if asked is None:
            self._refuse([wrong[""]] if "" in wrong else [])
            if first := next((field.name for field in self.KIND.fields if field.name in wrong), None):
                self.call_later(self._go_to, first)
            return
        self.busy = True
        self._tell([(f"{self.KIND.doing} …\n", "dim")])
        self.run_worker(partial(self._submit, with_files_of(asked, self._like)), thread=True)

    def on_screen_resume(self) -> None:
        """Leave if the answer came while another screen was on top."""
        self._go()

    def on_unmount(self) -> None:
        """Break off the requests; if the submit was under way, say so."""
        self._breaker.break_off()
        self._asking.break_off()
        if self.busy:
            self.app.exit(message="Quit while submitting; run agentless ps to see whether the task was created")

    # ------------------------------------------------------------------ fields

    def _lay_out(self, size: Size) -> None:
        self.set_class(size.width >= _WIDE, "-wide")
        self.set_class(size.width >= _WIDEST, "-widest")

    def _made(self, fields: Iterable[FormField]) -> Iterator[LineField | Area | Flag]:
        """The widgets of these fields."""
        for about in fields:
            self._fields[about.name] = made(about, self._given.get(about.name, ""))
            yield self._fields[about.name]

    def _values(self) -> dict[str, str]:
        """The contents of all fields that have any."""
        values = {**self._given, **{name: field.text for name, field in self._fields.items()}}
        return {name: text for name, text in values.items() if text}

    def _changed(self) -> None:
        """Something was typed; not if the texts are those whose refusal is on the screen."""
        if self.busy or (values := self._values()) == self._refused:
            return
        self._refused = None
        for heading, fold in self._folds.items():
            fold.filled = self._filled(heading, values)
        self._look_away()
        self._timer = self.set_timer(LOOK_AFTER, self._look)

    def _filled(self, heading: str, values: Mapping[str, str] | None = None) -> tuple[str, ...]:
        """The labels of the fields of a panel that are filled in."""
        values = self._opened if values is None else values
        return tuple(_in_words(field.label) for field in self._panels[heading] if values.get(field.name))

    def _labels(self, heading: str) -> tuple[str, ...]:
        return tuple(_in_words(field.label) for field in self._panels[heading])

    async def _open(self, fold: Fold) -> None:
        """Show the fields of a panel; they are made when it is first opened."""
        fold.is_open = True
        name = f"panel-{list(self._folds).index(fold.heading)}"
        if found := self.query(f"#{name}"):
            found.first().display = True
        else:
            await self.query_one("#more").mount(
                Vertical(*self._made(self._panels[fold.heading]), id=name, classes="panel"), after=fold
            )
        self._mark(self._wrong(self._values()))

    def _close(self, fold: Fold) -> None:
        fold.is_open = False
        self.query_one(f"#panel-{list(self._folds).index(fold.heading)}").display = False

    async def _open_all(self) -> None:
        with self.app.batch_update():
            for fold in self._folds.values():
                if not fold.is_open:
                    await self._open(fold)

    def _panel_of(self, name: str) -> Fold | None:
        """The panel of a field; None for a field that is always shown."""
        return next((self._folds[h] for h, fields in self._panels.items() if any(f.name == name for f in fields)), None)

    async def _go_to(self, name: str) -> None:
        """Focus a field, in a panel that is open then."""
        if (fold := self._panel_of(name)) and not fold.is_open:
            await self._open(fold)

        def focus() -> None:
            self.set_focus(self._fields[name])
            self.call_after_refresh(self._show_error, name)

        self.call_after_refresh(focus)

    def _show_error(self, name: str) -> None:
        if name in self._errors:
            self._errors[name].scroll_visible(animate=False)

    def _wrong(self, values: Mapping[str, str]) -> dict[str, str]:
        """What is wrong: of fields that are still empty only after a try to submit."""
        return checked(self.KIND, values, preview=not self._tried)[1]

    def _mark(self, wrong: Mapping[str, str]) -> None:
        """Show at each field what is wrong with it; a closed panel is marked as a whole."""
        if not self._tried:
            values = self._values()
            wrong = {name: words for name, words in wrong.items() if values.get(name)}
        for name in [name for name in self._errors if self._errors[name].name != wrong.get(name)]:
            self._errors.pop(name).remove()
            self._fields[name].remove_class("-wrong")
        closed = {name: fold for name in wrong if (fold := self._panel_of(name)) and not fold.is_open}
        for fold in self._folds.values():
            fold.set_class(fold in closed.values(), "-wrong")
        there = {name for name, field in self._fields.items() if field.parent}  # a panel may be on its way
        for name in there & (wrong.keys() - self._errors.keys() - closed.keys()):
            words, field = wrong[name], self._fields[name]
            self._errors[name] = Static(content(words), name=words, classes="error")
            field.add_class("-wrong")
            self.mount(self._errors[name], after=field)
            if field is self.focused:
                self.call_after_refresh(self._show_error, name)

    # ------------------------------------------------------------------- lists

    def _open_picks(self, field: LineField) -> None:
        """Open the list of a field; the controller is asked for what is not known here."""
        name = field.about.name
        self._picks = Picks(field)
        self.mount(self._picks, after=field)
        self._show_picks()
        self.call_after_refresh(self._picks.scroll_visible, animate=False)
        if name in ASKED and name not in self._asked_for:
            self._asked_for.add(name)
            self.run_worker(partial(self._ask, name, self._values(), self._asking), thread=True)

    def _show_picks(self) -> None:
        """Show what is known now in the list that is open."""
        if self._picks is not None:
            self._picks.show(picks(self._picks.field.about.name, self._cluster, self._answers))

    def _close_picks(self) -> None:
        if self._picks is not None:
            self._picks.remove()
            self._picks = None

    def _ask(self, name: str, values: Mapping[str, str], breaker: Breaker) -> None:
        try:
            with breaker.watching():
                for what, rows in ask(name, self._client, self._cluster, values):
                    self.call_later(self._keep, what, rows)
        except (AgentlessError, BrokenOff):
            return

    def _keep(self, what: str, rows: list[Row]) -> None:
        self._answers[what] = rows
        self._show_picks()

    # ----------------------------------------------------------------- preview

    def _look_away(self) -> None:
        """Ignore the answer to the last preview."""
        if self._timer:
            self._timer.stop()
        self._breaker.break_off()
        self._breaker = Breaker()

    def _look(self) -> None:
        """Check the fields, and ask for the preview; it stays as it is while a field is wrong."""
        values = self._values()
        if self.busy or values == self._refused:
            return
        asked, wrong = checked(self.KIND, values, preview=True)
        self._mark(self._wrong(values) if self._tried else wrong)
        self.query_one("#verdict").set_class(asked is None, "-old")
        if not (values.get("target") or values.get("command", "").strip()):
            self._tell([("A preview appears here as you type.\n", "dim")])
            self._has_preview = False
        elif asked is not None:
            self.run_worker(partial(self._explain, asked, self._breaker), thread=True)
        elif unmarked := [words for name, words in wrong.items() if name not in self._errors]:
            self._tell([(f"{words}\n", "$text-warning") for words in unmarked])
        elif not self._has_preview:
            self._tell([("A preview appears here once the marked fields are right.\n", "dim")])

    def _explain(self, asked: TaskRequest, breaker: Breaker) -> None:
        parts: list[Part] = []
        for request in previews_of(with_files_of(asked, self._like)):
            try:
                with breaker.watching():
                    found: Any = self._client.post("/v1/explain", request)
            except BrokenOff:
                return
            except AgentlessError as error:
                found = str(error)
            parts += explained(found)
        kept = with_files_of(asked, self._like).spec.uploads
        if paths := ", ".join(each.source for each in kept if each.snapshot):
            parts.insert(0, (f"Uploads as they were in the copied task: {paths}\n", "dim"))
        if len(asked.sweep) > 1:
            parts.insert(0, (f"Sweep: {len(asked.sweep)} commands\n", "bold"))
        self.call_later(self._looked, parts, breaker)

    def _looked(self, parts: list[Part], breaker: Breaker) -> None:
        if breaker is self._breaker and not self.busy:
            self._has_preview = True
            self._tell(parts)

    # ------------------------------------------------------------------ submit

    def _submit(self, asked: TaskRequest) -> None:
        try:
            with self._breaker.watching():
                starts = self._send(self._uploaded(asked).request())
        except BrokenOff:
            return
        except AgentlessError as error:
            self.call_later(self._answered, [], [str(error)])
            return
        tasks = [start["task"] for start in starts if start["task"]]
        self.call_later(self._answered, tasks, [line for start in starts for line in start["message"].splitlines()])

    def _uploaded(self, asked: TaskRequest) -> TaskRequest:
        """The submission, once the controller has the files of this machine that it lacks."""
        fresh = tuple(each for each in asked.spec.uploads if not each.snapshot)
        if not fresh:
            return asked
        for each in fresh:
            in_time(each.source, partial(os.path.lexists, each.source))
        self.call_later(self._tell, [(f"Uploading {', '.join(each.source for each in fresh)} …\n", "dim")])
        found = sent(self._client, replace(asked, spec=replace(asked.spec, uploads=fresh)), self._warn)
        done = iter(found.spec.uploads)
        uploads = tuple(each if each.snapshot else next(done) for each in asked.spec.uploads)
        return replace(asked, spec=replace(asked.spec, uploads=uploads))

    def _warn(self, words: str) -> None:
        self.app.call_later(self.app.notify, printable(words), severity="warning", markup=False)

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
        self._refused = self._values()
        if problems:
            self._tell([(f"{problem}\n", "$text-error") for problem in problems])

    def _go(self) -> None:
        """Leave once a task was submitted and no other screen is on top."""
        if self._started and self.is_active:
            self.dismiss()
            self.app.post_message(self.Submitted(self._started, self.KIND.view))

    def _tell(self, parts: list[Part]) -> None:
        target = self._values().get("target", "")
        said = [
            (in_fields(part[0], target), part[1]) if isinstance(part, tuple) else in_fields(part, target)
            for part in parts
        ]
        self.query_one("#verdict", Hanging).show(said)


def _in_words(label: str) -> str:
    """The label within a sentence."""
    return label if label[:2].isupper() else label[0].lower() + label[1:]
