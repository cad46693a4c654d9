"""Templates and values into shell words: nothing a user types can become syntax.

Every `{{ value }}` is quoted as exactly one shell word, a list as one word each. So a template never puts quotes around
a value, and pipes or `&&` in it are the template's own. An admin overrides a template by putting a file of the same
name into `<config folder>/templates/`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2

from agentless.errors import TemplateError

_QUOTED = re.compile(r"""'[^']*'|"[^"\\]*\"""")
_WORD = re.compile(rf"""(?:[^ \t\r\n'"\\]|{_QUOTED.pattern})+""")


class Renderer:
    """Templates from the first of `folders` that has them."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._environment = jinja2.Environment(
            loader=jinja2.FileSystemLoader([str(folder) for folder in folders]),
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
            return _split(text)
        except ValueError as error:
            raise TemplateError(f"template {name}: {error}") from None

    def script(self, name: str, /, **values: Any) -> str:
        """The shell text that template `name` makes of `values`."""
        try:
            return self._environment.get_template(name).render(**values)
        except jinja2.TemplateNotFound as error:
            raise TemplateError(f"template {error.name} is missing; reinstall agentless") from None
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(f"template {error.filename}:{error.lineno}: {error.message}") from None
        except jinja2.TemplateError as error:
            raise TemplateError(f"template {name}: {error.message}") from None
        except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError) as error:
            raise TemplateError(f"template {name}: {error}") from None


def _split(text: str) -> list[str]:
    """As `shlex.split` does, which takes a millisecond for a `docker run`; what is rarer than quotes is left to it."""
    if _WORD.sub("", text).strip(" \t\r\n"):
        return shlex.split(text)
    return [_QUOTED.sub(lambda quoted: quoted[0][1:-1], word) for word in _WORD.findall(text)]


def _word(value: object) -> str:
    if value is None:
        raise jinja2.TemplateRuntimeError("a value is None; guard it with {% if %}")
    if isinstance(value, (list, tuple)):
        return shlex.join(map(str, value))
    return shlex.quote(str(value))
