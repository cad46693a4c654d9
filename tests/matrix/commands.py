"""The commands of the matrix. Each begins with a node on which nothing of ours is left; an exception is a failure."""

from __future__ import annotations

import shutil
import signal
import urllib.request
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.keyboard import at_terminal
from tests.lab import Node
from tests.ports import reserve
from tests.real.cli import Cli, finish, until

SERVER = "mkdir -p /tmp/www && echo served >/tmp/www/index.html && exec busybox httpd -f -p 127.0.0.1:8888 -h /tmp/www"
STUBBORN = "trap 'echo bye; exit 4' TERM; echo out; echo err >&2; while :; do sleep .05; done"


class Scene:
    """A person with one node `n`, that has two GPUs, and a folder of hers."""

    def __init__(self, cli: Cli, node: Node, folder: Path) -> None:
        self.cli, self.node, self.folder = cli, node, folder

    def sleeper(self, *words: str, script: str = "exec sleep 600") -> str:
        """A task that runs."""
        task = self.cli.submit("n::0", *words, "--", "sh", "-c", script)
        until(lambda: self.state(task) == "running")
        return task

    def state(self, task: str) -> str:
        state: str = self.cli.task(task)["state"]
        return state


def submit(at: Scene) -> None:
    task = at.cli.submit("n::1", "-e", "A=b c", "--", "sh", "-c", 'echo "$A"; env | grep GPU-; echo err >&2; exit 3')
    at.cli("wait", task, code=3)
    done = at.cli("logs", task)
    assert done.err == "err\n", done.err
    first, *gpus = done.out.splitlines()
    assert first == "b c", done.out
    assert {line.partition("=")[2] for line in gpus if "AGENTLESS" not in line} == {at.node.gpu_uuids[1]}, gpus


def two_gpus(at: Scene) -> None:
    task = at.cli.submit("n::0,1", "--", "sh", "-c", "env | grep -v AGENTLESS")
    at.cli("wait", task)
    said = at.cli("logs", task).out
    assert all(uuid in said for uuid in at.node.gpu_uuids), said


def no_gpu(at: Scene) -> None:
    task = at.cli.submit("n", "--", "sh", "-c", "env | grep GPU- || echo none")
    at.cli("wait", task)
    assert at.cli("logs", task).out == "none\n"


def limits(at: Scene) -> None:
    script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
    task = at.cli.submit("n::0", "--memory", "64M", "--cores", "0.5", "--", "sh", "-c", script)
    at.cli("wait", task)
    assert [int(line) // 50_000 * 50_000 for line in at.cli("logs", task).out.split()] == [64_000_000, 50_000]


def ps(at: Scene) -> None:
    task = at.sleeper()
    [row] = at.cli.json("ps")
    assert (row["id"], row["state"], row["gpus"]) == (task, "running", [0]), row
    assert at.cli("show", task).out
    assert at.cli("gpus").out


def logs(at: Scene) -> None:
    task = at.cli.submit("n", "--", "sh", "-c", "for i in 1 2 3; do echo $i; done; echo oops >&2")
    at.cli("wait", task)
    done = at.cli("logs", task)
    assert (done.out, done.err) == ("1\n2\n3\n", "oops\n"), done
    assert at.cli("logs", "--tail", "1", task).out in ("3\n", ""), "tail"


def follow(at: Scene) -> None:
    task = at.sleeper(script=STUBBORN)
    following = at.cli.start("logs", "-f", task)
    assert following.stdout
    assert following.stdout.readline() == "out\n"
    at.cli("stop", task)
    found = at.cli.task(task)
    assert (found["state"], found["exit_code"]) == ("stopped", 4), found
    done = finish(following)
    assert (done.out, done.err) == ("bye\n", "err\n"), done


def shell(at: Scene) -> None:
    task = at.sleeper()
    with at_terminal(["agentless", "shell", task], at.cli.env) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"echo $((40 + 1))\n")
        keyboard.sees(b"41\r\n")
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9
    done = at.cli("shell", task, "--", "sh", "-c", "cat; echo err >&2; exit 5", stdin="typed", code=5)
    assert (done.out, done.err) == ("typed", "err\n"), done


def shell_ends(at: Scene) -> None:
    task = at.sleeper()
    words = ["agentless", "shell", task, "--", "sh", "-c", "echo begun; exec sleep 4321"]
    with at_terminal(words, at.cli.env) as keyboard:
        keyboard.sees(b"begun")
        keyboard.process.send_signal(signal.SIGKILL)
        until(lambda: at.cli("exec", task, "ps").out and "4321" not in at.cli("exec", task, "ps").out)


