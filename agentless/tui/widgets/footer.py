"""The line of keys at the bottom."""

from __future__ import annotations

from rich.cells import cell_len
from textual.widget import Widget
from textual.widgets import Footer


class KeyLine(Footer):
    """As many keys as fit, and that of the help. Textual cuts one, and hides others behind that of the help."""

    def __init__(self) -> None:
        super().__init__(compact=True)

    def on_resize(self) -> None:
        """Choose the keys for this width."""
        self._fit()

    async def recompose(self) -> None:
        """Make the keys anew, and choose among them."""
        await super().recompose()
        self._fit()

    def _fit(self) -> None:
        keys, helps = self.query("FooterKey"), self.query("FooterKey.-command-palette")
        room = self.size.width - sum(map(_width, helps))
        for key in keys.exclude(".-command-palette"):
            room -= _width(key)
            key.display = room >= 0


def _width(key: Widget) -> int:
    """Of a key, with the gap behind it or the line before it."""
    return cell_len(str(key.render())) + 1
