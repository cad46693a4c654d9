"""The commands of the documentation do what the pages say, typed from top to bottom on simulated nodes."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.client.client import Client
from agentless.demo.fleet import USER, demo_plans
from tests import ready
from tests.fleet.inhabited import forget_tasks
from tests.fleet.world import World
from tests.pages import DOCS, ROOT
from tests.reader import CTRL_C, ON_AMD, ON_ENGINES, ON_PYTHON, ON_SYSTEMD, Help, Reader, steps

TRAINING = """#!/bin/sh
echo "epoch 1: loss 0.71"
echo "loss 0.5"
case "$*" in *"--lr 0.1 --seed 2"*) exit 1;; esac
"""
"""What `python` runs, on the nodes and here."""

PAGES = [ROOT / "README.md", *sorted(page for page in DOCS.rglob("*.md") if "internals" not in page.parts)]
NAMES = [str(page.relative_to(ROOT)) for page in PAGES if any(steps(page.read_text()))]
HERE = [name for name in NAMES if name not in ON_ENGINES | {ON_SYSTEMD, ON_AMD, ON_PYTHON}]

NOT_TYPED = {
    "make demo": "tests/fleet/test_demo.py",
    "make test": "the tests themselves",
    "agentless submit hpc 2xA100 --time-limit 8h --cores 16 --memory 64GiB -- python train.py": (
        "tests/real/test_slurm.py"
    ),
    "agentless submit hpc 2xA100 --image nvcr.io/nvidia/pytorch:25.01-py3 --mount /data:/data:ro -- python train.py": (
        "tests/real/test_slurm.py"
    ),
    "agentless submit 1xA100 --overflow hpc --image nvcr.io/nvidia/pytorch:25.01-py3 -- python train.py": (
        "tests/real/test_slurm.py"
    ),
    "agentless submit 1xA100 --overflow hpc --container NULL -- python train.py": "tests/real/test_slurm.py",
    "agentless explain 1xA100 --overflow hpc": "tests/real/test_slurm.py",
    "agentless workflow run train.yaml": "the page has no such file",
    "agentless workflow run train.yaml --node hpc": "tests/real/test_slurm.py",
    "agentless gpus hpc": "tests/real/test_slurm.py",
    "agentless run hpc -- python train.py": "tests/real/test_slurm_files.py",
    "agentless submit hpc 1xA100 --upload . --output model.pt -- python train.py": "tests/real/test_slurm_files.py",
    "agentless cp data hpc:/scratch/me": "tests/real/test_slurm_files.py",
    "agentless cp 2mxf:ckpt/last.pt .": "tests/real/test_slurm_files.py",
    "agentless gpus hpc --watch": "tests/real/test_slurm.py",
    "agentless submit --nodes 2 --launcher torchrun hpc 4xA100 -- train.py": "tests/pure/test_slurm_engine.py",
    "agentless doctor hpc": "tests/real/test_slurm.py",
    "agentless doctor hpc --run": "tests/real/test_slurm.py",
    "agentless submit --nodes 2 --gpus 1 --launcher mpirun -- ./train": "tests/real/test_gang_launchers.py",
    "pipx install .": "installs from a package index",
    "pipx install --force .": "installs from a package index",
    "pipx uninstall agentless": "there is none by pipx",
    "sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml": "needs NVIDIA's toolkit",
    "ssh node3 sudo nvidia-smi -i 0 -mig 1": "needs a GPU",
    "ssh node3 sudo nvidia-smi mig -i 0 -cgi 3g.40gb,1g.10gb,1g.10gb -C": "needs a GPU",
    "git pull": "needs the clone of a published repository",
    "agentless submit node1::0 --image pytorch/pytorch -- python -c 'import torch; print(torch.cuda.device_count())'": (
        "tests/real/test_pages.py"
    ),
    "systemctl --user enable --now agentless": "needs a login session; test_examples.py reads the unit",
    "systemctl --user disable --now agentless": "needs a login session",
    "systemctl --user restart agentless": "needs a login session",
    "loginctl enable-linger": "needs a login session",
    "agentless slurm config --check": "tests/real/test_slurm_config.py",
    "agentless recover --yes --go-on WORKFLOW@DIGEST": "tests/real/test_workflows_recovered.py",
    "agentless explain --nodes 3 --gpus 2": "tests/fleet/test_gangs.py",
    "agentless env create torch --from pytorch/pytorch --on node1": "tests/real/test_workflows.py",
    'agentless env save torch -m "as the file needs it"': "tests/real/test_workflows.py",
    "agentless workflow run joblet-workflow.yaml --runtime python-3.11-ml=torch --wait": "tests/real/test_workflows.py",
    "docker container prune --filter label=agentless.task": "tests/real/test_pages.py",
    "docker images --quiet 'agentless-files/*' | xargs --no-run-if-empty docker rmi": "tests/real/test_pages.py",
}
"""Commands that are not typed here, each with the reason, or the test that does so."""

SLEEP = "-- sh -c 'trap exit TERM; sleep 1000 & wait'"
STANDING = f"agentless submit node1::0 --name train {SLEEP}"
DESKTOP = (
    "cd ~/fleet/nodes/node3 && printf 'gpu_uuid,pid,process_name,used_gpu_memory\\n%s,%s,/usr/bin/kwin_wayland,25\\n' "
    '"$(sed -n "2s/^[^,]*,\\([^,]*\\),.*/\\1/p" gpus.csv)" "$PPID" >new && mv new apps.csv'
)
SEEN = "until agentless gpus node3 | grep desktop; do sleep 0.2; done"
"""A desktop on the GPU of node3, and that agentless has seen it."""
LOSS = ("agentless controller stop", "rm -r ~/.local/state/agentless")

TARGETS = (
    (
        "printf 'notify:\n  phone: {ntfy: https://ntfy.sh/my-topic, events: [fail, lost]}\n  team: {slack: slack}\n"
        "  ann: {mail: [ann@example.com], owners: [ann]}\n' >>~/.config/agentless/inventory.yaml"
    ),
    "printf '#!/bin/sh\ncat >/dev/null\n' >~/fleet/python/sendmail; chmod +x ~/fleet/python/sendmail",
)
"""What the page has in its inventory, and a sendmail."""

SLICES = (
    "gpu,part,uuid,profile,gi,ci,memory.total,memory.used\\n"
    "0,0,MIG-5d1c0000-0000-5000-8000-000000000000,3g.40gb,2,0,40448,26\\n"
    "0,1,MIG-5d1c0001-0000-5000-8000-000000000001,1g.10gb,9,0,9984,9\\n"
    "0,2,MIG-5d1c0002-0000-5000-8000-000000000002,1g.10gb,10,0,9984,9\\n"
)
"""The slices of a GPU, as the stand-in nvidia-smi reads them."""

HELP: dict[str, dict[str, Help]] = {
    "README.md": {
        "agentless init": Help(first=["rm -r ~/.config/agentless"], keys=[("[y/N]: ", "y\n")]),
    },
    "docs/tutorial.md": {
        "agentless init": Help(first=["rm -r ~/.config/agentless"], keys=[("[y/N]: ", "y\n")]),
        "agentless rm*": Help(keys=[("[y/N]: ", "y\n")]),
        "agentless dashboard": Help(keys=[("GPU", "q")]),
    },
    "docs/how-to/files/mount.md": {"agentless*": Help(first=["mkdir -p ~/data/imagenet"])},
    "docs/how-to/nodes/desktop.md": {"agentless gpus node3": Help(first=[DESKTOP, SEEN])},
    "docs/how-to/nodes/drain.md": {
        "agentless nodes drain*": Help(first=[STANDING], keys=[("still running", "$ agentless kill train")]),
        "agentless submit*": Help(code=3),
    },
    "docs/how-to/nodes/mig.md": {
        "agentless gpus*": Help(
            first=[
                f"printf '{SLICES}' > ~/fleet/nodes/node3/mig.csv",
                (
                    "sed -i -E -e '2s/\\[N.A\\],Default/Enabled,Default/' -e '2s/RTX 3090,/H100,/' "
                    "-e '2s/^(([^,]*,){8})[^,]*/\\1[N\\/A]/' ~/fleet/nodes/node3/gpus.csv"
                ),
                "until agentless gpus node3 | grep 'MIG 1g'; do sleep 0.2; done",
            ]
        ),
        "agentless submit node3::0 *": Help(
            first=["until [ $(agentless gpus node3 | grep -c '└ MIG.* free') = 3 ]; do sleep 0.2; done"], code=3
        ),
        "agentless nodes drain*": Help(first=["rm ~/fleet/nodes/node3/mig.csv"]),
    },
    "docs/how-to/nodes/ssh.md": {
        "agentless nodes trust*": Help(
            first=["rm ~/.config/agentless/known_hosts", "agentless controller stop"], keys=[("[y/N]: ", "y\n")]
        ),
    },
    "docs/how-to/nodes/unhealthy.md": {
        "agentless nodes resume*": Help(
            first=[
                "sed -i '2s/,0,Disabled,/,2,Disabled,/' ~/fleet/nodes/node1/gpus.csv",
                "until agentless gpus node1 | grep unhealthy; do sleep 0.2; done",
            ]
        ),
    },
    "docs/how-to/queue/explain.md": {
        "agentless explain 2x:40G": Help(first=[f"agentless submit node1::0-6 --time-limit 72m {SLEEP}"]),
        "agentless explain 1x:40G*": Help(first=[f"agentless submit node1::0-7 --name big --time-limit 2h {SLEEP}"]),
    },
    "docs/how-to/queue/order.md": {
        "agentless queue top*": Help(
            first=[
                f"agentless submit node1::0-7 --time-limit 1h {SLEEP}",
                "agentless submit node1::0-3 --name w1 -- python eval.py",
                "agentless submit node1::0-3 --name w2 -- python eval.py",
                "agentless submit 2xA100:40G --name w3 -- python train.py",
            ]
        ),
    },
    "docs/how-to/queue/preempt.md": {
        "agentless submit*": Help(first=["mkdir -p ~/ckpt"]),
        "agentless explain*": Help(
            first=[
                f"agentless submit node1::3 --preemptible --grace 2m {SLEEP}",
                "until [ $(agentless ps --quiet | wc -l) = 1 ]; do sleep 0.1; done",
            ]
        ),
    },
    "docs/how-to/queue/share-a-controller.md": {
        "agentless queue --shares": Help(
            first=[
                "agentless ps",
                *LOSS,  # and with it what other pages have used
                f"agentless submit node1::0-3 --owner ann {SLEEP}",
                f"agentless submit node1::4-7 --owner bob --time-limit 2h {SLEEP}",
                "agentless submit node1::0 --owner ann -- python train.py",
                "agentless submit node1::0 --owner eve -- python train.py",
            ]
        ),
    },
    "docs/how-to/run/gangs.md": {
        "agentless submit --nodes 2 --gpus 1 --launcher*": Help(code=1),  # these nodes have none
        "agentless shell*": Help(code=3),  # what `python` is here has ended
    },
    "docs/how-to/run/sweeps.md": {"agentless*": Help(code=1)},
    "docs/how-to/setup/recover.md": {
        "agentless recover": Help(first=[STANDING, *LOSS], code=3, keys=[("[y/N]: ", "n\n")]),
        "agentless recover TASK*": Help(keys=[("[y/N]: ", "y\n")]),
        "agentless recover --yes": Help(first=LOSS),
        "agentless recover --go-on train": Help(
            first=[
                "printf 'jobs: {a: {command: sleep 1000}, b: {command: ls, requires: a}}' >train.yaml",
                "agentless workflow run train.yaml",
                "until agentless ps | grep 'sleep 1000' | grep running; do sleep 0.2; done",
                *LOSS,
                "rm -r ~/.config/agentless/workflows",
                "agentless recover --yes",
            ],
            keys=[("[y/N]: ", "y\n")],
        ),
    },
    "docs/how-to/setup/separate.md": {"agentless init": Help(keys=[("[y/N]: ", "y\n")])},
    "docs/how-to/watch/browser.md": {"agentless*": Help(keys=[("Ctrl-C", CTRL_C)])},
    "docs/how-to/watch/dashboard.md": {"agentless*": Help(keys=[("GPU", "q")])},
    "docs/how-to/watch/events.md": {
        "agentless events TASK": Help(first=[STANDING]),
        "agentless events -f": Help(code=130, keys=[("\n", CTRL_C)]),
    },
    "docs/how-to/watch/exit-code.md": {"agentless submit 1x --time-limit*": Help(code=137)},
    "docs/how-to/watch/load.md": {
        "agentless nodes": Help(
            first=["until [ $(agentless nodes | grep -Ec ' [0-9.]+/[0-9]+ +[0-9.]+/') = 3 ]; do sleep 0.2; done"]
        )
    },
    "docs/how-to/watch/logs.md": {"agentless logs TASK": Help(first=["agentless submit node1 -- echo hello"])},
    "docs/how-to/watch/notify.md": {"agentless notify test ann": Help(first=TARGETS)},
    "docs/how-to/watch/pause.md": {"agentless pause*": Help(first=[STANDING])},
    "docs/how-to/watch/usage.md": {
        "agentless usage": Help(
            first=[STANDING, "until agentless usage | grep -q '@.*%  *[0-9.]*%$'; do sleep 0.2; done"]
        )
    },
    "docs/how-to/work/shell.md": {
        "agentless shell TASK": Help(first=[STANDING], keys=[("~", "touch results.json; exit\n")]),
        "agentless shell TASK -- tar*": Help(first=["tar cf more-data.tar results.json"]),
    },
    "docs/reference/sizes.md": {"agentless*": Help(code=2)},
    "docs/inventory.md": {
        "agentless inventory check": Help(
            code=2,
            first=["printf 'version: 1\n\n\n\nnodes:\n  node2:\n    prot: 1\n    host: gpu2.lab\n' >inventory.yaml"],
        ),
    },
    "docs/uninstall.md": {
        "agentless stop*": Help(first=[STANDING]),
    },
}
"""By page and command."""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A short folder: it has a Unix socket in it."""
    with tempfile.TemporaryDirectory(prefix="agl-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def world(home: Path) -> Iterator[World]:
    with World(home / "fleet", demo_plans((8, 4, 1)), {}) as world:
        python = home / "fleet/python/python"
        python.parent.mkdir()
        python.write_text(TRAINING)
        python.chmod(0o755)
        yield world


@pytest.fixture(scope="module")
def env(home: Path, world: World) -> Iterator[dict[str, str]]:
    ssh = home / ".ssh/config"
    ssh.parent.mkdir()
    hosts = {name: node.port for name, node in world.nodes.items()} | {"old": 1}
    login = f"HostName 127.0.0.1\n  User {USER}\n  IdentityFile {world.fleet.identity}"
    ssh.write_text("".join(f"Host {name}\n  {login}\n  Port {port}\n" for name, port in hosts.items()))
    path = f"{home}/fleet/python:{Path(sys.executable).parent}:{os.environ['PATH']}"
    yield {"HOME": str(home), "PATH": path, "TERM": "xterm", "SHELL": "/bin/bash", "AGENTLESS_PAGER": "cat"}
    for socket in home.rglob("controller.sock"):
        Client(socket.parent, None).post("/v1/controller/stop")


PROGRAM = {"README.md", "docs/tutorial.md", "docs/how-to/setup/completion.md"}
"""Pages for which the program itself is started each time, and not what is forked. The last one asks for its shell."""


@pytest.fixture(scope="module")
def forked(home: Path) -> Iterator[Path]:
    """A folder with an `agentless` that starts fast."""
    (folder := home / "forked").mkdir()
    with ready.typed(folder):
        yield folder


@pytest.fixture
def reader(home: Path, world: World, env: dict[str, str], forked: Path, name: str) -> Iterator[Reader]:
    """In a folder that looks like the repository. The inventory has the nodes, and nothing else is left."""
    client, folder = Client(home / ".local/state/agentless", None), home / "project"
    config = home / ".config/agentless"
    wanted = {config / file.name: file.read_bytes() for file in (world.fleet.inventory, world.fleet.known_hosts)}
    if any(not file.exists() or file.read_bytes() != content for file, content in wanted.items()):
        if client.is_running():
            client.post("/v1/controller/stop")
        shutil.rmtree(config, ignore_errors=True)
        config.mkdir(parents=True)
        for file, content in wanted.items():
            file.write_bytes(content)
    folder.mkdir()
    (folder / "docs").mkdir()
    for part in ("templates", "docs/examples"):
        (folder / part).symlink_to(ROOT / part)
    meant = {
        "NODE": "node1",
        "/data/imagenet:": f"{home}/data/imagenet:",
        "--cores 4 --memory 16GiB": "--cores 1 --memory 1GiB",
    }
    tables = {file: file.read_bytes() for file in home.glob("fleet/nodes/*/*.csv")}
    yield Reader(env, folder, meant, None if name in PROGRAM else forked)
    shutil.rmtree(folder)
    if client.is_running():
        for node in world.nodes:
            client.post(f"/v1/nodes/{node}/resume")
        forget_tasks(client)
        for reservation in client.get("/v1/reservations"):
            client.delete(f"/v1/reservations/{reservation['id']}")
    # What a page has made of the GPUs is not for the next one.
    for file in home.glob("fleet/nodes/*/*.csv"):
        if file in tables:
            file.with_suffix(".new").write_bytes(tables[file])
            file.with_suffix(".new").replace(file)
        else:
            file.unlink()


SLOW = {f"docs/{name}.md" for name in ("how-to/setup/recover", "how-to/setup/separate", "uninstall")}
"""Pages that cost a second and more, and whose commands other tests type, too."""


@pytest.mark.parametrize("name", [pytest.param(each, marks=pytest.mark.slow if each in SLOW else ()) for each in HERE])
def test_a_page_can_be_typed_from_top_to_bottom(name, reader):
    if wrong := reader.read((ROOT / name).read_text(), HELP.get(name, {}), NOT_TYPED):
        pytest.fail(f"{name}\n{wrong}", pytrace=False)


def test_each_command_that_is_not_typed_is_in_the_documentation():
    assert NOT_TYPED.keys() <= {step.command for page in PAGES for step in steps(page.read_text())}
