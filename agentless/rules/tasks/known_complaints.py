"""Finds the known complaint that matches a message."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentless.model.nodes.complaint import Known
from agentless.model.text import printable

ENGINE_ITSELF = r"(?<!process: )(?<!caused: )(?<!caused \\\")"
"""Text before `exec:` if a program of the engine is missing. For a program of a task, runc writes `process: `."""

END = 1000
"""Characters at each end of a message that are searched."""


def find(complaint: str, among: Iterable[Known]) -> tuple[Known, str] | None:
    """The first known complaint that matches, with the matching line, shortened."""
    complaint = ends(complaint)
    for known in among:
        if match := re.search(known.pattern, complaint, re.IGNORECASE | re.DOTALL):
            what = printable(re.sub(r"\s+", " ", match.groupdict().get("what") or "").strip())
            return known, without_end(what)[:200]
    return None


def ends(complaint: str) -> str:
    """The two ends of a long message. Searching it as a whole takes more than linear time."""
    return complaint if len(complaint) <= 2 * END else f"{complaint[:END]} … {complaint[-END:]}"


def without_end(line: str) -> str:
    """The line without the trailing text that Go and its nested quoting add."""
    return re.sub(r"[\\\"]*(\\+n[\\\"]*)?(: unknown)?\.?$", "", line)
