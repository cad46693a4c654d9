"""Files of tasks on a real Slurm, and connections with them."""

from __future__ import annotations

import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.lab.slurm import Slurm
from tests.ports import reserve
from tests.real.cli import Cli, finish, until
from tests.real.slurm import running, started

ECHO = """
import socket
there = socket.create_server(("127.0.0.1", 0))
print(there.getsockname()[1], flush=True)
while True:
    one, _ = there.accept()
    one.sendall(b"no line break: " + one.recv(99))
    one.close()
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    settings = {"SchedulerParameters": "bf_interval=1,sched_interval=1"}
    with started({"c1": 2, "c2": 2}, {"gpu": "Default=YES State=UP"}, settings) as slurm:
        yield slurm


@pytest.fixture(scope="module")
def cli(slurm: Slurm) -> Iterator[Cli]:
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        _, cluster = slurm.login_of(lab)
        cli = Cli(lab, inventory=f"version: 1\nclusters:\n  hpc: {{engine: slurm, {cluster}}}\nnodes: {{}}\n")
        yield cli
        cli.close()


def test_ports_of_a_task_are_reached_on_its_compute_node_and_programs_run_there(cli: Cli) -> None:
    """Also a port that only listens on the loopback of the compute node."""
    task = running(cli, "--", "python3", "-c", ECHO)
    port = until(lambda: cli("logs", task, code=None).out).strip()
    with reserve() as holder:
        local = holder.getsockname()[1]
        forward = cli.start("forward", task, f"{port}:{local}")
        try:
            assert forward.stdout.readline().startswith("Forwarding ")
            for _ in range(2):
                with socket.create_connection(("127.0.0.1", local)) as one:
                    one.sendall(b"you")
                    assert one.recv(99) == b"no line break: you"
        finally:
            forward.send_signal(signal.SIGINT)
            finish(forward)
    ran = cli("ssh", task, "--", "test -t 1 || echo pipe; echo $SLURM_JOB_ID; cat; exit 4", stdin="a\0b", code=4)
    assert ran.out == f"pipe\n{cli.task(task)['container'].partition(':')[0]}\na\0b"
    assert cli("ssh", "hpc", "--", "printf '%s ' \"$SSH_CONNECTION\"; exit 3", code=3).out.startswith("127.0.0.1 ")
    cli("kill", task)
