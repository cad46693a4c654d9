"""Somebody who uses agentless from a laptop of their own: a controller as a process, and what they asked of it."""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from agentless.client.client import Client, RequestFailed
from agentless.client.connection import Connector
from agentless.errors import AgentlessError
from tests import ready
from tests.faults.controller_log import ControllerLog
from tests.fleet import hasty
from tests.fleet.world import MARK

AT_ONCE = 30.0
"""Seconds within which the controller answers what it knows; for a node that is silent it waits eight."""

_CONNECTING = threading.Lock()


class _Connector(Connector):
    """Connecting changes the working directory for a moment, which all threads share."""

    def connect(self):
        with _CONNECTING:
            return super().connect()


class _Client(Client):
    """One for several threads."""

    def __init__(self, *args):
        super().__init__(*args)
        self._controller = _Connector(self._state, self._inventory)


class Request:
    """One request under way in a thread of its own; `done` when there is an `answer` or an `error`."""

    def __init__(self, client: Client, method: str, path: str, *args: object, **query: object) -> None:
        self.words = f"{method} {path}"
        self.answer: Any = None
        self.error: Exception | None = None

        def ask() -> None:
            try:
                self.answer = getattr(client, method)(path, *args, **query)
            except Exception as error:  # noqa: BLE001 - it would end with the thread, unseen
                self.error = error

        self._thread = threading.Thread(target=ask, daemon=True)
        self._thread.start()

    def wait(self, within: float) -> bool:
        """Whether it is done, after so many seconds at most."""
        self._thread.join(within)
        return self.done

    @property
    def done(self) -> bool:
        return not self._thread.is_alive()

    @property
    def foreseen(self) -> bool:
        """Whether its error is a sentence for the user. An internal error of the server is of no kind."""
        no_kind = isinstance(self.error, RequestFailed) and not self.error.error
        return isinstance(self.error, AgentlessError) and not no_kind


