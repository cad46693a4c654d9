"""`agentless ps` as a whole process against what its command line library alone takes to be imported."""

from __future__ import annotations

import sys

from tests.bench.fleets import AGENTLESS, controller, request, simulated_env, simulated_nodes
from tests.bench.measure import Row, paired, ratio, timed

MOST = 2.0
TASKS = 5


def bench(runs: int) -> list[Row]:
    """A controller runs and some tasks do; both sides are the same interpreter."""
    with simulated_nodes(1, TASKS) as root:
        env = simulated_env(root)
        with controller(env) as client:
            for gpu in range(TASKS):
                client.post("/v1/tasks", request(f"node1::{gpu}", "sleep", "600"))

            def ours() -> float:
                seconds, printed = timed([AGENTLESS, "ps"], env)
                assert printed.count("running") == TASKS, printed
                return seconds

            def theirs() -> float:
                return timed([sys.executable, "-c", "import typer"], env)[0]

            what = f"`agentless ps` with {TASKS} tasks : `python -c 'import typer'`"
            return [ratio(what, MOST, paired(ours, theirs, runs))]
