"""Files that jobs leave on the disk of the cluster. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentless.model.command import Command

_WITHIN = 300.0
_CHANGES = 16 << 20
"""Bytes of a list of what a job has changed."""


class SlurmFiles:
    """Files out of jobs. `of` renders a template for one of them."""

    def __init__(self, of: Callable[..., Command]) -> None:
        self._of = of

    def changes(self, container: str) -> Command:
        """List what the job has created or changed among its uploaded files, as `docker diff` does."""
        return replace(self._of(container, "slurm-files-changes.sh.j2"), timeout=_WITHIN, most=_CHANGES)

    def folder(self, container: str) -> Command:
        """Ask for the folder in which the command has started; nothing if it has not."""
        return self._of(container, "slurm-files-start.sh.j2")

    def copy(self, container: str, path: str, *, into: bool) -> Command:
        """A tar stream of what is at a path on the login node."""
        if into:
            raise AssertionError("files go into jobs by uploads and copies")
        return self._of(container, "slurm-files-send.sh.j2", path=path, packed=False)

    def copy_packed(self, container: str, path: str) -> Command:
        """The same, compressed by gzip."""
        return self._of(container, "slurm-files-send.sh.j2", path=path, packed=True)

    def says_missing(self, words: str) -> bool:
        """Whether these words, printed in place of a tar stream, say that the path does not exist."""
        return "no such file or dir" in words.lower()
