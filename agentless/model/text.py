"""What others chose, a node or another user, as text that a screen may show.

Names, owners, reasons, and what engines and drivers complain of: no character of them steers a terminal, and none
begins a line that looks like one of ours. Only what a task itself printed is shown as it is.
"""

from __future__ import annotations

_END = 2000
"""Bytes of either end of what a program complains of that are kept."""


def printable(text: str) -> str:
    """The text in one line: blanks for tabs and breaks, � for what else is no visible character.

    Control characters (C0, DEL and C1), and marks that turn the direction of writing.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else "�" for c in text)


def shown(name: str) -> str:
    """A file's name or path within a message: in quotes, with escapes, where it has what is no visible character."""
    return name if name.isprintable() else repr(name)


def printable_lines(text: str) -> str:
    """Likewise of a text whose lines are ours, like a script."""
    return "\n".join(map(printable, text.split("\n")))


def lines_of(text: str) -> list[str]:
    """The lines of a message: what is not its first one stands indented below it, whoever broke the line there."""
    first, *others = (printable(line).strip() for line in text.strip().split("\n"))
    return [first, *(f"  {line}" for line in others)]


def cut(text: str, length: int) -> str:
    """The text in so many characters, with … where there was more."""
    return text if len(text) <= length else text[: length - 1] + "…"


def both_ends(said: bytes, more: bytes) -> bytes:
    """What a program has said, and says now, without the middle of it when that is long.

    A program that crashes names the cause first and then the state of each thread; one that gives up names it last.
    """
    said += more
    return said if len(said) <= 2 * _END else said[:_END] + said[-_END:]


def last_words(data: bytes, length: int = 300) -> str:
    """The end of what a program has said, in one line, with … where there was more."""
    text = " ".join(printable(data.decode("utf-8", "replace")).split())
    return text if len(text) <= length else "…" + text[-length + 1 :]
