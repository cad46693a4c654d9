"""`--container NULL`: tasks that a real systemd runs on a node itself, and who else wants its GPUs."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import socket
import tempfile
from pathlib import Path

import pytest

from tests.keyboard import at_terminal
from tests.lab import Lab, requirements
from tests.lab.processes import processes
from tests.lab.systemd import PERSON
from tests.lab.teardown import CGROUPS
from tests.pages import ROOT
from tests.ports import reserve
from tests.reader import ON_SYSTEMD, Reader
from tests.real.cli import Cli, finish, until
from tests.real.test_ssh import Ssh, fetch
from tests.real.test_ssh_connection import agent_of, proxied, signalled

UNTIL_TERM = "trap 'echo told; exit 7' TERM; echo up; while :; do sleep 0.1; done"


@pytest.fixture(scope="module")
def bare_lab():
    if missing := requirements(systemd=True):
        pytest.skip(f"no systemd node on this machine: {'; '.join(missing)}")
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_systemd_node("bare")
        name = lab.network
        yield lab
    assert [*CGROUPS.glob(f"{name}"), *CGROUPS.glob(f"*/{name}")] == []
    assert [process for process in processes().values() if f"{lab.root}/" in process.command] == []


@pytest.fixture(autouse=True)
def _cured(bare_lab):
    yield
    bare_lab.reset()


@pytest.fixture
def node(bare_lab):
    return bare_lab.nodes["bare"]


def inventory(lab, user="root"):
    keys = f"user: {user}, identity_file: {lab.identity}, image: busybox"
    return f"version: 1\ndefaults: {{{keys}}}\nnodes:\n  bare: {{host: {lab.nodes['bare'].host}}}\n"


def person(lab, name, user="root", **extra):
    cli = Cli(lab, name, inventory(lab, user), **extra)
    cli.get("/v1/doctor")  # what a test before this one removed within a moment is else noticed in a minute
    until(lambda: is_settled(cli))
    return cli


def is_settled(cli):
    states = [gpu["state"] for gpu in cli.get("/v1/gpus")]
    if "unhealthy" in states:  # it has seen a test before this one
        cli("nodes", "resume", "bare")
    return states == ["free", "free"]


@pytest.fixture
def agentless(bare_lab):
    return person(bare_lab, "main")


def submit(cli, *words):
    return cli.submit("--container", "NULL", *words)


def state_of(cli, task):
    return cli.task(task)["state"]


def refused(cli, *words):
    return cli("submit", "--container", "NULL", *words, code=1).err


def newest(cli):
    return max(cli.json("ps", "--all"), key=lambda task: task["id"])


def show(node, task, *properties):
    said = node.sh(f"systemctl show agentless-{task} --property={','.join(properties)}").stdout
    return dict(line.split("=", 1) for line in said.splitlines())


def test_a_task_runs_under_systemd_with_its_limits_and_only_its_own_gpu(agentless, node):
    script = "echo $CUDA_VISIBLE_DEVICES $A $(pwd) $(id -un); cat /proc/self/cgroup; exec sleep 300"
    words = ("bare::1", "--cores", "0.5", "--memory", "64MiB", "--workdir", "/var/log", "--env", "A=x  'y' $HOME")
    task = submit(agentless, *words, "--", "sh", "-c", script.replace("$A", '"$A"'))
    properties = ("CPUQuotaPerSecUSec", "MemoryMax", "MemorySwapMax", "KillMode", "User", "WorkingDirectory")
    assert show(node, task, *properties) == {
        "CPUQuotaPerSecUSec": "500ms",
        "MemoryMax": str(64 << 20),
        "MemorySwapMax": "0",
        "KillMode": "control-group",
        "User": "root",
        "WorkingDirectory": "/var/log",
    }
    log = until(lambda: agentless("logs", task).out)
    assert log.splitlines()[0] == f"{node.gpu_uuids[1]} x  'y' $HOME /var/log root"
    assert f"agentless-{task}.service" in log
    assert (agentless.gpu("bare::1")["task"], agentless.gpu("bare::0")["state"]) == (task, "free")
    found = agentless.task(task)
    assert (found["state"], found["container"], found["image"]) == ("running", f"agentless-{task}.service", None)


def test_the_exit_code_both_streams_and_the_times_are_the_tasks_own(agentless):
    done = agentless(
        "submit", "bare", "--container", "NULL", "-f", "--", "sh", "-c", "echo out; echo err >&2; exit 7", code=7
    )
    assert (done.out, "err\n" in done.err, "out" in done.err) == ("out\n", True, False)
    task = newest(agentless)
    assert (task["state"], task["exit_code"]) == ("failed", 7)
    again = agentless("logs", task["id"])
    assert (again.out, again.err) == ("out\n", "err\n")


def test_a_log_is_followed_while_it_is_written_and_ends_with_the_task(agentless, node):
    task = submit(
        agentless,
        "bare",
        "--",
        "sh",
        "-c",
        "echo one; until [ -e /tmp/go ]; do sleep 0.05; done; echo two; printf three",
    )
    following = agentless.start("logs", "-f", "--timestamps", task)
    until(lambda: "one" in agentless("logs", task).out)
    node.sh("touch /tmp/go")
    done = finish(following)
    node.sh("rm /tmp/go")
    lines = [line.split(" ", 1) for line in done.out.splitlines()]
    assert [words for _, words in lines] == ["one", "two", "three"]
    assert all(stamp.endswith("Z") for stamp, _ in lines)
    assert agentless("logs", "--tail", "1", task).out == "three\n"


def test_a_stop_gives_it_time_and_leaves_nothing_of_it(agentless, node):
    task = submit(agentless, "bare::0", "--", "sh", "-c", f"setsid sleep 301 & {UNTIL_TERM}")
    until(lambda: agentless("logs", task).out)
    agentless("stop", task, "--grace", "10s")
    found = agentless.task(task)
    assert (found["state"], found["exit_code"]) == ("stopped", 7)
    assert node.sh("pgrep -f '[s]leep 301'").stdout == ""
    assert agentless("logs", task).out == "up\ntold\n"
    agentless("rm", task)
    assert node.units() == []


def test_what_does_not_want_to_end_is_killed(agentless):
    task = submit(agentless, "bare::0", "--", "sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.1; done")
    until(lambda: agentless("logs", task).out)
    agentless("stop", task, "--grace", "100ms")
    assert (state_of(agentless, task), agentless.task(task)["exit_code"]) == ("stopped", 137)


def test_a_paused_task_stands_still_and_goes_on(agentless, node):
    task = submit(agentless, "bare::0", "--", "sh", "-c", UNTIL_TERM)
    main = show(node, task, "MainPID")["MainPID"]
    agentless("pause", task)
    assert state_of(agentless, task) == "paused"
    assert node.sh(f"cut -d' ' -f3 /proc/{main}/stat").stdout == "T\n"
    agentless("resume", task)
    assert state_of(agentless, task) == "running"
    agentless("pause", task)
    agentless("stop", task)
    assert agentless.task(task)["exit_code"] == 7


def test_a_time_limit_ends_it(agentless):
    script = "trap 'exit 9' USR1; while :; do sleep 0.1; done"
    words = ("bare", "--container", "NULL", "--time-limit", "1s", "--signal", "USR1", "--wait")
    agentless("submit", *words, "--", "sh", "-c", script, code=None)
    task = newest(agentless)
    assert (task["state"], task["exit_code"]) == ("timeout", 9)


def test_a_secret_reaches_the_task_and_nobody_else(agentless, node):
    secret = "s3'cr\"et $(a)\nsecond \\ line"
    script = "printf '%s' \"$TOKEN\" >/tmp/token; exec sleep 300"
    task = submit(agentless, "bare", "--secret-env", f"TOKEN={secret}", "--", "sh", "-c", script)
    assert until(lambda: node.sh("cat /tmp/token 2>/dev/null").stdout) == secret
    everything = node.sh(
        f"systemctl show agentless-{task}; cat /run/systemd/transient/agentless-*; journalctl --no-pager -a -o verbose;"
        "for each in /proc/[0-9]*; do tr '\\0' ' ' <$each/cmdline; done"
    ).stdout
    assert "s3'cr" not in everything
    assert "agentless-claim" in everything
    node.sh("rm /tmp/token")


def test_what_was_forgotten_is_recovered_from_the_units(agentless, bare_lab):
    words = ("bare::0", "--name", "mine", "--env", "A=b")
    task = submit(agentless, *words, "--", "sh", "-c", UNTIL_TERM)
    other = person_without_waiting(bare_lab, "other")
    other("recover", "--yes")
    found = other.task(task)
    assert (found["state"], found["name"], found["gpus"], found["env_names"]) == ("running", "mine", [0], ["A"])
    other("stop", task)
    until(lambda: state_of(agentless, task) != "running")
    assert agentless.task(task)["exit_code"] == 7
    other.close()


def person_without_waiting(lab, name):
    return Cli(lab, name, inventory(lab))


@pytest.mark.slow
def test_a_controller_that_dies_in_a_launch_neither_loses_the_task_nor_starts_it_twice(agentless, node):
    holder = node.sh("exec 9</; flock 9; sleep 300 >/dev/null 2>&1 & echo $!").stdout.strip()
    starting = agentless.start(
        "submit", "--container", "NULL", "bare::0", "--", "sh", "-c", "echo began; exec sleep 300"
    )
    (task,) = until(lambda: agentless.get("/v1/tasks"))
    agentless.kill_controller()
    starting.kill()
    starting.communicate()
    node.sh(f"kill {holder}")
    agentless("nodes")
    until(lambda: state_of(agentless, task["id"]) == "running")
    until(lambda: agentless("logs", task["id"]).out == "began\n")
    assert node.units() == [f"agentless-{task['id']}.service"]


def test_a_gpu_is_either_a_containers_or_a_services_whoever_asks(agentless, bare_lab):
    bob = person(bare_lab, "bob", USER="bob", LOGNAME="bob")
    task = submit(agentless, "bare::0", "--", "sleep", "300")
    container = bob.submit("bare::1", "--", "sleep", "300")
    # Each knows nothing of the other's task yet, or all the same: the node decides.
    said = bob("submit", "bare::0", "--no-queue", "--", "true", code=3).err
    assert f"held by task {task}" in said
    said = agentless("submit", "bare::1", "--no-queue", "--container", "NULL", "--", "true", code=3).err
    assert f"held by task {container}" in said
    bob.close()


def test_a_process_of_a_task_on_its_gpu_is_no_stranger(agentless, node):
    task = submit(agentless, "bare::0", "--", "sleep", "300")
    main = show(node, task, "MainPID")["MainPID"]
    until(lambda: node.sh(f"cat /proc/{main}/task/{main}/children").stdout)
    child = node.sh(f"cat /proc/{main}/task/{main}/children").stdout.strip()
    node.use_gpu(0, int(child))
    until(lambda: agentless.gpu("bare::0")["processes"])
    found = agentless.gpu("bare::0")
    assert (found["state"], found["reason"]) == ("allocated", f"held by task {task} of {agentless.task(task)['owner']}")


def test_somebody_without_rights_has_his_own_systemd_if_it_may_stay(bare_lab, node):
    node.sh(f"chmod 666 {node.docker_socket}; loginctl disable-linger {PERSON}")
    carol = person(bare_lab, "carol", PERSON)
    assert f"sudo loginctl enable-linger {PERSON}" in refused(carol, "bare::0", "--", "true")
    node.sh(f"loginctl enable-linger {PERSON}")
    until(lambda: node.sh("ls /run/user/*/systemd/private").stdout)
    assert "omit --memory" in refused(carol, "bare::0", "--memory", "1GiB", "--", "true")
    task = submit(carol, "bare::0", "--secret-env", "S=t", "--", "sh", "-c", f"id -un; echo $S; {UNTIL_TERM}")
    until(lambda: "up" in carol("logs", task).out)
    root = person_without_waiting(bare_lab, "main")
    root.get("/v1/doctor")
    assert f"held by task {task}" in root("submit", "bare::0", "--no-queue", "--", "true", code=3).err
    carol("stop", task)
    assert (state_of(carol, task), carol("logs", task).out) == ("stopped", f"{PERSON}\nt\nup\ntold\n")
    carol.close()


def test_somebody_with_sudo_has_the_systems_systemd_and_is_himself_in_it(bare_lab, node):
    node.sh(f"chmod 666 {node.docker_socket}; echo '{PERSON} ALL=(root) NOPASSWD: ALL' >/etc/sudoers")
    carol = person(bare_lab, "sudo", PERSON)
    task = submit(
        carol, "bare::0", "--memory", "64MiB", "--secret-env", "S=t", "--", "sh", "-c", f"id -un; echo $S; {UNTIL_TERM}"
    )
    until(lambda: "up" in carol("logs", task).out)
    assert show(node, task, "MemoryMax", "User") == {"MemoryMax": str(64 << 20), "User": PERSON}
    carol("pause", task)
    carol("stop", task)
    assert (state_of(carol, task), carol("logs", task).out) == ("stopped", f"{PERSON}\nt\nup\ntold\n")
    carol("rm", task)
    assert node.units() == []
    node.sh("rm /etc/sudoers")
    carol.close()


def test_what_systemd_cannot_do_is_said_in_a_sentence(agentless, node):
    said = refused(agentless, "bare", "--workdir", "/no/such", "--", "true")
    assert said.startswith("agentless: bare has no folder /no/such, or the user cannot enter it (task ")
    said = refused(agentless, "bare", "--user", "nobodyatall", "--", "true")
    assert said.startswith("agentless: bare has no user nobodyatall (task ")
    assert node.units() == []


def test_a_task_has_the_settings_of_its_node_its_cuda_and_what_its_shells_would_trip_over(agentless, bare_lab, node):
    # The node's /usr is the machine's, read-only: what is in /usr/local here is the node's own, and goes again.
    assert node.sh("findmnt -no PROPAGATION /usr").stdout.strip() == "private"
    node.sh("mount -t tmpfs tmpfs /usr/local && mkdir -p /usr/local/cuda-12.4/lib64 /opt/cuda").check_returncode()
    try:
        settings = "env: {HF_HOME: /data/hf, A: a}, local_temp: /var/tmp, mounts: ['/srv/set:/data', '/m:/m']"
        usual = inventory(bare_lab)
        agentless.write_inventory(usual.replace("image: busybox", f"image: busybox, {settings}, shared_dir: /mnt"))
        words = ("--name", "n", "--env", "OPTIND=abc", "--env", "A=mine", "--env", "IFS=x")
        look = 'tr "\\0" "\\n" </proc/self/environ; exec sleep 300'
        done = agentless("submit", "bare", "--container", "NULL", *words, "--", "busybox", "sh", "-c", look)
        task = done.out.strip()
        assert "mounts of the inventory do not apply; on the node, use /srv/set for /data\n" in done.err
        found = until(lambda: agentless("logs", task).out).splitlines()
        assert {
            "HF_HOME=/data/hf",
            "A=mine",
            "OPTIND=abc",
            "IFS=x",
            "AGENTLESS_LOCAL_TEMP=/var/tmp",
            "AGENTLESS_SHARED=/mnt",
            "CUDA_HOME=/usr/local/cuda-12.4",
            "LD_LIBRARY_PATH=/usr/local/cuda-12.4/lib64",
        } <= set(found)
        assert any(line.startswith("PATH=/usr/local/cuda-12.4/bin:/") for line in found)
        said = agentless("shell", "n", "--", "sh", "-c", "echo $HF_HOME $CUDA_HOME $A").out
        assert said == "/data/hf /usr/local/cuda-12.4 mine\n"
        for path, word in (("/opt/cuda", "/opt/cuda"), ("/no/such", "")):
            agentless.write_inventory(usual.replace("image: busybox", f"image: busybox, cuda: {{path: {path}}}"))
            done = agentless("submit", "bare", "--container", "NULL", "-f", "--", "printenv", "CUDA_HOME", code=None)
            assert (done.code, done.out.strip()) == (0 if word else 1, word)
        assert done.err.startswith("agentless: bare has no folder /no/such; correct cuda: in the inventory")
    finally:
        node.sh("umount /usr/local && rmdir /opt/cuda").check_returncode()
        agentless.write_inventory(usual)


# ---------------------------------------------------------------------- ssh


@pytest.fixture
def ssh(agentless, tmp_path):
    return Ssh(agentless, tmp_path)


def commands(node):
    """The commands of all that runs on the node."""
    return node.sh("ps axo args").stdout.splitlines()


def groups(words):
    """The groups of a process that limits are for, as its /proc file names them."""
    return {line for line in words.splitlines() if "/agentless-" in line}


def test_ssh_is_in_the_task_with_its_user_its_folder_its_variables_and_its_limits(agentless, node, ssh):
    words = ("bare::1", "--name", "n", "--user", PERSON, "--workdir", "/var/log", "--memory", "64MiB")
    task = submit(agentless, *words, "--env", "A=x  'y'\nz", "--secret-env", "S=s3cr3t", "--", "sleep", "300")
    script = (
        'echo "$CUDA_VISIBLE_DEVICES $AGENTLESS_TASK_ID $A $S $LC_ALL" $(pwd) $(id -un); cat /proc/self/cgroup; exit 7'
    )
    done = ssh("n.agentless", script, code=7).stdout.decode()
    assert done.startswith(f"{node.gpu_uuids[1]} {task} x  'y'\nz s3cr3t  /var/log {PERSON}\n")
    main = show(node, task, "MainPID")["MainPID"]
    assert groups(done) == groups(node.sh(f"cat /proc/{main}/cgroup").stdout) != set()


def test_what_ssh_runs_in_a_task_ends_with_the_connection_and_the_task(agentless, node, ssh):
    task = submit(agentless, "bare", "--name", "n", "--", "sleep", "300")
    with ssh.running("n.agentless", "sleep 4321; echo"):
        until(lambda: "sleep 4321" in commands(node))
    until(lambda: "sleep 4321" not in commands(node))
    with ssh.running("n.agentless", "trap '' HUP; echo up; while :; do sleep 4322; done") as process:
        assert process.stdout.readline() == b"up\n"
        agentless("stop", task)
        assert process.wait(30) != 0
    assert "sleep 4322" not in commands(node)


@pytest.mark.slow
def test_a_terminal_in_a_task_ends_with_the_connection(agentless, node, ssh):
    submit(agentless, "bare", "--name", "n", "--", "sleep", "300")
    with at_terminal(ssh.argv("ssh", "-t", "n.agentless"), {**ssh.env, "TERM": "xterm-256color"}) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"echo $TERM-$((40 + 2)); sleep 4321\n")
        keyboard.sees(b"xterm-256color-42\r\n")
        until(lambda: "sleep 4321" in commands(node))  # before it has the terminal, Ctrl-C would only reach the shell
        keyboard.type(b"\3echo again $((40 + 2))\n")
        keyboard.sees(b"again 42\r\n")
        keyboard.type(b"trap '' HUP; sleep 4322\n")
        until(lambda: "sleep 4322" in commands(node))
    until(lambda: not [each for each in commands(node) if each in ("bash", "sh -c command -v bash")])


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-t", "-t")])
def test_a_dead_controller_leaves_nothing_of_such_a_session(agentless, node, ssh, options):
    submit(agentless, "bare", "--name", "n", "--", "sleep", "300")
    with ssh.running(
        *options, "n.agentless", "trap '' HUP; echo up; while :; do sleep 0.1; done; exit 4321"
    ) as process:
        assert process.stdout.readline().strip() == b"up"
        agentless.kill_controller()
        until(lambda: not [each for each in commands(node) if "exit 4321" in each])


@pytest.mark.slow
def test_shell_and_copies_and_ports_are_those_of_the_node_as_the_tasks_user(agentless, node, ssh, tmp_path):
    submit(agentless, "bare", "--name", "n", "--user", PERSON, "--", "sleep", "300")
    assert (
        agentless("shell", "n", "--", "sh", "-c", "cat; id -un; exit 3", stdin="in\n", code=3).out == f"in\n{PERSON}\n"
    )
    (tmp_path / "file").write_text("data")
    ssh(str(tmp_path / "file"), "n.agentless:copied", program="scp")
    assert node.sh(f"stat -c %U /home/{PERSON}/copied; cat /home/{PERSON}/copied").stdout == f"{PERSON}\ndata"
    serve = "python3 -m http.server --bind 127.0.0.1 8890 >/dev/null 2>&1"
    with reserve() as holder, ssh.running("n.agentless", serve):
        port = holder.getsockname()[1]
        with ssh.running("-N", "-L", f"{port}:127.0.0.1:8890", "n.agentless"):
            until(lambda: b"copied" in fetch(port))
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = server.getsockname()[1]
        script = "import socket; print(socket.create_connection(('127.0.0.1', 8899)).recv(9))"
        words = ("-R", f"8899:127.0.0.1:{here}", "n.agentless", f'python3 -c "{script}"')
        with ssh.running(*words) as process:
            server.settimeout(60)
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"there")
            assert process.stdout.readline() == b"b'there'\n"


@pytest.mark.slow
def test_signals_and_the_agent_reach_a_program_in_a_task(agentless, ssh):
    submit(agentless, "bare", "--name", "n", "--user", PERSON, "--", "sleep", "300")
    assert asyncio.run(signalled(proxied(ssh, "n.agentless"), ("USR1", "INT", "KILL")))[0] == ["up", "USR1", "INT"]
    with agent_of(tmp := Path(tempfile.mkdtemp())) as agent:
        said = ssh("-A", "n.agentless", "ls -ld $SSH_AUTH_SOCK; ssh-add -l", SSH_AUTH_SOCK=agent).stdout
    shutil.rmtree(tmp)
    assert said.startswith(b"srw------- 1 " + PERSON.encode())
    assert b"of the test" in said
    until(lambda: ssh("n.agentless", "ls -d /tmp/agentless-* 2>/dev/null || echo none").stdout == b"none\n")


@pytest.mark.slow
def test_what_a_login_without_rights_may_do_in_a_task(bare_lab, node, tmp_path):
    node.sh(f"chmod 666 {node.docker_socket}; loginctl enable-linger {PERSON}")
    until(lambda: node.sh("ls /run/user/*/systemd/private").stdout)
    carol = person(bare_lab, "carol", PERSON)
    ssh = Ssh(carol, tmp_path)
    submit(carol, "bare", "--name", "own", "--secret-env", "S=t", "--", "sleep", "300")
    assert ssh("own.agentless", "id -un; echo $S").stdout == f"{PERSON}\nt\n".encode()
    with ssh.running("own.agentless", "sleep 4321"):
        until(lambda: "sleep 4321" in commands(node))
        carol("stop", "own")
        until(lambda: "sleep 4321" not in commands(node))
    node.sh(f"echo '{PERSON} ALL=(root) NOPASSWD: /usr/bin/systemd-run, /usr/bin/systemctl' >/etc/sudoers")
    for user in (PERSON, "games"):
        task = submit(carol, "bare", "--name", user, "--user", user, "--", "sleep", "300")
        said = ssh(f"{user}.agentless", "id -un; cat /proc/self/cgroup").stdout.decode()
        assert said.startswith(f"{user}\n")
        assert f"0::/{bare_lab.network}/bare/system.slice/agentless-{task}.service\n" in said
        with ssh.running(f"{user}.agentless", "sleep 4322; echo"):
            until(lambda: "sleep 4322" in commands(node))
        until(lambda: "sleep 4322" not in commands(node))
    until(lambda: ".scope" not in node.sh("systemctl list-units --plain 'run-r*'").stdout)
    node.sh("rm /etc/sudoers")
    carol.close()


# ---------------------------------------------------------------------- the node, and the page


def test_a_reboot_fails_it_as_a_container_and_it_is_tried_again(agentless, bare_lab, node):
    once = submit(agentless, "bare::0", "--", "sleep", "600")
    script = "echo $AGENTLESS_TASK_ID; exec sleep 600"
    again = submit(agentless, "bare::1", "--retries", "1", "--backoff", "0s", "--", "sh", "-c", script)
    following = agentless.start("logs", "-f", again)
    assert following.stdout.readline() == f"{again}\n"
    node.reboot(bare_lab.network)
    until(lambda: state_of(agentless, once) == "failed" and state_of(agentless, again) == "running")
    failed = agentless.task(once)
    assert (failed["exit_code"], failed["reason"]) == (255, "the node went down while it ran")
    assert agentless.task(again)["attempt"] == 2
    assert following.stdout.readline() == f"{again}-2\n"
    agentless("kill", again)
    assert finish(following).code == 0


def test_a_program_that_is_not_there_is_said_in_its_log(agentless):
    done = agentless("submit", "bare", "--container", "NULL", "--follow", "--", "nosuchprogram", code=127)
    assert "nosuchprogram: not found" in done.err


def test_the_page_can_be_typed_from_top_to_bottom(agentless, node, tmp_path):
    node.sh("mkdir /tmp/run1; cd /tmp/run1; printf '#!/bin/sh\necho loss 0.5\n' >train.sh; chmod +x train.sh")
    meant = {
        "node1::0": "bare::0",
        "--cores 8 --memory 32GiB": "--cores 0.5 --memory 64MiB",
        "/data/run1": "/tmp/run1",
        "systemctl": shlex.join([*node.entered, "systemctl"]),
    }
    page = (ROOT / ON_SYSTEMD).read_text()
    assert Reader(agentless.env, tmp_path, meant).read(page, {}, ()) == ""
