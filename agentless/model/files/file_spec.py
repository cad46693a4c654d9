"""Files in the spec of a task: uploads and outputs."""

from __future__ import annotations

from dataclasses import dataclass

UNFINISHED = ".agentless-"
"""The prefix of folders in which outputs arrive. They are never uploaded."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The image with the files of a task, which replaces its own, and the working directory.

    On a cluster `image` is the archive with the files, and the working directory is that of the task.
    """

    image: str
    workdir: str


@dataclass(frozen=True, slots=True)
class Upload:
    """A file or folder of the user's machine that is uploaded into the container.

    `source` is its absolute path on that machine. `target` is absolute, or relative to the working folder, with `.` for
    the folder itself. `snapshot` is the id of its content at the submit, empty until that is known.
    """

    source: str
    target: str
    snapshot: str = ""

    def __str__(self) -> str:
        return f"{self.source}:{self.target}"


@dataclass(frozen=True, slots=True)
class Output:
    """A path in the container, absolute or relative to the working folder, that is fetched to `local` at the end.

    `local` is an absolute path of the user's machine. `{id}` in it stands for the task's id, and a slash at its end for
    a folder that takes the output. If `changed`, only files that the task has created or changed are fetched.
    """

    path: str
    local: str
    changed: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.local}"
