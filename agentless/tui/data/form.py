"""What the forms say: their fields, made from the options, and the submission that they ask for."""

from __future__ import annotations

import os
import re
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from agentless.client.files.span_files import read_lines
from agentless.errors import UsageError
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.spec import Mount, TaskSpec
from agentless.model.tasks.workload import WorkloadName
from agentless.model.units import short_size
from agentless.rules.submit.options import OPTIONS, Option, Options
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request
from agentless.tui.data.cluster import Row


@dataclass(frozen=True, slots=True)
class FormKind:
    """A kind of form. `options` have a line each; the variables have an area of their own.

    `first` are the lines before them: name, label, and the hint in the empty field. `needed` are the fields to begin
    with. `verb` is what it does, in two forms, and `view` shows what it has made.
    """

    workload: WorkloadName | None
    view: str
    verb: str
    doing: str
    first: tuple[tuple[str, str, str], ...]
    options: tuple[Option, ...]
    needed: tuple[str, str]

    @property
    def lines(self) -> tuple[tuple[str, str, str], ...]:
        """All lines: name, label, hint."""
        return (*self.first, *((option.name, _label(option).capitalize(), option.hint) for option in self.options))

    @property
    def taken(self) -> list[str]:
        """The fields of a spec that the form lacks; a copy of a task takes them from it, and so its other terms."""
        own = {"env", "secret_env", "parameters", "needs", "terms", *(name for name, *_ in self.first)}
        own |= {name for option in self.options for name in (option.name, f"{option.name}s")}
        if "container" in own:
            own.add("image_id")  # it is of another env then
        return [field.name for field in fields(TaskSpec) if field.name not in own]


def _label(option: Option) -> str:
    return {"container": "env", "requires": "after"}.get(option.name, option.name.replace("_", " "))


def _options(*names: str) -> tuple[Option, ...]:
    return tuple(OPTIONS[name] for name in names)


_WHERE = ("target", "Where", "node1::0, 2xA100:40G or 1x; several: one task each")
TASK = FormKind(
    None,
    "tasks",
    "Submit",
    "Submitting",
    (_WHERE, ("command", "Command", "python train.py --lr 0.1; span:[0.1,0.01] makes a sweep")),
    _options(
        "image", "name", "node", "cores", "memory", "time_limit", "priority", "requires", "retries", "preemptible"
    ),
    ("target", "command"),
)
VPS = FormKind(
    "vps",
    "vps",
    "Create",
    "Creating",
    (
        ("name", "Name", "its host name: ssh NAME.agentless"),
        ("target", "Where", "node1::0, 2xA100:40G or 1x"),
        ("command", "Command", "optional; without one it waits for you to log in"),
    ),
    _options("image", "container", "node", "cores", "memory", "mount", "expires", "idle_stop"),
    ("name", "target"),
)
_LABELS = {option.flag: _label(option) for kind in (TASK, VPS) for option in kind.options} | {
    "--target": "where",
    "--command": "command",
    "--env": "variables",
}
_OWN_TERMS = (
    "priority", "time_limit", "retries", "start_at", "max_parallel", "expires", "idle_stop", "requires",
    "if_impossible", "preemptible",
)  # fmt: skip
_ANSWERS = {"yes": True, "no": False}

_QUOTED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
_CONTINUED = re.compile(r"(\\[^\n])|\\\n")


def submission_of(kind: FormKind, values: Mapping[str, str], *, preview: bool = False) -> TaskRequest:
    """The submission that the fields ask for, a text by name each; raises UsageError.

    For a `preview`, something stands in for a command or a name that is not written yet.
    """
    options = Options()
    for option in kind.options:
        if text := values[option.name].strip():
            options[option.name] = _read(option, text)  # type: ignore[literal-required]
    if kind is VPS:
        options["name"] = values["name"].strip() or ("x" if preview else "")
    if env := [line.strip() for line in values["env"].splitlines() if line.strip()]:
        options["env"] = env
    words = _words(values["command"])
    if kind is VPS and not options["name"]:
        raise UsageError("Enter a name")
    if kind is TASK and not words:
        if not preview:
            raise UsageError("Enter a command")
        words = ("true",)
    targets = values["target"].split()
    if not targets and not options.keys() & {"node", "cores", "memory"}:
        raise UsageError("No resources requested: enter GPUs in Where, like node1::0 or 2xA100")
    if kind is VPS and len(targets) > 1:
        raise UsageError("Where: a VPS has one place; enter one, like node1::0 or 2xA100")
    outside = Outside(time.time(), os.environ, read_lines)
    return task_request(words, targets, options, outside, kind.workload)


