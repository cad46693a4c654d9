"""Reads files with tasks. Paths in a file are relative to its folder."""

from __future__ import annotations

import json
import os
import re
import reprlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import yaml

from agentless.client.files.span_files import read_lines
from agentless.errors import UsageError
from agentless.paths import current_dir
from agentless.rules.submit.task_request import Outside
from agentless.rules.workflows.file import Settings, parse_setting, read_workflow
from agentless.rules.workflows.reading import MAX_BYTES
from agentless.rules.workflows.task_file import TaskFile, read_task_file
from agentless.rules.workflows.workflow import Workflow


def workflow_in(
    path: str, settings: Sequence[str] | None, runtimes: Sequence[str] | None, node: str | None = None
) -> tuple[Workflow, str]:
    """The workflow in a file, with all jobs on this node; and the text of the file. Raises UsageError."""
    params = dict(map(parse_setting, settings or ()))
    return _read(path, Settings(params, dict(map(_runtime, runtimes or ())), node))


def workflow_of(
    source: str | os.PathLike[str] | Mapping[str, Any],
    params: Mapping[str, Any],
    runtimes: Mapping[str, str],
    node: str | None = None,
) -> tuple[Workflow, str]:
    """Likewise of a file, or of the data that would be in one; parameters are values, not texts."""
    said = Settings({str(key): _as_set(key, value) for key, value in params.items()}, dict(runtimes), node)
    if isinstance(source, Mapping):
        text = _as_yaml(dict(source))
        return read_workflow(text, "workflow", "workflow", _outside("workflow"), said), text
    return _read(os.fspath(source), said)


def task_in(path: str) -> TaskFile:
    """The task in a file, likewise."""
    return read_task_file(_text(path), path, _outside(path))


def folder_of(path: str) -> str:
    """The folder to which paths in a file are relative."""
    return os.path.dirname(os.path.join(current_dir(), os.path.expanduser(path)))


def _outside(path: str) -> Outside:
    folder = folder_of(path)
    here = Outside(time.time(), os.environ, read_lines, folder)
    return replace(here, read_lines=lambda name: read_lines(os.path.join(folder, os.path.expanduser(name))))


def _read(path: str, said: Settings) -> tuple[Workflow, str]:
    text = _text(path)
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", os.path.basename(path)).lstrip("_.-")
    name = name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".json")[:63] or "workflow"
    return read_workflow(text, path, name, _outside(path), said), text


def _as_set(key: object, value: object) -> str:
    """The value of a parameter, as it is typed after `--set`."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise UsageError(
            f"params: {key} is {reprlib.repr(value)}; must be a text, a number, a list or a dict"
        ) from None


def _as_yaml(data: dict[str, Any]) -> str:
    """The text of a file with this data."""
    try:
        return yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    except (yaml.YAMLError, RecursionError) as error:
        words = str(error).replace("\n", " ")[:200]
        raise UsageError(f"the workflow has a value that no file can have: {words}") from None


def _runtime(text: str) -> tuple[str, str]:
    name, equals, env = text.partition("=")
    if not equals or not name or not env:
        raise UsageError(f"--runtime {text[:60]!r}: use NAME=ENV, like python-3.11-ml=torch")
    return name, env


def _text(path: str) -> str:
    try:
        with open(os.path.expanduser(path), "rb") as file:
            data = file.read(MAX_BYTES + 1)
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text; save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path}: {getattr(error, 'strerror', error)}") from None
