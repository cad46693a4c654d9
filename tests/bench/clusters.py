"""Submits to a Slurm cluster and looks at its jobs, against Slurm's own commands on its login node.

The partition is down, so jobs are accepted and stay in the queue: what they do is in nobody's time.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from agentless.client.client import Client
from agentless.controller import plugins
from agentless.engines.slurm.engine import Slurm as Engine
from agentless.inventory import inventory
from agentless.model.command import Command, join_sections, split_sections
from agentless.model.containers.signature import Signer
from agentless.paths import template_dir
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from agentless.render import Renderer
from tests.bench.fleets import controller
from tests.bench.measure import Row, paired, ratio, timed
from tests.lab import Lab
from tests.lab.slurm import Slurm, missing

SUBMITS, JOBS, LOOP, AT_ONCE = 500, 1000, 50, 64
MOST_SUBMIT, MOST_ARRAY, MOST_LOOK = 0.2, 1.2, 1.3
_SUBMITS = f"{SUBMITS} `POST /v1/tasks`, {AT_ONCE} at a time : `sbatch` in a shell loop, an ssh for each; seconds a job"
_ARRAY = f"one `POST /v1/tasks` of {JOBS:,} tasks : `ssh login sbatch --array=1-{JOBS}`"
_LOOK = f"one look at {JOBS:,} jobs : `ssh login squeue`"
_SAME = f"one look at {JOBS:,} jobs : `squeue` over the same session"


def bench(runs: int) -> list[Row]:
    """Both sides end when the last job is accepted; jobs are cancelled outside the time."""
    if absent := missing(faketime=False):
        return [
            Row(what, f"≤ {most:g} ×", "; ".join(absent))
            for what, most in ((_SUBMITS, MOST_SUBMIT), (_ARRAY, MOST_ARRAY), (_LOOK, MOST_LOOK))
        ]
    with _cluster() as (slurm, lab, env):
        with controller(env) as client:
            rows = [_submits(slurm, lab, client, max(3, runs // 7)), _arrays(slurm, lab, client, max(3, runs // 7))]
            _submit(client, JOBS)
        return [*rows, *_looks(lab, env, runs)]  # the controller is gone: it looks, too


@contextlib.contextmanager
def _cluster() -> Iterator[tuple[Slurm, Lab, dict[str, str]]]:
    folder = Path(tempfile.mkdtemp(prefix="agl-slurm-"))
    settings = {"MinJobAge": "2"}
    try:
        with (
            Slurm(folder, {"c1": 2}, {"gpu": "Default=YES State=DOWN"}, settings) as slurm,
            Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab,
        ):
            _, at = slurm.login_of(lab)
            file = lab.root / "clusters.yaml"
            file.write_text(
                f"version: 1\nclusters:\n  hpc: {{engine: slurm, {at}}}\nnodes:\n  away: {{host: 127.0.0.9}}\n"
            )
            yield slurm, lab, {**lab.env(), "AGENTLESS_INVENTORY": str(file)}
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _submits(slurm: Slurm, lab: Lab, client: Client, runs: int) -> Row:
    loop = f"for n in $(seq {LOOP}); do ssh -F {lab.home}/.ssh/config login sbatch --wrap=true || exit; done"

    def ours() -> float:
        seconds = _submit(client, SUBMITS)
        _cancel(slurm, client)
        return seconds / SUBMITS

    def theirs() -> float:
        seconds, printed = timed(["sh", "-c", loop], lab.env())
        assert printed.count("Submitted batch job") == LOOP, printed
        _cancel(slurm, client)
        return seconds / LOOP

    return ratio(_SUBMITS, MOST_SUBMIT, paired(ours, theirs, runs))


def _arrays(slurm: Slurm, lab: Lab, client: Client, runs: int) -> Row:
    """Both are arrays; each task of ours has a script, a state and a log of its own."""
    request = {
        "targets": ["hpc"],
        "spec": {"command": ["true"]},
        "sweep": [{"command": ["true", str(number)]} for number in range(JOBS)],
    }
    by_hand = ["ssh", "-F", f"{lab.home}/.ssh/config", "login", f"sbatch --array=1-{JOBS} --wrap=true"]

    def ours() -> float:
        began = time.perf_counter()
        states = {start["task"]["state"] for start in client.submit(request)}
        seconds = time.perf_counter() - began
        assert states == {"submitted"}, states
        _cancel(slurm, client)
        return seconds

    def theirs() -> float:
        seconds, _ = timed(by_hand, lab.env())
        _cancel(slurm, client)
        return seconds

    return ratio(_ARRAY, MOST_ARRAY, paired(ours, theirs, runs))


def _cancel(slurm: Slurm, client: Client) -> None:
    slurm.run("scancel", "--user=root")
    while slurm.run("squeue", "--noheader", "--states=all") or client.get("/v1/tasks"):
        time.sleep(0.5)


def _submit(client: Client, count: int) -> float:
    """So many requests of one task each: the seconds until the last job is accepted."""
    request = {"targets": ["hpc"], "spec": {"command": ["true"]}}

    def one(_: int) -> str:
        (task,) = client.another().submit(request)
        return "submitted" if task["task"]["state"] == "submitted" else str(task)

    with ThreadPoolExecutor(AT_ONCE) as pool:
        began = time.perf_counter()
        states = [*pool.map(one, range(count))]
        seconds = time.perf_counter() - began
    assert set(states) == {"submitted"}, set(states)
    return seconds


def _looks(lab: Lab, env: dict[str, str], runs: int) -> list[Row]:
    node = inventory.load(Path(env["AGENTLESS_INVENTORY"])).clusters["hpc"]
    files = SshFiles(home=lab.home, known_hosts=Path("/dev/null"))
    session = Session(plugins.load("remote.transports", node.connection).make(node, files), node.name)
    assert node.slurm
    engine = Engine(node, node.slurm, Renderer([template_dir()]), Signer("bench", b"bench"))
    with asyncio.Runner() as runner:
        runner.run(session.connect())

        def ours() -> float:
            began = time.perf_counter()
            answer = split_sections(runner.run(session.run(Command(join_sections(engine.facts())))).stdout)
            facts = engine.parse_facts(answer, 0.0, 0.0)
            seconds = time.perf_counter() - began
            assert len(facts.containers or ()) == JOBS, facts.error
            return seconds

        def theirs() -> float:
            seconds, listed = timed(["ssh", "-F", f"{lab.home}/.ssh/config", "login", "squeue --noheader"], lab.env())
            assert listed.count("\n") == JOBS
            return seconds

        def same() -> float:
            began = time.perf_counter()
            listed = runner.run(session.run(Command("squeue --noheader")))
            seconds = time.perf_counter() - began
            assert listed.out.count("\n") == JOBS
            return seconds

        rows = [ratio(_LOOK, MOST_LOOK, paired(ours, theirs, runs))]
        rows.append(replace(ratio(_SAME, MOST_LOOK, paired(ours, same, runs)), bound="none", passed=None))
        runner.run(session.close())
    return rows
