"""A question before an action that cannot be undone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Static

from agentless.model.text import printable


class Ask(ModalScreen[str | None]):
    """Returns None for no; for yes the text that was typed, empty if none was asked for.

    `verb` is what a yes does, `details` describe what it is done to, and `effect` says what that means. `text` is what
    the input asks for, empty without one, and `given` is in it at first.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "yes", show=False),
        Binding("n,escape,q", "no", show=False),
        Binding("enter", "answer", show=False, priority=True),
    ]
    CSS = """
    Ask { align: center middle; }
    Ask > Vertical { width: 64; max-width: 95%; height: auto; border: round $warning; background: $surface;
        padding: 0 1; }
    Ask .question { text-style: bold; }
    Ask .details { color: $text-muted; max-height: 6; }
    Ask .effect { margin-top: 1; }
    Ask Input { margin-top: 1; }
    Ask Horizontal { height: 1; margin-top: 1; align-horizontal: right; }
    Ask Button { margin-left: 2; }
    """

    def __init__(
        self, question: str, details: Sequence[str] = (), *, effect: str, verb: str, text: str = "", given: str = ""
    ) -> None:
        super().__init__()
        self._question, self._details, self._effect, self._verb = question, details, effect, verb
        self._text, self._given = text, given

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(printable(self._question), markup=False, classes="question")
            if self._details:
                yield Static("\n".join(map(printable, self._details)), markup=False, classes="details")
            yield Static(self._effect, markup=False, classes="effect")
            if self._text:
                yield Input(self._given, placeholder=self._text, compact=True)
            yes, no = ("Enter", "Esc") if self._text else ("y", "n")
            with Horizontal():
                yield Button(f"{self._verb} ({yes})", id="yes", variant="warning", compact=True)
                yield Button(f"Cancel ({no})", id="no", compact=True)

    def on_mount(self) -> None:
        """Focus the no: a key that was meant for something else must not be a yes."""
        self.set_focus(self.query_one(Input) if self._text else self.query_one("#no"))

    def on_button_pressed(self, event: Button.Pressed) -> None:
        (self.action_yes if event.button.id == "yes" else self.action_no)()

    async def action_answer(self) -> None:
        """Enter answers at once: by the message of an input or a button, the next key came before the answer.

        Keys before it, which the input has not had time for, are part of the answer.
        """
        typed = asyncio.Event()
        if self._text and self.query_one(Input).call_later(typed.set):
            await typed.wait()
        (self.action_no if self.focused is self.query_one("#no") else self.action_yes)()

    def action_yes(self) -> None:
        self.dismiss(self.query_one(Input).value.strip() if self._text else "")

    def action_no(self) -> None:
        self.dismiss(None)
