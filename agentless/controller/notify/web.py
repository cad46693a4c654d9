"""Sends a message to a web address.

What a server answers is never read, only its status and a few headers, each of bounded size. Neither the address nor a
token is in any error.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.request import getproxies, proxy_bypass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from agentless import __version__
from agentless.errors import NotSent

WITHIN = 30.0
"""Seconds for a message, with all redirects."""
MOST_REDIRECTS = 5
_SAME_METHOD = (301, 302, 307, 308)
_LOOKUPS = threading.BoundedSemaphore(8)
"""Threads that may look up names at the same time; a resolver may not answer for long."""


async def post(address: str, body: bytes, headers: Mapping[str, str]) -> None:
    """Send a message. Raises NotSent unless the server has accepted it."""
    url = parse_url(address)
    given = {"Content-Type": "application/json", "User-Agent": f"agentless/{__version__}", **headers}
    try:
        async with (
            asyncio.timeout(WITHIN),
            aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(resolver=_Resolver(), force_close=True, use_dns_cache=False),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            ) as session,
        ):
            for _ in range(MOST_REDIRECTS + 1):
                found = await _once(session, url, body, given)
                if found is None:
                    return
                url = found
    except NotSent:
        raise
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError, asyncio.LimitOverrunError) as error:
        raise NotSent(_why(error)) from None
    raise NotSent(f"the server redirects more than {MOST_REDIRECTS} times")


def parse_url(address: str) -> URL:
    """An address as a URL. Raises NotSent for what is none."""
    try:
        url = URL(address)
        if url.scheme in ("http", "https") and url.host and url.port:
            return url
    except ValueError:
        pass
    raise NotSent("the address must begin with https:// or http:// and a host")


async def _once(session: aiohttp.ClientSession, url: URL, body: bytes, headers: Mapping[str, str]) -> URL | None:
    """Send it to one address. Returns where it must be sent instead, None if it was accepted."""
    sending = session.post(url, data=body, headers=headers, allow_redirects=False, proxy=_proxy(url))
    async with sending as answer:
        if 200 <= answer.status < 300:
            return None
        if answer.status in _SAME_METHOD:
            return _redirected(url, answer.headers.get("Location", ""))
        raise NotSent(f"the server answered {_words(answer.status)}", _put_off(answer.headers.get("Retry-After", "")))


def _redirected(url: URL, location: str) -> URL:
    """The new address: only of the same server, so that neither message nor token goes to another one."""
    try:
        new = url.join(URL(location))
    except ValueError:
        raise NotSent("the server redirects to an address that is none") from None
    upgraded = (url.scheme, url.port, new.scheme, new.port) == ("http", 80, "https", 443)
    if not location or new.host != url.host or not (upgraded or (new.scheme, new.port) == (url.scheme, url.port)):
        raise NotSent("the server redirects to another server; use the final address")
    return new.with_user(url.user).with_password(url.password) if url.user else new


def _proxy(url: URL) -> str | None:
    """The proxy for an address, as curl and others choose it: by https_proxy, http_proxy, all_proxy and no_proxy."""
    if proxy_bypass(f"{url.host}:{url.port}"):
        return None
    proxies = getproxies()
    found = proxies.get(url.scheme) or proxies.get("all")
    if found and URL(found).scheme not in ("http", "https"):
        raise NotSent("the proxy of the environment is not supported; use one that begins with http://")
    return found or None


def _words(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def _put_off(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() and len(text) < 8 else 0.0


def _why(error: Exception) -> str:
    """The error in words of our own: those of a library may have the address."""
    match error:
        case TimeoutError():
            return f"the server did not answer within {WITHIN:g} s"
        case aiohttp.ClientConnectorCertificateError() | ssl.SSLCertVerificationError():
            return "the certificate of the server cannot be verified"
        case aiohttp.ClientConnectorDNSError():
            return "cannot resolve the name of the server"
        case aiohttp.ClientHttpProxyError():
            return f"the proxy answered {_words(error.status)}"
        case aiohttp.ClientProxyConnectionError():
            return "cannot connect to the proxy"
        case aiohttp.ClientSSLError():
            return "TLS with the server failed"
        case aiohttp.ClientConnectorError():
            return f"cannot connect to the server: {os.strerror(error.os_error.errno or errno.EIO)}"
        case aiohttp.ServerDisconnectedError():
            return "the server closed the connection without an answer"
        case aiohttp.ClientResponseError():
            return "the answer of the server is not HTTP, or has headers that are too large"
        case aiohttp.InvalidURL() | ValueError():
            return "the address is not valid"
        case _:
            return "the connection to the server broke"


class _Resolver(AbstractResolver):
    """Looks up names in threads that nobody waits for, so that a resolver that hangs holds up nothing else."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """The addresses of a host."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[list[Any]] = loop.create_future()
        if not _LOOKUPS.acquire(blocking=False):
            raise OSError("too many names are being looked up")

        def finish(found: list[Any] | OSError) -> None:
            if done.cancelled():
                return
            if isinstance(found, OSError):
                done.set_exception(found)
            else:
                done.set_result(found)

        def look_up() -> None:
            found: list[Any] | OSError
            try:
                found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
            except (OSError, UnicodeError) as error:
                found = error if isinstance(error, OSError) else OSError("not a name")
            finally:
                _LOOKUPS.release()
            with contextlib.suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(finish, found)

        threading.Thread(target=look_up, name="notify lookup", daemon=True).start()
        return [
            ResolveResult(
                hostname=host, host=address[0], port=address[1], family=found, proto=proto, flags=socket.AI_NUMERICHOST
            )
            for found, _, proto, _, address in await done
        ]

    async def close(self) -> None:
        """Nothing to close."""
