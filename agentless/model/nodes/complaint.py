"""What an engine may complain of, and whose fault it is."""

from __future__ import annotations

from typing import Literal, NamedTuple

Blame = Literal["task", "fit", "engine", "gpus", "start"]
"""The reason of a failed launch: the task, that it does not fit this node (`errors.NodeUnfit`), or what does not work
on the node, as in `errors.NodeBroken`.

What is not known for certain to be the node's is the task's: else one bad task would keep all others off node by node.
"""


class Known(NamedTuple):
    """A complaint that is known by a pattern, the sentence for it, and the reason of a launch that fails with it."""

    pattern: str
    sentence: str
    blame: Blame = "start"
