"""The usual obstacles on real nodes: each turns exactly its line of doctor red, and what doctor says makes it green.

Not made here are distributions other than Debian, and GPUs: what a driver says of them is what real ones have printed.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from agentless.formats import look_image
from tests.lab import Lab, Node
from tests.real.cli import Cli, containers, finish, until

REGISTRY = """
import http.server
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v2/" else 404)
        self.end_headers()
    do_HEAD = do_GET
    def log_message(self, *_):
        pass
http.server.HTTPServer(("127.0.0.1", 5000), Answer).serve_forever()
"""
MISMATCH = "exit 18\nFailed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.183\n"
LOST = "text\nUnable to determine the device handle for GPU1: 0000:02:00.0: Unknown Error\n"
BUS = """
mount -t tmpfs tmpfs /sys/bus/pci/devices && cd /sys/bus/pci/devices && for at in 01 02; do
mkdir 0000:$at:00.0 && echo 0x10de >0000:$at:00.0/vendor && echo 0x030200 >0000:$at:00.0/class
echo -1 >0000:$at:00.0/numa_node && ln -s /{driver} 0000:$at:00.0/driver
done
"""
"""Two NVIDIA cards on the bus, as /sys has them."""


@dataclass
class World:
    """Somebody whose inventory has node1 and nothing else, and what is there of a node for obstacles."""

    lab: Lab
    node: Node
    cli: Cli
    home: Path

    def inventory(self, **keys: str) -> None:
        """Write it anew; a key that is given replaces the usual one."""
        usual = {
            "host": self.node.host,
            "user": "root",
            "identity_file": str(self.lab.identity),
            "image": "'127.0.0.1:5000/busybox'",
        }
        words = ", ".join(f"{key}: {value}" for key, value in {**usual, **keys}.items())
        self.cli.write_inventory(f"version: 1\nnodes:\n  node1: {{{words}}}\n")

    def leave(self) -> None:
        """End the link to the node: with the next inventory, the controller logs in anew."""
        self.inventory(user="daemon")
        self.bad()  # or it would only see the next one, and keep the link

    def bad(self) -> dict[str, dict]:
        """The checks that are not ok, by name.

        Without the sum of the connection, and the kernel log, which users may not read on some machines.
        """
        found = self.cli.json("doctor", "node1", code=None)
        bad = {check["check"]: check for check in found if check["verdict"] in ("failed", "warning")}
        return {name: check for name, check in bad.items() if name not in ("reach", "xids")}

    def run(self, fix: str) -> None:
        """Run what doctor has printed, as root on this machine, which is the node's, too."""
        commands = "\n".join(line for line in fix.splitlines() if not line.startswith("#"))
        env = {**self.cli.env, "PATH": f"{self.cli.env['PATH']}:/usr/sbin:/sbin"}
        done = subprocess.run(["sh", "-ec", commands], env=env, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, (fix, done)


@pytest.fixture(scope="module")
def world(lab, tmp_path_factory):
    node = lab.nodes["node1"]
    home = tmp_path_factory.mktemp("home")
    (home / ".ssh").mkdir(mode=0o700)
    shutil.copy(lab.home / ".ssh/known_hosts", home / ".ssh")
    cli = Cli(lab, "doctor", inventory=None, HOME=str(home))
    found = World(lab, node, cli, home)
    found.inventory()
    with registry(node):
        yield found
        cli.close()


@contextmanager
def registry(node) -> Iterator[None]:
    server = node._space.popen([sys.executable, "-c", REGISTRY], env=node.env(), stdin=subprocess.DEVNULL)
    try:
        until(lambda: node.sh("grep -q ' 0100007F:1388 ' /proc/net/tcp").returncode == 0)
        yield
    finally:
        server.kill()
        server.wait()


@pytest.fixture(autouse=True)
def _as_usual(request):
    yield
    if "world" in request.fixturenames:
        request.getfixturevalue("world").inventory()


@contextmanager
def path_of_its_own(world: World) -> Iterator[Path]:
    """Logins have a PATH of one folder, from which a test takes programs."""
    node = world.node
    folder = node.dir / "slim"
    folder.mkdir()
    for place in (Path("/usr/bin"), node.dir / "bin"):
        for program in place.iterdir():
            (folder / program.name).unlink(missing_ok=True)
            (folder / program.name).symlink_to(program)
    config = node.dir / "sshd_config"
    before = config.read_text()
    config.write_text(before.replace(f"PATH={node.dir}/bin:/usr/bin:/bin", f"PATH={folder}"))
    node.stop_sshd()
    node.start_sshd()
    try:
        yield folder
    finally:
        config.write_text(before)
        node.stop_sshd()
        node.start_sshd()
        shutil.rmtree(folder)


def turns_red(world: World, check: str, verdict: str = "failed") -> dict:
    """The check, once it is the only one that is not ok."""
    found = until(lambda: (bad := world.bad()) and set(bad) == {check} and bad)
    assert found[check]["verdict"] == verdict, found
    assert found[check]["fix"], found
    return found[check]


def turns_green(world: World) -> None:
    until(lambda: world.bad() == {})


# ---------------------------------------------------------------------- the connection


@pytest.mark.slow
def test_a_name_that_is_none(world):
    world.inventory(host="node1.invalid")
    assert "node1.invalid is not a known host name" in turns_red(world, "name")["wrong"]
    world.inventory()
    turns_green(world)


@pytest.mark.slow
def test_a_port_at_which_nobody_listens(world, node):
    node.stop_sshd()
    assert "Connection refused" in turns_red(world, "tcp")["wrong"]
    node.start_sshd()
    turns_green(world)


def test_a_port_that_is_not_the_one_of_the_ssh_server(world):
    world.inventory(port="2222")
    found = turns_red(world, "tcp")
    assert "but an SSH server answers at port 22 (SSH-2.0-" in found["wrong"]
    assert found["fix"] == "# Set 'port: 22' for node1 in the inventory."
    lines = world.cli("doctor", "node1", code=1).out.splitlines()
    (others,) = [line for line in lines if "skipped; fix" in line]
    assert others.split()[:6] == ["others", "-", "ssh,", "host-key,", "login,", "shell,"]
    world.inventory(port="22")
    turns_green(world)


@pytest.mark.slow
def test_the_address_that_answers_is_shown(world, node):
    world.leave()
    world.inventory(host="node1.invalid", address=f"['{node.host}']")
    assert f"of node1.invalid at {node.host} is not known" in turns_red(world, "host-key")["wrong"]
    said = world.cli("nodes", "trust", "--yes", "node1").out
    assert f"node1: node1.invalid at {node.host} presents host key SHA256:" in said
    assert said.endswith(f"node1: host key recorded, node reachable at root@{node.host}\n")
    assert f" reached  root@{node.host}\n" in world.cli("nodes", "show", "node1").out
    assert world.cli.json("nodes", "show", "node1")["address_in_use"] == f"root@{node.host}"
    checks = {check["check"]: check["seen"] for check in world.cli.json("doctor", "node1")}
    assert (checks["login"], checks["reach"]) == (f"root@{node.host}", f"root@{node.host} via asyncssh")
    (world.cli.config / "known_hosts").unlink()


@pytest.mark.slow
def test_a_port_of_something_else(world, lab):
    host, port = lab.add_closing_server()
    world.inventory(host=host, port=str(port))
    turns_red(world, "ssh")
    world.inventory()
    turns_green(world)


@pytest.mark.slow
def test_a_host_key_that_is_not_known(world):
    known = world.home / ".ssh/known_hosts"
    before = known.read_text()
    ours = world.cli.config / "known_hosts"
    world.leave()
    known.write_text("")
    world.inventory()
    fix = turns_red(world, "host-key")["fix"]
    assert fix == "agentless nodes trust node1"
    world.run(f"{fix} --yes")
    turns_green(world)
    ours.unlink()
    known.write_text(before)


@pytest.mark.slow
def test_a_host_key_that_has_changed(world, node):
    known = world.home / ".ssh/known_hosts"
    before = known.read_text()
    node.new_host_key()
    fix = turns_red(world, "host-key")["fix"]
    # Comments: it may be another machine, so a person decides.
    assert all(line.startswith("# ") for line in fix.splitlines())
    assert fix.splitlines()[-1] == "# agentless nodes trust node1"
    world.run(
        "\n".join(line.removeprefix("# ") for line in fix.splitlines() if " -R " in line or " trust " in line)
        + " --yes"
    )
    turns_green(world)
    (world.cli.config / "known_hosts").unlink()
    known.write_text(before)
    node.reset()
    turns_green(world)


@pytest.mark.slow
def test_a_key_that_the_node_does_not_accept(world, lab):
    key = world.home / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
    world.inventory(identity_file=str(key))
    assert "ssh-copy-id root@" in turns_red(world, "login")["fix"]
    keys = lab.root / "authorized_keys"
    before = keys.read_text()
    keys.write_text(before + key.with_suffix(".pub").read_text())  # as ssh-copy-id does it
    turns_green(world)
    keys.write_text(before)


@pytest.mark.slow
def test_a_login_without_a_shell(world, user):
    login = user("noshell", docker_group=True)
    subprocess.run(["/usr/sbin/usermod", "--shell", "/usr/sbin/nologin", login], check=True)
    world.inventory(user=login)
    fix = turns_red(world, "shell")["fix"]
    chsh = next(line for line in fix.splitlines() if "chsh" in line)
    world.run(chsh.removeprefix("# "))
    turns_green(world)


@pytest.mark.slow
def test_startup_files_that_print(world, node):
    bashrc = node.dir / "home/.bashrc"
    bashrc.write_text("head -c 9000 /dev/zero | tr '\\0' x\n")
    node.kill_connections()
    fix = turns_red(world, "shell", "warning")["fix"]
    guard = next(line.removeprefix("# ") for line in fix.splitlines() if "return" in line)
    bashrc.write_text(f"{guard}\n{bashrc.read_text()}")
    node.kill_connections()
    turns_green(world)
    bashrc.write_text("")


@pytest.mark.slow
def test_one_session_on_a_connection(world, node):
    node.allow_sessions(1)
    turns_red(world, "sessions", "warning")
    node.allow_sessions(None)
    turns_green(world)


# ---------------------------------------------------------------------- the machine


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "check", "fix"),
    [
        ("flock", "flock", "apt-get install -y util-linux"),
        ("timeout", "path", "apt-get install -y coreutils"),
        ("docker", "command", "apt-get install -y docker.io"),
    ],
)
def test_a_program_that_is_missing(world, program, check, fix):
    with path_of_its_own(world) as folder:
        turns_green(world)
        where = os.readlink(folder / program)
        (folder / program).unlink()
        if check == "command":
            found = turns_red(world, check)
            # It is at a usual place, which the PATH of this login does not have.
            assert found["wrong"].startswith("docker is /usr/bin/docker, which is not on the PATH")
        else:
            assert fix in turns_red(world, check)["fix"]
        (folder / program).symlink_to(where)
        turns_green(world)


