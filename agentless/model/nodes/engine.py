"""Engines by name, and what an engine needs to give devices to a task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

EngineName = Literal["docker", "podman", "systemd"]
Way = Literal["runtime", "cdi"]
"""How an engine hands out GPUs: by a runtime or hook of the vendor's toolkit, or by CDI files on the node."""


@dataclass(frozen=True, slots=True)
class Lookup:
    """A script, the template with its values, by which a launch looks devices up on the node, under its lock.

    It prints words that no shell changes: arguments for the engine's command, or `NAME=VALUE` for a task without a
    container. If it fails, nothing is started.
    """

    template: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Injection:
    """How devices are given to a task: arguments for the engine's command, and environment variables.

    `lookup` finds those that are known on the node only.
    """

    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    lookup: Lookup | None = None


@dataclass(frozen=True, slots=True)
class Toolkit:
    """What an engine needs on the node to hand out the GPUs of `vendor`.

    Docker has it if it knows the `runtime`, if one of the `programs` is installed, or if it has found CDI devices of
    the kind `cdi`; podman if a CDI file on the node lists such devices. `fixes` say for each engine how to install it,
    `lists` is the command that writes that file. If it `is_optional`, the engine hands out GPUs without it, too.
    """

    vendor: str
    runtime: str
    programs: tuple[str, ...]
    cdi: str
    fixes: Mapping[EngineName, str] = field(default_factory=dict)
    lists: str = ""
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class ToolkitFacts:
    """In which way a node's engine hands out a vendor's GPUs, None if it cannot, and how to fix that.

    With CDI, `fix` is the command that lists the devices again. If it `is_optional`, GPUs that are not listed are given
    all the same.
    """

    way: Way | None
    fix: str = ""
    is_optional: bool = False

    @property
    def ready(self) -> bool:
        """Whether it can."""
        return self.way is not None
