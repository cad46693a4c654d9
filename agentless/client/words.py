"""Published values as words, for tables and lines."""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from agentless.model.containers.job_id import job_number
from agentless.model.moment import format_moment
from agentless.model.nodes.device import GpuNumber, number_of
from agentless.model.tasks.port import Port
from agentless.model.tasks.task_id import first_try
from agentless.model.text import cut, program_of
from agentless.model.units import SIZE_UNITS, counted, format_duration, format_indices, format_size, short_duration

WAITING = ("pending", "scheduled", "blocked", "submitted")
"""The states of a task that has not started."""


_INSIDE = 16
"""The most characters of the compute nodes of a task in a line; of more there is only their number."""
_DAY = 86400.0
_NAMED = 3
"""The most nodes of a cluster that are named in a line."""


def state(task: dict[str, Any]) -> str:
    """The state, with an exit code that is not 0."""
    code = task["exit_code"]
    return str(task["state"]) + (f" ({code})" if code else "")


def job_of(task: dict[str, Any]) -> str | None:
    """The number of the job that a task is on its cluster, None for one on a node."""
    return job_number(task.get("container"))


def command_line(task: dict[str, Any]) -> str:
    """The command, as it would be typed."""
    return shlex.join(task["command"])


Texts = list[tuple[str, list[str]]]
"""Obstacles, each with its details."""


def explained(found: dict[str, Any]) -> list[tuple[list[str], Texts, list[str]]]:
    """What `explain` says of nodes: the obstacles, and what would help. Nodes of which it says the same are one row."""
    groups: list[tuple[list[str], Texts, list[str]]] = []
    for name in dict.fromkeys((*(each["node"] for each in found["obstacles"]), *found["remedies"])):
        texts = [(each["text"], list(each["details"])) for each in found["obstacles"] if each["node"] == name]
        helps = list(found["remedies"].get(name, ()))
        alike = next((nodes for nodes, *its in groups if its == [texts, helps]), None)
        if alike is None:
            groups.append(([name], texts, helps))
        else:
            alike.append(name)
    return groups


def ports(task: dict[str, Any]) -> str:
    """The ports that are forwarded, as they would be typed."""
    return ", ".join(str(Port(**each)) for each in task.get("ports") or ())


def variables(spec: dict[str, Any]) -> list[str]:
    """The variables of a spec, as they would be typed; of a secret one only the name."""
    plain = [f"{name}={shlex.quote(value)}" for name, value in spec["env"].items()]
    return [*plain, *(f"{name} (secret)" for name in spec["secret_env"])]


def gpu_model(gpu: dict[str, Any]) -> str:
    """The model of a GPU without the words that all have; of a slice its profile."""
    if gpu.get("profile"):
        return f"MIG {gpu['profile']}"
    return str(gpu["name"] or "-").removeprefix("NVIDIA ").removeprefix("GeForce ")


def gpu_state(gpu: dict[str, Any]) -> str:
    """The state of a GPU; of a free one also what is on it, or that it was assumed: `free (desktop)`."""
    if is_reserved(gpu, time.time()):
        return "reserved"
    if gpu["state"] != "free":
        return str(gpu["state"])
    return "free (assumed)" if gpu.get("assumed") else "free (desktop)" if gpu.get("desktop") else "free"


def gpu_sentence(gpu: dict[str, Any]) -> str:
    """A GPU as a sentence without signs: `node1 GPU 0, A100, is free. Utilization 3 percent, …`."""
    numbers = [
        (gpu["utilization_pct"], "utilization {} percent"),
        (gpu["memory_used_mib"], f"memory {memory(gpu['memory_used_mib'])} of {memory(gpu['memory_total_mib'])}"),
        (gpu["temperature_c"], "{} degrees"),
        (gpu["power_w"], "{:.0f} watts"),
    ]
    known = ", ".join(words.format(value) for value, words in numbers if value is not None)
    reason = gpu_reason(gpu)
    state = f"is {gpu_state(gpu)}" + (f": {reason}" if reason else "")
    numbers_of = f" {known[0].upper()}{known[1:]}." if known else ""
    return f"{gpu['node']} GPU {gpu_number(gpu)}, {gpu_model(gpu)}, {state}.{numbers_of}"


