"""Who somebody is who comes by ssh: named by the kernel, or by a key that is proved."""

from __future__ import annotations

import asyncssh

from agentless.controller.nodes.login import Login
from agentless.model.text import printable
from agentless.remote.packets import send_no_empty_ones


class Proof(asyncssh.SSHServer):
    """Asks for a key where the container wants one; else for nothing, as only this user can reach the socket."""

    def __init__(self, login: Login) -> None:
        self._login = login

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        """Remember the connection."""
        self._connection = conn
        send_no_empty_ones(conn)

    def begin_auth(self, username: str) -> bool:
        """Whether a key has to be proved."""
        del username
        return self._login.gate is not None

    def public_key_auth_supported(self) -> bool:
        """Take keys."""
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        """Whether this key is one of those listed. That the client has it is proved by its signature."""
        del username
        gate = self._login.gate
        return gate is not None and key.public_data in gate.keys

    def kbdint_auth_supported(self) -> bool:
        """Take what clients try when they have no more keys: only then is it certain that they do not get in."""
        return True

    def get_kbdint_challenge(self, username: str, lang: str, submethods: str) -> bool:
        """Say why, and refuse."""
        del username, lang, submethods
        if gate := self._login.gate:
            self._connection.send_auth_banner(f"agentless: {printable(gate.unlisted)}\r\n")
        return False
