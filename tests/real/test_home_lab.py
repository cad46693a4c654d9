"""A desktop with a card, a machine whose memory is its GPU's, and WSL2, on real nodes that imitate them."""

from __future__ import annotations

import os

import pytest

from tests.real.cli import Cli, until

IMAGE = ("--image", "busybox")
IMITATE = """set -e
cd {folder} && mkdir -p fake && cd fake
echo 5.15.167.4-microsoft-standard-WSL2 >osrelease
mount --bind osrelease /proc/sys/kernel/osrelease
for name in lib dev; do mkdir $name.new $name.work; done
mkdir dev
mount -t overlay -o lowerdir=/usr/lib,upperdir=lib.new,workdir=lib.work overlay /usr/lib
mkdir -p /usr/lib/wsl/lib
mv {folder}/bin/nvidia-smi /usr/lib/wsl/lib
mount -t overlay -o lowerdir=/dev,upperdir=dev.new,workdir=dev.work overlay dev
mknod dev/dxg c 10 125
for each in pts shm; do mount --rbind /dev/$each dev/$each; done
mount --move dev /dev
"""
"""Makes a node that looks like WSL2: its kernel, /dev/dxg, and nvidia-smi where Windows puts it."""
UNLISTED = "WSL2 does not list what uses it, also in Windows"


def test_a_desktop_keeps_no_task_from_its_card(agentless, node):
    desktop = node.add_process(1, ["sleep", "300"], 1)
    node.use_gpu(0, node.pid(desktop), "/usr/bin/kwin_wayland", 25)
    gpu = until(lambda: (gpu := agentless.gpu("node1::0"))["desktop"] and gpu)
    assert (gpu["state"], gpu["reason"]) == ("free", "")
    (row,) = [line for line in agentless("gpus", "node1").out.splitlines() if line.split()[1] == "0"]
    assert "free (desktop)" in row
    assert row.endswith("kwin_wayland (25 MiB)")
    task = agentless.submit("node1::0", *IMAGE, "--", "sleep", "300")
    until(lambda: agentless.task(task)["state"] == "running")
    until(lambda: agentless.gpu("node1::0")["state"] == "allocated")
    assert agentless.task(task)["intruders"] == []


@pytest.mark.slow
def test_who_calls_itself_a_desktop_and_uses_more_is_foreign(agentless, node):
    process = node.add_process(1, ["sleep", "300"], 1)
    node.use_gpu(0, node.pid(process), "/usr/bin/Xorg", 512)
    until(lambda: agentless.gpu("node1::0")["state"] == "foreign")
    refused = agentless("submit", "node1::0", "--no-queue", *IMAGE, "--", "true", code=3)
    assert "use 512 MiB of GPU memory; to run tasks beside them, set 'foreign: {below: 1GiB}' for" in refused.err


@pytest.mark.slow
def test_a_gpu_without_memory_of_its_own_has_that_of_the_machine(agentless, node):
    unread = dict.fromkeys(("memory.total", "memory.used", "memory.free"), "[N/A]")
    node.set_gpus([{"name": "NVIDIA GB10", **unread}])
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    gpu = until(lambda: (gpu := agentless.gpu("node1::0"))["unified"] and gpu)
    gpu = until(lambda: (gpu := agentless.gpu("node1::0"))["memory_total_mib"] and gpu)
    assert (gpu["state"], gpu["memory_total_mib"]) == ("free", total)
    assert " unified " in agentless("gpus", "node1").out
    agentless("submit", "node1::0", "--gpu-memory", "64M", *IMAGE, "--wait", "--", "true")


DOCK = """
mount -t tmpfs tmpfs /sys/bus/pci/devices && cd /sys/bus/pci/devices && for at in 01 02; do
mkdir 0000:$at:00.0 && echo 0x10de >0000:$at:00.0/vendor && echo 0x030200 >0000:$at:00.0/class
echo -1 >0000:$at:00.0/numa_node && echo fixed >0000:$at:00.0/removable && ln -s /nvidia 0000:$at:00.0/driver
done && echo removable >0000:02:00.0/removable
"""
"""Two NVIDIA cards on the bus, the second in an enclosure."""


@pytest.mark.slow
def test_an_external_gpu_comes_and_goes(lab, node):
    """The first GPU is internal: when that vanishes, it is unhealthy."""
    assert node.sh(DOCK).returncode == 0
    cli = Cli(lab, "docked")
    until(lambda: len(cli.get("/v1/gpus", node="node1")) == 2)
    node.set_gpus(1)
    until(lambda: [gpu["index"] for gpu in cli.get("/v1/gpus", node="node1")] == [0])
    node.set_gpus(2)
    until(lambda: [gpu["state"] for gpu in cli.get("/v1/gpus", node="node1")] == ["free", "free"])
    cli.close()
    node.sh("umount /sys/bus/pci/devices")


@pytest.fixture(scope="module")
def windows(lab):
    (node,) = lab.add_nodes({"windows": 1})
    done = node.sh(IMITATE.format(folder=node.dir))
    assert done.returncode == 0, done
    yield node
    lab.retire("windows")


@pytest.fixture
def person(lab, windows):
    """Somebody who has only that machine, and has not said what to assume of it."""
    lines = lab.inventory.read_text().splitlines(keepends=True)
    cli = Cli(lab, "home", inventory="".join(x for x in lines if x.startswith(("version", "nodes", "  windows:"))))
    yield cli
    cli.close()


def assume(cli):
    cli.write_inventory(cli.inventory.read_text().replace("windows: {", "windows: {wsl: {assume: free}, "))
    until(lambda: cli.gpu("windows::0")["state"] == "free")


def test_wsl2_gives_no_gpu_until_somebody_says_that_it_is_free(person):
    gpu = until(lambda: (found := person.get("/v1/gpus")) and found[0])
    assert (gpu["state"], gpu["assumed"]) == ("unknown", "")
    refused = person("submit", "1x", "--no-queue", *IMAGE, "--", "true", code=3)
    assert f"GPU 0 is unknown: {UNLISTED}; if only tasks use it, set 'wsl: {{assume: free}}'" in refused.err
    assume(person)
    assert "free (assumed)" in person("gpus").out
    assert person.gpu("windows::0")["assumed"] == UNLISTED
    person("submit", "1x", *IMAGE, "--wait", "--", "true")


@pytest.mark.slow
def test_doctor_explains_wsl2(person, windows):
    checks = {check["check"]: check for check in person.json("doctor", code=None)}
    assert checks["wsl"]["verdict"] == "ok"
    assert checks["gpu-processes"]["verdict"] == "warning"
    assert "wsl: {assume: free}" in checks["gpu-processes"]["fix"]
    assert checks["nvidia"]["detail"] == "1 GPU, driver 550.54.15"
    assume(person)
    windows.sh("touch /usr/lib/x86_64-linux-gnu/libcuda.so.1")
    checks = {check["check"]: check for check in person.json("doctor", code=1)}
    assert checks["wsl"]["wrong"].startswith(
        "a Linux driver is installed inside WSL2 (/usr/lib/x86_64-linux-gnu/libcuda"
    )
    assert checks["gpu-processes"]["verdict"] == "ok"
