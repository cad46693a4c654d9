"""Finding the parts that are one file each, like transports: a new one is a new file, and no registry to edit."""

from __future__ import annotations

import importlib
import pkgutil
from types import ModuleType

from agentless.errors import UsageError


def names(kind: str) -> tuple[str, ...]:
    """The parts there are of a kind; files with a leading underscore are shared, not parts."""
    package = importlib.import_module(f"agentless.{kind}")
    return tuple(sorted(m.name for m in pkgutil.iter_modules(package.__path__) if not m.name.startswith("_")))


def load(kind: str, name: str) -> ModuleType:
    """The module of one part; it is imported only now."""
    if name not in names(kind):
        raise UsageError(f"no {name!r} in {kind}; available: {', '.join(names(kind))}")
    return importlib.import_module(f"agentless.{kind}.{name}")