@pytest.mark.slow
def test_a_clock_that_is_an_hour_off(world, node):
    date = node.dir / "bin/date"
    date.write_text('#!/bin/sh\nexec /usr/bin/date --date="1 hour ago" "$@"\n')
    date.chmod(0o755)
    assert "behind ours" in turns_red(world, "clock")["wrong"]
    date.unlink()
    turns_green(world)


def test_a_folder_of_the_inventory_that_is_missing(world, node):
    folder = node.dir / "scratch"
    world.inventory(local_temp=str(folder))
    world.run(turns_red(world, "local_temp")["fix"])
    turns_green(world)
    folder.rmdir()


def chosen(fix: str, program: str) -> list[str]:
    """The commands of this program, which are there to choose from."""
    return [line.removeprefix("# ") for line in fix.splitlines() if line.startswith(f"# {program} ")]


@pytest.mark.slow
def test_what_else_the_inventory_names_and_the_node_lacks(world, node):
    """Exactly what a task would miss: mounts that were once there, a CUDA, a shared folder."""
    mount, cuda, shared = (node.dir / name for name in ("data", "cuda-9", "shared"))
    world.inventory(mounts=f"['{mount}:/data:ro', '/etc:/etc2:ro']")
    found = turns_red(world, "mounts")
    assert found["wrong"] == f"{mount} does not exist (mounts in the inventory)"
    assert f"cannot mount {mount}" in world.cli("submit", "node1::0", "--", "true", code=1).err
    # A person chooses: tasks would start with an empty folder in place of the data.
    world.run("\n".join(chosen(found["fix"], "mkdir")))
    turns_green(world)
    world.inventory(cuda=f"{{path: {cuda}}}")
    cuda.write_text("not a folder")
    assert "ls -d /usr/local/cuda*" in turns_red(world, "cuda", "warning")["fix"]
    cuda.unlink()
    cuda.mkdir()
    turns_green(world)
    text = world.cli.inventory.read_text()
    world.cli.write_inventory(text.replace("nodes:", f"defaults: {{shared_dir: {shared}}}\nnodes:"))
    fix = turns_red(world, "shared_dir")["fix"]
    tried = runs(world.cli.json("doctor", "--run", "node1", code=1))
    assert {name: verdict for name, (verdict, _) in tried.items()} == {"run 0": "failed", "run 1": "failed"}
    assert tried["run 0"][1] == f"cannot mount {shared}: not found on node1"
    assert f"cannot mount {shared}" in world.cli("submit", "node1::0", "--", "true", code=1).err
    world.run("\n".join(chosen(fix, "mkdir")))
    turns_green(world)
    assert {verdict for verdict, _ in runs(world.cli.json("doctor", "--run", "node1")).values()} == {"ok"}
    for folder in (mount, cuda, shared):
        folder.rmdir()