def execute(at: Scene) -> None:
    task = at.sleeper()
    done = at.cli("exec", task, "sh", "-c", "echo out; echo err >&2; exit 6", code=6)
    assert (done.out, done.err) == ("out\n", "err\n"), done


def ssh(at: Scene) -> None:
    task = at.sleeper("--name", "box")
    assert at.cli("ssh", task, "--", "echo hello").out == "hello\n"


def forward(at: Scene) -> None:
    task = at.sleeper(script=SERVER)
    holder = reserve()
    port = int(holder.getsockname()[1])
    holder.close()
    forwarding = at.cli.start("forward", task, f"8888:{port}")
    assert forwarding.stdout
    try:
        assert f":{port}" in forwarding.stdout.readline()

        def fetched() -> bytes:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                    return bytes(answer.read())
            except OSError:
                return b""

        until(lambda: fetched() == b"served\n")
    finally:
        forwarding.kill()
        forwarding.communicate()


def copy_in(at: Scene) -> None:
    task = at.sleeper()
    folder = at.folder / "in"
    folder.mkdir()
    folder.joinpath("a").write_text("hello\n")
    at.cli("cp", f"{folder}", f"{task}:/tmp/in")
    assert at.cli("exec", task, "cat", "/tmp/in/a").out == "hello\n"


def copy_out(at: Scene) -> None:
    task = at.sleeper(script="mkdir /tmp/out && echo hello >/tmp/out/a && exec sleep 600")
    until(lambda: at.cli("exec", task, "cat", "/tmp/out/a", code=None).out)
    at.cli("cp", f"{task}:/tmp/out", f"{at.folder}/out")
    assert at.folder.joinpath("out/a").read_text() == "hello\n"


def upload(at: Scene) -> None:
    source = at.folder / "source"
    source.mkdir()
    source.joinpath("a").write_text("hello\n")
    words = ["--upload", f"{source}:in", "--output", f"out:{at.folder}/came", "--wait"]
    at.cli("submit", "n", *words, "--", "sh", "-c", "read w <in/a; echo $w again >out")
    until(at.folder.joinpath("came").exists)
    assert at.folder.joinpath("came").read_text() == "hello again\n"


def run(at: Scene) -> None:
    source = at.folder / "run"
    source.mkdir()
    source.joinpath("a").write_text("hello\n")
    done = at.cli._run(("run", "n", "--", "sh", "-c", "cat a; echo made >b; exit 3"), 3, "", source, {})
    assert "hello" in done.out, done
    assert source.joinpath("b").read_text() == "made\n"


def secret(at: Scene) -> None:
    words = ("submit", "n", "--secret-env", "TOKEN", "--wait", "--", "sh", "-c", 'test "$TOKEN" = s3cr3t')
    at.cli(*words, TOKEN="s3cr3t")


def volume(at: Scene) -> None:
    at.cli("submit", "n", "--volume", "kept:/data", "--wait", "--", "sh", "-c", "echo 1 > /data/x")
    at.cli("submit", "n", "--volume", "kept:/data", "--wait", "--", "grep", "1", "/data/x")
    assert "kept" in at.cli("volume", "list").out
    at.cli("rm", *(task["id"] for task in at.cli.json("ps", "--all")))
    at.cli("volume", "rm", "kept", "--on", "n", "--force")


def pause(at: Scene) -> None:
    task = at.sleeper()
    at.cli("pause", task)
    assert at.state(task) == "paused"
    at.cli("resume", task)
    assert at.state(task) == "running"


def stop(at: Scene) -> None:
    task = at.sleeper(script="trap '' TERM; while :; do sleep .05; done")
    at.cli("stop", "--grace", "1", task)
    found = at.cli.task(task)
    assert (found["state"], found["exit_code"]) == ("stopped", 137), found


def kill(at: Scene) -> None:
    task = at.sleeper()
    at.cli("kill", task)
    at.cli("wait", task, code=None)
    assert at.state(task) == "killed", at.state(task)
    at.cli("rm", task)


def queue(at: Scene) -> None:
    first = at.sleeper()
    waits = at.cli.submit("n::0", "--", "true")
    assert first in at.cli("explain", waits).out
    at.cli("kill", first)
    at.cli("wait", waits)


def missing_image(at: Scene) -> None:
    said = at.cli("submit", "n", "--image", "nosuch:1", "--wait", "--", "true", code=None).err
    assert "nosuch" in said, said


