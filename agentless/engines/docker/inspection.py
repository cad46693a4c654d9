"""The format for `inspect`, and the container that its answer describes.

The fields are HostConfig.NanoCpus (billionths of a core), HostConfig.Memory (bytes), State.Status, State.ExitCode,
State.OOMKilled and times as RFC 3339 with nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentless.engines.times import seconds
from agentless.model.containers.claim import SPEC
from agentless.model.containers.container import Container, is_container_id
from agentless.model.containers.signature import COVERED, SIGNATURE
from agentless.rules.nodes import container_limits

LABELS = (*COVERED, SIGNATURE)
"""The only labels that are read: anybody who may use the engine can write labels of any length."""


_TIMES = ("StartedAt", "FinishedAt")


def inspected(identity: str) -> str:
    """The format for all fields that are read, each cut to its longest allowed value."""
    labels = (
        f'"{label}":{{{{json (printf "%.{container_limits.SPEC if label == SPEC else container_limits.WORDS}s" '
        f'(or (index .Config.Labels "{label}") ""))}}}}'
        for label in LABELS
    )
    state = (f'"{field}":{{{{json .State.{field}}}}}' for field in ("Status", "ExitCode", "OOMKilled", *_TIMES))
    return (
        f'{{"id":{{{{json {identity}}}}},"name":{{{{json (printf "%.{container_limits.WORDS}s" .Name)}}}}'
        ',"cpus":{{json .HostConfig.NanoCpus}},"memory":{{json .HostConfig.Memory}}'
        f',"created":{{{{json .Created}}}},"state":{{{",".join(state)}'
        f',"Error":{{{{json (printf "%.{container_limits.WORDS}s" .State.Error)}}}}}},"labels":{{{",".join(labels)}}}}}'
    )


def container_of_fields(fields: Mapping[str, object], clock: float) -> Container:
    """The container in an answer of `inspect`; raises KeyError, TypeError or ValueError if it is none."""
    state: Mapping[str, object] = fields["state"]  # type: ignore[assignment]
    exit_code = state.get("ExitCode")
    ended = state["Status"] in ("exited", "dead")
    if not is_container_id(str(fields["id"])):
        raise ValueError("no engine gives such an id")
    return Container(
        id=str(fields["id"]),
        name=str(fields["name"]).removeprefix("/"),
        state=state["Status"],  # type: ignore[arg-type]
        labels=dict(fields["labels"] or {}),  # type: ignore[call-overload]
        exit_code=exit_code if ended and isinstance(exit_code, int) and 0 <= exit_code <= 255 else None,
        oom_killed=bool(state.get("OOMKilled")),
        error=str(state.get("Error") or ""),
        created_at=seconds(fields.get("created")),
        started_at=seconds(state.get("StartedAt")),
        finished_at=seconds(state.get("FinishedAt")),
        clock=clock,
        cores=None if (cpus := _number(fields.get("cpus"))) is None else cpus / 1e9,
        memory=_number(fields.get("memory")),
    )


def _number(value: object) -> int | None:
    """A limit; 0 is none."""
    return value if isinstance(value, int) and 0 < value < 2**63 else None
