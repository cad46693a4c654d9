"""Templates and values into shell words: nothing a user types can become syntax.

Every `{{ value }}` is quoted as exactly one shell word, a list as one word each. So a template never puts quotes around
a value, and pipes or `&&` in it are the template's own. An admin overrides a template by putting a file of the same
name into `<config folder>/templates/`, or into the same folder below it. It counts from the next rendering on: nothing
has to be restarted.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jinja2

from agentless.errors import TemplateError

_PIECE = re.compile(r"""([ \t\r\n]+)|'([^']*)'|"([^"\\]*)"|([^ \t\r\n'"\\]+)""")
"""Space, or what `shlex.quote` writes: parts of a word, in quotes or not."""


class Renderer:
    """Templates from the first of `folders` that has them."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(f"{folder}{os.sep}" for folder in folders)
        self._environment = jinja2.Environment(
            loader=_Files(folders),
            finalize=_word,
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # noqa: S701 - the output is shell, and `finalize` quotes for it
        )

    def words(self, name: str, /, **values: Any) -> list[str]:
        """The argv that template `name` makes of `values`."""
        text = self.script(name, **values)
        try:
            if words := split(text):
                return words
            problem = "empty command"
        except ValueError as error:
            problem = f"{error} in the rendered command"
        raise TemplateError(f"template {self._environment.get_template(name).filename}: {problem}")

    def script(self, name: str, /, **values: Any) -> str:
        """The shell text that template `name` makes of `values`."""
        try:
            return self._environment.get_template(name).render(**values)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"template {error.filename}:{error.lineno}: {error.message}") from None
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            OSError,
            RecursionError,
            TypeError,
            ValueError,
        ) as error:
            raise TemplateError(f"template {self._place(error) or name}: {_words(error)}") from None

    def _place(self, error: Exception) -> str:
        """The file and line of a template that an error comes from, as Jinja has put them into its traceback."""
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(self._folders)]
        return f"{frames[-1].filename}:{frames[-1].lineno}" if frames else ""


def split(text: str) -> list[str]:
    """What `shlex.split` gives. That reads character by character, and the labels of a workflow are long."""
    words, is_inside, read = list[str](), False, 0
    for piece in _PIECE.finditer(text):
        read += piece.end() - piece.start()
        is_space = piece.lastindex == 1
        if not is_space and is_inside:
            words[-1] += piece[piece.lastindex or 0]
        elif not is_space:
            words.append(piece[piece.lastindex or 0])
        is_inside = not is_space
    return words if read == len(text) else shlex.split(text)


class _Files(jinja2.BaseLoader):
    """Of each template the first file there is, looked for anew each time: it may appear, change and go.

    A template is found by its file name, which is unique. The last of `folders` has subfolders; in those before it, a
    file may be in the same subfolder, in one above it, or in none.
    """

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = folders
        self._places = {
            path.name: [
                str(folder / above / path.name)
                for folder in folders
                for above in reversed(path.relative_to(folders[-1]).parents)
            ]
            for path in folders[-1].rglob("*.j2")
        }

    def get_source(self, environment: jinja2.Environment, template: str) -> tuple[str, str, Callable[[], bool]]:  # noqa: ARG002
        """Its text, its path, and whether that still is so."""
        stamp = self._stamp(template)
        if stamp is None:
            raise jinja2.TemplateNotFound(template)
        path, *_ = stamp
        content = Path(path).read_bytes()
        try:
            return content.decode(), path, lambda: self._stamp(template) == stamp
        except UnicodeDecodeError as error:
            line = content.count(b"\n", 0, error.start) + 1
            raise jinja2.TemplateSyntaxError("not UTF-8 text", line, template, path) from None

    def _stamp(self, template: str) -> tuple[str, int, int, int] | None:
        for path in self._places.get(template) or [str(folder / template) for folder in self._folders]:
            try:
                found = os.stat(path)
            except OSError:
                continue
            if stat.S_ISREG(found.st_mode):
                return path, found.st_ino, found.st_size, found.st_mtime_ns
        return None


def _words(error: Exception) -> str:
    if isinstance(error, jinja2.TemplateNotFound):
        return f"{error.name} is missing; reinstall agentless, or correct the name"
    return str(error)


def _word(value: object) -> str:
    if value is None:
        raise jinja2.TemplateRuntimeError("a value is None; guard it with {% if %}")
    if isinstance(value, (list, tuple)):
        return shlex.join(map(str, value))
    return shlex.quote(str(value))
