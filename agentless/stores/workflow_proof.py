"""What outlives the state folder, so that labels of workflows can be believed: a key, and which jobs were stopped.

Both are in `workflows/` of the configuration folder. The key is made when the first label is written. A state folder
has a key of its own, which follows from that one: what another controller of the same user has signed is nothing here.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from agentless.errors import StateError
from agentless.model.tasks.task_id import is_task_id
from agentless.stores import private

_LENGTH = 32


class WorkflowProof:
    """The key, and the ids of jobs that were stopped or ended without a start. Made at first need.

    `stops` is how many the record has, `recorded` how many it must have, as far as this process knows: labels have
    that number, so an old copy of the record is noticed. None: no label was ever written. `pending` are those that
    could not be written yet.
    """

    def __init__(self, folder: Path, state: Path) -> None:
        self._folder = folder
        self._about = os.path.abspath(state).encode("utf-8", "surrogateescape")
        self._stopped = folder / f"stopped-{hashlib.sha256(self._about).hexdigest()[:12]}"
        known = self._lines()
        self.recorded = None if known is None else len(known)
        self.pending: dict[str, None] = {}
        self._written = set(known or ())
        self._is_synced = False

    def key(self) -> bytes | None:
        """The key of this state folder; None if there is none, or if others could read or write it."""
        try:
            with open(self._folder / "key", "rb") as file:
                status = os.fstat(file.fileno())
                found = file.read(_LENGTH + 1)
        except OSError:
            return None
        if len(found) != _LENGTH or status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
            return None
        return hmac.new(found, self._about, hashlib.sha256).digest()

    def make(self) -> bytes:
        """Likewise; makes it if there is none. Raises StateError."""
        with private.explained(f"cannot write the key of workflows in {self._folder}"):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self._folder / "key"
            if not path.exists():
                new = private.fresh(self._folder / f"key-{os.getpid()}", secrets.token_bytes(_LENGTH))
                try:
                    os.link(new, path)  # of two controllers that do this at once, one makes it
                except FileExistsError:
                    pass
                finally:
                    new.unlink()
                self._is_synced = False
            if not self._stopped.exists():
                private.make(self._stopped)
                self._is_synced = False
            if not self._is_synced:  # each launch asks for the key, and a sync takes longer than all else of that
                private.sync_folder(self._folder)
                self._is_synced = True
        self.recorded = self.recorded or 0
        if (key := self.key()) is None:
            raise StateError(
                f"{self._folder / 'key'} is not a key that only you can read; remove it, and a new one is made"
            )
        return key

    @property
    def stops(self) -> int | None:
        """How many stops were recorded; None if the record is missing."""
        found = self._lines()
        return None if found is None else len(found)

    def stopped(self) -> frozenset[str] | None:
        """The ids of the jobs; None if the record is missing."""
        found = self._lines()
        return None if found is None else frozenset(found)

    def record(self, jobs: Iterable[str]) -> None:
        """Add jobs, and those that are pending, on disk before this returns; none if no label was ever written.

        Raises StateError. Then they are pending.
        """
        if self.recorded is None:
            return
        self.pending |= {job: None for job in jobs if is_task_id(job) and job not in self._written}
        if not self.pending:
            return
        with private.explained(f"cannot record stopped jobs in {self._folder}"):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            opened = os.open(self._stopped, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                _append(opened, "".join(f"{job}\n" for job in self.pending).encode())
            finally:
                os.close(opened)
        self.recorded += len(self.pending)
        self._written.update(self.pending)
        self.pending.clear()

    def _lines(self) -> list[str] | None:
        try:
            with open(self._stopped, encoding="ascii", errors="replace") as file:
                return file.read().split("\n")[:-1]
        except OSError:
            return None


def _append(opened: int, text: bytes) -> None:
    """Add whole lines to a file, synced to disk. Raises OSError, and then leaves no part of them if it can."""
    size = os.fstat(opened).st_size
    whole = os.pread(opened, size, 0).rfind(b"\n") + 1
    if whole < size:  # the rest of a line, of a write that was cut off
        os.ftruncate(opened, whole)
    try:
        while text:
            text = text[os.write(opened, text) :]
        os.fsync(opened)
    except OSError:
        with contextlib.suppress(OSError):
            os.ftruncate(opened, whole)
        raise
