"""Docker 28 and podman 5 from another Debian release. `make engines` runs every command on each; here are the promises.

They need a root of that release, which takes a minute to make: what is not there is skipped.
"""

from __future__ import annotations

import pytest

from tests.lab import Kind
from tests.lab.roots import is_made
from tests.real.cli import Cli, until

pytestmark = pytest.mark.skipif(not is_made("sid"), reason="no root of sid (make engines makes it)")
PODMAN_DOCKER = """cat > /usr/bin/docker <<'END' && chmod 755 /usr/bin/docker
#!/bin/sh
[ -e /etc/containers/nodocker ] || \\
echo "Emulate Docker CLI using podman. Create /etc/containers/nodocker to quiet msg." >&2
exec podman "$@"
END
"""
"""The docker of Debian's package podman-docker, but for the path of our podman."""


@pytest.fixture(scope="module")
def made(lab):
    clis = []

    def make(name, kind, docker="docker"):
        node = lab.add_suite_node(name, kind)
        keys = f"user: {node.user}, identity_file: {lab.identity}, image: lab/busybox, docker: {docker}"
        cli = Cli(lab, name, f"version: 1\nnodes:\n  {name}: {{host: {node.host}, {keys}}}\n")
        clis.append((name, cli))
        return cli, node

    yield make
    for name, cli in clis:
        cli.close()
        lab.retire(name)


def checks(cli):
    return {check["check"]: (check["ok"], check["detail"]) for check in cli.json("doctor", code=None)}


def test_a_task_runs_on_docker_28_with_containerds_store(made):
    cli, node = made("store", Kind(containerd=True))
    task = cli.submit("store::1", "--", "sh", "-c", "env | grep NVIDIA; echo err >&2; exec sleep 600")
    until(lambda: cli("logs", task).out)
    logs = cli("logs", task)
    assert (logs.out, logs.err) == (f"NVIDIA_VISIBLE_DEVICES={node.gpu_uuids[1]}\n", "err\n")
    cli("stop", "--grace", "1", task)
    assert cli.task(task)["state"] == "stopped"
    assert checks(cli)["storage"][1].endswith("in containerd's store")


@pytest.mark.slow
def test_a_docker_that_gives_gpus_only_by_cdi_gives_exactly_the_one_and_without_the_file_none(made):
    cli, node = made("cdi", Kind(cdi=True))
    assert checks(cli)["toolkit"] == (True, "Docker can use GPUs by CDI")
    task = cli.submit("cdi::1", "--", "sh", "-c", "env | grep LAB_GPU")
    cli("wait", task)
    assert cli("logs", task).out == f"LAB_GPU_1={node.gpu_uuids[1]}\n"
    node.sh("mv /etc/cdi/nvidia.yaml /root && touch /usr/bin/nvidia-ctk && chmod 755 /usr/bin/nvidia-ctk")
    until(lambda: checks(cli)["toolkit"][0] is False)
    words = checks(cli)["toolkit"][1]
    assert words.startswith("Docker on cdi cannot give GPUs to containers; install nvidia-container-toolkit")
    assert words in cli("submit", "cdi::1", "--", "true", code=3).err
    assert words in cli("explain", "1x", code=None).out
    cli("submit", "cdi", "--wait", "--", "true")
    node.sh("cp /root/nvidia.yaml /etc/cdi/nvidia.yaml")  # a file that is moved there is not noticed by Docker
    until(lambda: checks(cli)["toolkit"][0])
    cli("submit", "cdi::1", "--wait", "--", "true")


@pytest.mark.slow
def test_a_docker_that_is_podman_is_told_so(made):
    cli, node = made("pretends", Kind("sid", "podman"))
    node.sh(PODMAN_DOCKER).check_returncode()
    words = "docker on pretends is podman (package podman-docker); set 'docker: podman' for it in the inventory"
    assert checks(cli)["docker"] == (False, words)
    assert words in cli("submit", "pretends::0", "--no-queue", "--", "true", code=3).err


@pytest.mark.slow
def test_a_podman_that_can_start_nothing_is_found_before_anything_is_started(made):
    """crun does not run where control groups of both versions are mounted, and podman 5 warns at every call."""
    cli, node = made("crun", Kind("sid", "podman"), "podman")
    assert checks(cli)["docker"] == (True, "version podman 5.8.6")
    conf = node.dir / "podman" / "containers.conf"
    usual = conf.read_text()
    conf.write_text(usual.replace('runtime = "runc"', 'runtime = "crun"'))
    ok, words = checks(cli)["docker"]
    assert (ok, words.startswith("crun on crun cannot start containers: control groups")) == (False, True)
    assert words in cli("submit", "crun::0", "--no-queue", "--", "true", code=3).err
    conf.write_text(usual)
    assert checks(cli)["docker"][0]
    assert node.sh("mv /usr/lib/podman/netavark /root").returncode == 0
    assert checks(cli)["docker"] == (
        False, "podman on crun cannot start containers: netavark is missing; install it there",
    )  # fmt: skip
    fix = cli("doctor", "--fix").out
    assert "apt-get install -y netavark\n" in fix


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rootless", "fix"),
    [(False, "service docker start\n"), (True, "# Start it as carol: dockerd-rootless.sh\n")],
    ids=["root", "rootless"],
)
def test_a_docker_28_that_does_not_run_is_started_as_it_was_set_up(made, rootless, fix):
    """It complains beside its answer. The socket of this rootless one is not below /run/user."""
    cli, node = made("down-user" if rootless else "down", Kind(rootless=rootless))
    until(lambda: checks(cli)["docker"][0])
    node.stop_docker()
    until(lambda: checks(cli)["docker"][0] is False)
    (found,) = [check for check in cli.json("doctor", code=1) if check["check"] == "docker"]
    assert found["fix"].startswith(fix)
    assert fix in cli("doctor", "--fix").out
    assert "agentless doctor" in cli("nodes").out
