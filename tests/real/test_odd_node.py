"""A node that is odd in several ways at once, used as any other one.

It has nothing but BusyBox on its PATH, the root file system is read-only, /tmp is full and runs no program, and it
speaks Turkish, in which `i` and `I` are no pair.
"""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest

from tests.real.cli import Cli, until

IMAGE = ("--image", "busybox")
NAME = "ığüşİI.txt"


@pytest.fixture(scope="module")
def odd(lab):
    (node,) = lab.add_nodes({"odd": 1})
    programs = node.dir / "odd"
    programs.mkdir()
    for applet in subprocess.run(["busybox", "--list"], check=True, capture_output=True, text=True).stdout.split():
        (programs / applet).symlink_to("/bin/busybox")
    (programs / "docker").symlink_to(shutil.which("docker", path="/usr/bin:/bin"))
    for program in ("nvidia-smi", "nvidia-container-runtime-hook"):
        (programs / program).symlink_to(node.dir / "bin" / program)
    locale = node.dir / "locale"
    locale.mkdir()
    subprocess.run(["localedef", "-i", "tr_TR", "-f", "UTF-8", locale / "tr_TR.UTF-8"], check=True)
    config = node.dir / "sshd_config"
    text = config.read_text().replace(f"PATH={node.dir}/bin:/usr/bin:/bin", f"PATH={programs}")
    config.write_text(text.replace("SetEnv ", f'SetEnv "LC_ALL=tr_TR.UTF-8" "LOCPATH={locale}" '))
    node.stop_sshd()
    node.start_sshd()
    root = lab.root
    mounts = f"mount --bind {root} /mnt && mount -t tmpfs -o noexec,size=16k tmpfs /tmp && mkdir -p {root} && "
    mounts += f"mount --bind /mnt {root} && umount /mnt && mount -o remount,bind,ro /"
    done = node.sh(f"{mounts} && ! dd if=/dev/zero of=/tmp/full bs=1k && ! touch /var/agentless")
    assert done.returncode == 0, done
    yield node
    lab.retire("odd")


@pytest.fixture(scope="module")
def person(lab, odd):
    """Somebody who uses it."""
    lines = lab.inventory.read_text().splitlines(keepends=True)
    nodes = [line for line in lines if line.startswith(("version", "nodes", "  odd:"))]
    cli = Cli(lab, "odd", inventory="".join(nodes))
    yield cli
    cli.close()


@pytest.fixture
def agentless(odd, person):
    """With the `flock` of util-linux, which Debian's BusyBox does not have."""
    (odd.dir / "odd/flock").symlink_to(shutil.which("flock"))
    until(lambda: all(check["ok"] for check in person.json("doctor", code=None)))
    yield person
    (odd.dir / "odd/flock").unlink()


@pytest.fixture
def task(agentless):
    found = agentless.submit("odd::0", *IMAGE, "--", "sh", "-c", "echo out; echo err >&2; sleep 600")
    until(lambda: agentless.task(found)["state"] == "running")
    return found


@pytest.mark.slow
def test_doctor_tells_that_there_is_no_flock(person):
    """Without it nothing can be launched."""
    (failed,) = [check for check in person.json("doctor", code=1) if check["ok"] is False]
    assert failed["check"] == "flock"
    assert failed["detail"].startswith("there is no flock command; on the node, run: ")


def test_a_task_has_its_gpu_and_its_log(agentless, task):
    until(lambda: agentless("logs", task).out == "out\n")
    assert agentless("logs", task).err == "err\n"
    assert [gpu["task"] for gpu in agentless.json("gpus")] == [task]


def test_it_is_stopped(agentless, task):
    agentless("stop", task, "--grace", "0.2s")
    assert agentless.task(task)["state"] == "stopped"
    assert [gpu["state"] for gpu in agentless.json("gpus")] == ["free"]


def test_a_shell_has_a_terminal(agentless, task):
    code, screen = agentless.terminal("shell", task, "--", "tty")
    assert (code, screen.splitlines()[0]) == (0, "/dev/pts/0")


@pytest.mark.slow
def test_files_are_copied_there_and_back(agentless, task, odd, tmp_path):
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / NAME).write_text("x\n")
    for there in (f"{task}:/data", f"odd:{odd.dir}/data"):
        agentless("cp", str(tmp_path / "here"), there)
        agentless("cp", there, str(tmp_path / "back"))
        assert {name: (tmp_path / "back" / name).read_text() for name in os.listdir(tmp_path / "back")} == {NAME: "x\n"}
        shutil.rmtree(tmp_path / "back")


@pytest.mark.slow
def test_uploads_and_outputs_come_and_go(agentless, tmp_path):
    (tmp_path / NAME).write_text("x\n")
    ways = ("--upload", f"{tmp_path}:/in", "--output", f"/out:{tmp_path}/back/")
    agentless("submit", "odd::0", *IMAGE, *ways, "--wait", "--", "cp", "-r", "/in", "/out")
    assert (tmp_path / "back" / "out" / NAME).read_text() == "x\n"
