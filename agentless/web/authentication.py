"""Authentication: links that work once, the sessions that they give, and whether a request is our own page's.

Loopback is open to every user of a machine and to every page in a browser there, so neither the address nor the browser
says who asks. No I/O but random numbers; the time is an argument.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

LIFETIME = 600.0
"""Seconds for which a link works."""

_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")


class Authentication:
    """The unused links and the open sessions, both only in memory.

    `folder` is the path below which everything is served. A browser sends a cookie to every port of a host, so also
    to what another user serves on 127.0.0.1, unless that is outside of the cookie's path. Nobody can make a browser
    ask for a path that they cannot guess.
    """

    def __init__(self) -> None:
        self.folder = f"/{secrets.token_urlsafe(16)}/"
        self._expiry: dict[str, float] = {}
        self._sessions: set[str] = set()

    def new_token(self, now: float) -> str:
        """The token of a new link; `now` is in seconds of a monotonic clock."""
        token = secrets.token_urlsafe(32)
        self._expiry[token] = now + LIFETIME
        return token

    def exchange(self, token: str, now: float) -> str | None:
        """The value of a new session for a valid token, which is used up then; None for any other."""
        self._expiry = {known: expiry for known, expiry in self._expiry.items() if now < expiry}
        found = _find(token, self._expiry)
        if found is None:
            return None
        del self._expiry[found]
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        return session

    def is_in(self, session: str) -> bool:
        """Whether this session was given for a token."""
        return _find(session, self._sessions) is not None


def is_loopback(host: str) -> bool:
    """Whether the Host header names this machine: no foreign name resolves to it then (DNS rebinding).

    Any port is allowed: behind `ssh -L` the browser's is another one than the server's.
    """
    return _LOOPBACK.fullmatch(host) is not None


def is_own_page(origin: str | None, host: str) -> bool:
    """Whether the page that asks has the same origin: any page may open a WebSocket to any address."""
    return origin == f"http://{host}"


def _find(said: str, known: Iterable[str]) -> str | None:
    """The known value that equals this one, compared in constant time."""
    said_bytes = said.encode(errors="replace")
    found = [one for one in known if secrets.compare_digest(one.encode(), said_bytes)]
    return found[0] if found else None
