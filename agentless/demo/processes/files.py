"""Files that somebody may read at any moment."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(file: Path, text: str) -> None:
    """Put a new file in place of one, so that who reads it never sees half of it."""
    new = file.with_name(f".{file.name}")
    new.write_text(text)
    os.replace(new, file)
