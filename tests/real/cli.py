"""The real `agentless` command, run as a person in a shell runs it, in an environment of the lab."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from agentless.client.client import Client
from tests import ready
from tests.keyboard import at_terminal
from tests.lab import Lab, Node
from tests.pauses import pauses

T = TypeVar("T")
WAIT = 60.0
"""Seconds that anything which has to happen may take."""


def until(condition: Callable[[], T], seconds: float = WAIT) -> T:
    """What `condition()` gives once that is true."""
    deadline, pause = time.monotonic() + seconds, pauses()
    while not (found := condition()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(next(pause))
    return found


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Cli:
    """A person at a shell. Each `name` has folders, and so a controller, of its own; `extra` is more environment."""

    def __init__(self, lab: Lab, name: str = "main", inventory: str | None = "", **extra: str) -> None:
        self.lab = lab
        self.env = {**lab.env(name), "TERM": "xterm", "AGENTLESS_PAGER": "cat", **extra}
        self.config = Path(self.env["XDG_CONFIG_HOME"], "agentless")
        self.state = Path(self.env["XDG_STATE_HOME"], "agentless")
        self.inventory = self.config / "inventory.yaml"
        self.client = Client(self.state, self.inventory)
        if inventory is not None:
            text = inventory or inventory_of(lab)
            if not self.inventory.exists() or self.inventory.read_text() != text:  # or a controller would read it anew
                self.write_inventory(text)

    def write_inventory(self, text: str) -> None:
        """Replace it, as an editor does."""
        self.config.mkdir(parents=True, exist_ok=True)
        fresh = self.inventory.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self.inventory)

    def __call__(self, *words: str, code: int | None = 0, stdin: str = "", **extra: str) -> Done:
        """Run a command to its end, which must be `code` (None: any). No command may ever show a traceback."""
        return self._run(words, code, stdin, self.lab.home, extra)

    def _run(self, words: Sequence[str], code: int | None, stdin: str, folder: Path, extra: Mapping[str, str]) -> Done:
        ran = ready.agentless(*words, env={**self.env, **extra}, cwd=folder, stdin=stdin)
        assert "Traceback" not in ran.stderr, ran.stderr
        assert code in (None, ran.returncode), (words, ran.returncode, ran.stdout, ran.stderr)
        return Done(ran.returncode, ran.stdout, ran.stderr)

    def python(self, script: str) -> str:
        """Run a Python program that uses the API; gives what it prints."""
        argv = [sys.executable, "-c", script]
        return subprocess.run(argv, env=self.env, capture_output=True, text=True, check=True, timeout=90).stdout

    def shell(self, script: str) -> Done:
        """Run a line of shell in which `agentless` means the command."""
        argv = ["sh", "-c", script]
        ran = subprocess.run(argv, env=self.env, capture_output=True, text=True, check=False, timeout=90)
        return Done(ran.returncode, ran.stdout, ran.stderr)

    def json(self, *words: str, code: int | None = 0) -> Any:
        """What the command prints with `--json`."""
        at = words.index("--") if "--" in words else len(words)
        return self(*words[:at], "--json", *words[at:], code=code).json

    def submit(self, *words: str) -> str:
        """Start one task; gives its id."""
        return self("submit", *words).out.strip()

    def start(self, *words: str) -> ready.Started:
        """Start a command and go on; end it with `finish`."""
        return ready.Started(*words, env=self.env, cwd=self.lab.home)

    def program(self, *words: str) -> subprocess.Popen[str]:
        """Likewise, but not forked: a test of the start itself."""
        pipe = subprocess.PIPE
        argv = ["agentless", *words]
        return subprocess.Popen(
            argv, env=self.env, cwd=self.lab.home, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
        )

    def start_request(self, *words: str) -> ready.Started:
        """Start a command; the controller has taken its request when this returns."""
        pid = self.pid
        until(lambda: not requests(pid))
        process = self.start(*words)
        until(lambda: requests(pid))
        return process

    def get(self, path: str, **query: object) -> Any:
        """What the API answers: for looking again and again, where a command would do the same in 0.1 s."""
        if not self.client.is_running():
            self("nodes")  # which starts a controller in the right environment
        return self.client.get(path, **query)

    def task(self, reference: str) -> dict[str, Any]:
        """What is known of a task."""
        return self.get(f"/v1/tasks/{reference}")

    def gpu(self, target: str) -> dict[str, Any]:
        """What is known of the GPU `node1::0`."""
        node, _, index = target.partition("::")
        return next(gpu for gpu in self.get("/v1/gpus", node=node) if gpu["index"] == int(index))

    def node(self, name: str) -> dict[str, Any]:
        """What is known of a node."""
        return self.get(f"/v1/nodes/{name}")

    def is_free(self) -> bool:
        """Whether all GPUs of both nodes can be had."""
        return [gpu["state"] for gpu in self.get("/v1/gpus")] == ["free"] * 4

    def settle(self) -> Cli:
        """Wait until both nodes are online with all their GPUs free, as each test begins."""
        if any(node["state"] == "offline" for node in self.get("/v1/nodes")):
            self("doctor", code=None)  # a node that was rejected is tried again in a minute, or when it is asked for
        until(self._is_settled)
        return self

    def _is_settled(self) -> bool:
        for gpu in self.get("/v1/gpus"):
            if gpu["state"] == "unhealthy":  # it has seen a test before this one
                self("nodes", "resume", gpu["node"])
        return self.is_free()

    @property
    def pid(self) -> int:
        """The controller's process."""
        return int(self.get("/v1/controller")["pid"])

    def kill_controller(self) -> None:
        """`kill -9`, and wait until it is gone with its socket, which other threads may hold for a moment longer."""
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        until(lambda: not is_alive(pid) and not self.client.is_running())

    def close(self) -> None:
        """End the controller and remove all folders."""
        self("controller", "stop", code=None)
        shutil.rmtree(Path(self.env["XDG_CONFIG_HOME"]).parent)

    def terminal(self, *words: str, columns: int = 80, typed: str = "") -> tuple[int, str]:
        """Run a command on a terminal of so many columns; gives its exit code and what stands on the screen."""
        with at_terminal(["agentless", *words], self.env, self.lab.home, (columns, 24)) as keyboard:
            keyboard.type(typed.encode())
            code = keyboard.process.wait()
            text = _shown(keyboard.shown())
        assert "Traceback" not in text, text
        return code, text


