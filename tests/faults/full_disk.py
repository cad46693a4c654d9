"""No space is left in the state folder."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.scene import WAITING, Scene, go, kill_controller
from tests.real.cli import Cli, Done, until

SIZE = 8 << 20
PAGE = 4096

Later = Callable[[], bool]
"""What is left to do when there is space again; gives whether the operation was done as if nothing had been."""


def submit(scene: Scene) -> None:
    """The disk of the state folder (a tmpfs) has 0, 1, 2, 3 … pages left when a task with a secret is submitted"""

    def operation(who: Cli, _: str) -> Later:
        done = scene.end(scene.begin(who, "node1::0", "-s", "TOKEN=hush", "--", "sleep", "300"))
        return lambda: done.code == 0

    _ever_more(scene, operation)


def stop(scene: Scene) -> None:
    """The same when a task is stopped"""

    def operation(who: Cli, task: str) -> Later:
        done = scene.heard(who("stop", task, "--grace", "0.2s", code=None))
        return lambda: done.code == 0

    _ever_more(scene, operation)


def end(scene: Scene) -> None:
    """The same when a task ends that somebody waits for, who hears of it when there is space again"""

    def operation(who: Cli, task: str) -> Later:
        waiting = who.start_request("wait", task)
        go(scene.lab.nodes["node1"], task)
        until(lambda: waiting.poll() is not None or _warnings(who))
        return lambda: told(scene.finish(waiting))

    def told(done: Done) -> bool:
        scene.expect(done.code == 7, f"wait said {done}")
        return True

    _ever_more(scene, operation)


def start(scene: Scene) -> None:
    """The same when a controller starts, after one that was killed and a task that has ended meanwhile"""

    def operation(who: Cli, task: str) -> Later:
        kill_controller(who)
        go(scene.lab.nodes["node1"], task)
        done = scene.heard(who("ps", code=None))
        scene.expect(done.code == 0, f"ps said {done}")
        return lambda: True

    _ever_more(scene, operation)


def _ever_more(scene: Scene, operation: Callable[[Cli, str], Later]) -> None:
    """With a page more each time, until the operation goes through as if nothing were."""
    with _small_disk(scene, scene.lab.root / "xdg" / "cramped" / "state") as disk:
        who = scene.person("cramped")
        for pages in (1,) if scene.quick else itertools.count():
            task = scene.submit(who, "node1::1", "--", *WAITING)
            other = scene.submit(who, "node2", "--", "sleep", "300")
            who("controller", "stop")  # or SQLite goes on in pages that it has
            who("ps")
            with _full(disk, pages):
                later = operation(who, task)
                warned = _warnings(who)
            through = later() and not warned
            scene.check(f"{pages} pages left")
            kill_controller(who)
            scene.check(f"{pages} pages left, and a new controller")
            scene.expect(who.task(other)["state"] == "running", f"{other} does not run any more")
            scene.clear()
            if through:
                break
            scene.injected += 1
        kill_controller(who)


def _warnings(who: Cli) -> list[str]:
    found: list[str] = who.get("/v1/controller")["warnings"]
    return found


@contextlib.contextmanager
def _small_disk(scene: Scene, folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        scene.read_logs()  # while they are there
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextlib.contextmanager
def _full(disk: Path, pages: int) -> Iterator[None]:
    """All of it is taken but so many pages."""
    filler = disk / "filler"
    with filler.open("wb") as file:
        free = os.statvfs(disk)
        os.posix_fallocate(file.fileno(), 0, free.f_bavail * free.f_frsize - pages * PAGE)
    try:
        yield
    finally:
        filler.unlink()