def gpu_reason(gpu: dict[str, Any]) -> str:
    """Why a GPU is not free; of a free one what is on it that keeps no task from it, or why it was assumed."""
    if gpu["state"] != "free":
        return str(gpu["reason"])
    programs = ", ".join(program_words(each) for each in gpu.get("desktop") or ())
    return "; ".join(filter(None, (gpu["reason"], gpu.get("assumed"), programs)))


def is_reserved(gpu: dict[str, Any], now: float) -> bool:
    """Whether a GPU is free, but for those alone for whom it is reserved now."""
    known, is_free = gpu.get("reservation"), gpu["state"] in ("free", "reserved")
    return is_free and known is not None and unix_time(known["begins_at"]) <= now


def reserved(gpu: dict[str, Any]) -> str:
    """Its reservation where there is little room: `reserved for ann until 18:00 (deadline)`; empty if it has none."""
    known = gpu.get("reservation")
    if not known:
        return gpu["reserved"] or ""  # controllers of older versions have only the words
    begin, end, now = unix_time(known["begins_at"]), unix_time(known["ends_at"]), time.time()
    word, moment = ("from", begin) if begin > now else ("until", end)
    when = f"{word} {format_moment(moment)[11 if moment - now < _DAY else 5 : 16]}"
    because = f" ({known['reason']})" if known["reason"] else ""
    return f"reserved for {known['owner'] or 'maintenance'} {when}{because}"


def program_words(process: dict[str, Any]) -> str:
    """A program of a desktop on a GPU, and its GPU memory if that is known."""
    name = program_of(str(process["name"] or ""))
    return name if process["memory_mib"] is None else f"{name} ({memory(process['memory_mib'])})"


def where(task: dict[str, Any]) -> str:
    """The node and GPUs, like `node1::0,1`; what a task asks for if it has none, or never had any.

    On a cluster what it asks for, and its compute nodes: `hpc 1x (c1)`.
    """
    if inside := task.get("compute_nodes"):
        several = _on_nodes(task) if len(inside) > _INSIDE else ""
        return short_target(task["target"]) + (several or f" ({cut(inside, _INSIDE)})")
    if task["node"] is None or job_of(task) or (task["state"] in (*WAITING, "cancelled") and not task["gpu_uuids"]):
        return short_target(task["target"]) + _on_nodes(task)
    return place(task["node"], task["gpus"] if task["gpu_uuids"] else ())


def place(node: str, gpus: Sequence[GpuNumber]) -> str:
    """GPUs of a node, as short as they can be typed: `node1::0,1`, `node1::0-3,6`."""
    return short_target(f"{node}::{','.join(map(str, gpus))}" if gpus else node)


def short_target(target: str) -> str:
    """The target with ranges where more than two of its GPUs follow each other."""
    return re.sub(r"(?<=::)[0-9,/]+", lambda listed: format_indices(map(number_of, listed[0].split(","))), target)


def gpu_number(gpu: dict[str, Any]) -> GpuNumber:
    """The number of a GPU or slice; controllers of older versions only give the index."""
    number: GpuNumber | None = gpu.get("number")
    return gpu["index"] if number is None else number


def gpu_place(gpu: dict[str, Any]) -> str:
    """A GPU or slice as a target: `node1::0`, `node1::0/1`."""
    return f"{gpu['node']}::{gpu_number(gpu)}"


def gpu_column(gpu: dict[str, Any]) -> str:
    """The model for a table: a slice belongs to the GPU above it."""
    return f"{'└ ' if gpu.get('parent') else ''}{gpu_model(gpu)}"


def ssh_sessions(sessions: dict[str, Any]) -> str:
    """How much of a node's SSH server is in use, and its limit if that is known."""
    number, used = sessions["connections"], sessions["used"]
    text = f"{counted(number, 'connection')}, {counted(used, 'session')} in use"
    if sessions["total"] is None:
        return text
    return f"{text} of {sessions['total']} (MaxSessions {sessions['each']})"


def why(task: dict[str, Any]) -> str:
    """The reason for its state; empty if there is none."""
    return task["reason"] or ""


