"""Places: what the dashboard shows, as the path of an address: `/tasks/ID/log`, `/gpus/NODE/0`. No widgets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote, unquote

from agentless.model.text import printable

OVERVIEW = "overview"
LONGEST = 512
"""Characters of the longest path."""
_PARTS = {"tasks": (0, 1, 2), "gpus": (0, 2), "nodes": (0, 1), "vps": (0, 1), "workflows": (0, 1)}
"""How many parts may follow a view; no other view has any."""
_VIEW = re.compile(r"[a-z]{1,20}")


@dataclass(frozen=True, slots=True)
class Place:
    """A view, and what of it is open: a task, a node, a GPU's node, a VPS or a workflow; `part`: log, or the GPU."""

    view: str = OVERVIEW
    about: str = ""
    part: str = ""

    @property
    def path(self) -> str:
        """The path; that of the overview is `/`."""
        view = "" if self.view == OVERVIEW else self.view
        return "/" + "/".join(quote(word, safe="") for word in (view, self.about, self.part) if word)

    @property
    def name(self) -> str:
        """The name of what is open, as commands take it."""
        return f"{self.about}::{self.part}" if self.view == "gpus" and self.about else self.about

    @property
    def title(self) -> str:
        """What is open, in words; empty if that is a whole view."""
        if not self.about:
            return ""
        kinds = {"tasks": "Log of" if self.part else "Task", "gpus": "GPU", "vps": "VPS"}
        return f"{kinds.get(self.view, self.view.removesuffix('s').title())} {self.name}"


def parsed(path: str) -> Place | None:
    """The place of a path, which may be anything; None if it is the path of none. Its view may not exist."""
    if len(path) > LONGEST:
        return None
    view, *parts = (unquote(word) for word in path.strip("/").split("/"))
    view = view or OVERVIEW
    if not _VIEW.fullmatch(view) or len(parts) not in _PARTS.get(view, (0,)):
        return None
    if any(not word or printable(word) != word or "�" in word for word in parts):
        return None
    if view == "tasks" and parts[1:] not in ([], ["log"]):
        return None
    return Place(view, *parts)
