"""`agentless submit` to a running controller against stock OpenSSH without a master connection, as whole processes."""

from __future__ import annotations

import itertools
import shlex
import time

from tests.bench.fleets import AGENTLESS, controller, docker_run, forget, real_env, real_nodes
from tests.bench.measure import Row, paired, ratio, timed
from tests.lab import IMAGE, requirements

WHAT = "warm `agentless submit node1::0 -- true` : `ssh node1 docker run -d …`"
MOST = 1.0


def bench(runs: int) -> list[Row]:
    """Both start the same container on the same node; it is removed before the next one, outside the time."""
    if missing := requirements():
        return [Row(WHAT, f"≤ {MOST:g} ×", "; ".join(missing))]
    with real_nodes("node1") as lab, controller(real_env(lab)) as client:
        node, env, number = lab.nodes["node1"], real_env(lab), itertools.count()

        def ours() -> float:
            seconds, task = timed([AGENTLESS, "submit", "--image", IMAGE, "node1::0", "--", "true"], env)
            forget(client, task.strip())
            time.sleep(0.3)  # the controller looks at what was removed: not in the other's time
            return seconds

        def theirs() -> float:
            name = f"bench-{next(number)}"
            ssh = ["ssh", "-F", f"{lab.home}/.ssh/config", "node1", shlex.join(docker_run(node, name))]
            seconds, _ = timed(ssh, env)
            node.sh(f"docker wait {name} && docker rm {name}")
            return seconds

        return [ratio(WHAT, MOST, paired(ours, theirs, runs))]