def requirements(requires: Sequence[dict[str, Any]]) -> str:
    """The tasks and batches that a task waits for, as they are typed: `2mxf, 2mxg:failed, batch 2mxh`."""
    words = dict[object, list[str]]()
    for number, each in enumerate(requires):
        end = "" if each["state"] == "completed" else f":{each['state']}"
        words.setdefault(each.get("one_of") or (number,), []).append(f"{'batch ' * each['batch']}{each['on']}{end}")
    return ", ".join(" or ".join(group) for group in words.values())


def ending(task: dict[str, Any]) -> str | None:
    """How it ended, in a line with its reason; None if it completed."""
    if task["state"] == "completed":
        return None
    name = task["id"]
    if gang := task.get("gang"):
        name = gang["id"] + name.removeprefix(first_try(name))  # the id that is known for all of its nodes
    reason = task["reason"]
    if task["state"] == "timeout" and task["time_limit"]:  # a job of a cluster may have that of its partition
        reason = reason or f"reached its time limit of {format_duration(task['time_limit'])}"
    return f"{name}  {state(task)}" + (f": {reason}" if reason else "")


def members(task: dict[str, Any], tasks: Iterable[dict[str, Any]]) -> list[str]:
    """The members of a task's gang in the same try, each with its rank, place and state; `tasks` are those known."""
    mates = _mates(task, tasks)
    return [f"rank {rank}: {each['id']}, {where(each)}, {state(each)}" for rank, each in mates.items()]


