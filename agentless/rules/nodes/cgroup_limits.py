"""Options that an engine ignores with a warning because it lacks a control group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from agentless.model.nodes.node import Control, EngineFacts, NodeConfig

_DOES: Mapping[Control, tuple[str, str]] = {
    "memory": ("limit memory", "--memory"),
    "cpu": ("limit cores", "--cores"),
    "cpuset": ("pin to a NUMA node", "the NUMA node"),
    "freezer": ("pause", ""),
}
_FIX = (
    "enable it in the kernel (cgroup_enable=memory) or, for a rootless engine, delegate it with systemd "
    "(Delegate=cpu cpuset io memory pids for user@.service)"
)


def lacking(
    engine: EngineFacts | None, *, bare: bool, cores: float, memory: float, numa: int | None
) -> tuple[Control, ...]:
    """The control groups that the engine lacks for a task. A task without an engine (`bare`) lacks none."""
    if engine is None or bare or not engine.lacks:
        return ()
    wanted: Mapping[Control, bool] = {"memory": memory > 0, "cpu": cores > 0, "cpuset": numa is not None}
    return tuple(control for control, is_wanted in wanted.items() if is_wanted and control in engine.lacks)


def why_lacking(node: NodeConfig, control: Control) -> str:
    """Why a task that needs this control group does not fit on the node."""
    verb, option = _DOES[control]
    without = f"; omit {option} or use another node" if option else ""
    return f"{node.engine_title} on {node.name} cannot {verb}: the {control} control group is missing{without}"


def what_it_lacks(node: NodeConfig, lacks: Iterable[Control]) -> str:
    """Everything that the engine cannot do, with the fix."""
    found = sorted(lacks)
    verbs = ", ".join(_DOES[control][0] for control in found)
    return f"{node.engine_title} cannot {verbs}: missing control groups: {', '.join(found)}; {_FIX}"
