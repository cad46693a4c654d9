"""Images from node to node, on real engines: what travels, and what is left when something goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentless.controller.app import Controller
from agentless.controller.clock import SystemClock
from agentless.controller.images import distribution, upload
from agentless.controller.images.distribution import ImageDistribution
from agentless.controller.images.upload import UploadJob
from agentless.errors import AgentlessError, RuntimeFailed, Unreachable
from agentless.model.images.transfer import Progress, Sent
from tests.lab import Lab, Node
from tests.real.cli import until

MB = 1_000_000
LAYER = 3
LAYERS = 5
TAG = "agentless/env:1"


@dataclass
class World:
    """A controller in this process, and the nodes from the inside."""

    lab: Lab
    controller: Controller
    distribution: ImageDistribution

    async def send(self, image: str, *to: str, source: str = "node1", **how) -> dict[str, Sent | AgentlessError]:
        links = self.controller.nodes.links
        targets = [links[name] for name in to or ("node2",)]
        async with asyncio.timeout(60):
            return await self.distribution.send(image, links[source], targets, tags=[TAG], **how)

    def node(self, name: str = "node2") -> Node:
        return self.lab.nodes[name]

    def has(self, name: str = "node2") -> list[str]:
        """The ids of the images there, without that of every node."""
        lines = said(self.node(name), "docker image ls --no-trunc --format '{{.ID}} {{.Repository}}'").split("\n")
        return sorted({line.split()[0] for line in lines if line and "busybox" not in line})

    async def rest(self, name: str = "node2") -> None:
        """Nothing of a transfer runs there any more, and the engine has thrown away what it was given."""
        tmp = self.node(name).dir / "docker" / "tmp"

        def quiet() -> bool:
            left = [line for _, line in self.node(name).leftovers() if "docker load" in line or "docker save" in line]
            return not left and not list(tmp.glob("docker-*"))

        await asyncio.to_thread(until, quiet)


def said(node: Node, script: str) -> str:
    done = node.sh(f"set -e\n{script}")
    assert done.returncode == 0, done
    return done.stdout


def layer(node: Node, base: str, tag: str, megabytes: int = LAYER) -> str:
    """Make an image with a layer more; gives its id."""
    write = f"head -c {megabytes * MB} /dev/urandom >/{tag.replace(':', '-')}"
    return said(
        node,
        f"docker run --name make {base} sh -c '{write}' && docker commit make {tag} >/dev/null\n"
        f"docker rm make >/dev/null && docker image inspect --format '{{{{.Id}}}}' {tag}",
    ).strip()


@pytest.fixture(scope="module")
def image(lab: Lab) -> Iterator[str]:
    """An image of five layers on node1."""
    node = lab.nodes["node1"]
    base = "busybox"
    for number in range(LAYERS):
        found = layer(node, base, tag := f"made:{number}")
        base = tag
    yield found
    clean(node)


@pytest.fixture
async def world(lab: Lab, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("HOME", str(lab.home))
    monkeypatch.setattr(upload, "STEP", 4 * MB)
    controller = Controller(tmp_path, lab.inventory, SystemClock())
    await controller.start()
    await asyncio.gather(*(link.ready() for link in controller.nodes.links.values()))
    yield World(lab, controller, ImageDistribution())
    await controller.close()
    clean(lab.nodes["node2"])
    left = [line for node in lab.nodes.values() for _, line in node.leftovers()]
    assert not [line for line in left if any(word in line for word in ("docker load", "docker save", "zstd", "dd bs"))]


def clean(node: Node) -> None:
    """Remove all images but that of every node, the newest first: others are made of the older ones."""
    ours = "docker image ls --no-trunc --format '{{.ID}} {{.Repository}}' | grep -v busybox | cut -d ' ' -f 1"
    said(node, f"ids=$({ours}) || exit 0; docker image rm --force $ids >/dev/null 2>&1 || :")


def layers_of(image: str) -> str:
    return f"docker image inspect --format '{{{{json .RootFS.Layers}}}}' {image}"


def sent(found: dict[str, Sent | AgentlessError], name: str = "node2") -> Sent:
    outcome = found[name]
    assert isinstance(outcome, Sent), outcome
    return outcome


def failed(found: dict[str, Sent | AgentlessError], name: str = "node2") -> AgentlessError:
    outcome = found[name]
    assert isinstance(outcome, AgentlessError), outcome
    return outcome


@pytest.fixture(autouse=True)
def each_piece_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what is done at a share of a transfer would now and then be done after all of it."""
    monkeypatch.setattr(upload, "TELL_EVERY", 0.0)


