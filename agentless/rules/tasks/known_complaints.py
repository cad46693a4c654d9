"""Which of the known complaints is meant."""

from __future__ import annotations

import re
from collections.abc import Iterable

from agentless.model.nodes.complaint import Known
from agentless.model.text import printable

ENGINE_ITSELF = r"(?<!process: )(?<!caused: )(?<!caused \\\")"
"""Before `exec:`, where the engine misses a program of its own: runc says `process: ` before that of a task."""

END = 1000
"""Characters of either end of a complaint that are looked at."""


def find(complaint: str, among: Iterable[Known]) -> tuple[Known, str] | None:
    """The first that is meant, with what the complaint says of it on one line of bounded length."""
    complaint = ends(complaint)
    for known in among:
        if match := re.search(known.pattern, complaint, re.IGNORECASE | re.DOTALL):
            what = printable(re.sub(r"\s+", " ", match.groupdict().get("what") or "").strip())
            return known, without_end(what)[:200]
    return None


def ends(complaint: str) -> str:
    """The two ends of a long complaint: patterns are searched for in a time that grows faster than it does."""
    return complaint if len(complaint) <= 2 * END else f"{complaint[:END]} … {complaint[-END:]}"


def without_end(line: str) -> str:
    """The line without what Go and its quoting of several layers add at the end."""
    return re.sub(r"[\\\"]*(\\+n[\\\"]*)?(: unknown)?\.?$", "", line)
