"""Sends one message to one target."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Mapping
from types import ModuleType
from typing import Any
from urllib.parse import SplitResult, urlsplit, urlunsplit

import orjson

from agentless.controller.notify.program import run_program
from agentless.controller.notify.secret_file import read_secret
from agentless.errors import NotSent
from agentless.model.notify import Digest, NotifyTarget
from agentless.rules.notify import shapes

_SENDMAIL = "/usr/sbin:/usr/lib:/usr/local/sbin"
"""Where sendmail is if it is not on the PATH, which rarely has these folders."""


async def send(target: NotifyTarget, digest: Digest) -> None:
    """Send a message. Raises NotSent."""
    match target.kind:
        case "command":
            content = orjson.dumps(shapes.document(digest, target.name))
            await run_program(target.command, content, shapes.variables(digest, target.name))
        case "mail":
            program = target.command or (await asyncio.to_thread(_sendmail),)
            await run_program((*program, "-oi", "-t"), shapes.mail(digest, target), {})
        case "webhook":
            await _post(
                target, await _address(target), shapes.document(digest, target.name), {"X-Agentless-Id": digest.id}
            )
        case "slack":
            await _post(target, await _address(target), shapes.slack(digest))
        case "discord":
            await _post(target, _answered(await _address(target)), shapes.discord(digest))
        case "ntfy":
            server, topic = _server_and_topic(await _address(target))
            await _post(target, server, shapes.ntfy(digest, topic))


async def _post(
    target: NotifyTarget, address: str, content: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> None:
    given = dict(headers or {})
    if target.token_file:
        given["Authorization"] = f"Bearer {await asyncio.to_thread(read_secret, target.token_file)}"
    web = await asyncio.to_thread(_web)
    await web.post(address, orjson.dumps(content), given)


def _web() -> ModuleType:
    from agentless.controller.notify import web  # noqa: PLC0415 - 0.3 s at first use, in which others go on

    return web


async def _address(target: NotifyTarget) -> str:
    return target.url or await asyncio.to_thread(read_secret, target.url_file)


def _sendmail() -> str:
    found = shutil.which("sendmail") or shutil.which("sendmail", path=_SENDMAIL)
    if found is None:
        raise NotSent("no sendmail on this machine; install one, or set sendmail: in the inventory")
    return found


def _answered(address: str) -> str:
    """Discord says whether it has kept the message only if it is asked to."""
    parts = _split(address)
    query = parts.query if "wait=" in parts.query else "&".join(filter(None, [parts.query, "wait=true"]))
    return urlunsplit(parts._replace(query=query))


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:
        raise NotSent("the address is not valid") from None


def _server_and_topic(address: str) -> tuple[str, str]:
    """The address of the ntfy server, and the topic in it: the last part of the path."""
    parts = _split(address)
    folder, _, topic = parts.path.rstrip("/").rpartition("/")
    if not topic:
        raise NotSent("the address of ntfy must end with a topic, like https://ntfy.sh/my-topic")
    return urlunsplit(parts._replace(path=f"{folder}/", query="", fragment="")), topic
