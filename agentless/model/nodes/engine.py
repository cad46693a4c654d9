"""Engines by name, and what an engine needs to give devices to a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EngineName = Literal["docker", "podman", "systemd"]


@dataclass(frozen=True, slots=True)
class Injection:
    """How devices are given to a task: arguments for the engine's command, and environment variables."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What an engine needs on the node to hand out the GPUs of `vendor`.

    Docker has it if it knows the `runtime`, or if one of the `programs` is installed; podman if a CDI file on the node
    lists devices of the kind `cdi`. `fixes` say for each engine how to install it.
    """

    vendor: str
    runtime: str
    programs: tuple[str, ...]
    cdi: str
    fixes: Mapping[EngineName, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolkitFacts:
    """Whether a node's engine can hand out a vendor's GPUs, and how to fix it if not."""

    ready: bool
    fix: str = ""
