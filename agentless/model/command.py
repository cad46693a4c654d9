"""What is run on a node, and what came of it.

A `Command` is POSIX `sh` text that reaches the node over the stdin of a running `sh`: there is no argv in which
another user could read it, no length limit, and no login shell that could quote it differently.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MASK = "***"
SECTION = 1 << 20
"""Bytes of a section that leave the node, if it does not say otherwise: a list of 5,000 containers has 500 KB."""
ANSWER = 12 << 20
"""Bytes that a command may say, if it does not say otherwise: all sections of a full look, each as long as it may be.

A node that says more would fill the memory of the controller, which has a hundred others to listen to."""
_MARK = "@@agentless"
_CODE = re.compile(rb"= ([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Command:
    """One script for one node.

    `secrets` are exported in front of the script and never shown; `stdin` is what the script reads (None: nothing);
    after `timeout` seconds everything it started is ended on the node, and so it is when it says over `most` bytes.
    """

    script: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes | None = field(default=None, repr=False)
    timeout: float = 30.0
    most: int = ANSWER

    def text(self, *, masked: bool = False) -> str:
        """The whole script as the node's `sh` reads it; `masked` is for people."""
        exports = [f"export {name}={MASK if masked else shlex.quote(v)}\n" for name, v in self.secrets.items()]
        return "".join(exports) + self.script


@dataclass(frozen=True, slots=True)
class Result:
    """How a command ended: its exit code (128 + signal for a signal) and both streams, as bytes."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether it ended with 0."""
        return self.exit_code == 0

    @property
    def out(self) -> str:
        """Standard output as text; what is no UTF-8 is replaced, never an error."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Section:
    """A named part of a script whose output is wanted apart from the others'.

    Several sections travel as one script and come back in one answer: that is how a node is asked everything in one
    round trip. Standard error is part of a section's output, since that is where drivers explain themselves. What goes
    on beyond `most` bytes is cut off on the node, and by that most programs end.
    """

    name: str
    script: str
    most: int = SECTION


def escaped(data: bytes) -> bytes:
    r"""The word of letters, digits and `\0NNN` that `printf %b` makes these bytes of; no shell has rules for them."""
    return re.sub(rb"[^A-Za-z0-9]", lambda byte: b"\\0%03o" % byte[0][0], data)


# The exit code comes by another pipe. Nothing that a section starts holds that one, or the output of all sections: what
# a driver has hung in the kernel keeps open what it has.
_LIMITED = f"""\
limited() {{
  {{ code=$({{ {{ section 2>&1 3>&- 4>&-; echo "$?" >&3; }} | head -c "$1" >&4 3>&- 4>&-; }} 3>&1); }} 4>&1
  printf '\\n%s\\n' "{_MARK} = $code"
}}
"""


def join_sections(sections: Iterable[Section]) -> str:
    """One script that runs each section in a subshell and marks its output and exit code."""
    return _LIMITED + "".join(
        f"section() (\n{s.script}\n)\nprintf '%s\\n' '{_MARK} {s.name}'\nlimited {s.most}\n" for s in sections
    )


def split_sections(output: bytes) -> dict[str, Result]:
    """The output of a `join_sections` script by section; a section that was cut off is not in it."""
    found: dict[str, Result] = {}
    name, lines = "", list[bytes]()
    mark = _MARK.encode() + b" "
    # What follows the last newline is a line that was cut off.
    for line in output.split(b"\n")[:-1]:
        if not line.startswith(mark):
            lines.append(line)
        elif code := _CODE.fullmatch(line, len(mark)):
            if name:
                found[name] = Result(int(code[1]), b"\n".join(lines))
            name = ""
        else:
            name, lines = line[len(mark) :].decode("utf-8", "replace"), []
    return found