# ---------------------------------------------------------------------- the engine


def test_a_network_that_is_not_there(world, node):
    world.inventory(network="doctors")
    fix = turns_red(world, "network")["fix"]
    assert fix == "docker network create doctors"
    node.sh(fix).check_returncode()
    turns_green(world)
    node.sh("docker network rm doctors").check_returncode()


@pytest.mark.slow
def test_a_daemon_that_does_not_run(world, node):
    node.stop_docker()
    found = turns_red(world, "docker")
    assert found["fix"].startswith("service docker start\n")  # a node of the lab was not booted by systemd
    assert found["wrong"].endswith(f"does not answer at {node.docker_socket}, which does not exist")
    assert found["detail"].endswith("run: service docker start")
    assert "socket" not in {check["check"] for check in world.cli.json("doctor", "node1", code=1) if check["ok"]}
    node.start_docker()
    turns_green(world)


@pytest.mark.slow
def test_a_login_that_may_not_use_the_socket(world, user):
    login = user("stranger")
    world.inventory(user=login)
    fix = turns_red(world, "socket")["fix"]
    assert fix.splitlines()[0] == f"sudo usermod -aG docker {login}"
    world.run(fix.removeprefix("sudo "))
    # Doctor logs in anew: the login of before keeps its groups.
    assert world.bad() == {}


