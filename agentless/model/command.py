"""A command for a node, and its result.

A `Command` is POSIX `sh` text that is sent to the stdin of a running `sh` on the node. So no other user can read it in
an argv, its length is not limited, and no login shell has to parse it.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MASK = "***"
SECTION = 1 << 20
"""The default limit of the output of a section, in bytes. A list of 5,000 containers has 500 KB."""
ANSWER = 12 << 20
"""The default limit of the output of a command, in bytes: all sections of a full look, each at its limit.

More output from one node would fill the memory of the controller."""
_MARK = "@@agentless"
_CODE = re.compile(rb"= ([0-9]{1,3})")


@dataclass(frozen=True, slots=True)
class Command:
    """One script for one node.

    `secrets` are exported in front of the script and never shown. `stdin` is the input of the script (None: nothing).
    After `timeout` seconds, or more than `most` bytes of output, everything it started is ended on the node.
    """

    script: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    stdin: bytes | None = field(default=None, repr=False)
    timeout: float = 30.0
    most: int = ANSWER

    def text(self, *, masked: bool = False) -> str:
        """The script as the node's `sh` reads it. If `masked`, secrets are hidden, for display."""
        exports = [f"export {name}={MASK if masked else shlex.quote(v)}\n" for name, v in self.secrets.items()]
        return "".join(exports) + self.script


@dataclass(frozen=True, slots=True)
class Result:
    """The exit code of a command (128 + n for signal n) and both streams, as bytes."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0

    @property
    def out(self) -> str:
        """Standard output as text. Invalid UTF-8 is replaced."""
        return self.stdout.decode("utf-8", "replace")

    @property
    def err(self) -> str:
        """Standard error as text."""
        return self.stderr.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class Section:
    """A named part of a script with an output of its own.

    Several sections are sent as one script and answered at once, in one round trip. The output includes standard error,
    where drivers explain their errors. It is cut off after `most` bytes on the node, which ends most programs.
    """

    name: str
    script: str
    most: int = SECTION


def escaped(data: bytes) -> bytes:
    r"""The bytes as a word for `printf %b`, of letters, digits and `\0NNN` only. No shell gives these a meaning."""
    return re.sub(rb"[^A-Za-z0-9]", lambda byte: b"\\0%03o" % byte[0][0], data)


# The exit code comes through another pipe. Programs of a section inherit neither that pipe nor the common output: a
# process that hangs in the kernel keeps its files open.
_LIMITED = f"""\
limited() {{
  {{ code=$({{ {{ section 2>&1 3>&- 4>&-; echo "$?" >&3; }} | head -c "$1" >&4 3>&- 4>&-; }} 3>&1); }} 4>&1
  printf '\\n%s\\n' "{_MARK} = $code"
}}
"""


def join_sections(sections: Iterable[Section]) -> str:
    """A script that runs each section in a subshell and marks its output and exit code."""
    return _LIMITED + "".join(
        f"section() (\n{s.script}\n)\nprintf '%s\\n' '{_MARK} {s.name}'\nlimited {s.most}\n" for s in sections
    )


def split_sections(output: bytes) -> dict[str, Result]:
    """The output of a `join_sections` script by section. A section that was cut off is left out."""
    found: dict[str, Result] = {}
    name, lines = "", list[bytes]()
    mark = _MARK.encode() + b" "
    # Text after the last newline is an incomplete line.
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