class Person:
    """`name` in the folder `root`.

    `accepted` are the tasks that they were told of and that have to be known, `promised` all that they were told run,
    `forgotten` those that only their containers can tell of, `refused` the targets that they were not given: the mark
    of the submit and the node. `looks` are the seconds between two full looks of their controller.
    """

    def __init__(self, name: str, root: Path, inventory: Path, known_hosts: Path, looks: float) -> None:
        self.name = name
        self.accepted: set[str] = set()
        self.promised: set[str] = set()
        self.forgotten: set[str] = set()
        self.has_lost_its_state = False
        self.refused: set[tuple[str, str]] = set()
        self._state, self._inventory = root / "state" / "agentless", root / "inventory.yaml"
        self.log = ControllerLog(self._state)
        self._all_nodes = inventory.read_text()
        config = root / "config" / "agentless"
        config.mkdir(parents=True)
        self._inventory.write_text(self._all_nodes)
        (config / "known_hosts").write_bytes(known_hosts.read_bytes())
        self._env = {
            **os.environ,
            "HOME": str(root),
            "LOGNAME": name,
            "XDG_CONFIG_HOME": str(root / "config"),
            "XDG_STATE_HOME": str(root / "state"),
            hasty.LOOKS: str(looks),
        }
        self._process: int | None = None
        """A descriptor of the process of the controller."""
        self._client = _Client(self._state, None)
        self._asked: list[Request] = []
        self._submits: list[tuple[str, Request]] = []
        self._removals: list[tuple[str, Request]] = []
        self._blunders: list[str] = []

    def start(self) -> None:
        """Start the controller if it does not run, as the first command does."""
        if self._process is not None:
            return
        reader, writer = os.pipe()
        theirs, self._stdin = os.pipe()
        ready.hasty(self._state, self._inventory, self._env, writer, theirs)
        os.close(writer)
        os.close(theirs)
        with os.fdopen(reader) as answer:
            pid, _, said = answer.read().partition(" ")
        assert said == "ready", f"{self.name}'s controller did not start: {said or self.log.text}"
        self._process = os.pidfd_open(int(pid))
        self._pid = int(pid)

    @property
    def pid(self) -> int | None:
        """The process of the controller, None when it does not run."""
        return None if self._process is None or select.select([self._process], [], [], 0)[0] else self._pid

    @property
    def environment(self) -> dict[str, str]:
        """What their commands are typed in."""
        return self._env | {"AGENTLESS_INVENTORY": str(self._inventory)}

    def crash(self) -> None:
        """Kill -9 of the controller."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._process, signal.SIGKILL)
            select.select([self._process], [], [])
            os.close(self._process)
            os.close(self._stdin)
            self._process = None

    def forget(self) -> None:
        """Lose the state folder after a crash; what the nodes carry comes back with `recover`."""
        shutil.rmtree(self._state, ignore_errors=True)
        self.has_lost_its_state = True
        self.forgotten |= self.accepted

    def owed(self, there: Collection[str]) -> set[str]:
        """The tasks that have to be known when the containers of these are on the nodes."""
        return self.accepted - self.forgotten.difference(there)

    def come_to_terms(self, there: Collection[str]) -> None:
        """Think no more of what was forgotten for good."""
        self.accepted = self.owed(there)
        self.forgotten.clear()

    def strike(self, node: str) -> None:
        """Take a node out of the inventory."""
        kept = [line for line in self._inventory.read_text().splitlines() if not line.startswith(f"  {node}:")]
        self._write("\n".join(kept) + "\n")

    def swap(self, node: str, other: str) -> None:
        """Write the address of another node beside the name of this one, and put it right when it was looked at."""
        right = self._inventory.read_text()
        lines = {line.partition(":")[0].strip(): line for line in self._all_nodes.splitlines()}
        if lines[node] in right:
            self._write(right.replace(lines[node], lines[other].replace(other, node, 1)))
            self._answer("get", f"/v1/nodes/{node}")
            self._write(right)
            self._answer("get", f"/v1/nodes/{node}")

    def list_all(self) -> None:
        """Have all nodes in the inventory."""
        self._write(self._all_nodes)

    # ------------------------------------------------------------------ requests

    def submit(
        self, mark: str, targets: Sequence[str], command: Sequence[str], secrets: dict[str, str], *, queue: bool
    ) -> Request:
        """Begin to start a task on each of these targets, or to queue it; no two are on one node."""
        spec = {"command": command, "stop_grace": 0.3, "labels": {MARK: mark}, "secret_env": [*secrets]}
        spec["terms"] = {"wait_for": None if queue else 0}
        return self.order(mark, {"targets": targets, "spec": spec, "secrets": secrets})

    def order(self, mark: str, body: dict[str, Any]) -> Request:
        """Begin a submit as the API takes it, of tasks with this mark."""
        request = self.ask("post", "/v1/tasks", body)
        self._submits.append((mark, request))
        return request

    def change(self, verb: str, task: str) -> Request:
        """Begin to stop, kill, pause or resume a task."""
        return self.ask("post", f"/v1/tasks/{task}/{verb}")

    def remove(self, task: str, *, force: bool) -> Request:
        """Begin to remove a task. If nobody says what came of it, it may be known or not."""
        request = self.ask("delete", f"/v1/tasks/{task}", force=force)
        if task in self.accepted:
            self.accepted.discard(task)
            self._removals.append((task, request))
        return request

    def tasks(self) -> list[dict[str, Any]]:
        """`ps --all`."""
        return self._answer("get", "/v1/tasks", ended=True, limit=100_000)

    def nodes(self) -> list[dict[str, Any]]:
        """`nodes`."""
        return self._answer("get", "/v1/nodes")

    def gpus(self) -> list[dict[str, Any]]:
        """`gpus`."""
        return self._answer("get", "/v1/gpus")

    def events(self, task: str) -> list[dict[str, Any]]:
        """`events TASK`."""
        return self._answer("get", f"/v1/tasks/{task}/events")

    def recover(self) -> None:
        """`recover --yes`, if there is a reason for it."""
        if not self.has_lost_its_state:
            return
        found = self._answer("get", "/v1/recovery")
        self._answer("post", "/v1/recovery", {"tasks": [task["id"] for task in found["tasks"]]})
        # A node that has not told its containers is asked again.
        self.has_lost_its_state = bool(found["silent"])

    def collect(self) -> list[str]:
        """Take in the answers that have come; gives them in words."""
        words = []
        for mark, request in _done(self._submits):
            for start in request.answer or ():
                words.append(f"#{mark} {start['target']}: {(start['task'] or {}).get('id')} {start['message']}")
                if start["task"]:
                    self.accepted.add(start["task"]["id"])
                    runs = start["exit_code"] == 0 and start["task"]["state"] != "pending"
                    self.promised |= {start["task"]["id"]} if runs else set()
                else:
                    self.refused.add((mark, start["target"].partition("::")[0]))
        for task, request in _done(self._removals):
            if isinstance(request.error, RequestFailed):
                self.accepted.add(task)
        failed = [request for request in self._asked if request.done and request.error]
        self._blunders += [f"{request.words}: {request.error!r}" for request in failed if not request.foreseen]
        self._asked = self.waits()
        return [*words, *(f"{request.words}: {request.error}" for request in failed)]

    def unforeseen(self) -> list[str]:
        """What may never happen, since the last time: errors that are no sentence for a user, exceptions in the log."""
        found, self._blunders = [*self._blunders, *self.log.unforeseen()], []
        return [f"{self.name}: {words}" for words in found]

    def waits(self) -> list[Request]:
        """The requests that have not been answered."""
        return [request for request in self._asked if not request.done]

    def _write(self, inventory: str) -> None:
        fresh = self._inventory.with_suffix(".new")
        fresh.write_text(inventory)
        fresh.replace(self._inventory)

    def _answer(self, method: str, path: str, *args: object, **query: object) -> Any:
        """What nobody has to wait for; raises AgentlessError or TimeoutError."""
        self.start()
        request = Request(self._client, method, path, *args, **query)
        if not request.wait(AT_ONCE):
            raise TimeoutError(f"{request.words} got no answer")
        if request.error:
            raise request.error
        return request.answer

    def ask(self, method: str, path: str, *args: object, **query: object) -> Request:
        """Begin any request."""
        self.start()
        request = Request(self._client, method, path, *args, **query)
        self._asked.append(request)
        return request


def _done(waiting: list[tuple[str, Request]]) -> list[tuple[str, Request]]:
    """Those of these that are done; the others are left in the list."""
    done = [entry for entry in waiting if entry[1].done]
    waiting[:] = [entry for entry in waiting if entry not in done]
    return done
