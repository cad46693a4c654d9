"""Host keys: shown to a person, and recorded when the person says that the fingerprint is right."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentless.controller.nodes.node_link import NodeLink
from agentless.errors import AgentlessError, HostKeyRejected, Refused, StateError


@dataclass(frozen=True, slots=True)
class HostKey:
    """The host key of a node.

    `trusted`: your `known_hosts` or that of agentless has it. `recorded`: fingerprints that are recorded instead.
    `revoked`: the key is marked as revoked. `error`: why the node did not answer. `address` is where it was shown, of a
    trusted one with several addresses the one that answers; else empty.
    """

    node: str
    trusted: bool
    fingerprint: str = ""
    host: str = ""
    recorded: tuple[str, ...] = ()
    revoked: bool = False
    error: str = ""
    address: str = ""


class HostKeys:
    """agentless's own known_hosts file, besides the user's, which is never written."""

    def __init__(self, known_hosts: Path) -> None:
        self._known_hosts = known_hosts

    async def ask(self, link: NodeLink) -> HostKey:
        """What the node shows now; raises what keeps the node from being asked."""
        await link.ready()
        failure = link.failure
        if isinstance(failure, HostKeyRejected):
            shown = (failure.fingerprint, failure.host, failure.recorded, failure.revoked)
            return HostKey(link.node.name, False, *shown, address=failure.address)
        if failure is not None and link.observation.error is not None:
            raise failure
        return HostKey(link.node.name, True, address=link.session.address)

    async def record(self, link: NodeLink, fingerprint: str) -> HostKey:
        """Record the shown key if it is the one with this fingerprint, and connect."""
        failure = link.failure
        if not isinstance(failure, HostKeyRejected):
            return await self.ask(link)
        if failure.fingerprint != fingerprint:
            raise Refused(
                f"{link.node.name} now presents a different host key ({failure.fingerprint}); compare it again"
            )
        if failure.revoked:
            raise Refused(str(failure))
        self._write(failure)
        await link.ready()
        return await self.ask(link)

    async def ask_all(self, links: Iterable[NodeLink]) -> list[HostKey]:
        """What these nodes show now, all asked at once; one that cannot be asked says why."""
        return list(await asyncio.gather(*(_or_error(link, self.ask(link)) for link in links)))

    async def record_all(self, fingerprints: Mapping[NodeLink, str]) -> list[HostKey]:
        """Record the shown key of each of these nodes, likewise."""
        work = (_or_error(link, self.record(link, shown)) for link, shown in fingerprints.items())
        return list(await asyncio.gather(*work))

    def _write(self, shown: HostKeyRejected) -> None:
        try:
            self._known_hosts.parent.mkdir(parents=True, exist_ok=True)
            old = self._known_hosts.read_text().splitlines() if self._known_hosts.exists() else []
            kind = shown.key.split()[0]
            kept = [line for line in old if line.split()[:2] != [shown.host, kind]]
            fresh = self._known_hosts.with_suffix(".new")
            fresh.write_text("\n".join([*kept, f"{shown.host} {shown.key}"]) + "\n")
            os.replace(fresh, self._known_hosts)
        except OSError as error:
            raise StateError(f"cannot write {self._known_hosts}: {error.strerror}") from None


async def _or_error(link: NodeLink, work: Coroutine[Any, Any, HostKey]) -> HostKey:
    try:
        return await work
    except AgentlessError as error:
        return HostKey(link.node.name, False, error=str(error))
