"""What the controller remembers is torn."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tests.faults.scene import Scene, kill_controller
from tests.real.cli import Cli

EVERY = 512
TASKS = 12
BRIEFLY = 3


def torn(scene: Scene) -> None:
    """`state.json` is truncated at every 512th byte while no controller runs; `state.json.last` is whole"""
    for who, state, whole, last in _truncations(scene):
        state.write_bytes(whole)
        state.with_name("state.json.last").write_bytes(last)
        scene.heard(who("ps"))


def torn_twice(scene: Scene) -> None:
    """`state.json` and its copy are truncated at every 512th byte; both are moved away, and `recover` is run"""
    for who, state, whole, last in _truncations(scene):
        copy = state.with_name("state.json.last")
        state.write_bytes(whole)
        copy.write_bytes(last[: min(len(whole), len(last) - 1)])
        done = scene.heard(who("ps", code=1))
        scene.expect("move both away" in done.err, f"ps said {done}")
        state.unlink()
        copy.unlink()
        who("recover", "--yes")


def _truncations(scene: Scene) -> Iterator[tuple[Cli, Path, bytes, bytes]]:
    """Somebody without a controller, the path of their state, what is left of it, and its last copy."""
    who = scene.person()
    tasks = [scene.submit(who, "node1::0", "--", "sleep", "3000")]
    tasks += [scene.submit(who, "node2", "--", "sleep", "3000") for _ in range((BRIEFLY if scene.quick else TASKS) - 1)]
    state = who.state / "state.json"
    whole, last = state.read_bytes(), state.with_name("state.json.last").read_bytes()
    for size in (EVERY,) if scene.quick else range(0, len(whole), EVERY):
        kill_controller(who)
        yield who, state, whole[:size], last
        scene.injected += 1
        scene.check(f"{size} bytes of {len(whole)}")
        seen = {task["id"] for task in who.get("/v1/tasks") if task["mine"]}
        scene.expect(seen == set(tasks), f"{set(tasks) - seen} are not one's own any more")
    scene.clear()
    kill_controller(who)  # it would warn of the torn file as long as it lives
