"""What the controller adds to the two docker commands that a submit cannot do without."""

from __future__ import annotations

import asyncio
import itertools
import shlex
import statistics
import time

from agentless.model.command import Command
from tests.bench.fleets import controller, docker_run, forget, real_env, real_nodes, request, session_to
from tests.bench.measure import Row, difference, milliseconds, paired
from tests.lab import IMAGE, requirements

WHAT = "`POST /v1/tasks` - the bare `docker ps` + `docker run -d` over a warm session"
ALLOWED = 0.020
_BOUND = "≤ 20 ms + 1 round trip"
_STATES = " ".join(f"--filter status={state}" for state in ("created", "running", "paused", "restarting"))
_PS = f"docker ps --no-trunc --filter label=agentless.task {_STATES} --format '{{{{.ID}}}}|{{{{.Names}}}}'\n"


def bench(runs: int) -> list[Row]:
    """A request from a client that runs already, against one script through a warm session to the same node.

    Three times as many pairs, since `docker run` varies by more than what is looked for.
    """
    if missing := requirements():
        return [Row(WHAT, _BOUND, "; ".join(missing))]
    with real_nodes("node1") as lab, controller(real_env(lab)) as client, asyncio.Runner() as runner:
        node, number = lab.nodes["node1"], itertools.count()
        session, _ = session_to(lab, "node1")
        runner.run(session.connect())

        def run(script: str) -> float:
            began = time.perf_counter()
            result = runner.run(session.run(Command(script)))
            seconds = time.perf_counter() - began
            assert result.ok, result.err
            return seconds

        def ours() -> float:
            began = time.perf_counter()
            [start] = client.post("/v1/tasks", request("node1::0", "true", image=IMAGE))
            seconds = time.perf_counter() - began
            forget(client, start["task"]["id"])
            time.sleep(0.3)  # the controller looks at what was removed: not in the other's time
            return seconds

        def theirs() -> float:
            name = f"bench-{next(number)}"
            seconds = run(_PS + shlex.join(docker_run(node, name)))
            node.sh(f"docker wait {name} && docker rm {name}")
            return seconds

        pairs = paired(ours, theirs, 3 * runs)
        trip = statistics.median(run("true") for _ in range(20))
        runner.run(session.close())
        return [difference(WHAT, ALLOWED + trip, f"{_BOUND} ({milliseconds(trip)})", pairs)]