class At:
    """Does something once so much has been sent."""

    def __init__(self, share: float, act: Callable[[], object]) -> None:
        self._wanted, self._act = share * LAYER * LAYERS * MB, act
        self.sent = 0
        self.done = False

    def __call__(self, progress: Progress) -> None:
        self.sent = max(self.sent, progress.sent)
        if not self.done and self.sent >= self._wanted:
            self.done = True
            self._act()


# ------------------------------------------------------------------------- what travels


async def test_only_the_layers_that_a_node_lacks_travel_and_the_second_time_none(world: World, image: str) -> None:
    first = sent(await world.send(image))
    assert (first.how, first.layers_sent, first.layers) == ("layers", LAYERS, LAYERS + 1)
    assert world.has() == [image]
    second = sent(await world.send(image))
    assert (second.how, second.sent) == ("current", 0)
    changed = layer(world.node("node1"), image, "changed:1", 1)
    third = sent(await world.send(changed))
    assert third.layers_sent == 1
    assert MB < third.sent < 1.1 * MB
    assert "changed-1" in said(world.node(), f"docker run --rm {TAG} ls").split()
    make = (
        f"docker create --name make {changed} true && docker commit --change 'LABEL a=b' make other:1; docker rm make"
    )
    said(world.node("node1"), make)
    other = said(world.node("node1"), "docker image inspect --format '{{.Id}}' other:1").strip()
    fourth = sent(await world.send(other))
    assert fourth.layers_sent == 0
    assert fourth.sent < 10_000
    assert other in world.has()


async def test_one_reading_is_for_all_requests_that_it_is_enough_for(world: World, image: str) -> None:
    source = world.controller.nodes.links["node1"]
    job = UploadJob(await world.distribution._describe(image, source), source, (), lambda _: None)
    async with (
        world.distribution._reads.take(job, 1, None) as first,
        world.distribution._reads.take(job, 3, None) as second,
    ):
        assert second is first
        top = await second.spool.find(job.image.layers[-1])
        async with asyncio.timeout(20):
            assert len(b"".join([piece async for piece in second.spool.read(top)])) > LAYER * MB
    await world.rest("node1")


