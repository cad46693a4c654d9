"""Checks of clusters with queues of their own: the login node, the cluster's programs, and a job."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Sequence

from agentless.controller.nodes.broken import broken
from agentless.controller.nodes.cluster_link import ClusterLink
from agentless.controller.nodes.registry import Nodes
from agentless.errors import AgentlessError
from agentless.model.nodes.check import Check, skipped
from agentless.model.nodes.checkup import Checkup, Contact
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.view import CheckView
from agentless.remote import approach
from agentless.remote.transports import SshFiles
from agentless.rules.nodes.checks import clusters, connection
from agentless.rules.views.publish import check_view


class ClusterDoctor:
    """Runs the checks of `agentless doctor` on clusters."""

    def __init__(self, nodes: Nodes, files: SshFiles) -> None:
        self._nodes = nodes
        self._files = files

    async def examine(self, names: Iterable[str]) -> list[CheckView]:
        """Check the clusters of these names, or all if none is named."""
        _, links = self._nodes.places(names)
        return _views(links, await asyncio.gather(*map(self._examine, links), return_exceptions=True), "answer")

    async def run(self, names: Iterable[str]) -> list[CheckView]:
        """Run a job on each of these clusters."""
        _, links = self._nodes.places(names)
        return _views(links, await asyncio.gather(*map(_try, links), return_exceptions=True), "run")

    async def _examine(self, link: ClusterLink) -> list[Check]:
        way = asyncio.create_task(approach.look(link.node, self._files))
        await link.ready()
        contact = Contact(
            failure=None if link.online else link.failure,
            logged_in=link.connection.logged_in,
            address=link.session.address,
            sessions=link.session.sessions,
            noise=link.session.noise,
            began=link.session.began,
        )
        known = Checkup(approach=await way, contact=contact)
        found = list(connection.checks(link.node, link.observation.error, known))
        if not link.online or link.node.slurm is None:
            return [*found, *clusters.unasked()]
        answer = link.runtime.parse_checkup(await link.run(link.runtime.checkup()))
        nodes: Sequence[ClusterNode] | str = ()
        if answer and answer.is_up:
            try:
                nodes = await link.nodes()
            except AgentlessError as error:
                nodes = str(error)
        return [*found, *clusters.checks(link.node, link.node.slurm, answer, nodes)]


async def _try(link: ClusterLink) -> list[Check]:
    await link.ready()
    if not link.online:
        return [skipped("run", "skipped; the login node does not answer")]
    said = link.runtime.parse_checkup(await link.run(link.runtime.checkup()))
    if said is None or not said.is_up or said.lacks:
        return [skipped("run", "skipped; Slurm does not answer")]
    has_gpus = any(node.gpus for node in await link.nodes())
    command = link.runtime.trial(secrets.token_hex(4), gpus=has_gpus)
    return list(clusters.tried(link.runtime.parse_trial(await link.run(command)), gpus=has_gpus))


def _views(links: Sequence[ClusterLink], found: Sequence[list[Check] | BaseException], name: str) -> list[CheckView]:
    """The checks of each. What goes wrong with one cluster is a failed check of that cluster."""
    views = []
    for link, each in zip(links, found, strict=True):
        if isinstance(each, BaseException) and not isinstance(each, Exception):
            raise each
        checks = [broken(name, link.node.name, each)] if isinstance(each, Exception) else each
        views += [check_view(link.node.name, check) for check in checks]
    return views
