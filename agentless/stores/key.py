"""The key that signs the labels of containers: 32 random bytes in a 0600 file of the state folder."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from agentless.stores import private

_LENGTH = 32


class KeyFile:
    """The key of a state folder. It is created if missing.

    Without the key, only containers of unknown tasks are affected: they count as foreign (see `agentless recover`). So
    the controller starts even if the disk is full, and `warning` says so.
    """

    def __init__(self, path: Path) -> None:
        self.warning: str | None = None
        try:
            self.key = path.read_bytes()
        except OSError:
            self.key = b""
        if len(self.key) != _LENGTH:
            self.key = secrets.token_bytes(_LENGTH)
            try:
                os.replace(private.fresh(path, self.key), path)
            except OSError as error:
                self.warning = (
                    f"cannot write the key {path} ({error.strerror}); make the folder writable: without the "
                    "key, agentless recover cannot verify the tasks started from now on, and asks about each"
                )
