"""Lines of Slurm's files: whatever a name from outside has in it, a line stays one line with its keys."""

from __future__ import annotations

import re

from agentless.model.text import cut, printable

_UNSAFE = re.compile(r"[^A-Za-z0-9._:,/()+@-]")
_COMMENT = 200
_WORD = 60
_RESERVED = frozenset({"default", "all"})
"""Words that mean something else to Slurm where a name is expected."""


def entry(**pairs: object) -> str:
    """A line `Key=Value Key=Value`, without the pairs that have no value. A character that could end one becomes _."""
    return " ".join(f"{key}={_UNSAFE.sub('_', str(value))}" for key, value in pairs.items() if value not in (None, ""))


def comment(text: str) -> str:
    r"""A comment of one line. A backslash at its end would make the next line part of it."""
    return f"# {cut(printable(text).replace(chr(92), '/'), _COMMENT)}"


def pairs_of(line: str) -> dict[str, str]:
    """The pairs of such a line, as Slurm's programs print them, too. The first of a key counts."""
    found: dict[str, str] = {}
    for word in line.split():
        key, equals, value = word.partition("=")
        if equals:
            found.setdefault(key, value)
    return found


def word(text: str, allowed: str = r"a-z0-9_", otherwise: str = "x") -> str:
    """The text as a name for Slurm: lower case unless capitals are `allowed`, any other character a single _."""
    text = text if "A-Z" in allowed else text.lower()
    return re.sub(rf"[^{allowed}]+", "_", text).strip("_")[:_WORD].rstrip("_") or otherwise


class Names:
    """Names that are each given once: another one that would be the same gets a number."""

    def __init__(self) -> None:
        self._given = set(_RESERVED)

    def give(self, wanted: str) -> str:
        """This name, or the first of `wanted_2`, `wanted_3`, … that is not given yet. Capitals make no difference."""
        number, name = 1, wanted
        while name.lower() in self._given:
            number += 1
            name = f"{wanted}_{number}"
        self._given.add(name.lower())
        return name
