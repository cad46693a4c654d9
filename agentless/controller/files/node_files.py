"""Files of nodes, and of the containers of tasks: what is there, and the programs on a node that copies go through."""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.lookup import Lookup
from agentless.errors import CopyFailed, Refused, Unreachable, UsageError
from agentless.formats.tar import BadArchive, Fed, Tar
from agentless.model.command import Command
from agentless.model.files.location import Kind, Way, split
from agentless.model.nodes.node import unreachable, with_node
from agentless.model.text import Excerpt, shown
from agentless.remote.node_files import NodeFiles
from agentless.remote.streams import Pipe

_KINDS: dict[str, Kind] = {"folder": "folder", "other": "other"}
_NOWHERE = ("No such container:path", "Could not find the file", "could not be found on container")


@dataclass(frozen=True, slots=True)
class Found:
    """Kinds of the requested paths, and whether rsync is available; containers only support tar streams."""

    kinds: tuple[Kind, ...]
    rsync: bool
    container: bool


@dataclass(frozen=True, slots=True)
class _Container:
    link: NodeLink
    id: str


@dataclass(frozen=True, slots=True)
class _Disk:
    """The disk of a node or of a login node. Relative paths begin in `folder`, None: there are none."""

    link: TaskLink
    folder: str | None = ""

    def within(self, path: str) -> str:
        """A path, seen from the home folder; raises Refused."""
        if path.startswith(("/", "~")):
            return path
        if self.folder is None:
            raise Refused(f"the task starts in its image; use an absolute path, on the disk of {self.link.node.name}")
        return posixpath.join(self.folder, path)


class Files:
    """Everything here is about one place: the name of a node or a cluster, else what means a task."""

    def __init__(self, nodes: Nodes, lookup: Lookup, files: NodeFiles) -> None:
        self._nodes = nodes
        self._lookup = lookup
        self._files = files

    async def look(self, place: str, paths: Sequence[str]) -> Found:
        """What is at these paths; raises NotFound for a place that is none, and NoAnswer."""
        at = await self._at(place)
        if isinstance(at, _Container):
            return Found(tuple([await self._inside(at.link, at.id, path) for path in paths]), False, container=True)
        looked = await at.link.run(self._files.look([at.within(path) for path in paths]))
        kinds, rsync = self._files.parse_look(looked, len(paths))
        return Found(kinds, rsync, container=False)

    @contextlib.asynccontextmanager
    async def open(
        self, place: str, way: Way, path: str, *, is_folder: bool, arguments: Sequence[str] = ()
    ) -> AsyncIterator[Pipe]:
        """The program at the other end of a copy, from its beginning to its end or that of this."""
        at = await self._at(place)
        async with at.link.session.pipe(self._program(at, way, path, is_folder, arguments)) as pipe:
            yield pipe

    # ------------------------------------------------------------------ inside

    def _program(
        self, at: _Container | _Disk, way: Way, path: str, is_folder: bool, arguments: Sequence[str]
    ) -> Command:
        if isinstance(at, _Container):
            if way == "rsync":
                raise UsageError("containers have no rsync; copy with a tar stream")
            inner = _outer(path) if way == "send" else _inner_folder(path)
            return at.link.runtime.files.copy(at.id, inner, into=way == "receive")
        path = at.within(path)
        if way == "rsync":
            return self._files.rsync(path, arguments, is_folder=is_folder)
        if way == "send":
            return self._files.send(path, is_folder=is_folder)
        return self._files.receive(path, secrets.token_hex(8))

    async def _at(self, place: str) -> _Container | _Disk:
        """Where the files of a place are; raises Refused or Unreachable."""
        task = None if place in self._nodes.every else self._lookup.find(place)
        node = place if task is None else task.node
        if task and not (node and task.container):
            raise Refused(f"task {task.id} is {task.state} and has no container, so it has no files")
        if task and task.spec.on_node_itself:
            raise Refused(f"task {task.id} has no container (--container NULL); its files are on {node} itself")
        link = self._nodes.every.get(node or "")
        if link is None:
            raise Unreachable(f"{node} is no longer in the inventory; add it again to reach its tasks")
        await link.ready()
        if not link.online:
            raise Unreachable(unreachable(link.node.name, link.observation.error))
        if isinstance(link, ClusterLink):
            return _Disk(link, link.runtime.starts_in(task) if task else "")
        return _Container(link, task.container_ref) if task else _Disk(link)

    async def _inside(self, link: NodeLink, container: str, path: str) -> Kind:
        """What is at a path in a container: the first member of a tar stream of it says so."""
        kind, words = await self._first_member(link, container, path)
        if kind is not None:
            return kind
        if not any(text in words for text in _NOWHERE):
            if "No such container" in words:
                raise Refused(f"the container and its files are gone ({container[:12]} on {link.node.name})")
            raise CopyFailed(with_node(link.node.name, link.runtime.complaint(words)))
        parent, _ = await self._first_member(link, container, _inner_folder(path))
        return "nothing" if parent == "folder" else "orphan"

    async def _first_member(self, link: NodeLink, container: str, path: str) -> tuple[Kind | None, str]:
        tail, first = Excerpt(), Fed(Tar().next())
        async with link.session.stream(link.runtime.files.copy(container, _outer(path), into=False)) as stream:
            async for fd, data in stream:
                if fd == 2:
                    tail.add(data)
                    continue
                try:
                    first.feed(data)
                except BadArchive as error:
                    raise CopyFailed(f"{link.node.name}: invalid tar stream for {shown(path)}: {error}") from None
                if first.ended:
                    member = first.end()
                    return _KINDS.get(member.kind, "file") if member else None, ""
        return None, str(tail)


def _outer(path: str) -> str:
    """A path in a container without `/.` at its end, for which each engine has other names in the stream.

    Links are followed in any case, so it means the same.
    """
    return re.sub(r"(/+\.)+/*$", "", path) or "/."


def _inner_folder(path: str) -> str:
    """The folder of a path in a container, where all paths begin at the root."""
    folder, _ = split("/" + path.strip("/"))
    return folder