@pytest.mark.slow
def test_a_disk_that_is_full(world, node):
    disk = node.dir / "docker"
    node.stop_docker()
    disk.rename(node.dir / "docker.kept")
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600m", "tmpfs", disk], check=True)
    try:
        node.start_docker()
        until(lambda: set(world.bad()) == {"disk"})
        assert world.bad()["disk"]["verdict"] == "warning"
        subprocess.run(["fallocate", "-l", "500M", disk / "filler"], check=True)
        fix = turns_red(world, "disk")["fix"]
        node.sh(
            "tar -c -T /dev/null | docker import - empty && docker create --name other empty x && "
            "docker create --name kept --label agentless.task=kept empty x"
        ).check_returncode()
        for prune in chosen(fix, "docker"):
            node.sh(prune).check_returncode()
        # A stopped container of ours may be a VPS that somebody keeps.
        assert node.sh("docker ps -a --format '{{.Names}}'").stdout.split() == ["kept"]
    finally:
        node.stop_docker()
        subprocess.run(["umount", "--lazy", disk], check=True)
        disk.rmdir()
        (node.dir / "docker.kept").rename(disk)
        node.start_docker()
    turns_green(world)


@pytest.mark.slow
@pytest.mark.skipif(
    not Path("/sys/fs/cgroup/memory").is_mount(), reason="no control groups of version 1, of which one can be hidden"
)
def test_a_control_group_that_is_missing(world, node):
    node.stop_docker()
    node.start_docker(["memory"])
    assert "cgroup_enable=memory" in turns_red(world, "limits", "warning")["fix"]
    node.stop_docker()
    node.start_docker()
    turns_green(world)


