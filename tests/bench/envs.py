"""An environment of 1 GB to four nodes, and one that differs by 10 MB, against Docker's own commands over ssh."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shlex
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from agentless.controller.app import Controller
from agentless.controller.clock import SystemClock
from agentless.controller.images.distribution import ImageDistribution
from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError
from agentless.model.images.transfer import Sent
from tests.bench.fleets import real_nodes
from tests.bench.measure import Row, paired, ratio
from tests.lab import Kind, Lab, Node, requirements
from tests.lab.network import enter
from tests.lab.roots import missing_for

FIRST = "first push of 1 GB to 4 nodes : four parallel `docker save | zstd | ssh docker load`"
CHANGE = "push of a 10 MB change of it to 4 nodes : four parallel `docker save | ssh docker load`"
BYTES = "bytes to the nodes for that change : the same"
STORES = "bytes of a 10 MB change of 1 GB from {} to {} : all of the image"
PAIRS = (("new", "newer"), ("old", "new"), ("new", "old"), ("classic", "new"), ("new", "classic"))
ENGINES = {
    "old": "Docker 20.10",
    "classic": "Docker 28",
    "new": "Docker 28 with containerd's store",
    "newer": "another one with that",
}
LAYERS, LAYER, CHANGED = 8, 128 << 20, 10 << 20
TARGETS = ("node2", "node3", "node4", "node5")


def bench(runs: int) -> list[Row]:
    """The image's files are this machine's own programs, so that they can be compressed like those of an environment.

    Both sides begin with a source that has been read before. All nodes are one machine here, so that what is compared
    is the work that each way makes.
    """
    if missing := requirements():
        return [Row(what, f"≤ {most:g} ×", "; ".join(missing)) for what, most in ((FIRST, 1.1), (CHANGE, 0.2))]
    return [*_in_time(runs), *_across_stores()]


def _across_stores() -> list[Row]:
    """What goes to an engine that has the base, whatever image store the two engines have; each pair once."""
    names = {pair: STORES.format(*(ENGINES[name] for name in pair)) for pair in PAIRS}
    if missing := missing_for("sid"):
        return [Row(what, "≤ 0.05 ×", "; ".join(missing)) for what in names.values()]
    rows = []
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab, asyncio.Runner() as runner:
        lab.add_node("old")
        for name in ("classic", "new", "newer"):
            lab.add_suite_node(name, Kind(containerd=name != "classic"))
        with _controller(lab, runner) as (sync, links):
            archive = _write_base(lab)
            for name in ENGINES:
                _said(lab.nodes[name], f"docker load -q -i {archive}")
            archive.unlink()
            for (source, target), what in names.items():
                changed = _change(lab.nodes[source], "bench/base:1")
                size = int(_said(lab.nodes[source], f"docker save {changed} | wc -c"))
                runner.run(_awake(links.values()))
                sent = runner.run(sync.send(changed, links[source], [links[target]], tags=["bench/env:1"]))[target]
                assert isinstance(sent, Sent), sent
                for name in (source, target):
                    _said(lab.nodes[name], "docker image rm -f bench/env:1 bench/changed:1 || :")
                rows.append(_bytes_row(what, [(float(sent.sent), float(size))]))
    return rows


def _in_time(runs: int) -> list[Row]:
    with real_nodes("node1", *TARGETS) as lab, asyncio.Runner() as runner, _controller(lab, runner) as (sync, links):
        source = lab.nodes["node1"]
        base = _make_base(lab, source)
        changed = _change(source, base)
        size = int(_said(source, f"docker save {base} | wc -c"))
        moved: list[int] = []

        def ours(image: str) -> float:
            targets = [links[name] for name in TARGETS]
            runner.run(_awake(links.values()))
            began = time.perf_counter()
            sent = runner.run(sync.send(image, links["node1"], targets, tags=["bench/env:1"]))
            seconds = time.perf_counter() - began
            assert all(isinstance(each, Sent) for each in sent.values()), sent
            moved.append(sum(each.sent for each in sent.values() if isinstance(each, Sent)))
            _remove(lab, image)
            return seconds

        def theirs(image: str, pack: str, unpack: str) -> float:
            ssh = f"ssh -F {lab.home}/.ssh/config"
            each = [
                f"docker save {image} {pack}| {ssh} {name} {shlex.quote(f'{unpack} docker load -q')} >/dev/null &"
                for name in TARGETS
            ]
            began = time.perf_counter()
            _said(source, "\n".join([*each, "wait"]))
            seconds = time.perf_counter() - began
            for name in TARGETS:
                _said(lab.nodes[name], f"docker image inspect {image}")
            _remove(lab, image)
            return seconds

        pairs = max(1, runs // 7)
        first = paired(lambda: ours(base), lambda: theirs(base, "| zstd -q ", "zstd -q -d |"), pairs)
        for name in TARGETS:
            _said(source, f"docker save {base} | DOCKER_HOST=unix://{lab.nodes[name].docker_socket} docker load -q")
        moved.clear()
        change = paired(lambda: ours(changed), lambda: theirs(changed, "", ""), pairs)
        bytes_ = [(float(each), float(len(TARGETS) * (size + CHANGED))) for each in moved[1:]]
        return [ratio(FIRST, 1.1, first), ratio(CHANGE, 0.2, change), _bytes_row(BYTES, bytes_)]


@contextlib.contextmanager
def _controller(lab: Lab, runner: asyncio.Runner) -> Iterator[tuple[ImageDistribution, dict[str, NodeLink]]]:
    """What sends, as the controller has it, in this process."""
    state, home = lab.root / "state", os.environ.get("HOME", "")
    state.mkdir()
    os.environ["HOME"] = str(lab.home)

    async def start() -> Controller:
        controller = Controller(state, lab.inventory, SystemClock())
        await controller.start()
        await asyncio.gather(*(link.ready() for link in controller.nodes.links.values()))
        return controller

    controller = runner.run(start())
    try:
        yield ImageDistribution(), controller.nodes.links
    finally:
        runner.run(controller.close())
        os.environ["HOME"] = home


async def _awake(links: Iterable[NodeLink]) -> None:
    """All nodes answer. While the others had their turn nothing here did, and sshd closes such connections."""
    for link in links:
        async with asyncio.timeout(60):
            while True:
                with contextlib.suppress(AgentlessError):
                    await link.ready()
                    await link.refresh()
                    break
                await asyncio.sleep(0.1)


def _make_base(lab: Lab, source: Node) -> str:
    """Load an image of so many layers; gives its id."""
    archive = _write_base(lab)
    _said(source, f"docker load -q -i {archive}")
    archive.unlink()
    return _said(source, "docker image inspect -f '{{.Id}}' bench/base:1").strip()


def _write_base(lab: Lab) -> Path:
    """The archive of such an image, `bench/base:1`."""
    archive, blocks, layers, digests = lab.root / "base.tar", _blocks(), [], []
    with tarfile.open(archive, "w") as out:
        for number in range(LAYERS):
            data = io.BytesIO()
            with tarfile.open(fileobj=data, mode="w") as layer:
                _add(layer, f"opt/part{number}", b"".join(next(blocks) for _ in range(LAYER >> 20)))
            layers.append(f"{number}.tar")
            digests.append(f"sha256:{hashlib.sha256(data.getvalue()).hexdigest()}")
            _add(out, layers[-1], data.getvalue())
        config = {"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": digests}}
        _add(out, "config.json", json.dumps(config).encode())
        manifest = [{"Config": "config.json", "RepoTags": ["bench/base:1"], "Layers": layers}]
        _add(out, "manifest.json", json.dumps(manifest).encode())
    return archive


def _blocks() -> Iterator[bytes]:
    """MiB after MiB of this machine's programs and libraries; from the beginning again when there are not enough."""
    while True:
        rest = b""
        for root in ("/usr/lib", "/usr/bin"):
            for file in sorted(Path(root).rglob("*")):
                if file.is_file() and not file.is_symlink():
                    rest += file.read_bytes()
                    while len(rest) >= 1 << 20:
                        yield rest[: 1 << 20]
                        rest = rest[1 << 20 :]


