"""A kept log of 10 million lines on the dashboard: opened, searched, and what that takes of memory.

The dashboard runs without a terminal, in a process that also reads the file, as a controller would.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentless.formats.frames import END, frame
from agentless.stores.files.log_pages import LogIndexes, LogPages
from agentless.stores.files.logs import LogStore
from tests.bench.measure import Row

LINES, WIDTH = 10_000_000, 100
"""Lines, and bytes of each: 1 GB."""
LONG = 1 << 20
"""Bytes of the longest line."""
_TASK = "t1"


def bench(_runs: int) -> list[Row]:
    """Once: the figures are of seconds, not of moments."""
    with tempfile.TemporaryDirectory(prefix="agentless-bench-", dir="/var/tmp") as folder:
        _write(Path(folder) / "logs")
        measured = subprocess.run(
            [sys.executable, "-m", "tests.bench.logs", folder], check=True, capture_output=True, text=True
        )
    opened, opening, searched, searching, memory, size = json.loads(measured.stdout)
    what = f"a kept log of {LINES // 10**6} million lines, {size / 1e9:.1f} GB, on the dashboard"
    return [
        Row(f"{what}: until its end is shown", "≤ 1 s", _seconds(opened, opening), opened <= 1),
        Row(f"{what}: a search through all of it", "≤ 5 s", _seconds(searched, searching), searched <= 5),
        Row(f"{what}: memory of both", "≤ 120 MB", f"**{memory:.0f} MB** resident at most", memory <= 120),
    ]


def _seconds(whole: float, processor: float) -> str:
    return f"**{whole:.2f} s** ({processor:.2f} s of a processor)"


def _write(folder: Path) -> None:
    LogStore(folder)
    piece, at = 32_768, 0
    words = (b"loss 0.1234 accuracy 0.9876 lr 0.0003 tokens/s 123456 memory 71234 MiB " * 2)[: WIDTH - 10]
    with (folder / f"{_TASK}.log").open("wb") as file:
        rest = b""
        while at < LINES:
            many = min(20_000, LINES - at)
            rest += b"".join([b"%08d %b\n" % (n, words) for n in range(at, at + many)])
            at += many
            while len(rest) >= piece:
                file.write(frame(1, rest[:piece]))
                rest = rest[piece:]
        file.write(frame(1, rest + b"x" * LONG + b"\nthe end\n") + frame(END))


class _Client:
    """Answers as the controller does, without a socket."""

    def __init__(self, folder: Path) -> None:
        self._indexes = LogIndexes(LogStore(folder))

    def asked(self, path: str, **query: Any) -> dict[str, Any]:
        """The answer to a GET."""
        from agentless.formats.log_index import Part

        with self._indexes.open(_TASK) as log:
            match path.rpartition("/")[2]:
                case "log":
                    return self._about(log)
                case "lines":
                    first, lines = log.lines(Part(**query))
                    found = [{"stream": stream, "text": line.decode(errors="replace")} for stream, line in lines]
                    return {"first": first, "lines": found}
                case "matches":
                    several = log.matches(query["text"], query["first"], only=query["only"])
                    return {"lines": several.lines, "go_on": several.go_on}
                case _:
                    match = log.find(query["text"], query["first"], back=query["back"], only=query["only"])
                    return {"line": match.line, "go_on": match.go_on}

    def _about(self, log: LogPages) -> dict[str, Any]:
        names = {"lines": None, "stdout_lines": 1, "stderr_lines": 2}
        ends = {name: log.index.span(only).end for name, only in names.items()}
        return {"complete": True, "on_node": False, "bytes": log.size, **ends}


async def _measure(folder: Path) -> list[float]:
    """Seconds until it is open, and of the search; after each, those of the processor."""
    from agentless.client.client import Client
    from agentless.tui.app import Dashboard
    from agentless.tui.data.feed import Feed
    from agentless.tui.screens.logs.screen import LogScreen
    from agentless.tui.widgets.log_lines import Log

    Feed.start = lambda _: None  # type: ignore[method-assign, assignment]
    app, served = Dashboard(Client(Path("/nowhere"), None)), _Client(folder / "logs")
    task = {"id": _TASK, "name": "", "state": "completed", "node": "n1", "ended_at": "2026-01-01T00:00:00Z",
            "exit_code": 0, "reason": None}  # fmt: skip

    async with app.run_test(size=(160, 50)) as pilot:
        began, used = time.perf_counter(), time.process_time()
        app.push_screen(LogScreen(app.cluster, task, served))  # type: ignore[arg-type]
        await pilot.pause()
        lines = app.screen.query_one(Log)
        while not lines.span.end or lines.in_view[1] < LINES:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        assert any("the end" in strip.text for strip in app.screen._compositor.render_strips())
        found = [time.perf_counter() - began, time.process_time() - used]
        await pilot.press("g", "slash", *"the end")
        began, used = time.perf_counter(), time.process_time()
        await pilot.press("enter")
        while lines.match is None:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return [*found, time.perf_counter() - began, time.process_time() - used]


if __name__ == "__main__":
    measured = asyncio.run(_measure(Path(sys.argv[1])))
    status = Path("/proc/self/status").read_text()
    memory = int(status.partition("VmHWM:")[2].split()[0]) / 1000
    print(json.dumps([*measured, memory, (Path(sys.argv[1]) / "logs" / f"{_TASK}.log").stat().st_size]))
