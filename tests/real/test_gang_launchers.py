"""What starts a command on two real nodes: PyTorch's torchrun, and mpirun of Debian's Open MPI.

Images would be large. So the image has the folders of one, and its programs are a folder of the nodes.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.lab.roots import MPI, missing_for, root_of
from tests.real.cli import Cli, until

pytestmark = pytest.mark.slow

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(20):
    x = torch.randn(32, 4)
    loss = ((model(x) - x.sum(1, keepdim=True)) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.all_reduce(loss)
weights = torch.cat([each.detach().flatten() for each in model.parameters()])
every = [torch.zeros_like(weights) for _ in range(size)]
dist.all_gather(every, weights)
print(f"rank {rank} has", every[rank].tolist(), flush=True)
if rank == 0:
    print(f"loss {loss.item() / size:.6f} from {size} ranks", flush=True)
dist.destroy_process_group()
"""
SUM = """
import os
from mpi4py import MPI
world = MPI.COMM_WORLD
total = world.allreduce(world.rank + 1)
seen = world.gather((os.environ["AGENTLESS_NODE"], os.environ["COLOUR"], os.getcwd()))
if world.rank == 0:
    print(total, sorted(seen), flush=True)
"""
TORCHRUN = (
    "torchrun --nnodes $AGENTLESS_NNODES --node-rank $NODE_RANK --nproc-per-node $LOCAL_WORLD_SIZE "
    "--master-addr $MASTER_ADDR --master-port $MASTER_PORT /scripts/train.py"
)
SAVES = 'trap "echo saved on $AGENTLESS_NODE; exit" TERM; echo up; while :; do sleep 0.1; done'


@pytest.fixture(scope="module")
def image(lab: Lab) -> list[str]:
    """Words of `submit` for the image, with a folder for scripts."""
    if missing := missing_for(MPI):
        pytest.skip(f"no Open MPI and PyTorch: {'; '.join(missing)}")
    try:
        root = root_of(MPI)
    except RuntimeError as error:
        pytest.skip(f"no Open MPI and PyTorch: {str(error)[-300:]}")
    scripts = lab.root / "scripts"
    scripts.mkdir()
    scripts.joinpath("train.py").write_text(TRAIN)
    scripts.joinpath("sum.py").write_text(SUM)
    for node in lab.nodes.values():
        script = f"tar -C {root} --exclude='./usr/*' --exclude='./var/*/*' -c . | docker import - lab/mpi:1"
        node.sh(script).check_returncode()
    return ["--image", "lab/mpi:1", "--mount", f"{root}/usr:/usr:ro", "--mount", f"{scripts}:/scripts:ro"]


@pytest.mark.parametrize("words", [["--launcher", "torchrun", "--", "/scripts/train.py"], ["--", "sh", "-c", TORCHRUN]])
def test_torchrun_trains_on_two_nodes_and_both_ranks_agree(agentless: Cli, image: list[str], words: list[str]) -> None:
    more = ["--env", "PATH=/scripts:/usr/bin:/bin"]
    torchrun = Path(image[-1].split(":")[0], "torchrun")
    torchrun.write_text('#!/bin/sh\nexec python3 -m torch.distributed.run "$@"\n')
    torchrun.chmod(0o755)
    task = agentless.submit("--nodes", "2", "--gpus", "1", *image, *more, *words)
    until(lambda: agentless.task(task)["ended_at"], 600)
    out = agentless("logs", task).out
    models = re.findall(r"^(\d) \| rank (\d) has (.*)$", out, re.MULTILINE)
    assert sorted(each[:2] for each in models) == [("0", "0"), ("1", "1")]
    assert len({each[2] for each in models}) == 1
    [loss] = re.findall(r"^0 \| loss (\S+) from 2 ranks$", out, re.MULTILINE)
    assert float(loss) < 0.1


def test_mpirun_starts_a_process_for_each_gpu_in_the_container_of_its_node(agentless: Cli, image: list[str]) -> None:
    words = ["node1::0,1", "node2::0", "--nodes", "2", "--launcher", "mpirun", "--env", "COLOUR=dark red"]
    out = agentless("submit", *words, *image, "--workdir", "/opt", "--follow", "--", "python3", "/scripts/sum.py").out
    places = [("node1", "dark red", "/opt")] * 2 + [("node2", "dark red", "/opt")]
    assert out == f"0 | 6 {places}\n"
    assert [each["state"] for each in agentless.json("ps", "--all")][-2:] == ["completed"] * 2
    # The key of the start is not kept.
    files = [path for path in agentless.state.rglob("*") if path.is_file() and path.name != "ssh_host_key"]
    assert not [path for path in files if b"PRIVATE KEY" in path.read_bytes()]


def test_a_process_that_fails_under_mpirun_fails_the_task(agentless: Cli, image: list[str]) -> None:
    words = ["--nodes", "2", "--gpus", "1", "--launcher", "mpirun", *image, "--wait"]
    agentless("submit", *words, "--", "sh", "-c", "exit $((OMPI_COMM_WORLD_RANK * 7))", code=7)


def test_what_mpirun_has_started_on_all_nodes_may_save_its_work(agentless: Cli, image: list[str]) -> None:
    task = agentless.submit(
        "--nodes", "2", "--gpus", "1", "--launcher", "mpirun", *image, "--stop-grace", "60s", "--", "sh", "-c", SAVES
    )
    until(lambda: agentless("logs", task).out.count("up") == 2)
    agentless("stop", task)
    assert {"0 | saved on node1", "0 | saved on node2"} <= {*agentless("logs", task).out.splitlines()}


def test_mpirun_says_what_the_image_lacks(agentless: Cli) -> None:
    words = ("--nodes", "2", "--gpus", "1", "--launcher", "mpirun", "--follow", "--", "true")
    said = {*agentless("submit", *words, code=1).err.splitlines()}
    # The first of them that ends may end the other one before that has said it.
    assert said & {
        "0 | agentless: --launcher mpirun needs mpirun, and the image lacks it; install openmpi-bin in the image",
        "1 | agentless: --launcher mpirun needs sshd, and the image lacks it; install openssh-server in the image",
    }
