"""Checks what tasks need: each node, and the files of the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace

from agentless.controller.nodes.broken import broken
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.registry import Nodes
from agentless.controller.state.ledger import Ledger
from agentless.errors import AgentlessError
from agentless.gpus.vendors import GpuVendors
from agentless.model.command import Command, Result, join_sections, split_sections
from agentless.model.nodes.checkup import SYSTEM, Checkup, Contact
from agentless.model.nodes.cluster import Node
from agentless.model.view import CheckView
from agentless.ports import Clock
from agentless.remote import approach, checkup
from agentless.remote.transports import SshFiles
from agentless.render import Renderer
from agentless.rules.nodes.checks.examine import examine
from agentless.rules.nodes.checks.machine import named_folders
from agentless.rules.views.publish import check_view

ASKED_WITHIN = 60.0
"""Seconds for a node's answer: the engine and a registry have limits of their own."""


class Doctor:
    """Runs the checks of `agentless doctor`."""

    def __init__(
        self,
        nodes: Nodes,
        ledger: Ledger,
        vendors: GpuVendors,
        renderer: Renderer,
        files: SshFiles,
        clock: Clock,
    ) -> None:
        self._nodes = nodes
        self._ledger = ledger
        self._vendors = vendors
        self._renderer = renderer
        self._files = files
        self._clock = clock

    async def examine(self, nodes: Iterable[str] = ()) -> list[CheckView]:
        """Check these nodes, or all if none is named, and the controller."""
        links, _ = self._nodes.places(nodes)
        asked = await asyncio.gather(*map(self._ask, links), return_exceptions=True)
        seen = self._nodes.cluster().nodes
        found = [
            view
            for link, answer in zip(links, asked, strict=True)
            if (node := seen.get(link.node.name))
            for view in self._views(node, answer)
        ]
        trouble = self._ledger.examine_stores()
        return [*found, CheckView("controller", "state", False, trouble, "failed")] if trouble else found

    def _views(self, node: Node, answer: tuple[Checkup, dict[str, Result]] | BaseException) -> list[CheckView]:
        """The checks of a node. What goes wrong with one node is a failed check of that node."""
        try:
            if isinstance(answer, BaseException):
                raise answer
            return list(self._checks(node, *answer))
        except Exception as error:  # noqa: BLE001
            return [check_view(node.config.name, broken("answer", node.config.name, error))]

    def _checks(self, node: Node, known: Checkup, answer: dict[str, Result]) -> Iterable[CheckView]:
        vendor = self._vendors.checks(answer, node, known.machine.system if known.machine else SYSTEM)
        checks = examine(node, known, vendor, self._nodes.twin(node.name))
        return (check_view(node.name, check) for check in checks)

    async def _ask(self, link: NodeLink) -> tuple[Checkup, dict[str, Result]]:
        """Ask a node, and look at the way to it meanwhile."""
        way = asyncio.create_task(approach.look(link.node, self._files))
        await link.ready()
        said, answer = await self._look(link)
        if said.engine and said.engine.fault == "denied":
            # It may have been allowed since the login.
            await link.connection.renew()
            said, answer = await self._look(link)
        contact = Contact(
            failure=None if link.online else link.failure,
            logged_in=link.connection.logged_in,
            address=link.session.address,
            sessions=link.session.sessions,
            noise=link.session.noise,
            began=link.session.began,
        )
        return replace(said, approach=await way, contact=contact), answer

    async def _look(self, link: NodeLink) -> tuple[Checkup, dict[str, Result]]:
        """What the node says, as far as it does."""
        answer: dict[str, Result] = {}
        machine = engine = silence = None
        folders = named_folders(link.node)
        if link.online:
            sections = (
                *checkup.sections(self._renderer, folders),
                link.runtime.checkup(),
                *self._vendors.checkup(self._renderer),
            )
            asked = self._clock.now()
            # One that breaks off meanwhile says so by itself.
            refreshed = asyncio.gather(link.refresh(), return_exceptions=True)
            try:
                answer = split_sections((await link.run(Command(join_sections(sections), timeout=ASKED_WITHIN))).stdout)
            except AgentlessError as error:
                silence = str(error)
            answered = self._clock.now()
            await refreshed
            machine = checkup.parse(answer, folders, asked, answered)
            engine = link.runtime.parse_checkup(answer)
            if machine is None:
                silence = silence or f"{link.node.name} broke off its answer"
        return Checkup(machine=machine, engine=engine, silence=silence), answer
