"""How much one node may say at once: what it streams beyond that ends the link, see `connection`."""

from __future__ import annotations

from agentless.errors import TooMuch
from agentless.model.command import SECTION
from agentless.remote.session import Session

INSPECTED = 200
"""Containers that the engine is asked about at once, and changes that wait for a look."""
FRAME = 2 * SECTION
"""Bytes of a sample: its sections, and the marks."""
SAMPLE_BYTES = 2 * FRAME, SECTION
"""Bytes that the stream of samples may bring at once, as after a link was slow, and with each second; one has 3 KB."""
EVENT = 1000
"""Bytes of an event. A task's id is cut to fewer on the node."""
EVENT_BYTES = 1 << 20, 64 << 10
"""Bytes that the stream of events may bring at once, for a thousand tasks that end together, and with each second."""
LOOKS = 500, 20
"""Looks at a single task that events may cause at once, and with each second; those beyond wait, and so does the node.

One costs a node 50 ms and us 3: by that a node full of restarting containers cannot take the time of the others."""


def flooded(session: Session, fd: int, what: str) -> TooMuch:
    """The error for a stream that brings too much: of `what` on its standard output, else of errors."""
    return session.flooded(f"sends {what if fd == 1 else 'too many error messages'}")