def env(at: Scene, name: str = "made") -> None:
    at.cli("env", "create", name, "--from", "lab/busybox", "--on", "n")
    at.cli("env", "exec", name, "--", "sh", "-c", "echo 1 >/which")
    assert at.cli("env", "save", name).out.startswith(f"Saved {name}:1")
    assert [each["version"] for each in at.cli.json("env", "history", name)["versions"]] == [1]


def env_used(at: Scene) -> None:
    env(at, "used")
    at.cli("env", "push", "used", "n")
    task = at.cli.json("submit", "n", "--container", "used", "--wait", "--", "cat", "/which")[0]
    assert at.cli("logs", task["id"]).out == "1\n"


def env_moved(at: Scene) -> None:
    env(at, "moved")
    file = at.folder / "moved.tar"
    at.cli("env", "export", "moved", str(file))
    at.cli("env", "rm", "--force", "moved")
    at.cli("env", "import", str(file), "--on", "n")
    at.cli("submit", "n", "--container", "moved", "--wait", "--", "cat", "/which")


def vps(at: Scene) -> None:
    made = at.cli.json("vps", "create", "box", "n::0")
    assert (made["state"], made["gpus"]) == ("running", [0]), made
    at.cli("vps", "ssh", "box", "--", "echo kept >/file")
    at.cli("vps", "stop", "box", "--grace", "2")
    at.cli("vps", "start", "box")
    assert at.cli("vps", "ssh", "box", "--", "cat /file").out == "kept\n"


def restart(at: Scene) -> None:
    at.cli("vps", "create", "box", "n::0")
    at.cli("vps", "restart", "box", "--grace", "1")
    assert at.cli("vps", "ssh", "box", "--", "hostname").out == "box\n"


def resize(at: Scene) -> None:
    at.cli("vps", "create", "box", "n::0")
    at.cli("vps", "resize", "box", "--cores", "1")
    assert at.cli("vps", "ssh", "box", "--", "hostname").out == "box\n"


def snapshot(at: Scene) -> None:
    at.cli("vps", "create", "box", "n::0")
    at.cli("vps", "ssh", "box", "--", "echo kept >/file")
    at.cli("vps", "snapshot", "box")
    at.cli("vps", "ssh", "box", "--", "rm /file")
    at.cli("vps", "restore", "box", "box:1", "--yes")
    assert at.cli("vps", "ssh", "box", "--", "cat /file").out == "kept\n"


def doctor(at: Scene) -> None:
    checks = at.cli.json("doctor", code=None)
    bad = [check["detail"] for check in checks if not check["ok"]]
    assert bad == [], bad


def recover(at: Scene) -> None:
    running = at.cli.submit("n::0", "--name", "kept", "--", "sleep", "300")
    ended = at.cli.submit("n", "--", "sh", "-c", "echo out; exit 4")
    at.cli("wait", ended, code=4)
    until(lambda: at.state(running) == "running")
    at.cli.kill_controller()
    shutil.rmtree(at.cli.state)
    found = {task["id"] for task in at.cli.json("recover", "--yes")}
    assert {running, ended} <= found, found
    assert (at.state(running), at.state(ended)) == ("running", "failed")
    assert at.cli("logs", ended).out == "out\n"


def usage(at: Scene) -> None:
    at.cli("submit", "n::0", "--wait", "--", "sleep", "1")
    assert at.cli.json("usage") is not None
    assert at.cli("nodes").out
    assert at.cli("nodes", "show", "n").out


COMMANDS: Mapping[str, Callable[[Scene], None]] = {
    "submit, wait, exit code": submit,
    "submit, 2 GPUs": two_gpus,
    "submit, no GPU": no_gpu,
    "submit --memory --cores": limits,
    "submit --upload --output": upload,
    "submit --secret-env": secret,
    "submit --volume, volume list, rm": volume,
    "submit, missing image": missing_image,
    "run": run,
    "ps, show, gpus": ps,
    "queue, explain": queue,
    "logs": logs,
    "logs -f, stop": follow,
    "stop --grace": stop,
    "kill, rm": kill,
    "pause, resume": pause,
    "shell": shell,
    "shell, killed client": shell_ends,
    "exec": execute,
    "ssh": ssh,
    "forward": forward,
    "cp to a task": copy_in,
    "cp from a task": copy_out,
    "env create, exec, save": env,
    "env push, submit --container": env_used,
    "env export, import": env_moved,
    "vps create, ssh, stop, start": vps,
    "vps restart": restart,
    "vps resize --cores": resize,
    "vps snapshot, restore": snapshot,
    "doctor": doctor,
    "nodes, usage": usage,
    "recover": recover,
}
"""By the words of the row."""
