"""The way to a node's SSH server, looked at step by step without a login: its name, its port, its greeting.

Only the first machine on the way can be looked at: what is behind a jump host or a ProxyCommand answers to that only.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Sequence
from dataclasses import replace

from agentless.errors import AgentlessError
from agentless.model.nodes.checkup import Approach
from agentless.model.nodes.node import NodeConfig
from agentless.model.text import cut, printable
from agentless.remote.transports._ssh.route import Hop, SshFiles, routes

WITHIN = 5.0
"""Seconds for each step."""
USUAL = 22
"""The port of SSH servers, looked at if the node has another one at which nobody answers."""
_GREETING = b"SSH-2.0-agentless_doctor\r\n"
"""A server that is greeted does not log an attack."""
_LINES, _LINE = 20, 255
"""What a server may say before its greeting; see RFC 4253, section 4.2."""


async def look(node: NodeConfig, files: SshFiles) -> Approach | None:
    """Look at the way to the node, to its first address that answers; None if it is this machine. Never raises."""
    if node.connection == "local":
        return None
    try:
        ways = await asyncio.to_thread(routes, node, files)
    except (AgentlessError, OSError) as error:
        return Approach(name=node.name, host=node.host, stopped="route", error=str(error))
    first = await _way(ways[0])
    found = first
    for way in ways[1:]:
        if not found.stopped:
            break
        found = await _way(way)
    return first if found.stopped else found


async def _way(hops: Sequence[Hop]) -> Approach:
    first, last = hops[0], hops[-1]
    via = ", ".join(hop.name for hop in hops[:-1])
    found = Approach(first.name, first.host, first.port, last.user, via)
    if first.proxy_command is not None:
        return replace(found, proxied=True, via=", ".join(filter(None, ("a ProxyCommand", via))))
    found = await _steps(first, found)
    if found.stopped == "tcp" and found.port != USUAL:
        usual = await _steps(replace(first, port=USUAL), found)
        return replace(found, usual=usual.banner)
    return found


async def _steps(hop: Hop, found: Approach) -> Approach:
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(WITHIN):
            infos = await loop.getaddrinfo(hop.host, hop.port, type=socket.SOCK_STREAM)
    except TimeoutError:
        return replace(found, stopped="name", error=f"no answer within {WITHIN:g} s")
    except (OSError, UnicodeError) as error:
        return replace(found, stopped="name", error=str(getattr(error, "strerror", None) or error))
    addresses = tuple(dict.fromkeys(str(info[4][0]) for info in infos))
    found = replace(found, addresses=addresses[:8])
    trouble: Exception = OSError("no address")
    for address in found.addresses:
        try:
            async with asyncio.timeout(WITHIN):
                reader, writer = await asyncio.open_connection(address, hop.port, limit=4096)
        except (OSError, TimeoutError) as failed:
            trouble = failed
            continue
        try:
            return await _greeted(reader, writer, found)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()
    if isinstance(trouble, TimeoutError) and trouble.errno is None:
        words = f"no answer within {WITHIN:g} s"
    else:
        number = trouble.errno if isinstance(trouble, OSError) else None
        words = os.strerror(number) if number else str(trouble)
    return replace(found, stopped="tcp", error=words)


async def _greeted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, found: Approach) -> Approach:
    lines: list[str] = []
    try:
        async with asyncio.timeout(WITHIN):
            writer.write(_GREETING)
            while len(lines) < _LINES and (line := await reader.readline()):
                lines.append(cut(printable(line[:_LINE].decode("utf-8", "replace")).strip(), 200))
                if lines[-1].startswith("SSH-"):
                    return replace(found, banner=lines[-1])
    except TimeoutError:
        return replace(found, stopped="ssh", error=f"it accepts a connection but says nothing within {WITHIN:g} s")
    except (OSError, ValueError) as error:
        return replace(found, stopped="ssh", error=str(getattr(error, "strerror", None) or error))
    said = " ".join(lines)
    return replace(found, stopped="ssh", error=f"it says {said[:200]!r}" if said else "it hangs up without a greeting")
