"""A shell in the container of a task: the terminal of the dashboard is lent to it until it ends."""

from __future__ import annotations

import contextlib
import os

from textual.app import App
from textual.driver import Driver

from agentless.model.terminal import Size
from agentless.talk import Talk, Window, raw, standard
from agentless.terminal import Terminal


def size_of(app: App[None]) -> Size:
    """Of the terminal that will be lent."""
    return Size(app.size.width, app.size.height)


def run(app: App[None], terminal: Terminal, greeting: str) -> bool:
    """Talk until the program has ended; whether somebody ended this instead, and the dashboard with it.

    Raises SuspendNotSupported for a terminal that cannot be lent, and what broke the program off.
    """
    with app.suspend():
        window = _window(app._driver)  # noqa: SLF001 - Textual gives it no name
        window.out.write(f"\r\n\x1b[2m{greeting}\x1b[0m\r\n".encode())
        window.out.flush()
        talk = Talk(terminal, window)
        with raw(window.keys) if os.isatty(window.keys) else contextlib.nullcontext():
            talk.run()
    return bool(talk.ended_by)


def _window(driver: Driver | None) -> Window:
    """The browser that a driver has lent, else this process' terminal."""
    return getattr(driver, "window", None) or standard()
