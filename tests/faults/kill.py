"""`kill -9` of the controller: before every single step of what it does, and at random."""

from __future__ import annotations

import itertools
import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path

from tests.faults.judge import tasks
from tests.faults.scene import WAITING, Scene, controller, end_controller, go, kill_controller
from tests.real.cli import Cli

HOOK = Path(__file__).parent / "hook"
BRIEFLY = {"disk": (9, 1), "net": (3, 1)}
"""The step of each kind that is taken when it has to be quick: all is saved and nothing sent; sent and not answered.
What does not come that far is killed before its first one."""


class Countdown:
    """Somebody whose controller can be told to die before its N-th step from now, see `hook`."""

    def __init__(self, scene: Scene) -> None:
        self._file = scene.lab.root / "step"
        self._died_at = scene.lab.root / "step.at"
        self.who = scene.person("counted", PYTHONPATH=str(HOOK), AGENTLESS_FAULTS_STEP=str(self._file))

    def start(self, steps: str) -> None:
        """From now; `disk 3` is the third step that has to do with a file."""
        fresh = self._file.with_suffix(".new")
        fresh.write_text(steps)
        fresh.replace(self._file)

    def died(self) -> str:
        """Before which step, empty when it has not come that far; no other one dies of it any more."""
        self._file.unlink(missing_ok=True)
        if not self._died_at.exists():
            return ""
        step = self._died_at.read_text(errors="replace")
        self._died_at.unlink()
        return step


def submit(scene: Scene) -> None:
    """SIGKILL to the controller before its 1st, 2nd, 3rd … step from a submit with a secret on"""

    def operation(countdown: Countdown, step: str) -> None:
        countdown.start(step)
        scene.end(scene.begin(countdown.who, "node1::0", "-s", "TOKEN=hush", "--", "sleep", "300"))

    def runs(who: Cli) -> None:
        for task in tasks(who):
            scene.expect(task["state"] == "running", f"{task['id']} is {task['state']}: {task['reason']}")

    _every_step(scene, operation, runs)


def stop(scene: Scene) -> None:
    """The same from a stop on, of a task that has to be killed; who was told of no end asks again"""

    def operation(countdown: Countdown, step: str) -> None:
        task = scene.submit(countdown.who, "node1::0", "--", "sleep", "300")
        countdown.start(step)
        done = scene.heard(countdown.who("stop", task, "--grace", "0.3s", code=None))
        if done.code:
            done = scene.heard(countdown.who("stop", task, "--grace", "0.3s", code=None))
        scene.expect(done.out == f"{task}  stopped (137)\n", f"stop said {done}")

    _every_step(scene, operation)


def finish_(scene: Scene) -> None:
    """The same from the end of a task on, which somebody waits for"""

    def operation(countdown: Countdown, step: str) -> None:
        task = scene.submit(countdown.who, "node1::0", "--", *WAITING)
        waiting = countdown.who.start_request("wait", task)
        countdown.start(step)
        go(scene.lab.nodes["node1"], task)
        done = scene.finish(waiting)
        scene.expect(done.code == 7, f"wait said {done}")

    _every_step(scene, operation)


def start(scene: Scene) -> None:
    """The same from the start of a controller on, with one task that runs and one that has ended meanwhile"""

    def operation(countdown: Countdown, step: str) -> None:
        who = countdown.who
        task = scene.submit(who, "node1::0", "--", *WAITING)
        scene.submit(who, "node1::1", "--", "sleep", "300")
        kill_controller(who)
        go(scene.lab.nodes["node1"], task)
        countdown.start(step)
        scene.heard(who("ps", code=None))

    _every_step(scene, operation)


def _every_step(
    scene: Scene, operation: Callable[[Countdown, str], None], then: Callable[[Cli], None] | None = None
) -> None:
    """Again and again, one step further each time, until the operation is through before it comes to that step.

    Each time `then` looks at what became of it. When it has to be quick, until a controller has died.
    """
    countdown = Countdown(scene)
    for kind, few in BRIEFLY.items():
        before = scene.injected
        for number in few if scene.quick else itertools.count(1):
            operation(countdown, step := f"{kind} {number}")
            scene.check(f"before step {step}")
            if then:
                then(countdown.who)
            if died := bool(countdown.died()):
                scene.injected += 1
            else:
                end_controller(countdown.who)  # or it would die of the next steps
            scene.clear()
            if died == scene.quick:
                break
        scene.expect(scene.injected > before, f"no controller has come to a step of the {kind}")


def at_random(scene: Scene) -> None:
    """SIGKILL to the controller at a random moment of a task's life, submit to end, stop, pause or removal"""
    who = scene.person()
    for _ in scene.times(2, 200):
        timer = threading.Timer(scene.chance.uniform(0, 1.5), os.kill, (controller(who), signal.SIGKILL))
        timer.start()
        _life(scene, who)
        timer.join()
        scene.check()


def _life(scene: Scene, who: Cli) -> None:
    target = scene.chance.choice(("node1::0", "node2::1", "node1::0,1", "node2"))
    done = scene.end(scene.begin(who, target, "--", *WAITING))
    if done.code:
        return
    task = done.out.strip()
    match scene.chance.choice(("finish", "stop", "kill", "pause", "rm", "run")):
        case "finish":
            go(scene.lab.nodes[target.partition("::")[0]], task)
            done = scene.heard(who("wait", task, code=None))
            scene.expect(done.code == 7, f"wait said {done}")
        case "stop":
            scene.heard(who("stop", task, "--grace", "0.2s", code=None))
        case "kill":
            scene.heard(who("kill", task, code=None))
        case "pause":
            scene.heard(who("pause", task, code=None))
            scene.heard(who("resume", task, code=None))
        case "rm":
            if scene.heard(who("rm", "--force", task, code=None)).code == 0:
                scene.judge.release(task)
