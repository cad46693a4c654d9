"""Images from one node to others, through the controller."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal

from agentless.controller.core import Core
from agentless.controller.link import Link
from agentless.errors import AgentlessError, RuntimeFailed
from agentless.model.command import Command
from agentless.model.transfer import Progress, Sent


class Sync:
    """Sends images."""

    def __init__(self, core: Core) -> None:
        self._core = core

    async def send(
        self,
        image: str,
        source: Link,
        targets: Sequence[Link],
        *,
        tags: Sequence[str],
        tell: Callable[[Progress], None] = lambda _: None,
        shared_dir: str | None = None,
        via: Literal["auto", "controller", "straight", "shared"] = "auto",
    ) -> dict[str, Sent | AgentlessError]:
        """Bring an image to nodes, under these names."""
        del shared_dir, via
        results = await asyncio.gather(
            *(self._send(image, source, target, tags, tell) for target in targets), return_exceptions=True
        )
        found: dict[str, Sent | AgentlessError] = {}
        for target, result in zip(targets, results, strict=True):
            if isinstance(result, BaseException) and not isinstance(result, AgentlessError):
                raise result
            found[target.node.name] = result
        return found

    async def _send(
        self, image: str, source: Link, target: Link, tags: Sequence[str], tell: Callable[[Progress], None]
    ) -> Sent:
        began = time.monotonic()
        facts = source.runtime.envs.parse_facts(await source.run(source.runtime.envs.facts(image)))
        if facts is None:
            raise RuntimeFailed(f"{source.node.name} has lost the image")
        mark = secrets.token_hex(8)
        docker = " ".join(target.node.docker)
        names = "".join(f"{docker} tag {facts.id} {tag} && " for tag in tags)
        script = Command(f"printf '%s;' {mark}; {docker} load >/dev/null && {names} echo whole\n")
        sent, said = 0, b""
        async with target.session.dialogue(script) as shell:
            while f"{mark};".encode() not in said:
                chunk = await shell.read()
                if chunk is None:
                    raise RuntimeFailed(f"{target.node.name} took no image")
                said += chunk[1]
            said = b""
            async with source.stream(source.runtime.envs.export(facts.id)) as stream:
                async for fd, data in stream:
                    if fd == 1:
                        await shell.write(data)
                        sent += len(data)
                        rate = sent / max(0.001, time.monotonic() - began)
                        eta = max(0.0, (facts.size - sent) / rate)
                        tell(Progress(target.node.name, "sending", min(sent, facts.size), facts.size, sent, rate, eta))
            await shell.write_eof()
            while chunk := await shell.read():
                said += chunk[1]
        if b"whole" not in said:
            raise RuntimeFailed(f"{target.node.name}: {target.runtime.complaint(said.decode('utf-8', 'replace'))}")
        return Sent(target.node.name, facts.id, sent, facts.size, 0, 0, time.monotonic() - began, "whole")
