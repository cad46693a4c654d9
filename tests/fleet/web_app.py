"""A Textual app in the place of the dashboard: `python -m tests.fleet.web_app FOLDER`, for tests of its server.

It says that it is there by a file in FOLDER, named by its process, and what it is asked for by keys.
"""

from __future__ import annotations

import io
import os
import sys
import time
from pathlib import Path

from textual.app import App, ComposeResult
from textual.widgets import Label


class StandIn(App[None]):
    """Counts by itself, and says which key was pressed."""

    BINDINGS = [("d", "deliver", ""), ("h", "hang", ""), ("x", "crash", ""), ("p", "tell", ""), ("q", "quit", "")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield Label("a stand-in", id="what")
        yield Label("", id="count")
        yield Label("", id="pressed")
        yield Label(f"opened at {os.environ['AGENTLESS_PLACE'] or 'the top'}.", id="place", markup=False)

    def on_mount(self) -> None:
        self.sign = Path(sys.argv[1]) / str(os.getpid())
        self.sign.touch()
        began = time.monotonic()
        self.set_interval(0.1, lambda: self.show("count", f"counted {int((time.monotonic() - began) * 10)}"))

    def on_unmount(self) -> None:
        self.sign.write_text("ended by itself")

    def show(self, label: str, text: str) -> None:
        self.query_one(f"#{label}", Label).update(text)

    def on_key(self, event) -> None:
        self.show("pressed", f"pressed {event.key}")

    def on_resize(self, event) -> None:
        self.show("what", f"a stand-in of {event.size.width} by {event.size.height}")

    def go_to(self, path: str) -> None:
        self.query_one("#place", Label).update(f"went to {path}.")

    def action_tell(self) -> None:
        self._driver.write_meta({"type": "place", "path": "/nodes"})

    def action_deliver(self) -> None:
        self.deliver_text(io.StringIO("what a task has said\n"), save_filename="task 1.log")

    def action_hang(self) -> None:
        self._driver.write("hangs")  # by itself: what a label shows may wait for a refresh that never comes
        time.sleep(3600)

    def action_crash(self) -> None:
        os.abort()


if __name__ == "__main__":
    StandIn().run()
