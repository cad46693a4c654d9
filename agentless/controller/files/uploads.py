"""What was uploaded, on its way into images on the nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import posixpath
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from agentless.controller.files.sending import send, upload_time
from agentless.controller.nodes.cluster_link import ClusterLink, TaskLink
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.tasks import Tasks
from agentless.errors import AgentlessError, ImageMissing, Refused, RuntimeFailed, StateError, UsageError
from agentless.model.files.file_spec import Prepared
from agentless.model.files.files_image import FilesImage, parse_helpers, parse_listing
from agentless.model.files.snapshot import Entry
from agentless.model.images.image import ImageDefaults
from agentless.model.tasks.task import Task
from agentless.ports import Clock
from agentless.rules.files.container_tree import (
    FileOwner,
    FileTree,
    added,
    key_of,
    line_of,
    parse_file_owner,
    reused,
    tree_of,
)
from agentless.rules.files.file_options import WORKDIR
from agentless.rules.files.job_tree import job_tree
from agentless.rules.tasks.settings import with_settings
from agentless.stores.files.outputs import OutputStore
from agentless.stores.files.snapshots import SnapshotStore

FRESH = 60.0
"""Seconds for which an image with files is taken to be where it was; a launch that misses it says so."""
LAYERS = 10
"""Versions over each other before one is made anew: an image has at most about 125 layers."""
IMAGE_KEPT = 7 * 24 * 3600.0
"""Seconds for which an image with files stays on a node, unless a container was made of it, or there is a newer one."""
HELPER_KEPT = 24 * 3600.0
"""Seconds after which a container that an image was to be made of is none any more that somebody is at work on."""
TIDY_EVERY = 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Way:
    """How an image is made: over which, of what that is sent, in how many layers, and with folders of another one."""

    base: str
    tree: FileTree
    layers: int
    copies: tuple[str, ...] = ()
    other: str | None = None


class Uploads:
    """Has the snapshots, and makes images of them where a task is launched."""

    def __init__(self, nodes: Nodes, tasks: Tasks, store: SnapshotStore, outputs: OutputStore, clock: Clock) -> None:
        self.store = store
        self._nodes = nodes
        self._tasks = tasks
        self._clock = clock
        self._outputs = outputs
        self._ready: dict[tuple[object, ...], tuple[float, Prepared]] = {}
        self._locks: defaultdict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._sending: dict[tuple[object, ...], asyncio.Task[Prepared]] = {}
        self._tidied: dict[str, float] = {}
        self._shrunk = -TIDY_EVERY
        self._chores: set[asyncio.Task[None]] = set()

    def check(self, tasks: Iterable[Task]) -> None:
        """Raises Refused when something that was uploaded with them is not here, or not whole."""
        for upload in {upload for task in tasks for upload in task.spec.uploads}:
            if self.store.missing(self.store.get(upload.snapshot)):
                raise Refused(f"the upload of {upload.source} is incomplete; submit again")

    async def prepare(self, link: TaskLink, task: Task, tell: Callable[[str], None]) -> Prepared | None:
        """Make sure that a node has an image with the files of a task, a cluster an archive; None for one without.

        `tell` is told how far it is. Raises ImageMissing when the task's own image is not there.
        """
        if not task.spec.uploads:
            return None
        about = (link.node.name, task.owner, task.spec.image, task.spec.user, task.spec.workdir, task.spec.uploads)
        if isinstance(link, ClusterLink):
            return await self._on_cluster(link, task, about, tell)
        line = line_of(self._tasks.controller, task.owner, task.spec.uploads)
        async with self._locks[link.node.name, line]:
            moment, prepared = self._ready.get(about, (0.0, None))
            if prepared is None or self._clock.now() - moment > FRESH:
                try:
                    prepared = await self._prepare(link, task, line, tell)
                except (Refused, StateError, UsageError) as error:
                    raise RuntimeFailed(str(error)) from None
                self._ready[about] = self._clock.now(), prepared
            return prepared

    def forget(self, link: TaskLink) -> None:
        """Look again whether this node or cluster has what it had."""
        self._ready = {about: ready for about, ready in self._ready.items() if about[0] != link.node.name}

    def tick(self) -> None:
        """Begin whatever is to be removed by now, here and on the nodes."""
        now = self._clock.now()
        if now - self._shrunk >= TIDY_EVERY / 6:
            self._shrunk = now
            self._begin(self._shrink())
        for name, link in self._nodes.links.items():
            if link.online and now - self._tidied.get(name, 0.0) >= TIDY_EVERY:
                self._tidied[name] = now
                self._begin(self._tidy(link))

    async def close(self) -> None:
        """Leave everything as it is."""
        work = [*self._chores, *self._sending.values()]
        for each in work:
            each.cancel()
        await asyncio.gather(*work, return_exceptions=True)

    # ------------------------------------------------------------------ preparing

    async def _prepare(self, link: NodeLink, task: Task, line: str, tell: Callable[[str], None]) -> Prepared:
        facts, images = await self._look(link, task)
        if task.spec.image_id is not None and link.id_here(task.spec.image_id) != facts.id:
            raise ImageMissing(f"{task.spec.image} on {link.node.name} is a different image")
        user = parse_file_owner(task.spec.user or facts.user) or FileOwner()
        workdir = task.spec.workdir or (facts.workdir if facts.workdir not in ("", "/") else WORKDIR)
        snapshots = [(upload, self.store.get(upload.snapshot)) for upload in task.spec.uploads]
        tree = tree_of(snapshots, workdir)
        if facts.workdir != workdir == WORKDIR and not any(path.startswith(WORKDIR) for path in tree):
            tree[WORKDIR] = Entry("folder", 0o755)  # podman makes no folder to work in that is not there
        _check_seen(tree, facts.volumes, "the image has a volume")
        _check_seen(tree, with_settings(task.spec, link.node).mounted_at, "the task has a mount")
        key = key_of(tree, user, facts.id)
        mine = [image for image in images if image.line == line]
        found = next((image for image in mine if image.key == key), None)
        if found is None:
            found = FilesImage(line, key, upload_time(self._clock.now(), link.observation))
            await self._make(link, found, mine, tree, facts.id, user, tell)
            await self._remove_old(link, [str(image) for image in mine])
        return Prepared(str(found), workdir)

    async def _on_cluster(
        self, link: ClusterLink, task: Task, about: tuple[object, ...], tell: Callable[[str], None]
    ) -> Prepared:
        """Make sure that a login node has an archive with the files of a task.

        Those that wait for the same go on at the same moment: then they are one array.
        """
        moment, prepared = self._ready.get(about, (0.0, None))
        if prepared is not None and self._clock.now() - moment <= FRESH:
            return prepared
        if (sending := self._sending.get(about)) is None:
            sending = self._sending[about] = asyncio.create_task(self._archived(link, task, about, tell))
            sending.add_done_callback(lambda _: self._sending.pop(about, None))
            sending.add_done_callback(lambda done: done.cancelled() or done.exception())  # all may have been stopped
        return await asyncio.shield(sending)

    async def _archived(
        self, link: ClusterLink, task: Task, about: tuple[object, ...], tell: Callable[[str], None]
    ) -> Prepared:
        try:
            snapshots = [(upload, self.store.get(upload.snapshot)) for upload in task.spec.uploads]
            tree, owner, mark = job_tree(snapshots, task.spec.workdir), FileOwner(), secrets.token_hex(16)
            key = key_of(tree, owner, "")
            script = link.runtime.keep_files(key, mark)
            await send(link, script, mark, tree, owner, self.store.content, self._clock.now(), tell)
        except (Refused, StateError, UsageError) as error:
            raise RuntimeFailed(str(error)) from None
        now, prepared = self._clock.now(), Prepared(key, "")
        here = link.node.name
        self._ready = {of: had for of, had in self._ready.items() if of[0] != here or now - had[0] <= FRESH}
        self._ready[about] = now, prepared
        return prepared

    async def _look(self, link: NodeLink, task: Task) -> tuple[ImageDefaults, tuple[FilesImage, ...]]:
        files, image = link.runtime.files, task.spec.image or ""
        result = await link.run(files.look(image))
        if not result.ok:
            if any(words in result.err.lower() for words in ("no such image", "image not known")):
                raise ImageMissing(f"{link.node.name} does not have image {image}")
            link.runtime.check(result)
        return files.parse_look(result)

    async def _make(
        self,
        link: NodeLink,
        image: FilesImage,
        others: list[FilesImage],
        tree: FileTree,
        base: str,
        owner: FileOwner,
        tell: Callable[[str], None],
    ) -> None:
        """With as little as can be sent: over a version that only needs something more, else with folders of one."""
        for way in self._ways(others, tree, base, owner):
            try:
                await self._send(link, image, way, owner, tell)
            except RuntimeFailed as error:
                if way.other is None:
                    raise
                _log.info("%s: cannot build on %s: %s", link.node.name, way.other, error)
            else:
                about = {"base": base, "owner": [owner.uid, owner.gid], "layers": way.layers}
                self.store.remember(image.key, tree, about)
                return

    def _ways(self, others: list[FilesImage], tree: FileTree, base: str, owner: FileOwner) -> Iterator[_Way]:
        """How an image with this tree may be made, the best first."""
        found = [(str(other), self.store.recall(other.key)) for other in reversed(others)]
        known = [(other, had) for other, had in found if had and had["owner"] == [owner.uid, owner.gid]]
        for other, had in known:
            more = added(had["tree"], tree)
            if more is not None and had["base"] == base and had["layers"] < LAYERS:
                yield _Way(other, more, had["layers"] + 1, other=other)
        for other, had in known[:1]:
            copies, rest = reused(had["tree"], tree)
            if copies:
                yield _Way(base, rest, 1, copies, other)
        yield _Way(base, tree, 1)

    async def _send(
        self, link: NodeLink, image: FilesImage, way: _Way, owner: FileOwner, tell: Callable[[str], None]
    ) -> None:
        """Let the node make the image of what is sent to it; raises RuntimeFailed."""
        mark, tree = secrets.token_hex(16), way.tree
        script = link.runtime.files.make(way.base, image, mark, way.other or "", way.copies)
        await send(link, script, mark, tree, owner, self.store.content, self._clock.now(), tell)

    # ------------------------------------------------------------------ tidying

    async def _remove_old(self, link: NodeLink, images: list[str]) -> None:
        """Remove versions that there are newer ones of, unless a launch that is under way wants them."""
        launching = [self._tasks.live.get(task) for task in self._tasks.launching]
        wanted = {task.spec.uploads for task in launching if task}
        kept = {ready.image for about, (_, ready) in self._ready.items() if about[-1] in wanted}
        old = set(images) - kept
        self._ready = {about: ready for about, ready in self._ready.items() if ready[1].image not in old}
        with contextlib.suppress(AgentlessError):
            await link.run(link.runtime.files.tidy(sorted(old)))

    async def _tidy(self, link: NodeLink) -> None:
        """Remove from a node what nobody has needed for long, whichever controller has made it."""
        files, now = link.runtime.files, self._clock.now()
        words = (await link.run(files.tidy())).out
        old = [str(image) for image in parse_listing(words) if now - image.made > IMAGE_KEPT]
        left = [name for name, made in parse_helpers(words) if now - made > HELPER_KEPT]
        if old or left:
            await link.run(files.tidy(old, left))

    async def _shrink(self) -> None:
        live = {upload.snapshot for task in self._tasks.live.values() for upload in task.spec.uploads}
        for task in self._outputs.pending():
            wanted = self._outputs.wanted(task)
            live |= {upload.snapshot for upload in wanted.uploads} if wanted else set()
        await asyncio.to_thread(self.store.shrink, live)

    def _begin(self, work: object) -> None:
        chore = asyncio.create_task(_quietly(work))
        self._chores.add(chore)
        chore.add_done_callback(self._chores.discard)


async def _quietly(work: object) -> None:
    try:
        await work  # type: ignore[misc]
    except AgentlessError as error:
        _log.info("cleaning up after uploads: %s", error)


def _check_seen(tree: FileTree, tops: Iterable[str], what: str) -> None:
    """What is put over a folder of the image hides the files in it, also a volume that the image declares."""
    for top in map(posixpath.normpath, tops):
        hides = (path for path in tree if path.startswith(f"{top}/") or (path == top and tree[path].kind != "folder"))
        if hidden := next(hides, None):
            raise RuntimeFailed(f"{what} at {top} would hide {hidden}; upload to another folder with PATH:DEST")
