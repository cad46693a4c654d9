"""Who may come in: links that work once, the sessions that they are exchanged for, and which requests are a page's own.

Loopback is open to every user of a machine, and to every page in a browser there, so neither the address nor the
browser says who asks. No I/O: the time is an argument, and only chance is not.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable

LIFETIME = 600.0
"""Seconds after which a link that nobody has used works no more."""

_LOOPBACK = re.compile(r"(127\.0\.0\.1|localhost|\[::1\])(:[0-9]{1,5})?")


class Door:
    """The links that may yet be used, and the sessions of those who are in. Both are nowhere but here.

    `folder` is the path below which all is served. A browser sends a cookie to every port of a host, so also to what
    a colleague serves on another port of 127.0.0.1, unless that is not below the cookie's path: nobody can ask a
    browser for a path that he cannot guess.
    """

    def __init__(self) -> None:
        self.folder = f"/{secrets.token_urlsafe(16)}/"
        self._expiry: dict[str, float] = {}
        self._sessions: set[str] = set()

    def new_token(self, now: float) -> str:
        """The token of a new link; `now` in seconds of any clock that only goes forward."""
        token = secrets.token_urlsafe(32)
        self._expiry[token] = now + LIFETIME
        return token

    def exchange(self, token: str, now: float) -> str | None:
        """The value of a new session for a token that works, which then works no more; None for any other."""
        self._expiry = {known: expiry for known, expiry in self._expiry.items() if now < expiry}
        found = _find(token, self._expiry)
        if found is None:
            return None
        del self._expiry[found]
        session = secrets.token_urlsafe(32)
        self._sessions.add(session)
        return session

    def is_in(self, session: str) -> bool:
        """Whether a token was exchanged for this session."""
        return _find(session, self._sessions) is not None


def is_loopback(host: str) -> bool:
    """Whether the header Host names this machine itself, so that no foreign name was made to lead here (DNS rebinding).

    Any port: behind `ssh -L` a browser has another one than the server.
    """
    return _LOOPBACK.fullmatch(host) is not None


def is_own_page(origin: str | None, host: str) -> bool:
    """Whether the page that asks came from the same address: every page may open a WebSocket to any."""
    return origin == f"http://{host}"


def _find(said: str, known: Iterable[str]) -> str | None:
    """The one of the known that was said, in a time that says nothing of how much of it was right."""
    said_bytes = said.encode(errors="replace")
    found = [one for one in known if secrets.compare_digest(one.encode(), said_bytes)]
    return found[0] if found else None
