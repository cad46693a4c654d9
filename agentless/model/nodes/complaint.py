"""Known error messages of engines, and who is to blame."""

from __future__ import annotations

from typing import Literal, NamedTuple

Blame = Literal["task", "fit", "engine", "gpus", "start"]
"""Who is to blame for a failed launch: the task, a node that does not fit it (`errors.NodeUnfit`), or a broken part of
the node (`errors.NodeBroken`).

An unknown reason counts for the task. Otherwise, one bad task would block one node after the other.
"""


class Known(NamedTuple):
    """A known message: its pattern, the sentence for it, and who is to blame for the failed launch."""

    pattern: str
    sentence: str
    blame: Blame = "start"
