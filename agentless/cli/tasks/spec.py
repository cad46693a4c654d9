"""A spec in full, for a person who has to judge it."""

from __future__ import annotations

from typing import Any


def in_full(task: str, spec: dict[str, Any]) -> list[str]:
    """All fields of a spec that are not defaults, as YAML, whose quotes escape control characters."""
    import yaml
    from pydantic import TypeAdapter

    from agentless.model.tasks.spec import TaskSpec

    plain = TypeAdapter(TaskSpec).dump_python(TaskSpec(("",)), mode="json")
    given = {key: value for key, value in spec.items() if value != plain.get(key)}
    for part in ("needs", "terms"):
        if part in given:
            given[part] = {key: value for key, value in given[part].items() if value != plain[part].get(key)}
    return str(yaml.safe_dump({task: given}, sort_keys=False, width=120)).splitlines()
