"""`agentless slurm config`: the files that it writes of real nodes start a real Slurm."""

from __future__ import annotations

import re

import pytest

from tests.lab import slurm
from tests.lab.amd import AmdCard, AmdCards
from tests.lab.written_slurm import WrittenSlurm
from tests.real.cli import Cli, until

A100 = {"name": "NVIDIA A100-SXM4-40GB"}
INVENTORY = """\
version: 1
defaults: {{user: root, identity_file: {lab.identity}, image: busybox, labels: {{site: lab}}}}
queue: {{half_life: 36h, policy: spread}}
nodes:
  node1: {{host: {nodes[node1].host}, fabric: pod1/leaf1, labels: {{rack: a}}}}
  node2: {{host: {nodes[node2].host}, fabric: pod1/leaf2, exclude_gpus: [1]}}
  slurmamd: {{host: {nodes[slurmamd].host}}}
  away: {{host: 127.0.0.1, port: {port}}}
"""


@pytest.fixture
def agentless(lab):
    if missing := slurm.missing(faketime=False):
        pytest.skip(f"no Slurm on this machine: {'; '.join(missing)}")
    (node,) = lab.add_nodes({"slurmamd": 0})
    AmdCards(node).set(
        AmdCard("0000:83:00.0", "79ccd55167a2124a", 128), AmdCard("0000:a3:00.0", "04edfb117a17a07d", 129)
    )
    lab.nodes["node1"].set_gpus([A100, A100])
    cli = Cli(lab, "slurm", INVENTORY.format(lab=lab, nodes=lab.nodes, port=lab.add_closing_server()[1]))
    until(lambda: len(cli.get("/v1/gpus")) == 6)
    yield cli
    cli.close()
    lab.retire("slurmamd")


def test_the_written_files_start_a_slurm_that_gives_out_the_gpus(agentless, tmp_path):
    out = tmp_path / "slurm"
    done = agentless("slurm", "config", "--out", str(out), code=4)
    files = ["cgroup.conf", "gres.conf", "slurm.conf", "slurmdbd.conf.example", "topology.conf"]
    assert sorted(path.name for path in out.iterdir()) == files
    assert re.search("^Not included: away.*", done.err, re.MULTILINE)
    texts = {path.name: path.read_text() for path in out.iterdir()}
    printed = agentless("slurm", "config", code=4).out
    assert printed.startswith(f"##### slurm.conf\n{texts['slurm.conf']}\n##### gres.conf\n{texts['gres.conf']}\n")
    folder = agentless.lab.root / "slurm"  # munge wants one that everybody may enter
    folder.mkdir()
    with WrittenSlurm(folder, texts) as daemons:
        sinfo = daemons.run("sinfo", "-h", "-N", "-p", "gpu", "-o", "%N %G")
        assert re.sub(r"\(S:[0-9-]+\)", "", sinfo).splitlines() == [
            "node1 gpu:a100:2",
            "node2 gpu:h100_80gb_hbm3:1",
            "slurmamd gpu:mi100:2",
        ]
        shown = daemons.run("scontrol", "show", "node", "node1")
        assert "Gres=gpu:a100:2" in shown
        assert "ActiveFeatures=rack_a,site_lab" in shown
        where = 'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES$ROCR_VISIBLE_DEVICES"'
        for wanted, told in (("a100:2", "node1 0,1"), ("h100_80gb_hbm3:1", "node2 0"), ("mi100:1", "slurmamd 0")):
            assert daemons.run("srun", f"--gres=gpu:{wanted}", "sh", "-c", where) == f"{told}\n"
        daemons.run("srun", "--gres=gpu:1", "--constraint=rack_a", "true")
        # On this one machine Slurm has other addresses; slurmd says what is written.
        compared = agentless("slurm", "config", "--check", code=1, **daemons.env)
        assert {(line.split()[0], line.split()[1], line.split()[-1]) for line in compared.out.splitlines()[1:]} == {
            (node, "NodeAddr", "scontrol") for node in ("node1", "node2", "slurmamd")
        }
    kept = out / "gres.conf"
    kept.write_text("# USER_CUSTOMIZED=true\nAutoDetect=nvml\n")
    agentless.lab.nodes["node1"].set_gpus([A100] * 3)
    until(lambda: len(agentless.get("/v1/gpus", node="node1")) == 3)
    again = agentless("slurm", "config", "--out", str(out), code=4).out
    assert f"Kept {kept}" in again
    assert f"Wrote {out}/slurm.conf anew" in again
    assert kept.read_text() == "# USER_CUSTOMIZED=true\nAutoDetect=nvml\n"
    assert "Gres=gpu:a100:3 " in out.joinpath("slurm.conf").read_text()
