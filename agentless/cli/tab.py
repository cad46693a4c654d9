"""Completion as typer has it, but faster, and in bash also of words with a colon or an equals sign."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from typer._click.shell_completion import add_completion_class, split_arg_string
from typer._completion_classes import BashComplete
from typer._completion_shared import COMPLETION_SCRIPT_ZSH, _completion_scripts

COMPLETE = "_AGENTLESS_COMPLETE"
"""The variable by which a shell asks for completion."""

_BREAKS = {":", "="}


class Bash(BashComplete):
    """Typer's completion, for words with a colon, too: node1::0, NAME:N."""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words in front of the one to complete, and that one."""
        words, at = split_arg_string(os.environ["COMP_WORDS"]), int(os.environ["COMP_CWORD"])
        *before, incomplete = joined(words[: at + 1]) if at < len(words) else [*joined(words), ""]
        self._typed = incomplete
        self._is_split = at < len(words) and words[at] != incomplete
        return before[1:], incomplete

    def format_completion(self, item: Any) -> str:
        """What bash puts in the place of the last part of the word: behind a colon only the rest."""
        value = str(item.value)
        begin = self._typed[: self._typed.rfind(":") + 1] if self._is_split else ""
        return value.removeprefix(begin)


def joined(parts: Sequence[str]) -> list[str]:
    """The words as they were typed, of the parts that bash makes of them."""
    words: list[str] = []
    for number, part in enumerate(parts):
        if number and part and (_is_break(part) or _is_break(parts[number - 1])):
            words[-1] += part
        else:
            words.append(part)
    return words


def _is_break(part: str) -> bool:
    return bool(part) and set(part) <= _BREAKS


def prepare() -> None:
    """Use this class for bash, and a script for zsh with which the first Tab of a session completes, too.

    While a shell waits, import no Rich: typer would, to remove markup, which there is none of.
    """
    add_completion_class(Bash, "bash")
    _completion_scripts["zsh"] = (
        COMPLETION_SCRIPT_ZSH + '[[ $zsh_eval_context[-1] != loadautofunc ]] || %(complete_func)s "$@"\n'
    )
    if COMPLETE in os.environ:
        sys.modules["rich"] = None  # type: ignore[assignment]