def _change(source: Node, base: str) -> str:
    """The same with a file more; gives its id."""
    with source.dir.joinpath("change").open("wb") as file:
        blocks = _blocks()
        file.writelines(next(blocks) for _ in range(CHANGED >> 20))
    make = f"docker create --name change {base} true && docker cp {source.dir}/change change:/opt/change"
    _said(source, f"{make} && docker commit change bench/changed:1 && docker rm change")
    return _said(source, "docker image inspect -f '{{.Id}}' bench/changed:1").strip()


def _add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = len(data)
    tar.addfile(entry, io.BytesIO(data))


def _remove(lab: Lab, image: str) -> None:
    for name in TARGETS:
        _said(lab.nodes[name], f"docker image rm --force {image}")
    os.sync()  # what one side has written does not keep the disk busy in the other's time


def _said(node: Node, script: str) -> str:
    # Not `node.sh`, which gives up after a minute.
    argv = [*enter(node.dir / "net"), "sh", "-ec", script]
    done = subprocess.run(argv, env=node.env(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


def _bytes_row(what: str, pairs: list[tuple[float, float]]) -> Row:
    row = ratio(what, 0.05, pairs)
    mine, others = pairs[-1]
    measured = f"**{mine / others:.4f} ×** ({mine / 1e6:.1f} MB : {others / 1e6:.0f} MB)"
    return Row(row.what, row.bound, measured, row.passed)
