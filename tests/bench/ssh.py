"""`ssh NAME.agentless` against OpenSSH to the node and `docker exec` there, and a forwarded port against the port."""

from __future__ import annotations

import os
import select
import shlex
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from tests.bench.fleets import AGENTLESS, controller, real_env, real_nodes
from tests.bench.measure import Row, difference, paired, ratio, timed
from tests.lab import IMAGE, Lab, requirements

TRUE = "`ssh NAME.agentless true`, a new connection : `ssh node1 docker exec NAME true`"
KEY = "a key through `ssh NAME.agentless` : through `ssh node1 docker exec -it NAME`"
COPY = "`scp` of 256 MiB to `NAME.agentless` : to the node"
FETCH = "an HTTP request through `agentless forward` - on the node; the image has python3"
BARE = "the same; the image has busybox only"
CREATE = "`vps create` and a command in it, with the image there : `ssh node1 docker run` and `docker exec`"
SOON = 2.0
BOUNDS = {TRUE: 1.0, KEY: 1.5, COPY: 1.43}
SLOWER = 0.003
KEYS = 200
SIZE = 256 << 20
PROGRAMS = [word for path in ("/usr:/usr", "/usr/lib:/lib", "/usr/lib64:/lib64") for word in ("--mount", f"{path}:ro")]
"""This machine's, python3 among them."""
_SERVE = "mkdir -p /tmp/www && echo ok >/tmp/www/index.html && busybox httpd -p 127.0.0.1:8888 -h /tmp/www"


def bench(runs: int) -> list[Row]:
    """Each pair one after the other, on the same node and in the same container."""
    if missing := requirements():
        return [Row(what, f"≤ {most:g} ×", "; ".join(missing)) for what, most in BOUNDS.items()]
    with real_nodes("node1") as lab, controller(real_env(lab)):
        return _Pairs(lab).rows(runs)


class _Pairs:
    def __init__(self, lab: Lab) -> None:
        self._env, self._node = real_env(lab), lab.nodes["node1"]
        self._container = self._submit("bench")
        config = lab.root / "ssh_config"
        config.write_text(timed([AGENTLESS, "ssh-config"], self._env)[1])
        self._ours = ["ssh", "-F", str(config)]
        self._theirs = ["ssh", "-F", f"{lab.home}/.ssh/config"]
        self._folder = lab.root

    def rows(self, runs: int) -> list[Row]:
        execute = f"docker exec {self._container} true"
        true = paired(
            lambda: timed([*self._ours, "bench.agentless", "true"], self._env)[0],
            lambda: timed([*self._theirs, "node1", execute], self._env)[0],
            runs,
        )
        return [
            ratio(TRUE, BOUNDS[TRUE], true),
            ratio(KEY, BOUNDS[KEY], self._keys()),
            self._created(max(5, runs // 2)),
            ratio(COPY, BOUNDS[COPY], self._copies(max(3, runs // 3))),
            difference(FETCH, SLOWER, "≤ 3 ms", self._requests("full", self._submit("full", *PROGRAMS), 5 * runs)),
            difference(BARE, SLOWER, "≤ 3 ms", self._requests("bench", self._container, 5 * runs)),
        ]

    def _submit(self, name: str, *words: str) -> str:
        """Start a task; gives the name of its container."""
        argv = [AGENTLESS, "submit", "--image", IMAGE, "--name", name, *words, "node1", "--", "sleep", "1d"]
        return f"agentless-{timed(argv, self._env)[1].strip()}"

    def _created(self, runs: int) -> Row:
        """A new one each time; both are removed outside the measured time."""

        def ours() -> float:
            created = timed([AGENTLESS, "vps", "create", "box", "node1", "--image", IMAGE], self._env)[0]
            entered = timed([*self._ours, "box.agentless", "true"], self._env)[0]
            timed([AGENTLESS, "vps", "rm", "box", "--force", "--yes"], self._env)
            return created + entered

        def theirs() -> float:
            run = f"docker run --detach --name peer {IMAGE} sleep 1d"
            took = sum(timed([*self._theirs, "node1", line], self._env)[0] for line in (run, "docker exec peer true"))
            timed([*self._theirs, "node1", "docker rm --force peer"], self._env)
            return took

        pairs = paired(ours, theirs, runs)
        row = ratio(CREATE, 1.0, pairs)
        median = statistics.median(mine for mine, _ in pairs)
        return Row(CREATE, f"≤ {SOON:g} s", row.measured, median <= SOON)

    def _keys(self) -> list[tuple[float, float]]:
        ours = [*self._ours, "-tt", "bench.agentless", "stty raw -echo; echo begun; exec cat"]
        program = f"docker exec -it {self._container} sh -c 'stty raw -echo; echo begun; exec cat'"
        with _typing(ours, self._env) as one, _typing([*self._theirs, "-tt", "node1", program], self._env) as other:
            return paired(one, other, KEYS)

    def _copies(self, runs: int) -> list[tuple[float, float]]:
        file = self._folder / "bench.data"
        with file.open("wb") as data:
            data.write(os.urandom(SIZE))
        scp = ["scp", "-q", *self._ours[1:], str(file), "bench.agentless:/tmp/data"]
        there = ["scp", "-q", *self._theirs[1:], str(file), f"node1:{self._folder}/bench.copy"]
        try:
            return paired(lambda: timed(scp, self._env)[0], lambda: timed(there, self._env)[0], runs)
        finally:
            for each in (file, self._folder / "bench.copy"):
                each.unlink(missing_ok=True)

    def _requests(self, name: str, container: str, runs: int) -> list[tuple[float, float]]:
        self._node.sh(f"docker exec {container} sh -c '{_SERVE}'").check_returncode()
        argv = [AGENTLESS, "forward", name, "8888:18888"]
        with subprocess.Popen(argv, env=self._env, stdout=subprocess.PIPE) as forwarding:
            assert forwarding.stdout
            forwarding.stdout.readline()
            fetch = ["curl", "-sfo", "/dev/null", "-w", "%{time_total}"]
            here = [*fetch, "http://127.0.0.1:18888/"]
            [pid] = self._node.sh(f"docker inspect --format '{{{{.State.Pid}}}}' {container}").stdout.split()
            there = shlex.join(["nsenter", "-n", "-t", pid, *fetch, "http://127.0.0.1:8888/"])
            try:
                return paired(
                    lambda: float(timed(here, self._env)[1]), lambda: float(self._node.sh(there).stdout), runs
                )
            finally:
                forwarding.kill()


@contextmanager
def _typing(argv: list[str], env: Mapping[str, str]) -> Iterator[Callable[[], float]]:
    """Types one key, and waits until it comes back."""
    ours, theirs = os.openpty()
    with subprocess.Popen(argv, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True) as process:
        os.close(theirs)
        seen = b""
        while b"begun" not in seen:
            seen += os.read(ours, 4096)

        def key() -> float:
            while select.select([ours], [], [], 0.02)[0]:
                os.read(ours, 4096)
            began = time.perf_counter()
            os.write(ours, b"x")
            os.read(ours, 1)
            return time.perf_counter() - began

        try:
            yield key
        finally:
            process.kill()
            os.close(ours)
