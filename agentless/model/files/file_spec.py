"""Files in the spec of a task: what is uploaded with it, and what is brought back."""

from __future__ import annotations

from dataclasses import dataclass

UNFINISHED = ".agentless-"
"""How the names of folders begin in which outputs arrive: they are never uploaded."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a task with files is started from, in place of its image, and in which folder."""

    image: str
    workdir: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A file or folder of the user's machine that goes into the container.

    `source` is its absolute path there; `target` where it goes: an absolute path, or one below the working folder, `.`
    being that itself. `snapshot` is the id of what was there at the submit, empty until that is known.
    """

    source: str
    target: str
    snapshot: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.target}"


@dataclass(frozen=True, slots=True)
class Output:
    """A path in the container, absolute or below the working folder, that is brought back to `local` at the end.

    `local` is an absolute path of the user's machine, in which `{id}` stands for the task's id; with a slash at its end
    it is a folder to put it into. With `changed` only what the task has made or changed is brought.
    """

    path: str
    local: str
    changed: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.local}"