def _read(option: Option, text: str) -> Any:
    if option.many:
        return text.split()
    if option.argument_type is bool:
        if text.lower() not in _ANSWERS:
            raise UsageError(f"{option.name}: {text!r} is neither yes nor no")
        return _ANSWERS[text.lower()]
    try:
        return option.argument_type(text)
    except ValueError:
        raise UsageError(f"{option.name}: {text!r} is not a number") from None


def _words(text: str) -> tuple[str, ...]:
    """The words of a command as a shell reads them; a line that ends with a backslash continues."""
    joined = _QUOTED.sub(lambda found: found[0] if found[0].startswith("'") else _CONTINUED.sub(r"\1", found[0]), text)
    try:
        return tuple(shlex.split(joined))
    except ValueError as error:
        raise UsageError(f"command: {str(error).lower()}") from None


def request_of(kind: FormKind, asked: TaskRequest, like: Mapping[str, Any] | None) -> Row:
    """The request; what has no field is as in the spec of the task that the form is `like`."""
    request = asked.request()
    if like:
        wanted = request["spec"]
        own = {name: wanted["terms"][name] for name in _OWN_TERMS}
        if not own["preemptible"]:
            own |= {name: wanted["terms"][name] for name in ("min_run", "on_preempt")}
        request["spec"] = wanted | {name: like[name] for name in kind.taken} | {"terms": like["terms"] | own}
    return request


def in_fields(text: str) -> str:
    """The text with the labels of fields in place of options such as `--time-limit`."""
    return re.sub(r"(?<!\S)--[a-z-]+", lambda found: _LABELS.get(found[0], found[0]), text)


def fields_of(task: Row, spec: Row) -> dict[str, str]:
    """The fields of a form for a task like this one."""
    node, target = _places(task["target"])
    return {
        "target": target,
        "node": node,
        "command": shlex.join(re.sub(r"(\\*)span:", r"\1\1\\span:", word) for word in task["command"]),
        "image": task["image"] or "",
        "name": task["name"] or "",
        "cores": "" if task["cores"] is None else f"{task['cores']:g}",
        "memory": "" if task["memory_bytes"] is None else short_size(task["memory_bytes"]),
        "time_limit": "" if task["time_limit"] is None else f"{task['time_limit']:g}s",
        "priority": str(task["priority"] or ""),
        "retries": str(task["retries"] or ""),
        "requires": ",".join(
            f"{each['on']}:{each['state']}" for each in task.get("waits_for") or () if not each["batch"]
        ),
        "preemptible": "yes" if task.get("preemptible") else "",
        "env": "\n".join(f"{name}={value}" for name, value in spec["env"].items()),
    }


def fields_of_vps(task: Row, spec: Row) -> dict[str, str]:
    """The fields of a form for a VPS like this one; it needs a name of its own."""
    mounts = [str(Mount(**each)) for each in spec["mounts"]]
    more = {"name": "", "container": spec["container"] or "", "mount": " ".join(mounts)}
    times = {name: spec["terms"][name] for name in ("expires", "idle_stop")}
    more |= {name: f"{seconds:g}s" if seconds else "" for name, seconds in times.items()}
    return fields_of(task, spec) | more | ({"image": ""} if spec["container"] else {})


def _places(wanted: str) -> tuple[str, str]:
    """The node and the target in a task's request: of `node1 8x exclusive` they are `node1` and `8x`."""
    if wanted == "any node":
        return "", ""
    targets = []
    for word in wanted.split()[:2]:
        try:
            targets.append(parse_target(word))
        except UsageError:
            break
    first, second, *_ = (*wanted.split(), "", "")
    if len(targets) == 2 and targets[0].nodes and not targets[1].nodes:
        return first, second
    return "", first if targets else ""
