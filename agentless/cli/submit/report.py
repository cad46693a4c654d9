"""What became of a submit, in the form that was asked for: scripts, ids, output, or the ends of tasks."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Sequence
from typing import Any

from agentless.cli.app import complain
from agentless.cli.output import is_quiet, print_end, print_json, print_line, print_outputs, say
from agentless.cli.submit.steps import showing
from agentless.cli.tasks.batch import announce_batch, show_results, wait_for_batch
from agentless.cli.tasks.exit_code import own_code, worst
from agentless.cli.tasks.gang import members_of
from agentless.cli.tasks.interrupted import saying_what_stays
from agentless.cli.tasks.logs import copy_log, copy_many_logs
from agentless.client.client import Client
from agentless.client.words import WAITING, job_of, local, ports, unix_time
from agentless.errors import AgentlessError
from agentless.model.tasks.task_id import first_try
from agentless.model.text import lines_of
from agentless.rules.submit.task_request import TaskRequest

_NAMED = 20  # the most tasks that are named after one message


def report(
    served: Client,
    asked: TaskRequest,
    starts: list[dict[str, Any]],
    *,
    wait: bool,
    follow: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Print what became of each task, wait for their ends if asked to, and return the exit code.

    3 and 4 mean that a task was not started. A task whose node did not answer may run, and counts as started.
    """
    # On a cluster, a gang is one task.
    size = asked.spec.gang_size if len(starts) == asked.count * len(asked.sweep) else 1
    if dry_run:
        _complain_of(asked, starts[::size])
        return _print_scripts(asked, starts, asked.count if size == asked.spec.gang_size else 1)
    nodes = _nodes_of_gangs(starts, size)
    starts = starts[::size]  # the first member stands for its gang
    _complain_of(asked, starts)
    tasks = [start["task"] for start in starts if start["task"]]
    # A short task may have ended already.
    started = [task for task in tasks if task["ended_at"] is None or task["container"]]
    code = _worst(start["exit_code"] for start in starts if start["task"] not in started)
    if len(starts) > 1 and started and started[0]["parameters"]:
        return _report_sweep(served, started, code, wait=wait, as_json=as_json)
    output = _Output(started)
    ids = [first_try(task["id"]) for task in started]
    with saying_what_stays(served, *ids):
        if not as_json:
            for task in started:
                with output:
                    _announce(task, nodes.get(task["id"], ()), wait=wait, follow=follow)
        if follow and started:
            with output:
                _follow(served, ids[0])
        if (wait or follow) and started:
            tasks = [_await(served, task, followed=follow) if task in started else task for task in tasks]
            code = code or _worst(own_code(task) for task in tasks)
    if as_json:
        with output:
            print_json(tasks, flush=True)
    return code or int(output.is_lost)