def whole(task: dict[str, Any], tasks: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The task; the first member of a gang stands for all of it, so it has the end of the one that has failed."""
    from agentless.model.tasks.task import FAILED  # noqa: PLC0415 - most commands need nothing of it

    mates = _mates(task, tasks) if task.get("gang") and not rank_of(task) else {}
    failed = next((each for each in mates.values() if each["state"] in FAILED), task)
    return task | {key: failed[key] for key in ("state", "exit_code", "reason")}


def asked_for(task: dict[str, Any]) -> str:
    """Its target; of a member of a gang also how many nodes it is on, unless each member has a target of its own."""
    target = short_target(task["target"])
    return (
        f"{target} on {task['gang']['size']} nodes"
        if task.get("gang") and "::" not in target
        else target + _on_nodes(task)
    )


def _on_nodes(task: dict[str, Any]) -> str:
    """On how many nodes the job of a task is, after its target; empty for one node."""
    return f" on {nodes} nodes" if (nodes := task.get("job_nodes", 1)) > 1 else ""


def _mates(task: dict[str, Any], tasks: Iterable[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """The members of a task's gang in the same try, by rank."""
    key = _gang(task)
    mates = {each["gang"]["rank"]: each for each in (tasks if key else ()) if _gang(each) == key}
    return dict(sorted(mates.items()))


def rank(task: dict[str, Any]) -> str:
    """The rank of a member of a gang: `0/4`, and for those below it `└ 1/4`."""
    gang = task.get("gang")
    return f"{'└ ' if gang['rank'] else ''}{gang['rank']}/{gang['size']}" if gang else ""


def in_gangs(tasks: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The tasks, of each gang all members by rank, where the first of them was."""
    gangs: dict[object, list[dict[str, Any]]] = {}
    for number, task in enumerate(tasks):
        gangs.setdefault(_gang(task) or number, []).append(task)
    return [task for one in gangs.values() for task in sorted(one, key=rank_of)]


def _gang(task: dict[str, Any]) -> tuple[str, int] | None:
    """What the members of a gang have in common in one try."""
    return (task["gang"]["id"], task["attempt"]) if task.get("gang") else None


def rank_of(task: Mapping[str, Any]) -> int:
    """The rank of a member of a gang as a number; 0 for any other task."""
    return int(task["gang"]["rank"]) if task.get("gang") else 0


def tries(task: dict[str, Any]) -> str | None:
    """Which of its tries it is; None if it is not tried again. Tries that were preempted do not count."""
    number = task["attempt"] - task.get("preemptions", 0)
    return f"{number} of {task['retries'] + 1}" if task["retries"] else None


def preempted(task: dict[str, Any]) -> str | None:
    """How often it was preempted; None if it never was."""
    times = task.get("preemptions", 0)
    return counted(times, "time") if times else None


def process_words(process: dict[str, Any]) -> str:
    """A process on a GPU: its user, its command, and its GPU memory."""
    size = "" if process["memory_mib"] is None else f", {memory(process['memory_mib'])}"
    whose = f"{process['user']}'s process" if process["user"] else "process"
    return f"{whose} {process['pid']} ({process['command'] or process['name'] or 'unknown program'}{size})"


_HAPPENED = {
    "blocked-by": "Waits for other tasks", "delayed": "Delayed", "queued": "Queued",
    "moved": "Moved in the queue", "gave-up": "Gave up waiting",
    "assigned": "Assigned", "met": "Reachable by each other",
    "step": "Starting", "job-queued": "In the queue of the cluster",
    "launched": "Started", "launch-failed": "Start failed",
    "refused": "Refused", "unplaced": "Queued again", "stop-asked": "Stop requested", "froze": "Paused",
    "thawed": "Resumed", "exited": "Exited", "restarted": "Restarted", "vanished": "Container gone",
    "adopted": "Container found", "lost-contact": "Node unreachable", "recalled": "Restored", "retried": "Retried",
    "intruded": "GPU used by a foreign process", "unhealthy": "GPU unhealthy", "idle": "GPUs idle",
    "busy-again": "GPUs in use", "brought": "Outputs copied", "shell-opened": "Shell opened",
    "ssh-opened": "Logged in by ssh", "ssh-closed": "Logged out", "start-asked": "Start requested",
    "not-started": "Not started", "snapshot-saved": "Snapshot saved", "snapshot-failed": "Snapshot failed",
    "resized": "Resized", "replaced": "In a new container", "stops-soon": "Stops soon", "goes-on": "Used again",
    "terms-changed": "Terms changed", "preempts": "Preempts others", "place-lost": "Place not free in time",
    "handed-over": "Handed over", "handed-back": "Refused by the cluster, waits for nodes",
    "requeued": "Back in the queue", "asker-ended": "Place not needed any more",
    "removed": "Removed",
}  # fmt: skip


def happened(event: dict[str, Any]) -> str:
    """An event of a task: `Assigned to node1::0`, `Stop requested`, `Exited: failed (3)`."""
    name, task = event["event"], event["task"]
    words = _HAPPENED.get(name, name.replace("-", " ").capitalize())
    if name == "assigned":
        return f"{words} to {where(task)}"
    if name == "handed-over":
        return f"{words} to {task['node']}"
    if name == "job-queued" and why(task).startswith("job "):
        return f"In the queue of {task['node']} as {why(task)}"
    ends = task["ended_at"] is not None and name not in ("retried", "removed", "gave-up")
    return f"{words}: {state(task)}" if ends else words


def gpus_by_type(numbers: Mapping[str, int]) -> str:
    """The GPUs of a cluster or one of its nodes: `4xa100,2xh100`, `8x` without a type."""
    return ",".join(f"{count}x{kind}" for kind, count in numbers.items()) or "-"


def free_gpus(having: dict[str, Any]) -> str:
    """The free GPUs of a cluster or one of its nodes, of all: `6/8`."""
    return f"{having['gpus_free']}/{sum(having['gpus'].values())}"


def free_in_words(cluster: dict[str, Any]) -> str:
    """Likewise: `6 of 8 GPUs free`."""
    return f"{cluster['gpus_free']} of {counted(sum(cluster['gpus'].values()), 'GPU')} free"


def cluster_reason(cluster: dict[str, Any]) -> str:
    """Why a cluster is not online, and as of when its nodes are known; empty if it is online."""
    why, known = cause_of(cluster["name"], cluster["reason"]), local(cluster["asked_at"])
    return f"as of {known}: {why}" if why and known else why


def nodes_out(cluster: dict[str, Any]) -> str:
    """The nodes of a cluster that get no new jobs: `2 nodes out: c2 (fan broken), c7 (down)`; empty if all do."""
    if not cluster["nodes_out"]:
        return ""
    named = [f"{name} ({why})" for name, why in cluster["out"].items()][:_NAMED]
    more = cluster["nodes_out"] - len(named)
    return f"{counted(cluster['nodes_out'], 'node')} out: {', '.join(named)}" + (f" and {more} more" if more else "")


def unix_time(text: str) -> float:
    """Unix seconds of a published time."""
    return datetime.fromisoformat(text).timestamp()


def starts(task: dict[str, Any]) -> str | None:
    """The time within which it starts, or after which it enters the queue; None if that is unknown, or past."""
    word = "after" if task["scheduled_for"] else "in about" if task["about"] else "within"
    coming = task["scheduled_for"] or task["expected_start"]
    return coming and f"{word} {format_duration(unix_time(coming) - time.time())}"


def running(node: dict[str, Any]) -> str:
    """How many tasks run on a node."""
    count = node["tasks"]
    if count is None:
        return f"its tasks are unknown: {node['reason']}"
    return f"{counted(count, 'task')} still running" if count else "no tasks running"


def ran(task: dict[str, Any]) -> str:
    """How long it runs or ran; of a pending task the time until it starts, if that is known."""
    if coming := starts(task):
        return coming
    began = task["started_at"]
    if began is None:
        return "-"
    ended = unix_time(task["ended_at"]) if task["ended_at"] else time.time()
    return format_duration(ended - unix_time(began))


def left(task: dict[str, Any]) -> str:
    """How long a running task may still run: `3h10m left`; without a limit how long it has run: `for 2h`.

    From a minute on, in whole minutes.
    """
    if task["started_at"] is None:
        return ran(task)
    runs = time.time() - unix_time(task["started_at"])
    seconds = task["time_limit"] - runs if task["time_limit"] else runs
    rough = short_duration(seconds if seconds < 60 else seconds - seconds % 60)
    return f"{rough} left" if task["time_limit"] else f"for {rough}"


def lasted(workflow: dict[str, Any]) -> str:
    """How long a workflow takes or took, its time in the queue included."""
    ended = unix_time(workflow["ended_at"]) if workflow["ended_at"] else time.time()
    return format_duration(ended - unix_time(workflow["created_at"]))


def idle(gpu: dict[str, Any]) -> str:
    """How long the task that holds it has not used it; empty if that is not reported."""
    since = gpu["idle_since"]
    return f" (idle for {format_duration(time.time() - unix_time(since))})" if since else ""


def local(text: str | None) -> str | None:
    """A published time in the local time zone: `2026-11-22 08:00:00+01:00`."""
    return None if text is None else format_moment(unix_time(text), "seconds")


def date(text: str) -> str:
    """The local time for a table: `11-22 08:00+01:00`, with the year if it is not this one."""
    this_year, then = format_moment(time.time())[:5], format_moment(unix_time(text))
    return then.removeprefix(this_year)


def memory(mib: int | None) -> str:
    """Memory that is published in MiB: `61.2 GiB`, `-` if it is not known."""
    return "-" if mib is None else format_size(mib << 20)


def memory_in_use(gpu: dict[str, Any]) -> str:
    """How much of the memory of a GPU is in use: `61.2/80 GiB`; `unified` if it is the machine's."""
    used, total = gpu["memory_used_mib"], memory(gpu["memory_total_mib"])
    whose = " unified" if gpu.get("unified") else ""
    return "-" if used is None or total == "-" else f"{used / 1024:.1f}/{total}{whose}"


def or_dash(value: object, unit: str = "") -> str:
    """The value with its unit, `-` if it is not known."""
    return "-" if value is None else f"{value}{unit}"


def share(used: dict[str, Any]) -> str:
    """The share of a usage in all GPU time: `25.0%`, `<0.1%` of something, `-` if it is not known."""
    if used["share"] is None:
        return "-"
    words = f"{100 * used['share']:.1f}%"
    return "<0.1%" if words == "0.0%" and used["gpu_hours"] > used.get("cluster_gpu_hours", 0) else words


def used_in_all(found: dict[str, Any]) -> str:
    """The sum of a usage: `9.50 GPU-hours, 40.0% of all hours of 8 GPUs and 4 slices; 2.50 GPU-hours on clusters`."""
    total, away, parts = found["total"], found["total"].get("cluster_gpu_hours"), found.get("parts", 0)
    every = " and ".join([counted(found["gpus"] - parts, "GPU"), *([counted(parts, "slice")] if parts else [])])
    words = f"{total['gpu_hours']:,.2f} GPU-hours, {share(total)} of all hours of {every}"
    return words + (f"; {away:,.2f} GPU-hours on clusters" if away else "")


def watts(power: float | None) -> str:
    """A power draw: `250 W`, `-` if it is not known."""
    return "-" if power is None else f"{power:.0f} W"


def in_use(used_mib: int | None, total_mib: int | None, between: str = "/") -> str:
    """How much of memory or of a disk is in use, in the unit of the total: `61.2/512 GiB`; `-/512 GiB` if unknown."""
    total = memory(total_mib)
    if used_mib is None or total_mib is None:
        return f"-/{total}" if total_mib is not None and between == "/" else total
    return f"{(used_mib << 20) / SIZE_UNITS[total.rpartition(' ')[2]]:.1f}{between}{total}"


def cores_in_use(node: dict[str, Any], between: str = "/") -> str:
    """How many cores are busy: `12.3/64`; `-/64` if unknown."""
    busy, cores = node["cores_busy"], or_dash(node["cores"])
    if busy is None:
        return f"-/{cores}" if node["cores"] is not None and between == "/" else cores
    return f"{busy:.1f}{between}{cores}"


def engine_version(node: dict[str, Any]) -> str:
    """The engine of a node: `28.5.2 rootless`, `podman 5.8.6`; without what a distribution adds to its version."""
    words = re.sub(r"[+~]\S*", "", node["docker"] or "-")
    return words + (" rootless" if node.get("rootless") else "")


def rate(bytes_per_second: float | None) -> str:
    """Bytes per second: `1.2 MiB/s`, `-` if it is not known."""
    return "-" if bytes_per_second is None else f"{format_size(int(bytes_per_second))}/s"


def host_lines(node: dict[str, Any]) -> dict[str, str | None]:
    """How busy a machine is, beside what tasks have set aside, as labelled lines; None for what is not known."""
    averages = [node[f"load_{minutes}m"] for minutes in (1, 5, 15)]
    busy, used = node["cores_busy"] is not None, node["memory_used_mib"] is not None
    aside, memory_aside = node["cores_set_aside"], node["memory_set_aside_mib"]
    received, sent = node["network_in_bytes_per_second"], node["network_out_bytes_per_second"]
    cores = (
        cores_in_use(node, " of ") + (" busy" if busy else ""),
        f"{aside:g} set aside" if aside else "",
        "load " + " ".join(f"{each:.2f}" for each in averages) if None not in averages else "",
    )
    held = f"{memory(memory_aside)} set aside" if memory_aside else ""
    room = in_use(node["memory_used_mib"], node["memory_mib"], " of ") + (" used" if used else "")
    disk = in_use(node["disk_used_mib"], node["disk_total_mib"], " of ")
    return {
        "cores": ", ".join(filter(None, cores)) if node["cores"] else None,
        "memory": ", ".join(filter(None, (room, held))) if node["memory_mib"] else None,
        "disk": f"{disk} used ({node['disk_path']})" if node["disk_path"] else None,
        "temp": None if node["temperature_c"] is None else f"{node['temperature_c']}C",
        "network": f"{rate(received)} in, {rate(sent)} out" if None not in (received, sent) else None,
    }


def cause_of(node: str, reason: str | None) -> str:
    """Why a node is not well, without its name and what its state says: what is cut must not be the cause."""
    return re.sub(rf"^{re.escape(node)}(?: \([^)]*\))?:? (?:cannot be reached: )?", "", reason or "", count=1)


def node_state(node: dict[str, Any]) -> str:
    """The state of a node or cluster, and why: `offline: no route to host`."""
    cause = cause_of(node["name"], node["reason"])
    return f"{node['state']}: {cause}" if cause else str(node["state"])


def numa_lines(node: dict[str, Any]) -> list[str]:
    """The NUMA nodes of a machine that has several, a line for each."""
    lines = []
    for each in node["numa"] if len(node["numa"]) > 1 else ():
        gpus = f", {'GPUs' if len(each['gpus']) > 1 else 'GPU'} {format_indices(each['gpus'])}" if each["gpus"] else ""
        size = "" if each["memory_mib"] is None else f", {memory(each['memory_mib'])}"
        lines.append(f"{each['id']}: {counted(each['cores'], 'core')} ({each['cpus']}){size}{gpus}")
    return lines
