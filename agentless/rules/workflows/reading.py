"""Reads values of a file, and collects what is wrong with them, each with its place."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from agentless.errors import UsageError
from agentless.formats.marked_yaml import BrokenYaml, Marked, Mistake, Where, lines_of, read_yaml, shown
from agentless.rules.views.nearest import nearest
from agentless.rules.workflows.templates import render

MAX_BYTES = 512 * 1024
"""The largest file."""


class Value(NamedTuple):
    """A value of the file, and where it stands."""

    data: Any
    where: Where


class Reading:
    """The content of a file, and the mistakes in it. `path` is for messages."""

    def __init__(self, text: str, path: str) -> None:
        if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
            raise UsageError(f"{path}: larger than {MAX_BYTES // 1024} KiB; is this the right file?")
        self._path = path
        try:
            self.marked: Marked = read_yaml(text, line_breaks=True)
        except BrokenYaml as error:
            raise UsageError(lines_of(path, [error.problem])) from None
        self.mistakes: list[Mistake] = list(self.marked.problems)

    def wrong(self, where: Where, text: str, *, key: bool = False) -> None:
        """Note a mistake in a value, or in its key."""
        self.mistakes.append(Mistake(*self.place(where, key=key), where, text))

    def place(self, where: Where, *, key: bool = False) -> tuple[int, int]:
        """Line and column of a value, or of its key; of the nearest one around it, for what was filled in."""
        for end in range(len(where), -1, -1):
            for places in (self.marked.keys, self.marked.values) if key else (self.marked.values, self.marked.keys):
                if found := places.get(where[:end]):
                    return found
        return 1, 1

    def check(self) -> None:
        """Raise UsageError with all mistakes, if there are any."""
        if self.mistakes:
            raise UsageError(lines_of(self._path, self.mistakes))

    def mapping(self, value: Value, like: str) -> dict[str, Any]:
        """A mapping; empty for nothing, and for what is none."""
        if isinstance(value.data, dict):
            return value.data
        if value.data is not None:
            self.wrong(value.where, f"is {shown(value.data)}; must be a mapping, like {like}")
        return {}

    def unknown(self, where: Where, word: str, known: Iterable[str]) -> None:
        """Note a key that there is none of."""
        words = list(known)
        self.wrong(
            where, f"unknown key {word[:60]!r}{nearest(word, words) or '; known: ' + ', '.join(words)}", key=True
        )

    def rendered(self, value: Value, names: Mapping[str, Any]) -> Any:
        """The data with its expressions filled in; None where that is not possible, which is noted."""
        data, where = value
        before = len(self.mistakes)
        if isinstance(data, dict | list):
            places = data.items() if isinstance(data, dict) else enumerate(data)
            found = {key: self.rendered(Value(each, (*where, key)), names) for key, each in places}
            if len(self.mistakes) > before:
                return None  # what is left of it would be wrong in other ways, too
            return found if isinstance(data, dict) else [*found.values()]
        if not isinstance(data, str):
            return data
        try:
            return render(data, names)
        except UsageError as error:
            self.wrong(where, str(error))
            return None

    def words(self, value: Value, like: str) -> list[str]:
        """One text, or a list of texts."""
        data = [value.data] if isinstance(value.data, str) else value.data
        if isinstance(data, list) and all(isinstance(each, str) for each in data):
            return data
        if data is not None or not self.mistakes:
            self.wrong(value.where, f"is {shown(value.data)}; must be a text or a list of texts, like {like}")
        return []

    def whole(self, value: Value, least: int = 0) -> int | None:
        """A whole number."""
        if isinstance(value.data, str) and re.fullmatch(r"[0-9]{1,9}", value.data) and int(value.data) >= least:
            return int(value.data)
        self.wrong(value.where, f"is {shown(value.data)}; must be a whole number of {least} or more")
        return None