@pytest.mark.slow
def test_a_registry_that_cannot_be_reached(world):
    world.inventory(image="'127.0.0.1:5999/busybox'")
    assert "127.0.0.1:5999" in turns_red(world, "registry", "warning")["wrong"]
    world.inventory()
    turns_green(world)


@pytest.mark.slow
def test_a_toolkit_that_is_not_installed(world, node):
    hook = node.dir / "bin/nvidia-container-runtime-hook"
    hook.rename(node.dir / "hook")
    try:
        assert "apt-get install -y nvidia-container-toolkit" in turns_red(world, "toolkit")["fix"]
    finally:
        (node.dir / "hook").rename(hook)
    turns_green(world)


# ---------------------------------------------------------------------- GPUs


@pytest.mark.slow
def test_a_driver_that_was_updated_under_the_loaded_one(world, node):
    node.fault(MISMATCH)
    assert turns_red(world, "driver-match")["fix"].startswith("# Reboot the node: reboot\n")
    node.fault(None)
    turns_green(world)


@pytest.mark.slow
def test_a_card_that_has_fallen_off_the_bus(world, node):
    node.fault(LOST)
    found = until(lambda: (bad := world.bad()) and set(bad) == {"nvidia"} and bad)
    assert "may have fallen off the bus; reboot the node" in found["nvidia"]["wrong"]
    node.fault(None)
    turns_green(world)
    world.cli("nodes", "resume", "node1")  # a GPU with a fault stays out until then


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "check", "verdict", "fix"),
    [("nouveau", "bus", "failed", "blacklist nouveau"), ("vfio-pci", "bus", "warning", "lspci")],
)
def test_cards_that_another_driver_has(world, node, driver, check, verdict, fix):
    node.sh(BUS.format(driver=driver)).check_returncode()
    try:
        assert fix in turns_red(world, check, verdict)["fix"]
    finally:
        node.sh("umount /sys/bus/pci/devices").check_returncode()
    turns_green(world)


@pytest.mark.slow
def test_a_driver_without_its_program(world, node):
    node.sh(BUS.format(driver="nvidia")).check_returncode()
    try:
        with path_of_its_own(world) as folder:
            turns_green(world)
            (folder / "nvidia-smi").unlink()
            assert "apt-get install -y nvidia-smi" in turns_red(world, "bus")["fix"]
    finally:
        node.sh("umount /sys/bus/pci/devices").check_returncode()
    turns_green(world)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reading", "check", "verdict", "fix"),
    [
        ({"persistence_mode": "Disabled"}, "persistence", "warning", "nvidia-smi -pm 1"),
        ({"ecc.errors.uncorrected.volatile.total": "2"}, "ecc", "failed", "nvidia-smi -r -i 0"),
        ({"temperature.gpu": "95"}, "thermals", "warning", "nvidia-smi -q"),
        ({"mig.mode.current": "Enabled"}, "mig", "warning", "nvidia-smi -i 0 -mig 0"),
    ],
)
def test_a_card_in_a_bad_state(world, node, reading, check, verdict, fix):
    node.set_gpus([reading, {}])
    assert fix in turns_red(world, check, verdict)["fix"]
    node.set_gpus(2)
    turns_green(world)
    world.cli("nodes", "resume", "node1")


# ---------------------------------------------------------------------- --run


def runs(found: list[dict]) -> dict[str, tuple[str, str]]:
    return {c["check"]: (c["verdict"], c["detail"]) for c in found if c["check"].startswith("run")}


