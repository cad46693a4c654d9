"""The VPS by name: the table `vps` of the state file."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import TypeAdapter

from agentless.stores.state.record_table import RecordTable
from agentless.stores.state.tinydb import AtomicStorage


@dataclass(frozen=True, slots=True)
class OwnSnapshot:
    """A snapshot that was made of this VPS: its version, the id of its image, and whether it was made on a stop."""

    version: int
    image: str
    on_stop: bool = False


@dataclass(frozen=True, slots=True)
class VpsRecord:
    """Which task a VPS is now, and its snapshots, oldest first. `task` is empty once it was removed.

    `replaced` are tasks that it was before, whose containers may still be on nodes that do not answer.
    """

    task: str = ""
    snapshots: tuple[OwnSnapshot, ...] = ()
    replaced: tuple[str, ...] = ()


_RECORDS = TypeAdapter(dict[str, VpsRecord])


class VpsStore(RecordTable[VpsRecord]):
    """The records of VPS by name."""

    def __init__(self, storage: AtomicStorage) -> None:
        super().__init__(storage, "vps", _RECORDS, "record of VPS")
