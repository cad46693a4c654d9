"""A line of tabs, of which one is shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from textual.content import Content
from textual.message import Message
from textual.widgets import Static

_SHORT = 3
"""Letters of a title where not all titles fit."""


class Tabs(Static):
    """The titles by name, with the numbers that are their keys; a click, or `step`, shows another one."""

    DEFAULT_CSS = """
    Tabs { height: 1; background: $surface; link-style: none; link-color: $text-muted; link-background: $surface; }
    """

    class Shown(Message):
        """Another tab is shown."""

    def __init__(self, titles: Mapping[str, str]) -> None:
        super().__init__()
        self.titles = dict(titles)
        self.current = next(iter(self.titles))

    def on_mount(self) -> None:
        self._draw()

    def on_resize(self) -> None:
        """Shorten the titles on a narrow screen."""
        self._draw()

    def set_titles(self, titles: Mapping[str, str]) -> None:
        """Have these tabs; the first one is shown if the current one is gone."""
        if dict(titles) == self.titles:
            return
        self.titles = dict(titles)
        if self.current not in self.titles:
            self.action_show(next(iter(self.titles)))
        self._draw()

    def step(self, by: int) -> None:
        """Show the next tab, or the one before."""
        names = list(self.titles)
        self.action_show(names[(names.index(self.current) + by) % len(names)])

    def action_show(self, name: str) -> None:
        self.current = name
        self._draw()
        self.post_message(self.Shown())

    def _draw(self) -> None:
        titles = next((each for each in self._forms() if sum(map(len, each)) + 2 * len(each) <= self.size.width), None)
        parts = []
        for name, title in zip(self.titles, titles or list(self._forms())[-1], strict=True):
            style = "reverse bold" if name == self.current else ""
            parts.append(f"[{style} @click=show('{name}')] {title} [/]")
        self.update(Content.from_markup("".join(parts)))

    def _forms(self) -> Iterator[list[str]]:
        """The titles: whole, and all but the current one shortened."""
        for length in (None, _SHORT, 0):
            yield [
                f"{at} {title if name == self.current else title[:length]}".strip()
                for at, (name, title) in enumerate(self.titles.items(), 1)
            ]
