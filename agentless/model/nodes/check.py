"""A check of `doctor`: what was seen of a node, and what mends it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

SKIPPED = "skipped; fix the failed check above first"
Verdict = Literal["ok", "warning", "failed", "skipped"]
"""A node with a warning runs tasks. A check is skipped if an earlier one failed."""


_COMMENT = re.compile(r"  # [^'\"]*$")
"""A comment behind a command. What looks like one in a quoted word has a quote behind it."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check. If it is not ok, `wrong` is what is wrong, `fix` the commands that mend it, and `why` it matters.

    Each line of `fix` is a command of a shell, with a comment after two blanks, or a comment: for the node, or `here`,
    where the controller runs. A command that only shows something has a comment that begins with `shows`; a reboot is a
    comment. `words` is the sentence with the fix for screens that show one line, if it is not made of
    `wrong` and `fix`.
    """

    name: str
    verdict: Verdict
    seen: str
    wrong: str = ""
    fix: str = ""
    why: str = ""
    here: bool = False
    words: str = ""

    @property
    def detail(self) -> str:
        """The check in one line."""
        if self.verdict in ("ok", "skipped"):
            return self.seen
        if self.words:
            return self.words
        commands = [each for line in self.fix.splitlines() if (each := _COMMENT.sub("", line)) and each[0] != "#"]
        place = "run" if self.here else "on the node, run"
        return f"{self.wrong}; {place}: {' && '.join(commands)}" if commands else self.wrong


@dataclass(frozen=True, slots=True)
class VendorChecks:
    """What a vendor checks: `before` its driver is asked, and `after` that has answered.

    `install` are the commands that install what the engine needs to hand out its GPUs.
    """

    before: tuple[Check, ...] = ()
    after: tuple[Check, ...] = ()
    install: str = ""


def ok(name: str, seen: str) -> Check:
    """A check that found nothing wrong."""
    return Check(name, "ok", seen)


def skipped(name: str, why: str) -> Check:
    """A check that could not run."""
    return Check(name, "skipped", why)