def left_over(node) -> list[str]:
    """Containers and images that were not there before."""
    return [*containers(node), *node.sh("docker images --quiet agentless-doctor").stdout.split()]


def test_a_container_on_each_gpu_sees_that_gpu_and_nothing_is_left(agentless, node):
    found = runs(agentless.json("doctor", "--run", "node1"))
    assert {name: verdict for name, (verdict, _) in found.items()} == {"run 0": "ok", "run 1": "ok"}
    assert "its GPU and no other" in found["run 0"][1]
    assert left_over(node) == []
    assert agentless.is_free()


@pytest.mark.slow
def test_a_gpu_in_use_is_skipped(agentless, node):
    task = agentless.submit("node1::1", "--", "sleep", "600")
    until(lambda: agentless.task(task)["state"] == "running")
    found = runs(agentless.json("doctor", "--run", "node1"))
    assert found["run 0"][0] == "ok"
    assert found["run 1"] == ("skipped", f"GPU 1 is allocated: held by task {task} of {agentless.task(task)['owner']}")
    assert containers(node) == [f"agentless-{task}"]


@pytest.mark.slow
def test_a_gpu_that_another_controller_holds_is_not_given_twice(agentless, node, world):
    """It has not heard of that container yet: the claim on the node decides."""
    other = Cli(world.lab, "other")
    task = other.submit("node1::0", "--", "sleep", "600")
    found = runs(agentless.json("doctor", "--run", "node1"))
    assert found["run 0"][0] == "skipped"
    assert task in found["run 0"][1]
    assert found["run 1"][0] == "ok"
    other("kill", task)
    other.close()


@pytest.mark.slow
def test_an_image_of_ours_is_sent_where_the_node_has_none_and_removed(world, node):
    found = runs(world.cli.json("doctor", "--run", "node1"))
    assert {verdict for verdict, _ in found.values()} == {"ok"}, found
    assert left_over(node) == []


HOOK = """#!{python}
import json, subprocess, sys
state = json.load(sys.stdin)
config = json.load(open(state["bundle"] + "/config.json"))
told = [word for word in config["process"]["env"] if word.startswith("NVIDIA_VISIBLE_DEVICES=")]
for number, uuid in enumerate({uuids}):
    if uuid in told[0] or {everything}:
        node = config["root"]["path"] + "/dev/nvidia" + str(number)
        enter = ["nsenter", "--target", str(state["pid"]), "--mount"]
        subprocess.run([*enter, "mknod", node, "c", "195", str(number)], check=True)
"""
"""As NVIDIA's: it makes the devices of the GPUs that are asked for. Or of all of them."""


@pytest.fixture
def devices(node):
    """Its driver says which device is whose."""
    gpus = node.dir / "proc"
    for at, uuid in enumerate(node.gpu_uuids):
        folder = gpus / f"nvidia/gpus/0000:0{at + 1}:00.0"
        folder.mkdir(parents=True)
        folder.joinpath("information").write_text(f"Model: \t\t H100\nGPU UUID: \t {uuid}\nDevice Minor: \t {at}\n")
    node.sh(f"mount --bind {gpus} /proc/driver").check_returncode()
    yield
    node.sh("umount /proc/driver").check_returncode()
    shutil.rmtree(gpus)


@pytest.fixture
def hook(node):
    """Replaces what the engine runs to hand out GPUs."""
    file = node.dir / "bin/nvidia-container-runtime-hook"
    before = file.read_text()
    yield file.write_text
    file.write_text(before)


@pytest.mark.slow
def test_the_devices_of_a_container_are_the_proof(agentless, node, devices, hook):
    hook(HOOK.format(python=sys.executable, uuids=node.gpu_uuids, everything=False))
    found = runs(agentless.json("doctor", "--run", "node1"))
    assert [verdict for verdict, _ in found.values()] == ["ok", "ok"]
    assert "the container has /dev/nvidia1 and no other: the device of its GPU" in found["run 1"][1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("everything", "words"),
    [(True, "the container has /dev/nvidia0, /dev/nvidia1"), (None, "the toolkit gave it none")],
)
def test_a_container_with_other_devices_than_its_own_fails(agentless, node, devices, hook, everything, words):
    if everything:
        hook(HOOK.format(python=sys.executable, uuids=node.gpu_uuids, everything=True))
    found = runs(agentless.json("doctor", "--run", "node1", code=1))
    assert {verdict for verdict, _ in found.values()} == {"failed"}
    assert words in found["run 0"][1]
    assert left_over(node) == []


