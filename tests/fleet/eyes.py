"""Somebody in front of a dashboard: what they see, and the keys they press."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from textual import events
from textual.pilot import Pilot

from agentless.client.client import Client
from agentless.tui.app import Dashboard
from tests.fleet.client import PATIENCE
from tests.pauses import pauses


@dataclass
class Eyes:
    """A dashboard that is shown."""

    app: Dashboard
    pilot: Pilot
    notes: list[str] = field(default_factory=list)

    @property
    def messages(self) -> str:
        """What they were told so far, however it was broken into lines, and although it has left the screen since."""
        return "\n".join(self.notes)

    @property
    def text(self) -> str:
        """All that is on the screen."""
        return "\n".join(strip.text.rstrip() for strip in self.app.screen._compositor.render_strips())

    def line(self, words: str) -> str:
        """The line that has these words; empty when there is none."""
        return next((line for line in self.text.splitlines() if words in line), "")

    async def see(self, *words: str | Callable[[], object]) -> None:
        """Wait until all of these are on the screen, or so."""

        def missing() -> list[str | Callable[[], object]]:
            if wrong := [word for word in words if callable(word) and not word()]:
                return wrong
            text = self.text if texts else ""
            return [word for word in texts if word not in text]

        texts = [word for word in words if isinstance(word, str)]
        try:
            async with asyncio.timeout(PATIENCE):
                while missing():
                    pause = pauses()
                    await asyncio.sleep(next(pause))
                    while missing():  # noqa: ASYNC110 - it is drawn by many
                        await asyncio.sleep(next(pause))
                    await self.pilot.pause()
        except TimeoutError:
            raise AssertionError(f"{missing()} is not to be seen in:\n{self.text}") from None

    async def glimpse(self, words: str) -> None:
        """Wait until this is on the screen, where it may be gone in a moment."""
        try:
            async with asyncio.timeout(PATIENCE):
                while words not in self.text:  # noqa: ASYNC110 - it is drawn by many
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"{words!r} was not seen; now:\n{self.text}") from None

    async def press(self, *keys: str) -> None:
        """Press keys; a text is pasted, for the pilot waits after each key."""
        for key in keys:
            if key in _NAMED or len(key) == 1:
                await self.pilot.press(key)
            else:
                self.app.post_message(events.Paste(key))
                await self.pilot.pause()

    def state(self, task: str) -> str:
        """The state in which a task is shown."""
        return self.app.cluster.tasks[task]["state"]


_NAMED = {"enter", "escape", "tab", "up", "down", "left", "right", "pageup", "pagedown", "home", "end", "slash",
          "colon", "question_mark", "ctrl+c", "ctrl+s", "ctrl+p", "shift+tab", "space", "ctrl+u"}  # fmt: skip


@contextlib.asynccontextmanager
async def looking(size: tuple[int, int] = (120, 36), **more: object) -> AsyncIterator[Eyes]:
    """A dashboard over the controller that the environment names, once all nodes are online."""
    app = Dashboard(Client.found(None), **more)
    async with app.run_test(size=size, notifications=True) as pilot:
        eyes = Eyes(app, pilot)
        notify = app.notify

        def noted(message: str, **more: object) -> None:
            eyes.notes.append(message)
            notify(message, **more)

        app.notify = noted
        await eyes.see(lambda: app.cluster.nodes and all(n["state"] == "online" for n in app.cluster.nodes.values()))
        yield eyes
