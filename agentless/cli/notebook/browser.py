"""Opens an address that nobody else may see in the user's browser."""

from __future__ import annotations

import contextlib
import html
import os
import sys
import threading
import webbrowser
from pathlib import Path

from agentless import paths

_PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={url}">
<title>Jupyter</title>
<a href="{url}">Open Jupyter</a>
"""


def open_address(url: str, name: str) -> bool:
    """Open it by a page in a file that only this user can read: arguments of programs are seen by all users.

    False if there is no browser for it.
    """
    if not _has_browser():
        return False
    page = paths.state_dir() / "notebooks" / f"{name}.html"
    try:
        page.parent.mkdir(mode=0o700, exist_ok=True)
        page.unlink(missing_ok=True)
        with os.fdopen(os.open(page, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(_PAGE.format(url=html.escape(url)))
    except OSError:
        return False
    threading.Thread(target=_open, args=(page.as_uri(),), daemon=True).start()
    return True


def forget_address(name: str) -> None:
    """Remove that page."""
    Path(paths.state_dir(), "notebooks", f"{name}.html").unlink(missing_ok=True)


def _open(address: str) -> None:
    """In a thread, as some browsers hold up whoever starts them until they end."""
    with contextlib.suppress(webbrowser.Error, OSError, ValueError):
        webbrowser.open(address)


def _has_browser() -> bool:
    """A browser in a window: one in this terminal would take the terminal."""
    has_windows = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return has_windows or bool(os.environ.get("BROWSER"))