def _shown(screen: str) -> str:
    """What stands there in the end: without lines that were overwritten or removed."""
    lines: list[str] = []
    for line in re.sub(r"\033\[\?25[lh]", "", screen).split("\n"):
        above = line.count("\033[1A")
        del lines[len(lines) - above :]
        lines.append(line.rpartition("\033[2K")[2].lstrip("\r"))
    return "\n".join(lines)


class Events:
    """What the controller's stream of events says, up to the first `last` of a task."""

    def __init__(self, cli: Cli, last: str) -> None:
        self._seen: list[dict[str, Any]] = []
        self._is_open = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(cli.client, last), daemon=True)
        self._thread.start()
        assert self._is_open.wait(WAIT)

    def all(self) -> list[dict[str, Any]]:
        """All of it, once it is over."""
        self._thread.join(WAIT)
        assert not self._thread.is_alive(), self._seen
        return self._seen

    def _read(self, client: Client, last: str) -> None:
        # Its answer begins when it listens; `lines` would say so only with the first event.
        with client._open("GET", "/v1/events", {}) as lines:
            self._is_open.set()
            for line in lines:
                self._seen.append(json.loads(line))
                if self._seen[-1].get("event") == last:
                    return


def requests(controller: int) -> int:
    """How many requests this process is answering now."""
    links = []
    for fd in Path(f"/proc/{controller}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            links.append(os.readlink(fd))
    sockets = [line.split() for line in Path("/proc/net/unix").read_text().splitlines()[1:]]
    # A connection has the name of the socket that it came in by, and state 3.
    taken = {f"socket:[{s[6]}]" for s in sockets if s[5] == "03" and s[7:] == ["controller.sock"]}
    return len(taken.intersection(links))


def finish(process: ready.Started | subprocess.Popen[str]) -> Done:
    """Wait for a command that was started."""
    out, err = process.communicate(timeout=60)
    assert "Traceback" not in err, err
    return Done(process.returncode, out, err)


def inventory_of(lab: Lab, defaults: str = "image: busybox", **nodes: str) -> str:
    """An inventory of node1 and node2; `nodes` are more keys for one of them, like `node1="docker: sudo docker"`."""
    lines = [f"version: 1\ndefaults: {{user: root, identity_file: {lab.identity}, {defaults}}}\nnodes:\n"]
    for name in ("node1", "node2"):
        keys = nodes.get(name)
        lines.append(f"  {name}: {{host: {lab.nodes[name].host}{', ' + keys if keys else ''}}}\n")
    return "".join(lines)


def is_alive(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def fingerprint(node: Node) -> str:
    """That of its host key, as ssh-keygen shows it."""
    words = ["ssh-keygen", "-lf", str(node.dir / "host_key.pub")]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.split()[1]


def inspect(node: Node, task: str) -> dict[str, Any]:
    """What the node's own Docker says of a task's container."""
    found: dict[str, Any] = node.ask_docker("GET", f"/containers/agentless-{task}/json")
    return found


def containers(node: Node) -> list[str]:
    """The names of all containers on the node, whatever they do."""
    return [
        name.removeprefix("/") for each in node.ask_docker("GET", "/containers/json?all=1") for name in each["Names"]
    ]
