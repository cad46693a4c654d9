"""One question to 50 nodes: warm sessions against the programs in `peers.py`, which are whole processes.

All 50 sshds are on this machine, and so is what they start. On real nodes that work is the nodes' own; here it would
hide what is measured, so `nvidia-smi` and `docker` only print an answer. The login shell's rc file is empty.
"""

from __future__ import annotations

import asyncio
import functools
import shlex
import shutil
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from agentless.model.command import Command
from agentless.remote.session import Session
from tests.bench.fleets import real_nodes, session_to
from tests.bench.measure import Row, paired, ratio
from tests.bench.peers import PEERS
from tests.lab import Lab, requirements

NODES = 50
QUESTION = (
    "nvidia-smi --query-gpu=index,uuid,memory.used,memory.total,utilization.gpu --format=csv,noheader,nounits; "
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_gpu_memory --format=csv,noheader,nounits; "
    "docker ps --all --no-trunc --filter label=agentless.task"
)
_WHAT = f"GPUs and containers of {NODES} nodes over warm sessions : "
_DOCKER = "#!/bin/sh\necho 'CONTAINER ID   IMAGE     COMMAND   CREATED   STATUS    PORTS     NAMES'\n"
_NVIDIA = "#!/bin/sh\ncase $1 in --query-gpu*) printf '%s' {0} ;; esac\n"


def bench(runs: int) -> list[Row]:
    """The sessions are this process's and were connected before."""
    rows, there = [], []
    missing = requirements(docker=False)
    for peer in PEERS:
        if missing or not shutil.which(peer.program):
            why = "; ".join(missing) or f"no {peer.program}: apt-get install {peer.package}"
            rows.append(Row(_WHAT + peer.name, f"≤ {peer.most:g} ×", why))
        else:
            there.append(peer)
    if not there:
        return rows
    with real_nodes(*(f"node{number}" for number in range(NODES)), docker=False) as lab, asyncio.Runner() as runner:
        _add_programs(lab)
        sessions = [session_to(lab, name)[0] for name in lab.nodes]
        runner.run(_all(session.connect() for session in sessions))
        ours = functools.partial(_timed, lambda: _ask(runner, sessions))
        for peer in there:
            theirs = functools.partial(_timed, functools.partial(peer.ask, lab, QUESTION))
            rows.append(ratio(_WHAT + peer.name, peer.most, paired(ours, theirs, max(3, runs // 3))))
        runner.run(_all(session.close() for session in sessions))
    return rows


def _timed(ask: Callable[[], str]) -> float:
    began = time.perf_counter()
    printed = ask()
    seconds = time.perf_counter() - began
    # Every node has answered with its two GPUs and its containers.
    assert (printed.count("GPU-"), printed.count("CONTAINER ID")) == (2 * NODES, NODES), printed[-2000:]
    return seconds


def _ask(runner: asyncio.Runner, sessions: Iterable[Session]) -> str:
    results = runner.run(_all(session.run(Command(QUESTION)) for session in sessions))
    return "".join(result.out for result in results)


def _add_programs(lab: Lab) -> None:
    for node in lab.nodes.values():
        gpus = shlex.quote(node.sh(QUESTION.partition(";")[0]).stdout)
        for name, text in (("docker", _DOCKER), ("nvidia-smi", _NVIDIA.format(gpus))):
            program = node.dir / "bin" / name
            program.write_text(text)
            program.chmod(0o755)


async def _all(work: Iterable[Awaitable[Any]]) -> list[Any]:
    return await asyncio.gather(*work)
