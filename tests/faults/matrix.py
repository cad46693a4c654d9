"""All faults by name, and how one is run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping

from tests.faults import driver, engine, full_disk, kill, link, race, ssh, state_file
from tests.faults.scene import Row, Scene

FAULTS: Mapping[str, Callable[[Scene], None]] = {
    "controller killed in a submit": kill.submit,
    "controller killed in a stop": kill.stop,
    "controller killed at a task's end": kill.finish_,
    "controller killed at its start": kill.start,
    "controller killed at random": kill.at_random,
    "two controllers, one GPU": race.races,
    "connection killed at a launch": ssh.connection_at_launch,
    "a launch that comes late": ssh.late_launch,
    "connection killed at random": ssh.connection_at_random,
    "sshd killed": ssh.server,
    "link down": link.cut,
    "engine stopped": engine.stopped,
    "engine killed": engine.killed,
    "container removed": engine.removed,
    "state file torn": state_file.torn,
    "state file and its copy torn": state_file.torn_twice,
    "disk full at a submit": full_disk.submit,
    "disk full at a stop": full_disk.stop,
    "disk full at a task's end": full_disk.end,
    "disk full at a controller's start": full_disk.start,
    "nvidia-smi hangs": driver.hangs,
    "nvidia-smi lies": driver.lies,
    "a GPU gone": driver.loses,
    "MIG reconfigured under a task": driver.reconfigures,
    "driver updated under a task": driver.is_updated,
    "an AMD card gone under a task": driver.loses_amd,
}


IN_BRIEF = ("connection killed at a launch",)
"""For `make test`, which has tests of its own for most of the others."""
RARER = (
    "controller killed in a submit",
    "two controllers, one GPU",
    "a launch that comes late",
    "engine killed",
    "disk full at a submit",
    "MIG reconfigured under a task",
    "driver updated under a task",
    "an AMD card gone under a task",
)
"""For `make slow`."""


def run(name: str, scene: Scene) -> Row:
    """Let one fault happen as often as it has to, and judge. Whatever goes wrong is in the row, and raises nothing."""
    fault = FAULTS[name]
    scene.open()
    with scene.surviving():
        fault(scene)
    return scene.row(name, str(inspect.getdoc(fault)))


def table(rows: Iterable[Row]) -> str:
    """Markdown."""
    lines = ["| fault | how injected | how often | what the user saw | lost | double |", "|---|---|--:|---|--:|--:|"]
    for row in rows:
        saw = "; ".join(f"{words} ({count}×)" for words, count in row.saw.most_common(4)) or "nothing"
        cells = (row.fault, row.how, f"{row.injected:,}", saw.replace("|", "\\|"), len(row.lost), len(row.double))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)