def _complain_of(asked: TaskRequest, starts: list[dict[str, Any]]) -> None:
    """Print what went wrong, and for which tasks: the ids of those that failed, the values of those refused."""
    which: dict[str, list[str]] = {}
    combinations = [each for each in asked.sweep for _ in range(asked.count // asked.spec.gang_size)]
    for each, start in zip(combinations, starts, strict=False):  # an answer of another make may have fewer
        # A line that begins with a blank belongs to the one before.
        for message in filter(None, re.split(r"\n(?! )", start["message"])):
            name = " ".join(f"{key}={value}" for key, value in each.parameters.items())
            if task := start["task"]:
                name = "" if task["id"] in message or not start["exit_code"] else f"task {task['id']}"
            which.setdefault(message, []).append(name)
    for message, names in which.items():
        number = [f"{len(names)} tasks"] if len(names) > 1 else []
        known = [name for name in names if name]
        more = [f"and {len(known) - _NAMED} more"] if len(known) > _NAMED else []
        words = ": ".join(number + [", ".join(known[:_NAMED] + more)] * bool(known))
        complain(f"{message} ({words})" if words else message)


class _Output:
    """Goes on if stdout cannot be written, and says on stderr which tasks were started.

    A user who takes that for a failed submit would start them twice.
    """

    def __init__(self, started: list[dict[str, Any]]) -> None:
        self.is_lost = False
        self._started = started

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
            return False
        self.is_lost = True
        ids = ", ".join(first_try(task["id"]) for task in self._started) or "none"
        complain(f"Cannot write the output: {error.strerror}; started tasks: {ids}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True


def _print_scripts(asked: TaskRequest, starts: list[dict[str, Any]], count: int) -> int:
    """Print the script for each node; of a sweep one script, and the other commands."""
    commands = [each.argv for each in asked.sweep for _ in range(count)]
    printed = False
    for command, start in zip(commands, starts, strict=True):
        if start["script"] is None:
            continue
        if printed and len(asked.sweep) > 1:
            for line in f"same script on {start['place']}, with: {shlex.join(command)}".split("\n"):
                print_line(f"# {line}")
        else:
            print_line(f"# runs on {start['place']}, through the stdin of sh:")
            print(start["script"])  # noqa: T201 - to be run as it is
        printed = True
    return _worst(start["exit_code"] for start in starts)


def _report_sweep(served: Client, tasks: list[dict[str, Any]], code: int, *, wait: bool, as_json: bool) -> int:
    """`report` for a sweep; `code` is the exit code for what was not started, 0 if all was."""
    table, output = sys.stdout, _Output(tasks)
    if not as_json:
        announce_batch(tasks)
        if is_quiet() or not sys.stdout.isatty():  # a pipe gets only the ids
            for task in tasks:
                with output:
                    print_line(first_try(task["id"]), flush=True)
            table = sys.stderr
    if wait:
        try:
            tasks = wait_for_batch(served, tasks[0]["batch"])
        except AgentlessError as error:
            complain(f"Batch {tasks[0]['batch']} started, but its result is unknown: {error}")
            code = code or 1
        for task in tasks:
            print_outputs(task, here=False)
    if as_json:
        with output:
            print_json(tasks, flush=True)
    elif wait:
        with contextlib.redirect_stdout(table):
            show_results(tasks)
    return code or (worst(tasks) if wait else 0) or int(output.is_lost)


def _follow(served: Client, task_id: str) -> None:
    """Show the output until the task ends. If that fails, the task goes on, and so does this command."""
    sys.stdout.flush()
    try:
        if ranks := members_of(served, task_id):
            copy_many_logs(served, ranks, {"follow": True})
        else:
            copy_log(served, task_id, {"follow": True}, patient=True)
    except AgentlessError as error:
        complain(f"Cannot show the output of task {task_id}, still waiting for its end: {error}")


def _nodes_of_gangs(starts: list[dict[str, Any]], size: int) -> dict[str, list[str]]:
    """The nodes of each gang, by the id of its first member."""
    gangs = [[start["task"] for start in starts[at : at + size] if start["task"]] for at in range(0, len(starts), size)]
    return {gang[0]["id"]: [task["node"] or "" for task in gang] for gang in gangs if gang}


def _announce(task: dict[str, Any], nodes: Sequence[str], *, wait: bool, follow: bool) -> None:
    """Print its id, unless `follow` leaves stdout to the task, and its state for a person."""
    task_id = first_try(task["id"])  # the id for all its tries: the first may have failed already
    waits, words = task["state"] in WAITING, _state(task, nodes)
    if sys.stdout.isatty() and not follow and not is_quiet():
        for line in lines_of(f"{task_id}  {words}"):
            print_line(line)
        if not wait:
            next_step = "See when it starts: agentless explain" if waits else "Follow it: agentless logs -f"
            say(f"{next_step} {task_id}    Stop it: agentless stop {task_id}")
        _say_ports(task)
        return
    if not follow:
        print_line(task_id, flush=True)
    if wait or follow or waits:
        say(*lines_of(f"{task_id}  {words}"))
    if not follow:
        _say_ports(task)


def _say_ports(task: dict[str, Any]) -> None:
    if task["ports"]:
        say(f"To forward {ports(task)}: agentless forward {first_try(task['id'])}")


def _state(task: dict[str, Any], nodes: Sequence[str]) -> str:
    if task["state"] == "pending":
        return "queued" + (f": {task['reason']}" if task["reason"] else "")
    if task["state"] == "submitted":
        return f"in the queue of {task['node']}" + (f": {task['reason']}" if task["reason"] else "")
    if task["state"] == "blocked":
        return f"blocked: {task['reason']}"
    if task["state"] == "scheduled":
        return f"scheduled for {local(task['scheduled_for'])}"
    if gang := task.get("gang"):
        which = f": {', '.join(nodes)}" if len(nodes) <= _NAMED else ""
        return f"{'running' if task['container'] else 'starting'} on {gang['size']} nodes{which}"
    if job := job_of(task):
        return f"running on {task['node']}, as job {job}"
    gpus = "GPU " + ", ".join(map(str, task["gpus"])) if task["gpus"] else "no GPU"
    return f"{'running' if task['container'] else 'starting'} on {task['node']}, {gpus}"


def _await(served: Client, task: dict[str, Any], *, followed: bool) -> dict[str, Any]:
    """The task once it has ended; `followed`: its output was shown, so the steps of its start are no news."""
    task_id = first_try(task["id"])
    try:
        since = time.time() if followed else unix_time(task["created_at"])
        waiting = f"Waiting for task {task_id}"
        with showing(served, lambda event: first_try(event["task"]["id"]) == task_id, since, waiting):
            ended = served.wait(task_id)
    except AgentlessError as error:
        complain(
            f"Task {task_id} started, but its result is unknown: {error}. To wait for it: agentless wait {task_id}"
        )
        return task
    print_end(ended)
    return ended


def _worst(codes: Any) -> int:
    """The first code, but 3 before 4 before any other: you can do something about a refusal."""
    found = [code for code in codes if code]
    return next((code for code in (3, 4) if code in found), found[0] if found else 0)
