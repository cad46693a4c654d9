"""The JSON Schema of a workflow's file, for editors, and the keys of the reference. Made of the options of `submit`."""

from __future__ import annotations

from typing import Any

from agentless.rules.submit.options import Option
from agentless.rules.workflows.job import PAIRS
from agentless.rules.workflows.keys import JOB, JOB_OPTIONS, WORKFLOW
from agentless.rules.workflows.others import STATES

_SCALAR: dict[str, Any] = {"type": ["string", "number", "boolean"]}
_LIST: dict[str, Any] = {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR}]}
_PAIR: dict[str, Any] = {"type": ["string", "number", "boolean", "null"]}
_TEMPLATE = r"\{\{"
_STATE = {"type": "string", "pattern": f"^(?i:{'|'.join(STATES)})$"}
_REQUIRED = {"anyOf": [{"type": "string"}, {"type": "object", "additionalProperties": _STATE}]}
_ANY_MAPPING: dict[str, Any] = {"type": "object"}

_SHAPES: dict[str, dict[str, Any]] = {
    "command": _LIST,
    "args": _LIST,
    "target": {"type": "string"},
    "requires": {"anyOf": [*_REQUIRED["anyOf"], {"type": "array", "items": _REQUIRED}]},
    "matrix": {"anyOf": [{"type": "object", "additionalProperties": _LIST}, {"type": "string"}]},
    "artifacts": _LIST,
    "gang": {"anyOf": [{"type": "integer"}, {"type": "string", "pattern": _TEMPLATE}]},
    "grace": _SCALAR,
    "runtime": {"type": "string"},
    "resources": {"type": "object", "additionalProperties": _SCALAR},
    "uploads": {"anyOf": [_LIST, {"type": "object", "additionalProperties": _LIST}]},
    "volumes": _LIST,
    "version": {"enum": [1, "1"]},
    "name": {"type": "string"},
    "description": {"type": "string"},
    "params": _ANY_MAPPING,
    "runtimes": {"type": "object", "additionalProperties": {"type": "string"}},
    "max_parallel": {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string", "pattern": "^[1-9][0-9]*$"}]},
    "on_failure": {"enum": ["stop", "continue"]},
}


def schema() -> dict[str, Any]:
    """The JSON Schema."""
    keys = job_properties()
    job = {"type": "object", "additionalProperties": False, "properties": keys}
    shapes: dict[str, dict[str, Any]] = {
        "defaults": {**job, "properties": {key: each for key, each in keys.items() if key not in _SINGLE}},
        "jobs": {"type": "object", "minProperties": 1, "additionalProperties": job},
        "environment": _pairs(),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Workflow of agentless",
        "type": "object",
        "required": ["jobs"],
        "additionalProperties": False,
        "properties": {
            key: {"description": words, **(shapes.get(key) or _SHAPES[key])} for key, words in WORKFLOW.items()
        },
    }


_SINGLE = ("requires", "matrix", "artifacts")


def job_properties() -> dict[str, dict[str, Any]]:
    """The keys of a job, each with its description and shape."""
    own = {key: {"description": words, **_SHAPES.get(key, _pairs())} for key, words in JOB.items()}
    options = {key: {"description": f"{option.help}.", **_shape(key, option)} for key, option in JOB_OPTIONS.items()}
    return {**own, **options}


def _shape(key: str, option: Option) -> dict[str, Any]:
    """The shape of an option's value. A text with `{{ … }}` is possible anywhere."""
    if key in PAIRS:
        return _pairs()
    if option.many or option.metavar == "TYPE,...":
        return _LIST
    if option.reader is not None or str in option.types:
        return _SCALAR
    kind = "boolean" if bool in option.types else "number" if float in option.types else "integer"
    return {"anyOf": [{"type": kind}, {"type": "string", "pattern": _TEMPLATE}]}


def _pairs() -> dict[str, Any]:
    """Pairs: a mapping, or a list of KEY=VALUE."""
    inside = {"anyOf": [_PAIR, {"type": "object", "properties": {"env": _PAIR, "file": _PAIR}}]}
    return {"anyOf": [{"type": "object", "additionalProperties": inside}, _LIST]}
