"""Reads a file with one task, for `submit --file`: the keys of a job, or a method of dsHPC."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agentless.formats.marked_yaml import shown
from agentless.rules.files.file_options import brought_to, located, parse_output, parse_upload
from agentless.rules.submit.kinds import texts
from agentless.rules.submit.task_request import Outside
from agentless.rules.workflows.job import PAIRS, JobReader
from agentless.rules.workflows.keys import ALIKE, JOB_KEYS
from agentless.rules.workflows.reading import Reading, Value

_REFUSED: Mapping[str, str] = {
    "requires": "a task that is submitted alone waits with --after; for jobs that wait for each other, use a workflow",
    "matrix": "a task has no matrix; use spans in its command, like span:{1..3}, or a workflow",
    "artifacts": "only jobs of a workflow have artifacts; use output",
}
_MORE = ("name", "description", "max_parallel")


@dataclass(frozen=True, slots=True)
class TaskFile:
    """A task in a file: its command, its targets, and its options by their names in Python."""

    command: tuple[str, ...]
    targets: tuple[str, ...]
    options: Mapping[str, Any]
    notes: tuple[str, ...] = ()


def read_task_file(text: str, path: str, outside: Outside) -> TaskFile:
    """The task in a text. Raises UsageError with all mistakes."""
    reading = Reading(text, path)
    top = reading.mapping(Value(reading.marked.data, ()), "{command: python train.py, gpus: 1}")
    if "jobs" in top:
        reading.wrong(("jobs",), f"this is a workflow; run it with: agentless workflow run {path}", key=True)
        reading.check()
    known = (*_MORE, *(key for key in JOB_KEYS if key not in _REFUSED))
    given: dict[str, list[Value]] = {}
    for key, value in top.items():
        if key in _REFUSED:
            reading.wrong((key,), _REFUSED[key], key=True)
        elif key not in known:
            reading.unknown((key,), key, known)
        else:
            alike = ALIKE.get(key, key)
            given[alike] = [*(given.get(alike, ()) if alike in PAIRS else ()), Value(value, (key,))]
    reader = JobReader(reading, outside, {})
    command, options = reader.command(given, {}), reader.options(given, {})
    if name := top.get("name"):
        options["name"] = name
    if "max_parallel" in given:
        options["max_parallel"] = reading.whole(given["max_parallel"][0], 1)
    targets = reading.words(Value(top["target"], ("target",)), "node1::0") if "target" in top else []
    if name is not None and not isinstance(name, str):
        reading.wrong(("name",), f"is {shown(name)}; must be the name of the task")
    reading.check()
    options |= _at_home(options, outside.folder)
    if not targets and not options.keys() & {"gpus", "gpu_type", "gpu_memory", "node", "on", "cores", "memory"}:
        options["gpus"] = 0
    return TaskFile(tuple(command), tuple(targets), options, tuple(reader.notes))


def _at_home(options: Mapping[str, Any], folder: str) -> dict[str, Any]:
    """Its uploads and outputs with absolute paths: what is typed beside the file is relative to another folder."""
    return {
        "upload": [str(located(parse_upload(each), folder)) for each in texts(options.get("upload", ()), "--upload")],
        "output": [
            str(brought_to(parse_output(each), folder, several=False))
            for each in texts(options.get("output", ()), "--output")
        ],
    }
