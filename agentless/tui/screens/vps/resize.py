"""Other cores, memory or GPUs for a VPS."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label, Static

from agentless.errors import UsageError
from agentless.model.scheduling.needs import parse_target
from agentless.model.text import printable
from agentless.model.units import short_size
from agentless.rules.submit.options import OPTIONS
from agentless.tui.data.cluster import Row
from agentless.tui.data.form import in_fields
from agentless.tui.widgets.fields import Field


class Resize(ModalScreen[Row | None]):
    """Returns the body of the request, None for no. What is left empty stays as it is."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "no", show=False),
        Binding("ctrl+s", "yes", show=False),
    ]
    CSS = """
    Resize { align: center middle; }
    Resize > Vertical { width: 64; max-width: 95%; height: auto; border: round $primary; background: $surface;
        padding: 0 1; }
    Resize .question { text-style: bold; margin-bottom: 1; }
    Resize Horizontal { height: 1; }
    Resize Label { width: 10; color: $text-muted; }
    Resize Field { width: 1fr; }
    Resize .effect { margin-top: 1; }
    Resize .error { color: $text-error; }
    Resize .buttons { margin-top: 1; align-horizontal: right; }
    Resize Button { margin-left: 2; }
    """

    def __init__(self, vps: Row) -> None:
        super().__init__()
        self._row = vps

    def compose(self) -> ComposeResult:
        vps = self._row
        cores = "no limit" if vps["cores"] is None else f"{vps['cores']:g}"
        memory = "no limit" if vps["memory_bytes"] is None else short_size(vps["memory_bytes"])
        with Vertical():
            yield Static(printable(f"Resize VPS {vps['name']}"), markup=False, classes="question")
            for name, label, now in (
                ("cores", "Cores", cores),
                ("memory", "Memory", memory),
                ("target", "GPUs", str(len(vps["gpu_uuids"]))),
            ):
                with Horizontal():
                    yield Label(label)
                    example = ", or 2x, 1xA100, node1::0" if name == "target" else ""
                    yield Field(placeholder=printable(f"now {now}{example}"), id=name, compact=True)
            yield Static(
                "Empty fields stay as they are; 0 lifts a limit. Cores and memory change at once. For other GPUs, or "
                "to lift a limit, it is started in a new container with the same files: programs that run in it end.",
                classes="effect",
            )
            yield Static(markup=False, classes="error")
            with Horizontal(classes="buttons"):
                yield Button("Resize (Ctrl+S)", id="yes", variant="primary", compact=True)
                yield Button("Cancel (Esc)", id="no", compact=True)

    def on_button_pressed(self, event: Button.Pressed) -> None:
        (self.action_yes if event.button.id == "yes" else self.action_no)()

    def action_yes(self) -> None:
        try:
            body = self._body()
        except UsageError as error:
            self.query_one(".error", Static).update(in_fields(str(error)))
            return
        self.dismiss(body)

    def action_no(self) -> None:
        self.dismiss(None)

    def _body(self) -> Row:
        cores, memory, target = (self.query_one(f"#{name}", Field).value.strip() for name in _NAMES)
        if not (cores or memory or target):
            raise UsageError("Enter what to change")
        if target:
            parse_target(target)
        size = OPTIONS["memory"].read(memory) if memory else None
        return {"cores": _number(cores) if cores else None, "memory": size, "target": target or None}


_NAMES = ("cores", "memory", "target")


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"cores: {text!r} is not a number") from None
