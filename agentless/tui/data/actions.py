"""The actions on tasks, nodes and workflows: their keys, and when they apply."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from agentless.client.client import Client
from agentless.client.words import WAITING, command_line, running, state, where
from agentless.client.workflow_graph import counts_in_words
from agentless.errors import AgentlessError, Refused
from agentless.model.tasks.task import LIVE
from agentless.model.tasks.task_id import numbered
from agentless.model.units import counted
from agentless.tui.data.cluster import Row, is_vps


@dataclass(frozen=True, slots=True)
class Action:
    """An action: its key, and its name in the line of keys and in the help.

    `effect` says what it will do, in the question before it; None: nothing is asked. `reason`: the question takes
    one. `changes`: it changes something, and a read-only dashboard does not offer it. `shown`: its key is in the
    line of keys, not only in the help.
    """

    name: str
    key: str
    title: str
    help: str
    effect: str | None = None
    reason: bool = False
    changes: bool = True
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Target:
    """The chosen task, node and workflow, as far as there are any."""

    task: Row | None
    node: Row | None
    workflow: Row | None = None


ACTIONS = (
    Action("submit", "n", "New", "submit a task; in the view of VPS, create one"),
    Action("again", "N", "Copy", "edit and submit a copy of the task or VPS", shown=False),
    Action("logs", "l", "Logs", "read and follow the output of the task", changes=False),
    Action("shell", "s", "Shell", "open a shell in the container of the task"),
    Action("describe", "d", "Details", "show reason, events and script of the task", changes=False, shown=False),
    Action(
        "stop",
        "T",
        "Stop",
        "stop the task or VPS: SIGTERM, then SIGKILL",
        "Sends SIGTERM now, and SIGKILL if it is still running after its grace period.",
    ),
    Action(
        "kill",
        "K",
        "Kill",
        "kill the task immediately: SIGKILL",
        "Sends SIGKILL immediately: the program cannot save anything.",
        shown=False,
    ),
    Action("pause", "p", "Pause", "pause or resume the task", shown=False),
    Action("retry", "R", "Retry", "submit the ended task again"),
    Action("start", "R", "Start", "start the stopped VPS with the same GPUs"),
    Action(
        "restart",
        "R",
        "Restart",
        "stop the VPS and start it again",
        "Ends all programs that run in it, and starts it again with the same GPUs. Its files stay.",
        shown=False,
    ),
    Action(
        "anywhere",
        "A",
        "Start anywhere",
        "start the VPS on other GPUs or another node",
        "If its GPUs are taken or its node is away: uses others, in a new container from a snapshot. Mounted folders "
        "of the node do not move.",
        shown=False,
    ),
    Action("snapshots", "v", "Snapshots", "list, make and restore snapshots of the VPS", changes=False),
    Action("resize", "z", "Resize", "change cores, memory or GPUs of the VPS", shown=False),
    Action("forward", "P", "Port", "forward a port of the task, and open it", shown=False),
    Action(
        "remove",
        "x",
        "Remove",
        "delete the ended task or VPS, its files and log",
        "Deletes it, its container with all files in it, and its log. This cannot be undone.",
        shown=False,
    ),
    Action("batch", "B", "Batch", "show all tasks of its batch, with their values", changes=False, shown=False),
    Action("workflow", "W", "Workflow", "show the workflow of the task as a graph", changes=False, shown=False),
    Action(
        "stop_workflow",
        "T",
        "Stop all",
        "stop all jobs of the workflow",
        "Cancels its jobs that wait. Sends SIGTERM to those that run, and SIGKILL after their grace period.",
    ),
    Action("retry_workflow", "R", "Retry failed", "run again the jobs that did not complete"),
    Action(
        "remove_workflow",
        "x",
        "Remove",
        "delete the ended workflow with all its tasks",
        "Deletes all its tasks, their containers, logs and artifacts. This cannot be undone.",
        shown=False,
    ),
    Action("top", "U", "To the top", "move the pending task to the top of the queue"),
    Action(
        "drain",
        "D",
        "Drain",
        "start no new tasks on the node",
        "No new tasks start on it until you resume it. Its running tasks keep running.",
        reason=True,
    ),
    Action(
        "resume_node",
        "E",
        "Resume node",
        "end the drain of the node; try a degraded one again",
        "New tasks start on it again. Unhealthy GPUs stay out.",
    ),
)


MANY = ("stop", "kill", "pause", "retry", "remove", "top", "drain", "resume_node")
"""The actions that apply to all marked rows."""
_NAMED = 5
"""The most tasks or nodes that a question names."""


def _is_ended(row: Row) -> bool:
    return row["ended_at"] is not None


_OF_TASK: Mapping[str, Callable[[Row], bool]] = {
    "again": lambda _: True,
    "describe": lambda _: True,
    "batch": lambda task: bool(task.get("parameters") or task.get("batch") != task.get("id")),
    "workflow": lambda task: bool(task.get("workflow")),
    "logs": lambda task: task["state"] not in WAITING,
    "shell": lambda task: task["state"] == "running",
    "forward": lambda task: task["state"] == "running",
    "stop": lambda task: task["state"] in LIVE,
    "kill": lambda task: task["state"] in LIVE,
    "pause": lambda task: task["state"] in ("running", "paused"),
    "retry": lambda task: _is_ended(task) and not is_vps(task),
    "remove": _is_ended,
    "top": lambda task: task["state"] == "pending",
    "start": lambda task: is_vps(task) and task["state"] not in LIVE,
    "restart": lambda task: is_vps(task) and task["state"] in ("running", "paused"),
    "anywhere": lambda task: is_vps(task) and (task["state"] == "lost" or task["state"] not in LIVE),
    "snapshots": lambda task: is_vps(task) and task["state"] not in WAITING,
    "resize": lambda task: is_vps(task) and task["state"] not in WAITING,
}
_OF_NODE: Mapping[str, Callable[[Row], bool]] = {
    "drain": lambda node: not node["drained"],
    "resume_node": lambda node: node["drained"] or node["state"] != "online",
}
_OF_WORKFLOW: Mapping[str, Callable[[Row], bool]] = {
    "stop_workflow": lambda workflow: not _is_ended(workflow),
    "retry_workflow": lambda workflow: (
        workflow["state"] != "stopping" and bool({*workflow["counts"]} - {*LIVE, "completed"})
    ),
    "remove_workflow": _is_ended,
}
_BESIDE_WORKFLOW = ("stop", "kill", "retry", "remove")
"""The actions on a task whose keys mean the whole workflow where one is chosen."""


def applies(act: str, target: Target) -> bool:
    """Whether an action makes sense for what is chosen."""
    if target.workflow is not None and act in _BESIDE_WORKFLOW:
        return False
    for row, table in ((target.task, _OF_TASK), (target.node, _OF_NODE), (target.workflow, _OF_WORKFLOW)):
        if act in table:
            return row is not None and table[act](row)
    return True


def about(act: Action, target: Target) -> str:
    """The name of what it applies to; empty if that is nothing."""
    if act.name in _NODE and target.node:
        return f"node {target.node['name']}"
    if act.name in _WORKFLOW and target.workflow:
        return f"workflow {target.workflow['id']} ({target.workflow['name']})"
    if act.name == "submit" or target.task is None:
        return ""
    if is_vps(target.task):
        return f"VPS {target.task['name']}"
    return f"task {target.task['id']}" + (f" ({target.task['name']})" if target.task["name"] else "")


def inapplicable(key: str, target: Target) -> str:
    """Why the key of an action does nothing for what is chosen, in a sentence."""
    acts = [act for act in ACTIONS if act.key == key]
    act = next((act for act in acts if about(act, target)), acts[0])
    what, chosen = about(act, target), target.task
    if act.name in _NODE:
        chosen = target.node
    elif act.name in _WORKFLOW:
        chosen = target.workflow
    if not what or chosen is None:
        return f"{act.title} ({key}) applies to a {_kind(act)}; none is selected"
    if act.name == "batch":
        return f"{what} has no batch: it was submitted alone"
    if act.name == "workflow":
        return f"{what} is in no workflow"
    return f"{act.title} ({key}) does not apply: {what} is {chosen['state']}"


def details(act: Action, target: Target) -> list[str]:
    """More about what it applies to, so that you can see that it is the right one."""
    task, node = target.task, target.node
    if act.name in _NODE and node:
        return [f"{node['state']}, {running(node)}" + (f": {node['reason']}" if node["reason"] else "")]
    if act.name in _WORKFLOW and target.workflow:
        workflow = target.workflow
        return [f"{workflow['state']}, owner {workflow['owner']}", counts_in_words(workflow["counts"])]
    if task is None:
        return []
    place = f" on {where(task)}" if task["node"] else ""
    what = command_line(task) or f"image {task['image']}"
    return [f"{state(task)}{place}, owner {task['owner']}", what]


def question(act: Action, targets: Sequence[Target]) -> tuple[str, list[str]]:
    """What to ask before an action, and more about what it applies to."""
    verb = act.title.partition(" ")[0]
    if len(targets) == 1:
        return f"{verb} {about(act, targets[0])}?", details(act, targets[0])
    named = [f"{about(act, target)}, {details(act, target)[0]}" for target in targets[:_NAMED]]
    more = [f"and {len(targets) - _NAMED} more"] if len(targets) > _NAMED else []
    return f"{verb} {counted(len(targets), _kind(act))}?", named + more


def effect(act: Action, targets: Sequence[Target]) -> str:
    """What an action will do to these; empty if nothing is to be asked."""
    if act.name in ("stop", "kill") and all(target.task and target.task["state"] in WAITING for target in targets):
        return "Cancels it: it has not started." if len(targets) == 1 else "Cancels them: they have not started."
    if act.name == "pause":
        tasks = [target.task for target in targets if target.task and target.task["state"] == "running"]
        return "" if all(task["mine"] for task in tasks) else "Not your own: it does nothing until resumed."
    if act.name == "resume_node" and not all(target.node and target.node["drained"] for target in targets):
        return "New tasks start on it again, also on its unhealthy GPUs."
    return act.effect or ""


def _kind(act: Action) -> str:
    return "node" if act.name in _NODE else "task"


class Done(NamedTuple):
    """What came of an action, in words, and the row that the controller answered with."""

    words: str
    found: Row


Undo = Callable[[Client], str]
"""Takes an action back, and says so; raises AgentlessError."""


def perform_all(client: Client, act: Action, targets: Sequence[Target], reason: str = "") -> tuple[str, list[Undo]]:
    """Do it to each; what came of it in words, and what takes it back. Raises the error if none was done."""
    done: list[str] = []
    undo: list[Undo] = []
    failures: dict[str, AgentlessError] = {}
    for target in targets:
        try:
            words, found = perform(client, act.name, target, reason)
        except AgentlessError as error:
            failures[about(act, target)] = error
            continue
        done.append(words)
        if (back := undone(act.name, target, found)) is not None:
            undo.append(back)
    if len(failures) == len(targets):
        raise next(iter(failures.values()))
    if len(targets) > 1:
        done = [f"{act.title}: done for {counted(len(done), _kind(act))}"]
    return "\n".join([*done, *(f"{name}: {error}" for name, error in failures.items())]), undo[::-1]


def undone(act: str, target: Target, found: Row) -> Undo | None:
    """What takes an action back, of which this was found; None if nothing does.

    A node that somebody else has drained or resumed since stays as it is.
    """
    task, node = target.task, target.node
    match act:
        case "drain" if node:
            return lambda client: _undrain(client, str(node["name"]), found)
        case "resume_node" if node and node["drained"]:
            reason, by, _ = str(node["reason"]).partition(" (by ")  # without a reason it begins with `by`
            return lambda client: _drain_again(client, str(node["name"]), reason if by else "")
        case "pause" if task:
            after = "running" if task["state"] == "paused" else "paused"
            return lambda client: perform(client, "pause", Target({**task, "state": after}, None)).words
        case "top" if task and task["position"]:
            where_it_was = {"position": task["position"]}
            return lambda client: outcome(client.post(f"{path_of(task)}/move", where_it_was))
        case _:
            return None


def perform(client: Client, act: str, target: Target, reason: str = "") -> Done:
    """Ask the controller for it; raises AgentlessError."""
    task, node = target.task, target.node
    if node is not None and act in _NODE:
        return _NODE[act](client, node, reason)
    if target.workflow is not None and act in _WORKFLOW:
        found = _WORKFLOW[act](client, f"/v1/workflows/{target.workflow['id']}")
        return Done(f"Workflow {found['id']} ({found['name']}) is {found['state']}", found)
    if task is None:
        raise AssertionError("an act is about a task, a node or a workflow")
    found = _VPS[act](client, path_of_vps(task)) if is_vps(task) and act in _VPS else _TASK[act](client, task)
    return Done(outcome(found), found)


def outcome(task: Row) -> str:
    """What a task or VPS is now, in a sentence."""
    name = task["name"] if is_vps(task) else task["id"]
    return f"{name} is {task['state']}" + (f": {task['reason']}" if task["reason"] else "")


def path_of(task: Row) -> str:
    """The API path of exactly this try: the bare id of the first one means all tries."""
    return f"/v1/tasks/{numbered(task['id'])}"


def path_of_vps(task: Row) -> str:
    """The API path of exactly this VPS: another one may have got its name."""
    return f"/v1/vps/{task['id']}"


def started(answer: Row) -> Row:
    """A VPS that was started; its reason is what is left of an earlier container."""
    return {**answer["task"], "reason": answer["message"] or answer["task"]["reason"]}


def _pause(client: Client, task: Row) -> Any:
    return client.post(f"{path_of(task)}/{'resume' if task['state'] == 'paused' else 'pause'}")


def _remove(client: Client, task: Row) -> Any:
    return client.delete(path_of(task)) | {"state": "removed", "reason": ""}


def _remove_vps(client: Client, path: str) -> Any:
    return client.delete(path) | {"state": "removed", "reason": ""}


def _resume_node(client: Client, node: Row, _: str) -> Done:
    """End a drain, and nothing else, so that an undo brings all of it back."""
    return _resume(client, str(node["name"]), drain_only=bool(node["drained"]))


def _resume(client: Client, node: str, *, drain_only: bool) -> Done:
    found = client.post(f"/v1/nodes/{node}/resume", {"drain_only": drain_only})
    lifted = "; ".join(found["lifted"])
    return Done(f"{node}: resumed ({lifted})" if lifted else f"{node}: nothing to resume", found)


def _drain(client: Client, node: Row, reason: str) -> Done:
    found = client.post(f"/v1/nodes/{node['name']}/drain", {"reason": reason or None})
    return Done(f"{node['name']}: drained, {running(found)}", found)


def _drain_again(client: Client, node: str, reason: str) -> str:
    """Take a resume back."""
    now = client.get(f"/v1/nodes/{node}")
    if now["drained"]:
        raise Refused(f"{node} is drained again by now; nothing was changed")
    return _drain(client, now, reason).words


def _undrain(client: Client, node: str, drained: Row) -> str:
    """Take a drain back, and nothing else: the unhealthy GPUs of the node stay out."""
    now = client.get(f"/v1/nodes/{node}")
    if not now["drained"]:
        raise Refused(f"{node} is not drained any more; nothing was changed")
    if now["state"] == drained["state"] == "drained" and now["reason"] != drained["reason"]:
        raise Refused(f"{node} was drained anew: {now['reason']}; nothing was changed. To resume it, press E")
    return _resume(client, node, drain_only=True).words


_TASK: dict[str, Callable[[Client, Row], Any]] = {
    "stop": lambda client, task: client.post(f"{path_of(task)}/stop", {}),
    "kill": lambda client, task: client.post(f"{path_of(task)}/kill"),
    "pause": _pause,
    "retry": lambda client, task: client.post(f"{path_of(task)}/retry"),
    "remove": _remove,
    "top": lambda client, task: client.post(f"{path_of(task)}/move", {"position": 1}),
}
_VPS: dict[str, Callable[[Client, str], Any]] = {
    "stop": lambda client, path: client.post(f"{path}/stop", {}),
    "start": lambda client, path: started(client.post(f"{path}/start")),
    "restart": lambda client, path: started(client.post(f"{path}/restart", {})),
    "anywhere": lambda client, path: started(client.post(f"{path}/start", {"anywhere": True})),
    "remove": _remove_vps,
}
_WORKFLOW: dict[str, Callable[[Client, str], Any]] = {
    "stop_workflow": lambda client, path: client.post(f"{path}/stop", {}),
    "retry_workflow": lambda client, path: client.post(f"{path}/retry", {}),
    "remove_workflow": lambda client, path: client.delete(path) | {"state": "removed"},
}
_NODE: dict[str, Callable[[Client, Row, str], Done]] = {"drain": _drain, "resume_node": _resume_node}
