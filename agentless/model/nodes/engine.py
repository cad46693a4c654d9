"""Engines by name, and what an engine needs to give devices to a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EngineName = Literal["docker", "podman", "systemd"]
Way = Literal["runtime", "cdi"]
"""How an engine hands out GPUs: by a runtime or hook of the vendor's toolkit, or by CDI files on the node."""


@dataclass(frozen=True, slots=True)
class Injection:
    """How devices are given to a task: arguments for the engine's command, and environment variables."""

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What an engine needs on the node to hand out the GPUs of `vendor`.

    Docker has it if it knows the `runtime`, if one of the `programs` is installed, or if it has found CDI devices of
    the kind `cdi`; podman if a CDI file on the node lists such devices. `fixes` say for each engine how to install it,
    `lists` is the command that writes that file.
    """

    vendor: str
    runtime: str
    programs: tuple[str, ...]
    cdi: str
    fixes: Mapping[EngineName, str] = field(default_factory=dict)
    lists: str = ""


@dataclass(frozen=True, slots=True)
class ToolkitFacts:
    """In which way a node's engine hands out a vendor's GPUs, None if it cannot, and how to fix that.

    With CDI, `fix` is the command that lists the devices again.
    """

    way: Way | None
    fix: str = ""

    @property
    def ready(self) -> bool:
        """Whether it can."""
        return self.way is not None
