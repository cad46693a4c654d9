"""Draws the pictures of README and docs from the demo: run `make pictures`.

`demo.cast` is `agentless demo` and the dashboard after it, for asciinema; `demo.svg` is its tour as an animation;
`demo.png` is the overview after some minutes.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from unittest.mock import patch

from playwright.sync_api import sync_playwright

from agentless.client.client import Client
from agentless.tui.app import Dashboard

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from tests.browser import ALONE, CHROMIUM  # noqa: E402 - after the folder of the repository is known

CAST = (104, 32)
OVERVIEW = (150, 46)
LIVES = 240.0
"""Seconds that the cluster lives before its overview is drawn: node3 has left and come back."""
LOOKS = 24.0
"""Seconds until the overview has its last hour."""
KEYS = (("", 5.0), ("4", 3.0), ("2", 3.0), ("1", 3.0), ("q", 1.0))
"""Keys in the dashboard, and for how many seconds what they show is looked at."""
PATIENCE = 300_000
"""Milliseconds for the browser."""
LONGEST = 1.5
"""Seconds of a pause in the tour, at most: the machine that draws may be busy."""


class Terminal:
    """A program on a terminal of a size: what it prints, and when."""

    def __init__(self, words: Sequence[str], size: tuple[int, int], environment: dict[str, str]) -> None:
        self.events: list[tuple[float, str]] = []
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        colours = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._process = subprocess.Popen(
            words, env=environment | colours, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        self._began = time.monotonic()
        self._rest = b""

    def read(self, seconds: float, until: str = "\0") -> bool:
        """Read for so long, or until it has printed this. False when it has ended."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if not select.select([self._ours], [], [], left)[0]:
                return True
            try:
                self._rest += os.read(self._ours, 65536)
            except OSError:
                return False  # the other end is closed
            with contextlib.suppress(UnicodeDecodeError):  # a character is not whole yet
                text, self._rest = self._rest.decode(), b""
                self.events.append((time.monotonic() - self._began, text))
                if until in "".join(each for _, each in self.events[-20:]):
                    return True
        return True

    def press(self, keys: str) -> None:
        """Type keys."""
        os.write(self._ours, keys.encode())

    def close(self) -> None:
        """Wait for its end."""
        while self.read(60.0):
            pass
        self._process.wait()
        os.close(self._ours)


def cast() -> str:
    """`agentless demo`, and the dashboard after it, in asciinema's format.

    It is described at https://docs.asciinema.org/manual/asciicast/v2/.
    """
    terminal = Terminal([sys.executable, "-m", "agentless", "demo"], CAST, dict(os.environ))
    terminal.read(300.0, until="Press Enter")
    terminal.read(1.0)
    tour = len(terminal.events)
    terminal.press("\r")
    terminal.read(60.0, until="node4")
    for keys, seconds in KEYS:
        terminal.press(keys)
        terminal.read(seconds)
    terminal.close()
    header = {"version": 2, "width": CAST[0], "height": CAST[1], "title": "agentless demo (simulated nodes)"}
    lines, at, before = [header], 0.0, 0.0
    for number, (when, text) in enumerate(terminal.events):
        at += min(when - before, LONGEST) if number < tour else when - before
        before = when
        lines.append([round(at, 3), "o", text])
    return "".join(json.dumps(line) + "\n" for line in lines)


def tour_of(cast_file: Path, into: Path) -> None:
    """The part of a cast before the dashboard as an animated SVG."""
    lines = cast_file.read_text().splitlines(keepends=True)
    end = next(number for number, line in enumerate(lines) if "Press Enter" in line)
    with tempfile.NamedTemporaryFile("w", suffix=".cast") as file:
        # What is said of other shells has the name of a temporary folder in it.
        file.writelines(lines[:end])
        file.write(json.dumps([json.loads(lines[end])[0] + 4, "o", "\r\n"]) + "\n")
        file.flush()
        program = Path(sys.executable).with_name("termtosvg")
        subprocess.run([program, "render", file.name, into, "-m", "120", "-t", "window_frame"], check=True)


@contextlib.contextmanager
def kept() -> Iterator[dict[str, str]]:
    """`agentless demo --keep`: the environment for commands over it. Of three nodes, there is room for curves."""
    words = [sys.executable, "-u", "-m", "agentless", "demo", "--nodes", "3", "--keep"]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdin is not None and demo.stdout is not None  # noqa: S101, PT018 - Popen's types
        line = next(line for line in demo.stdout if "export" in line)
        try:
            yield dict(re.findall(r"(\w+)=(\S+)", line))
        finally:
            demo.stdin.close()


async def overview() -> str:
    """The dashboard over the inventory of the environment."""
    app = Dashboard(Client.found(None, None))
    async with app.run_test(size=OVERVIEW):
        app.theme = "textual-dark"
        await asyncio.sleep(LOOKS)
        return app.export_screenshot(title="agentless dashboard (simulated nodes)")


def photograph(picture: str, into: Path) -> None:
    """What a browser makes of an SVG: in other programs, the lines of a terminal may not meet."""
    with tempfile.NamedTemporaryFile("w", suffix=".svg") as file, sync_playwright() as playwright:
        file.write(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))  # they would come from the network
        file.flush()
        width, height = (round(float(each)) for each in re.findall(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', picture)[0])
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE.split())
        page = browser.new_page(viewport={"width": width, "height": height})
        page.set_default_timeout(PATIENCE)
        page.goto(Path(file.name).as_uri())
        page.locator("svg").first.screenshot(path=into)
        browser.close()


def main() -> None:
    """Record the tour, then a cluster that has lived for a while."""
    print("recording the demo ...", flush=True)
    (HERE / "demo.cast").write_text(cast())
    tour_of(HERE / "demo.cast", HERE / "demo.svg")
    print(f"living for {LIVES:.0f} s ...", flush=True)
    with kept() as environment:
        time.sleep(LIVES)
        with patch.dict(os.environ, environment):
            picture = asyncio.run(overview())
    photograph(picture, HERE / "demo.png")


if __name__ == "__main__":
    main()
