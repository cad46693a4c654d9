"""Files of a node, with what every node has: `sh`, and `tar` or rsync. Renders scripts, parses answers. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from agentless.errors import CopyFailed, UsageError
from agentless.model.command import Command, Result
from agentless.model.files.location import PARTIAL, Kind, split, there
from agentless.render import Renderer
from agentless.rules.files.copy_errors import is_good_rsync

LOOK_WITHIN = 30.0


class NodeFiles:
    """Commands for files of one node. Paths are as `model/files/location.there` has them."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer

    def look(self, paths: Sequence[str]) -> Command:
        """Ask for the kind of each path, and for the version of rsync."""
        return self._command("files-look.sh.j2", paths=[there(path) for path in paths])

    def parse_look(self, result: Result, count: int) -> tuple[tuple[Kind, ...], bool]:
        """The kind of each path, and whether the node's rsync is usable; raises CopyFailed."""
        *lines, rest = result.stdout.split(b"\n", count)
        kinds = [line.decode("ascii", "replace") for line in lines]
        if not result.ok or len(kinds) != count or not set(kinds) <= set(get_args(Kind)):
            raise CopyFailed(f"the node did not list the files: {result.err.strip()[:300] or 'no output'}")
        return tuple(kinds), is_good_rsync(rest)  # type: ignore[arg-type]

    def send(self, path: str, *, is_folder: bool) -> Command:
        """A tar stream of a file, or of what is in a folder; its members are called `./…`."""
        folder, name = (there(path), None) if is_folder else split(there(path))
        return self._command("files-send.sh.j2", folder=folder, name=name)

    def receive(self, path: str, mark: str) -> Command:
        """Receive a tar stream with the file or folder as `t`, followed by `whole`."""
        folder, name = split(there(path))
        return self._command("files-receive.sh.j2", folder=folder, name=name, mark=mark)

    def rsync(self, path: str, arguments: Sequence[str], *, is_folder: bool) -> Command:
        """The node's rsync, with the arguments that the rsync here has chosen; its paths are below `path`."""
        if arguments[:2] != ["rsync", "--server"]:
            raise UsageError("only rsync in server mode can run")
        sends = "--sender" in arguments
        if sends:
            folder, name, make = there(path) if is_folder else split(there(path))[0], None, None
        else:
            folder, name = split(there(path))
            make = name if is_folder and name != "." else None
            name = None if is_folder else name
        return self._command(
            "files-rsync.sh.j2", folder=folder, make=make, file=name, arguments=list(arguments[1:]), partial=PARTIAL
        )

    def _command(self, template: str, **values: object) -> Command:
        return Command(self._renderer.script(template, **values), timeout=LOOK_WITHIN)
