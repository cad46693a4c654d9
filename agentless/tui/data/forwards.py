"""The ports that are forwarded while the dashboard is open."""

from __future__ import annotations

import socket
import webbrowser
from collections.abc import Callable
from contextlib import suppress

from agentless import paths
from agentless.client.client import Client
from agentless.client.ssh.forward import HOST
from agentless.client.ssh.forwarded_port import ForwardedPort, forward_port
from agentless.model.tasks.port import Port, parse_port
from agentless.tui.data.cluster import Row, is_vps


class Forwards:
    """Forwards ports of tasks; `tell` is called in another thread with why a connection failed."""

    def __init__(self, client: Client, tell: Callable[[str], None]) -> None:
        self._client, self._tell = client, tell
        self._open: dict[tuple[str, int], ForwardedPort] = {}

    def open(self, task: Row, text: str) -> ForwardedPort:
        """Forward what `text` says, `PORT` or `PORT:LOCAL`, unless it is forwarded already.

        Raises UsageError, and Refused for a port of this machine that is taken.
        """
        port = parse_port(text)
        local = port.local if ":" in text else None
        key = _reference(task), port.port
        found = self._open.get(key)
        if found and local in (None, found.port):
            return found
        opened = forward_port(self._client, *key, local, self._tell)
        if found:
            found.close()
        self._open[key] = opened
        return opened

    def of(self, task: Row) -> list[str]:
        """The forwarded ports of a task, in words."""
        return [f"{port.url} → {there}" for (about, there), port in self._open.items() if about == _reference(task)]

    def close(self) -> None:
        """End all of them."""
        for port in self._open.values():
            port.close()


def _reference(task: Row) -> str:
    """What stays the same: a VPS may get another container, which is another task."""
    return str(task["name"] if is_vps(task) else task["id"])


def offered(task: Row) -> list[str]:
    """The ports that a task was submitted with, as they would be typed."""
    return [str(Port(**each)) for each in task.get("ports") or ()]


def from_elsewhere(port: int) -> str:
    """How a browser on another machine reaches a port of this one."""
    return f"ssh -L {port}:{HOST}:{port} {paths.user_name()}@{socket.gethostname()}"


def browse(url: str) -> bool:
    """Open a URL in a browser with a window of its own; whether there is one. Others would draw over the dashboard."""
    with suppress(webbrowser.Error, OSError):
        browser = webbrowser.get()
        has_window = getattr(browser, "background", type(browser) is not webbrowser.GenericBrowser)
        if has_window:
            browser.open(url)  # what it returns says whether its program still runs
            return True
    return False