@pytest.mark.slow
def test_an_engine_that_cannot_hand_out_gpus_fails(agentless, node, hook):
    hook("#!/bin/sh\necho 'nvidia-container-cli: initialization error: driver rpc error' >&2\nexit 1\n")
    found = runs(agentless.json("doctor", "--run", "node1", code=1))
    assert {verdict for verdict, _ in found.values()} == {"failed"}
    assert "fails in containers" in found["run 0"][1]
    assert left_over(node) == []
    assert agentless.is_free()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
def test_nothing_is_left_when_somebody_leaves_in_the_middle(world, node, how, hook):
    """The hook holds the start of the container until it is known that everybody has gone."""
    cli = world.cli
    cli.get("/v1/nodes")
    gate = node.dir / "gate"
    seen = node.dir / "gate.seen"
    hook(f"#!/bin/sh\ncat >/dev/null\ntouch {seen}\nuntil [ -e {gate} ]; do sleep 0.05; done\n")
    command = cli.start("doctor", "--run", "node1")
    until(seen.exists)
    if how == "kill":
        cli.kill_controller()
    else:
        command.send_signal(signal.SIGINT)
    finish(command)
    assert containers(node)
    gate.touch()
    until(lambda: left_over(node) == [])
    gate.unlink()
    seen.unlink()
    turns_green(world)
    assert [gpu["state"] for gpu in cli.json("gpus", "node1")] == ["free", "free"]


NAMED = "agentless-doctor-"


@pytest.mark.slow
def test_what_a_broken_off_trial_has_left_is_removed_and_nothing_else(world, node):
    """Its script was killed, as when the node went down: by the mark, it began more than an hour ago."""
    recent = f"{int(time.time())}-0123abcd"
    marks = {"old": "1000000000-0123abcd", "recent": recent, "others": "yes", "like": "1000000000-0123abcdz"}
    for name, mark in marks.items():
        tag = f"agentless-doctor:{mark}"
        image = look_image.archive(platform.machine(), mark)
        assert image
        loaded = node.dir / "look.tar"
        loaded.write_bytes(image)
        labels = f"--label agentless.task=doctor-{name} --label agentless.doctor={mark}"
        made = node.sh(f"docker load -i {loaded} && docker create --name {NAMED}{name} {labels} {tag}")
        assert made.returncode == 0, made
    # Labels may come from an image, so they do not make anybody's container one of doctor's.
    forged = {"user": "1000000000-0123abcd", "lines": f"x\n{NAMED}recent|1000000000-0123abcd\nuser|1000000000-0123abcd"}
    for name, mark in forged.items():
        labels = f"--label agentless.task=doctor-{name} --label agentless.doctor={shlex.quote(mark)}"
        node.sh(f"docker create --name {name} {labels} busybox").check_returncode()
    node.sh("docker tag busybox agentless-doctor:1000000000-ffffffff").check_returncode()
    found = runs(world.cli.json("doctor", "--run", "node1"))
    assert {verdict for verdict, _ in found.values()} == {"ok"}, found
    assert set(containers(node)) == {*(NAMED + name for name in ("recent", "others", "like")), *forged}
    tags = node.sh("docker images --format '{{.Tag}}' agentless-doctor").stdout.split()
    assert set(tags) == {"1000000000-ffffffff", *(marks[name] for name in ("recent", "others", "like"))}
    node.sh(
        "docker rm $(docker ps -aq); docker images --format '{{.Repository}}:{{.Tag}}' agentless-doctor | "
        "xargs docker rmi"
    ).check_returncode()
    assert left_over(node) == []


