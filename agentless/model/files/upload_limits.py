"""Limits on what is uploaded with a task."""

from __future__ import annotations

MAX_FILES = 50_000
"""Files, folders and links of one upload."""
MAX_BYTES = 1 << 30
"""Bytes of one upload."""
MOST_ARCHIVED = MAX_BYTES + (128 << 20)
"""Bytes of an archive with so much, names and padding included."""
MOST_LEVELS = 256
"""Folders below each other: longer paths than those of some thousand characters can hardly be named any more."""
INSTEAD = "copy data to the nodes and use --mount, or exclude files in .gitignore"
"""What to do about an upload that is too large."""