@pytest.mark.slow
async def test_a_node_without_zstd_takes_it_as_it_is_or_by_gzip(
    world: World, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with without(world.node(), "zstd"):
        assert sent(await world.send(image)).sent > LAYER * LAYERS * MB
        clean(world.node())
        monkeypatch.setattr(distribution, "FAST", math.inf)
        assert sent(await world.send(image)).layers_sent == LAYERS
    assert world.has() == [image]


@pytest.mark.slow
async def test_nodes_that_reach_each_other_need_nobody_between_them(
    world: World, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with stand_in(world.node("node1"), "ssh", f'exec /usr/bin/ssh -F {world.lab.home}/.ssh/config "$@"'):
        assert sent(await world.send(image, via="straight")).how == "straight"
        assert world.has() == [image]
        clean(world.node())
        monkeypatch.setattr(distribution, "SLOW", math.inf)
        assert sent(await world.send(image)).how == "straight"
    assert said(world.node(), f"docker image inspect -f '{{{{.Id}}}}' {TAG}").strip() == image


async def test_a_node_that_does_not_know_the_other_is_not_asked_twice(world: World, image: str) -> None:
    assert "cannot ssh to node2" in str(failed(await world.send(image, via="straight")))


@pytest.mark.slow
async def test_a_shared_folder_holds_the_archive_until_it_is_read(world: World, image: str, tmp_path: Path) -> None:
    folder = tmp_path / "shared folder"
    folder.mkdir()
    assert sent(await world.send(image, via="shared", shared_dir=str(folder))).how == "shared"
    assert world.has() == [image]
    assert list(folder.iterdir()) == []


async def test_a_file_that_somebody_has_changed_in_the_shared_folder_is_refused(
    world: World, image: str, tmp_path: Path
) -> None:
    def tamper(progress: Progress) -> None:
        for file in tmp_path.glob("shared/agentless-*") if "reading" in progress.step else ():
            with file.open("r+b") as archive:
                archive.seek(5 * MB)
                archive.write(b"tampered")

    tmp_path.joinpath("shared").mkdir()
    found = await world.send(image, via="shared", shared_dir=f"{tmp_path}/shared", tell=tamper)
    assert "does not match its ID" in str(failed(found))
    assert world.has() == []


NONSENSE = "printf '%05000d\\n' 1"
"""A number that Python does not read."""


async def test_a_size_that_makes_no_sense_is_a_failure_of_the_source(world: World, image: str, tmp_path: Path) -> None:
    with stand_in(world.node("node1"), "wc", NONSENSE), pytest.raises(RuntimeFailed, match="node1: "):
        await world.send(image, via="shared", shared_dir=str(tmp_path))
    assert "agentless-" not in said(world.node(), f"ls {tmp_path}")


@pytest.mark.slow
async def test_answers_that_make_no_sense_straight_from_a_node_are_failures(
    world: World, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.node("node1")
    said = "case $1 in s/^/0*) cat >/dev/null; echo '0 code x' ;; *) exec /usr/bin/sed \"$@\" ;; esac"
    with stand_in(node, "ssh", f'exec /usr/bin/ssh -F {world.lab.home}/.ssh/config "$@"'):
        with stand_in(node, "sed", said):
            assert isinstance(failed(await world.send(image, via="straight")), RuntimeFailed)
        await world.rest()
        clean(world.node())
        with stand_in(node, "wc", NONSENSE):
            with pytest.raises(RuntimeFailed, match="node1 gave an answer that cannot be read"):
                await world.send(image, via="straight")
            await world.rest()
            clean(world.node())
            monkeypatch.setattr(distribution, "SLOW", math.inf)
            assert sent(await world.send(image)).how == "layers"


HARM = """
import io, json, sys, tarfile
harm = sys.argv[1]
given = tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()))
files = {each.name: given.extractfile(each).read() for each in given if each.isfile()}
if harm == "names":
    config = {"os": "linux", "architecture": "amd64", "rootfs": {"type": "layers", "diff_ids": []}}
    other = {"Config": "evil.json", "RepoTags": ["python:3.11"], "Layers": []}
    entries = json.loads(files["manifest.json"])
    entries[0]["RepoTags"] = ["python:3.11", "agentless/env:9"]
    files |= {"manifest.json": json.dumps([*entries, other]).encode(), "evil.json": json.dumps(config).encode()}
    files |= {"repositories": json.dumps({"python": {"3.11": "0" * 64}}).encode(), "../../../../../evil": b"x"}
    if "index.json" in files:
        index = json.loads(files["index.json"])
        named = {"io.containerd.image.name": "docker.io/library/python:3.11"}
        named["org.opencontainers.image.ref.name"] = "3.11"
        for each in index["manifests"]:
            each["annotations"] = named
        files["index.json"] = json.dumps(index).encode()
else:
    name = max(files, key=lambda each: len(files[each]))
    files[name] = files[name][:600000] + b"tampered" + files[name][600008:]
out = tarfile.open(fileobj=sys.stdout.buffer, mode="w|")
for name, data in files.items():
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    out.addfile(entry, io.BytesIO(data))
out.close()
"""


def hostile(node: Node, harm: str) -> contextlib.AbstractContextManager[None]:
    """A node that saves other archives: with more names and images, or with other bytes in the largest layer."""
    save = f"/usr/bin/docker \"$@\" | python3 -c '{HARM}' '{harm}'"
    return stand_in(node, "docker", f'case " $* " in *" save "*) {save} ;; *) exec /usr/bin/docker "$@" ;; esac')


async def is_not_fooled(world: World, image: str, harm: str, source: str, target: str, **how: str) -> None:
    """What the target has under names that were not meant stays, and an image with other content does not come."""
    other = world.node(target)
    said(other, "docker tag busybox python:3.11")
    before = world.has(target), said(other, "docker image inspect -f '{{.Id}}' python:3.11")
    with hostile(world.node(source), harm):
        found = await world.send(image, target, source=source, **how)
    if harm == "names":
        assert sent(found, target).how == how["via"]
        assert said(world.node(source), layers_of(image)) == said(other, layers_of(TAG))
        said(other, f"docker image rm {TAG}")
    else:
        assert "does not match its ID" in str(failed(found, target))
    assert (world.has(target), said(other, "docker image inspect -f '{{.Id}}' python:3.11")) == before
    said(other, "! docker image inspect agentless/env:9 2>&1; docker image rm python:3.11")


async def test_a_hostile_archive_in_a_shared_folder_names_nothing(world: World, image: str, tmp_path: Path) -> None:
    await is_not_fooled(world, image, "names", "node1", "node2", via="shared", shared_dir=str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("harm", ["names", "bytes"])
async def test_a_hostile_archive_straight_from_a_node_is_taken_for_what_was_meant_or_refused(
    world: World, image: str, harm: str
) -> None:
    with stand_in(world.node("node1"), "ssh", f'exec /usr/bin/ssh -F {world.lab.home}/.ssh/config "$@"'):
        await is_not_fooled(world, image, harm, "node1", "node2", via="straight")


# ---------------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    "share", [pytest.param(0.1, marks=pytest.mark.slow), 0.5, pytest.param(0.9, marks=pytest.mark.slow)]
)
@pytest.mark.slow
async def test_a_cut_link_costs_no_layer_that_was_there(world: World, image: str, share: float) -> None:
    cut = At(share, world.node().kill_connections)
    assert isinstance(failed(await world.send(image, tell=cut)), Unreachable)
    await world.rest()
    assert image not in world.has()
    held = max((len(json.loads(said(world.node(), layers_of(each)))) for each in world.has()), default=1)
    assert held > 1 or share < 0.9
    again = sent(await world.send(image))
    assert again.layers_sent == LAYERS + 1 - held
    assert again.sent < (LAYERS + 1.1 - held) * LAYER * MB
    assert world.has() == [image], "what held the layers meanwhile is still there"


@pytest.mark.slow
async def test_a_full_disk_is_said_and_nothing_is_kept(world: World, image: str) -> None:
    node = world.node()
    with small_disk(node, 12 * MB):
        error = failed(await world.send(image))
        assert isinstance(error, RuntimeFailed)
        assert "the disk of node2 is full" in str(error)
        await world.rest()
        assert world.has() == []


@pytest.mark.slow
async def test_an_image_that_goes_away_meanwhile_is_named(world: World, image: str) -> None:
    gone = layer(world.node("node1"), "busybox", "gone:1")
    links = world.controller.nodes.links
    await world.distribution._describe(gone, links["node1"])  # it is asked for, and then removed
    said(world.node("node1"), "docker rmi gone:1")
    with pytest.raises(RuntimeFailed, match=r"node1 no longer has image"):
        await world.send(gone)
    await world.rest()


@pytest.mark.slow
async def test_two_pushes_at_once_are_one(world: World, image: str) -> None:
    both = await asyncio.gather(world.send(image), world.send(image))
    assert sorted(sent(found).how for found in both) == ["current", "layers"]
    assert world.has() == [image]


@pytest.mark.slow
async def test_two_controllers_end_well(world: World, image: str) -> None:
    links = world.controller.nodes.links
    other = ImageDistribution()
    first, second = await asyncio.gather(
        world.send(image), other.send(image, links["node1"], [links["node2"]], tags=[TAG])
    )
    assert sent(first).image == sent(second).image == image
    assert world.has() == [image]


async def test_a_tampered_layer_is_refused_and_nothing_of_it_is_kept(world: World, image: str) -> None:
    # What the source saves has other bytes in a layer than the image says.
    forge = (
        'case " $* " in *" save "*) /usr/bin/docker "$@" | sed s/agentless-innocent/agentless-tampered/g ;; '
        '*) exec /usr/bin/docker "$@" ;; esac'
    )
    said(
        world.node("node1"),
        "docker run --name make busybox sh -c 'echo agentless-inno\"\"cent >/f' && docker commit make innocent:1\n"
        "docker rm make",
    )
    innocent = said(world.node("node1"), "docker image inspect -f '{{.Id}}' innocent:1").strip()
    with stand_in(world.node("node1"), "docker", forge):
        error = failed(await world.send(innocent))
    assert "does not match its ID" in str(error)
    await world.rest()
    assert world.has() == []


@pytest.mark.slow
async def test_a_request_that_is_cancelled_ends_everything_on_the_nodes(world: World, image: str) -> None:
    begun = asyncio.Event()
    sending = asyncio.create_task(world.send(image, tell=At(0.2, begun.set)))
    await begun.wait()
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await world.rest("node1")
    await world.rest("node2")
    assert image not in world.has()


@contextlib.contextmanager
def stand_in(node: Node, program: str, script: str) -> Iterator[None]:
    """Another program of this name on the node."""
    at = node.dir / "bin" / program
    assert not at.exists()
    at.write_text(f"#!/bin/sh\n{script}\n")
    at.chmod(0o755)
    try:
        yield
    finally:
        at.unlink()


@contextlib.contextmanager
def without(node: Node, program: str) -> Iterator[None]:
    """The sessions on the node do not find this program."""
    rest, config = node.dir / "rest", node.dir / "sshd_config"
    rest.mkdir()
    for found in Path("/usr/bin").iterdir():
        if found.name != program:
            rest.joinpath(found.name).symlink_to(found)
    before = config.read_text()
    node.stop_sshd()
    config.write_text(before.replace(":/usr/bin:/bin", f":{rest}"))
    node.start_sshd()
    try:
        yield
    finally:
        node.stop_sshd()
        config.write_text(before)
        node.start_sshd()
        shutil.rmtree(rest)


@contextlib.contextmanager
def small_disk(node: Node, size: int) -> Iterator[None]:
    """The engine's folder is on a file system of its own, in which so many bytes are free."""
    folder = node.dir / "docker"
    node.stop_docker()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    node.start_docker()
    try:
        said(node, f"docker load -q -i {node.dir.parent}/image.tar")
        yield
    finally:
        node.stop_docker()
        subprocess.run(["umount", "--lazy", folder], check=True)
        node.start_docker()