@pytest.mark.slow
def test_a_gpu_that_is_taken_after_the_look_is_said_to_be_held_and_by_whom(agentless, lab, node, hook):
    """Two controllers try a node at once: the first comes to GPU 1 when the second has a container there."""
    gates = node.dir / "gates"
    gates.mkdir()
    hook(GATED.format(python=sys.executable, gates=gates, uuids=node.gpu_uuids))
    second = Cli(lab, "second")
    try:
        asked = []
        for at, cli in enumerate((agentless, second)):
            asked.append(cli.start("doctor", "--run", "node1", "--json"))
            until(gates.joinpath(f"at{at}").exists)
        gates.joinpath("open0").touch()
        found = runs(json.loads(asked[0].communicate(timeout=120)[0]))
        assert [found["run 0"][0], found["run 1"][0]] == ["ok", "skipped"]
        (holder,) = containers(node)
        assert f"GPU 1 is held by task {holder.removeprefix('agentless-')} of " in found["run 1"][1]
        gates.joinpath("open1").touch()
        found = runs(json.loads(asked[1].communicate(timeout=120)[0]))
        assert [found["run 0"][0], found["run 1"][0]] == ["skipped", "ok"]
        assert left_over(node) == []
    finally:
        for at in (0, 1):
            gates.joinpath(f"open{at}").touch()
        second.close()
    shutil.rmtree(gates)


GATED = """#!{python}
import json, pathlib, sys, time
state = json.load(sys.stdin)
config = json.load(open(state["bundle"] + "/config.json"))
told = [word for word in config["process"]["env"] if word.startswith("NVIDIA_VISIBLE_DEVICES=")]
for number, uuid in enumerate({uuids}):
    if uuid in told[0]:
        gates = pathlib.Path("{gates}")
        gates.joinpath("at" + str(number)).touch()
        while not gates.joinpath("open" + str(number)).exists():
            time.sleep(0.05)
"""
"""Holds the start of the container on each GPU until its gate is open."""


# ---------------------------------------------------------------------- what is printed


def test_a_healthy_node_is_one_line_and_a_named_one_all_of_them(agentless):
    short = agentless("doctor").out.splitlines()
    assert re.match(r"node1  (ok|warn)  ", short[0])
    full = agentless("doctor", "node1").out
    assert all(f"\n  {name} " in full for name in ("tcp", "host-key", "flock", "docker", "disk", "toolkit"))


@pytest.mark.slow
def test_a_script_is_printed_and_nothing_of_it_is_run(world, node):
    folder = node.dir / "absent"
    world.inventory(local_temp=str(folder))
    turns_red(world, "local_temp")
    script = world.cli("doctor", "--fix").out
    assert not folder.exists()
    scripts = node.dir / "scripts"
    said = world.cli("doctor", "--fix", "-o", str(scripts)).out
    who = "as the user that agentless logs in as"
    assert said == f"Wrote {scripts}/node1.sh: read it, then run it on node1 {who}\n"
    assert (scripts / "node1.sh").read_text() == script
    assert "node1.sh exists already" in world.cli("doctor", "--fix", "-o", str(scripts), code=3).err
    shutil.rmtree(scripts)
    done = node.sh(script)
    assert done.returncode == 0, done
    turns_green(world)
    folder.rmdir()


def test_a_node_on_which_slurmd_runs_gets_no_task_until_the_inventory_allows_it(world):
    daemon = world.node.dir / "slurmd"
    daemon.symlink_to("/usr/bin/sleep")
    process = world.node.start([str(daemon), "300"])
    try:
        assert set(world.bad()) == {"slurmd"}
        refused = world.cli("submit", "node1::0", "--", "true", code=3)
        assert "Slurm manages node1 (slurmd runs there)" in refused.err
        world.inventory(allow="slurm")
        assert world.bad() == {}
        checks = {check["check"]: check["detail"] for check in world.cli.json("doctor", "node1")}
        assert checks["slurmd"] == "runs; the inventory allows tasks beside it"
    finally:
        process.kill()
        daemon.unlink()
        world.inventory()
        world.bad()
