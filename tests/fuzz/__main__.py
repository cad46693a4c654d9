"""`make fuzz`: schemathesis makes requests of what the API says of itself, and none may end in an internal error.

The controller is a real one, on simulated nodes; its app is called in this process. What counts is an exception, an
error that is no sentence of ours, an answer that nobody has waited for, or a job of the controller that failed.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import contextlib
import faulthandler
import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode

from agentless.controller.http import api
from agentless.demo.fleet import Fleet, NodePlan
from tests.fleet.desk import Desk
from tests.fuzz.ask import Answer, ask

WAITS = ("/wait", "/empty", "/stop")
"""The ends of the paths whose answer takes as long as was asked for."""
STUCK = 60
"""Seconds after which the event loop counts as blocked: none of our requests takes more than one."""
HARMLESS = "true"
_WALL = "AGENTLESS_FUZZ_WALL"
EXTREMES = [0, -1, 0.5, 10**9, 2**63 - 1, 2**63, 10**30, 1e300, 5e-324, "nan", "inf", "-inf", "1e400", "9" * 5000]
TEXTS = ["", "\0", "\ud800", "\x1b[2J", "é" * 300, "a" * 5000, "../..", "%ff%00", "nan"]


@dataclass
class World:
    """A controller on a thread of its own, and ids of what is there."""

    root: Path
    known: dict[str, list[str]] = field(default_factory=dict)
    app: Any = None
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    up: threading.Event = field(default_factory=threading.Event)

    def start(self) -> None:
        """Be up when this returns."""
        threading.Thread(target=lambda: self.loop.run_until_complete(self._live()), daemon=True).start()
        assert self.up.wait(60), "the simulated nodes did not start"

    def ask(self, case: schemathesis.Case) -> Answer:
        """One request, as the case has it."""
        words = case.as_transport_kwargs(base_url="http://controller")
        request = requests.Request(**words).prepare()
        patient = case.operation.path.endswith(WAITS)
        asked = asyncio.run_coroutine_threadsafe(ask(self.app, request, cancel=patient), self.loop)
        try:
            return asked.result(STUCK)
        except TimeoutError:
            faulthandler.dump_traceback()
            return Answer(None, "the event loop is blocked")

    def close(self) -> None:
        """End the nodes."""
        self.loop.call_soon_threadsafe(self._over.set)

    async def _live(self) -> None:
        self._over = asyncio.Event()
        async with Fleet(self.root / "fleet", [NodePlan("n1", 4), NodePlan("n2", 1, foreign=True)]) as fleet:
            config = self.root / "config" / "agentless"
            config.mkdir(parents=True)
            (config / "known_hosts").write_bytes(fleet.known_hosts.read_bytes())
            os.environ["XDG_CONFIG_HOME"] = str(self.root / "config")
            desk = Desk(self.root / "desk", fleet)
            async with desk.running() as controller:
                self.app = api.make(controller)
                over = await desk.ended("echo said", "n1::0")
                runs = await desk.submit("sleep 600", "n1::1")
                self.known = {"task": [over, runs, f"{over}-1"], "node": ["n1", "n2"], "place": ["n1", runs]}
                self.up.set()
                await self._over.wait()


class Fuzz:
    """What was asked, and what went wrong: one example of each."""

    def __init__(self, world: World, until: float) -> None:
        self._world, self._until = world, until
        self.statuses = collections.Counter[str]()
        self.wrong: dict[str, str] = {}

    def operation(self, operation: Any, examples: int, number: int) -> None:
        """So many requests of one kind, good and bad."""
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE):

            @seed(number)
            @settings(
                max_examples=max(1, examples // 2),
                database=None,
                deadline=None,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(data=st.data(), case=operation.as_strategy(generation_mode=mode))
            def request(data: st.DataObject, case: schemathesis.Case) -> None:
                if time.monotonic() < self._until:
                    self._aim(data, case)
                    self._judge(operation.label, case)

            # Of a request without parameters nothing can be wrong.
            with contextlib.suppress(Unsatisfiable):
                request()

    def _aim(self, data: st.DataObject, case: schemathesis.Case) -> None:
        """Let most requests mean something that is there, and change one or two things of a good task."""
        case.headers.pop("x-agentless-version", None)  # another version is refused, before anything else is looked at
        if data.draw(st.integers(0, 7)):
            case.headers.pop("x-agentless-inventory", None)  # and so is another inventory
        for name in case.path_parameters or {}:
            if (known := self._world.known.get(name)) and data.draw(st.integers(0, 3)):
                case.path_parameters[name] = data.draw(st.sampled_from(known))
        for name in list(case.query) if isinstance(case.query, dict) else ():
            if name == "node" and data.draw(st.booleans()):
                case.query[name] = "n1"
            elif name == "command":  # it would be run, on this machine
                case.query[name] = [HARMLESS, *(case.query[name] if isinstance(case.query[name], list) else ())]
            elif isinstance(case.query[name], int | float) and not data.draw(st.integers(0, 2)):
                case.query[name] = data.draw(st.sampled_from(EXTREMES))
        body = case.body
        if not isinstance(body, dict):
            return
        if isinstance(spec := body.get("spec"), dict):
            if len(spec) > 2 and data.draw(st.integers(0, 3)):
                kept = data.draw(st.lists(st.sampled_from(sorted(spec)), min_size=1, max_size=2))
                spec = body["spec"] = {"command": [HARMLESS], **{name: spec[name] for name in kept}}
                body.pop("sweep", None)
            if isinstance(spec.get("command"), list):  # likewise
                spec["command"] = [HARMLESS, *spec["command"]]
        for each in body.get("sweep") or () if isinstance(body.get("sweep"), list) else ():
            if isinstance(each, dict) and isinstance(each.get("command"), list):
                each["command"] = [HARMLESS, *each["command"]]
        self._stretch(data, body)
        if "targets" in body and data.draw(st.booleans()):
            body["targets"] = data.draw(st.sampled_from([[], ["n1::0"], ["n1", "n2"], ["1x"]]))

    def _stretch(self, data: st.DataObject, body: Any) -> None:
        """Put numbers and texts in place of others that programs get wrong."""
        for name, value in list(body.items() if isinstance(body, dict) else enumerate(body)):
            if isinstance(value, dict | list):
                self._stretch(data, value)
            elif isinstance(value, int | float) and not isinstance(value, bool) and not data.draw(st.integers(0, 3)):
                body[name] = data.draw(st.sampled_from([each for each in EXTREMES if isinstance(each, int | float)]))
            elif isinstance(value, str) and not data.draw(st.integers(0, 15)):
                body[name] = data.draw(st.sampled_from(TEXTS))

    def _judge(self, label: str, case: schemathesis.Case) -> None:
        try:
            answer = self._world.ask(case)
        except (ValueError, UnicodeError, TypeError):
            self.statuses["cannot be sent"] += 1  # by no client
            return
        self.statuses[str(answer.status)] += 1
        if answer.problem:
            self.wrong.setdefault(f"{label}: {re.sub(r'[0-9]+', 'N', answer.problem)}", case.as_curl_command())


class Complaints(logging.Handler):
    """What the controller logs as unforeseen."""

    def __init__(self, wrong: Mapping[str, str]) -> None:
        super().__init__(logging.ERROR)
        self._wrong = wrong

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        trace = "".join(traceback.format_exception(*record.exc_info)) if record.exc_info else ""
        self._wrong.setdefault(f"log: {record.getMessage()}", trace)


def main() -> int:
    """Ask, and say what went wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzz the HTTP API.")
    parser.add_argument("--examples", type=int, default=60, help="requests of each kind at most (default: 60)")
    parser.add_argument("--seconds", type=float, default=240, help="in all, at most (default: 240)")
    parser.add_argument("--seed", type=int, default=1, help="which requests (default: 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="kinds whose method and path contain this")
    arguments = parser.parse_args()
    _wall_in()
    logging.basicConfig(level=logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="fuzz-") as root:
        world = World(Path(root))
        world.start()
        fuzz = Fuzz(world, time.monotonic() + arguments.seconds)
        logging.getLogger("agentless").addHandler(Complaints(fuzz.wrong))
        logging.getLogger("asyncio").addHandler(Complaints(fuzz.wrong))
        began, kinds = time.monotonic(), 0
        for each in schemathesis.openapi.from_dict(world.app.openapi()).get_all_operations():
            operation = each.ok()
            if arguments.only in operation.label:
                kinds += 1
                fuzz.operation(operation, arguments.examples, arguments.seed)
        world.close()
        time.sleep(1)
    print(f"{fuzz.statuses.total()} requests of {kinds} kinds in {time.monotonic() - began:.0f} s:", end=" ")
    print(", ".join(f"{count} × {status}" for status, count in sorted(fuzz.statuses.items())))
    if time.monotonic() > fuzz._until:
        print("the time was up before all kinds were asked in full")
    for problem, example in sorted(fuzz.wrong.items()):
        print(f"\nWRONG  {problem}\n  {example}")
    return int(bool(fuzz.wrong))


def _wall_in() -> None:
    """Begin again where only /tmp can be written: the nodes have the files of this machine, and paths are made up."""
    if os.geteuid() == 0 and _WALL not in os.environ and shutil.which("unshare"):
        script = 'mount --bind /tmp /tmp && mount -o remount,bind,ro / ; exec "$@"'
        again = [sys.executable, "-m", "tests.fuzz", *sys.argv[1:]]
        words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh", *again]
        os.execvpe(words[0], words, {**os.environ, _WALL: "1", "TMPDIR": "/tmp"})


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
