"""A place to scroll in that stays at its end: what is still loading comes after the key."""

from __future__ import annotations

from textual import events
from textual.containers import VerticalScroll
from textual.widget import Widget


class Ending(Widget):
    """The key End goes to the end and stays there while more is loaded, until something else scrolls."""

    _stays = False

    def action_scroll_end(self) -> None:
        self._stays = True
        self.scroll_end(animate=False)

    def release_anchor(self) -> None:
        """Textual calls this for each way to scroll but that to the end."""
        super().release_anchor()
        self._stays = False

    def keep_end(self) -> None:
        """Call this when there may be more."""
        if self._stays:
            self.scroll_end(animate=False)


class EndingScroll(VerticalScroll, Ending):
    """Widgets below each other."""

    def on_resize(self, _: events.Resize) -> None:
        """Also after the size of what is in it has changed."""
        self.keep_end()
