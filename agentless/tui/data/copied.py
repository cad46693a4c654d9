"""The fields of a form for a task like another one."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from agentless.errors import UsageError
from agentless.model.scheduling.overflow import NEVER
from agentless.model.tasks.port import Port
from agentless.model.tasks.spec import Mount, TaskSpec, Volume
from agentless.model.tasks.terms import Terms
from agentless.model.units import short_size
from agentless.rules.submit.cluster import is_place_alone, joined
from agentless.tui.data.cluster import Row
from agentless.tui.data.quoted import in_line, in_words

_USUAL, _USUAL_TERMS = TaskSpec(()), Terms()
_UNITS = {"d": 86400, "h": 3600, "min": 60}


def mates(spec: Row) -> tuple[str, ...]:
    """The tasks of its gang, in order, whose needs a copy must know: those of one with a target for each node."""
    gang = spec["gang"]
    return tuple(gang["members"]) if gang and gang["alike"] < gang["size"] else ()


def fields_of(task: Row, spec: Row, needs: Sequence[Row] = ()) -> dict[str, str]:
    """The fields of a form for one task like this one; what it has waited for, it need not wait for again.

    `needs` are those of its `mates`; raises UsageError if the fields cannot say them all. A start in the past and the
    limit of its batch are left out, and so are the values of its secrets.
    """
    terms, gang = spec["terms"], spec.get("gang") or spec.get("multinode") or {}
    starts = terms["start_at"] or 0.0
    waits = task.get("waits_for") or ()
    fields = {
        **(_placed_each(needs) if needs else _placed(spec["needs"])),
        **{name: text(spec[name]) for name, text in _AS_IN_SPEC.items()},
        **{name: text(terms[name]) for name, text in _AS_IN_TERMS.items()},
        "command": in_words(re.sub(r"(\\*)span:", r"\1\1\\span:", word) for word in spec["command"]),
        "image": "" if spec["container"] else spec["image"] or "",
        "env": "\n".join(in_line(f"{name}=", value) for name, value in spec["env"].items()),
        "gang": _text(gang.get("size")),
        "launcher": gang.get("launcher") or "",
        "on_member_failure": _other(gang.get("on_member_failure", "stop"), "stop"),
        "port": " ".join(str(Port(**each)) for each in spec["ports"]),
        "public_key_string": "\n".join(in_line("", key) for key in spec["public_keys"]),
        "upload": in_words(f"{each['source']}:{each['target']}" for each in spec["uploads"]),
        "output": in_words(f"{each['path']}:{each['local']}" for each in spec["outputs"]),
        "mount": in_words(str(Mount(**each)) for each in spec["mounts"]),
        "volume": in_words(str(Volume(**each)) for each in spec["volumes"]),
        "label": _pairs(spec["labels"]),
        "notify": "" if spec["notify"] is None else ",".join(spec["notify"]) or "none",
        "stop_grace": "" if spec["stop_grace"] == _USUAL.stop_grace else _time(spec["stop_grace"]),
        "signal": _other(terms["signal"], _USUAL_TERMS.signal),
        "at": datetime.fromtimestamp(starts, UTC).isoformat() if starts > time.time() else "",
        "requires": _required(waits, batch=False),
        "after_batch": _required(waits, batch=True),
        "if_impossible": terms["if_impossible"] or "" if waits else "",
        "on_preempt": _other(terms["on_preempt"], _USUAL_TERMS.on_preempt),
        "no_queue": _flag(terms["wait_for"] == 0),
        "wait_for": _time(terms["wait_for"]) if terms["wait_for"] else "",
        "overflow": "" if terms["overflow"] is None else ",".join(terms["overflow"]) or NEVER,
        "retry_on": _other(",".join(terms["retry_on"]), ",".join(_USUAL_TERMS.retry_on)),
        "backoff": "" if terms["backoff"] == _USUAL_TERMS.backoff else _time(terms["backoff"]),
    }
    return {name: text for name, text in fields.items() if text}


def fields_of_vps(task: Row, spec: Row, _: Sequence[Row] = ()) -> dict[str, str]:
    """The fields of a form for a VPS like this one; it needs a name of its own."""
    return fields_of(task, spec) | {"name": ""}


def _placed(needs: Row) -> dict[str, str]:
    """Where it runs: `2xA100:40G` where a target can say so, else in fields of their own."""
    gpus, types, memory, numa = needs["gpus"], needs["gpu_types"], _size(needs["gpu_memory"]), needs["numa"]
    nodes, target = needs["nodes"], ""
    if needs["indices"] or numa is not None:
        (node,), nodes = nodes, ()
        target = node + ("" if numa is None else f":{numa}")
        if needs["indices"]:
            target, gpus = f"{target}::{','.join(map(str, needs['indices']))}", 0
    elif gpus and not any(" " in each for each in types):
        target = f"{gpus}x{','.join(types)}" + (f":{memory}" if memory else "")
        gpus, types, memory = 0, (), ""
    return {
        "target": target,
        "node": in_words(nodes),
        "exclude": in_words(needs["exclude"]),
        "on": _pairs(needs["on"]),
        "exclusive": _flag(needs["exclusive"]),
        "policy": needs["policy"] or "",
        "gpus": "0" if not (gpus or target or nodes) else str(gpus or ""),
        "gpu_type": ",".join(types),
        "gpu_memory": memory,
        "gpu_share": _other(str(needs["gpu_share"]), "1"),
    }


def _placed_each(needs: Sequence[Row]) -> dict[str, str]:
    """Where the nodes of a gang are, each with a target of its own."""
    found = [_placed(each) for each in needs]
    if all(each == found[0] for each in found):
        return found[0]
    if any(each["node"] != found[0]["node"] for each in found):
        found = [each | {"target": f"{each['node']} {each['target']}".strip(), "node": ""} for each in found]
    targets = tuple(each["target"] for each in found)
    words = " ".join(targets).split()
    is_said = all(each | {"target": ""} == found[0] | {"target": ""} for each in found)
    if not is_said or joined(words, [*filter(is_place_alone, words)]) != targets:
        raise UsageError("the nodes of this task have different requests, which the form cannot copy; submit it anew")
    return found[0] | {"target": " ".join(targets)}


def _text(value: object) -> str:
    return str(value or "")


def _flag(is_set: object) -> str:
    return "yes" if is_set else ""


def _other(text: str, usual: str) -> str:
    return "" if text == usual else text


def _pairs(pairs: Row) -> str:
    return in_words(f"{key}={value}" for key, value in pairs.items())


def _required(waits: Iterable[Row], *, batch: bool) -> str:
    found = [each for each in waits if bool(each["batch"]) is batch]
    return ",".join(each["on"] + (f":{each['state']}" if each["state"] != "completed" else "") for each in found)


def _size(size: int | None) -> str:
    return "" if size is None else short_size(size)


def _number(number: float) -> str:
    """All digits, without an exponent."""
    return f"{Decimal(repr(float(number))):f}".removesuffix(".0")


def _time(seconds: float | None) -> str:
    """A duration in one unit, exactly."""
    if seconds is None:
        return ""
    unit = next((unit for unit, one in _UNITS.items() if seconds and seconds % one == 0), "s")
    return f"{_number(seconds / _UNITS.get(unit, 1))}{unit}"


_AS_IN_SPEC: Mapping[str, Callable[[Any], str]] = {
    "name": _text,
    "container": _text,
    "pull": _text,
    "workdir": _text,
    "user": _text,
    "network": _text,
    "cores": lambda cores: "" if cores is None else _number(cores),
    "memory": _size,
    "shm_size": _size,
    "share": _flag,
    "privileged": _flag,
    "no_ssh": _flag,
    "secret_env": "\n".join,
}
"""The fields that are called as in a spec, with how each is written."""
_AS_IN_TERMS: Mapping[str, Callable[[Any], str]] = {
    "time_limit": _time,
    "signal_before": _time,
    "min_run": _time,
    "expires": _time,
    "idle_stop": _time,
    "priority": _text,
    "retries": _text,
    "snapshot_on_stop": _text,
    "preemptible": _flag,
}
"""Likewise in terms."""
