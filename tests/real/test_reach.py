"""Nodes behind other SSH servers than OpenSSH, and logins with other shells than bash: what a user does there."""

from __future__ import annotations

import random
import subprocess

import pytest

from tests.keyboard import at_terminal
from tests.lab import requirements
from tests.ports import reserve
from tests.real.cli import Cli, until
from tests.real.test_ssh import SERVER, fetch

PORTS = {"OpenSSH": 22, "dropbear": 2201, "tinyssh": 2202}
WAYS = [
    pytest.param(("dropbear", "asyncssh"), id="dropbear-asyncssh"),
    pytest.param(("dropbear", "paramiko"), id="dropbear-paramiko", marks=pytest.mark.slow),
    pytest.param(("tinyssh", "asyncssh"), id="tinyssh-asyncssh"),
]
SHELLS = {"fish": "/usr/bin/fish", "tcsh": "/bin/tcsh", "zsh": "/usr/bin/zsh"}
REFUSING = {
    "rbash": ("/bin/rbash", " with: rbash: line 1: exec: restricted"),
    "nologin": ("/usr/sbin/nologin", " with: This account is currently not available"),
    "false": ("/bin/false", ""),
}
WELCOME = {".config/fish/config.fish": "echo Welcome", ".tcshrc": "echo Welcome", ".zshenv": "echo Welcome"}


@pytest.fixture(scope="module")
def node(lab):
    """A node with several SSH servers, whose shells say Welcome."""
    if missing := requirements(servers=True):
        pytest.skip("; ".join(missing))
    (node,) = lab.add_nodes({"other": 1})
    for file, text in WELCOME.items():
        (node.dir / "home" / file).parent.mkdir(parents=True, exist_ok=True)
        (node.dir / "home" / file).write_text(f"{text}\n")
    yield node
    lab.retire("other")


@pytest.fixture(scope="module")
def person(lab, node):
    """Gives somebody who reaches the node by one of its servers, with a library, as a user of it."""
    servers = node.other_servers()
    keys = {2201: servers.dropbear(2201), 2202: servers.tinyssh(2202)}
    home = lab.root / "home-reach"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/id_ed25519").write_bytes(lab.identity.read_bytes())
    lines = [f"[{node.host}]:{port} {key}\n" for port, key in keys.items()]
    (home / ".ssh/known_hosts").write_text(f"{node.host} {node.host_public_key}\n{''.join(lines)}")
    people: dict[tuple[str, ...], Cli] = {}

    def person(server, library, user="root"):
        who = (server, library, user)
        if who not in people:
            people[who] = Cli(lab, "-".join(who).lower(), None, HOME=str(home))
            people[who].write_inventory(
                f"version: 1\ndefaults: {{user: {user}, identity_file: {lab.identity}, image: busybox, "
                f"connection: {library}}}\nnodes:\n  other: {{host: {node.host}, port: {PORTS[server]}}}\n"
            )
        return people[who]

    person.all = people.values
    yield person
    for cli in people.values():
        cli.close()


@pytest.fixture
def agentless(person, request):
    """Somebody who reaches the node by a way."""
    cli = person(*request.param)
    until(lambda: cli.node("other")["state"] == "online")
    return cli


@pytest.fixture
def task(agentless):
    return agentless.submit("other", "--name", "box", "--", "sleep", "600")


every_way = pytest.mark.parametrize("agentless", WAYS, indirect=True)


@every_way
def test_a_task_has_its_gpu_its_log_and_its_exit_code(agentless):
    task = agentless.submit("other::0", "--", "sh", "-c", "echo one; sleep 0.3; echo two >&2; exit 3")
    done = agentless("logs", "-f", task)
    assert (done.out, done.err) == ("one\n", "two\n")
    until(lambda: agentless.task(task)["exit_code"] == 3)


@every_way
def test_a_shell_without_a_terminal_has_its_input_both_streams_and_its_exit_code(agentless, task):
    done = agentless("shell", task, "--", "sh", "-c", "cat; echo err >&2; exit 7", stdin="a\n.\nb", code=7)
    assert (done.out, done.err) == ("a\n.\nb", "err\n")


@pytest.mark.slow
@every_way
def test_a_shell_has_a_terminal_and_its_size(agentless, task):
    with at_terminal(["agentless", "shell", task], agentless.env) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"until [ \"$(stty size)\" = '33 101' ]; do :; done; echo size $((40 + 2))\n")

        def is_resized():
            keyboard.resize(100, 33)
            keyboard.resize(101, 33)
            return b"size 42\r\n" in keyboard.output

        until(is_resized)
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9


@pytest.mark.slow
@every_way
def test_files_are_copied_there_and_back(agentless, task, tmp_path, node):
    data = random.Random(1).randbytes(3_000_001)
    (tmp_path / "file").write_bytes(data)
    for there in (f"{task}:/data", f"other:{node.dir}/data"):
        agentless("cp", str(tmp_path / "file"), there)
        agentless("cp", there, str(tmp_path / "back"))
        assert (tmp_path / "back").read_bytes() == data


@pytest.mark.slow
@every_way
def test_ssh_into_the_container_and_its_ports(agentless, task):
    assert agentless("ssh", task, "--", "echo one; exit 3", code=3).out == "one\n"
    name = agentless("exec", task, "--", "sh", "-c", f"{SERVER}; hostname").out.strip().encode()
    with reserve() as holder:
        port = holder.getsockname()[1]
    words = ["agentless", "forward", task, f"8888:{port}"]
    with subprocess.Popen(words, env=agentless.env, stdout=-1, stderr=-1, text=True) as forwarding:
        try:
            assert "Forwarding http" in forwarding.stdout.readline()
            assert fetch(port).strip() == name
        finally:
            forwarding.kill()


@pytest.mark.slow
@every_way
def test_a_controller_that_is_killed_leaves_nothing_but_the_task(agentless, person, task, node):
    for other in person.all():
        if other is not agentless:
            other("controller", "stop", code=None)
    assert visitors(node)
    agentless.kill_controller()
    until(lambda: not visitors(node))
    assert agentless.task(task)["state"] == "running"


def visitors(node):
    """The shells on the node, and what runs in them."""
    lines = node.sh("ps -eo args").stdout.splitlines()
    return [line for line in lines if line in ("sh", "/bin/sh") or line.startswith(("docker events", "sleep 5"))]


@pytest.mark.slow
def test_a_server_of_one_session_on_a_connection_follows_several_logs(person, node):
    agentless = person("tinyssh", "asyncssh")
    until(lambda: agentless.node("other")["state"] == "online")
    tasks = [agentless.submit("other", "--", "sh", "-c", f"sleep 1; echo {n}; sleep 1; echo {n}") for n in range(4)]
    following = [agentless.start("logs", "-f", task) for task in tasks]
    assert [each.communicate(timeout=60)[0] for each in following] == [f"{n}\n{n}\n" for n in range(4)]
    shown = agentless("nodes", "show", "other").out
    assert "of 10 (MaxSessions 1)" in shown


@pytest.mark.slow
def test_paramiko_and_tinyssh_have_no_cipher_in_common(person):
    agentless = person("tinyssh", "paramiko")
    (check,) = [each for each in agentless.json("doctor", code=1) if each["check"] == "reach"]
    assert check["detail"].endswith(
        "cannot agree on a connection: Incompatible ssh server (no acceptable ciphers); use connection: asyncssh"
    )


@pytest.fixture
def reach(person, node):
    """What doctor says of the way over a jump host, by its port and with a library."""
    changed = {}

    def reach(port, library):
        agentless = person("OpenSSH", library)
        text = changed.setdefault(agentless, agentless.inventory.read_text())
        agentless.write_inventory(text.replace("port: 22}", f"jump: root@{node.host}:{port}}}"))
        (check,) = [each for each in agentless.json("doctor", code=None) if each["check"] == "reach"]
        return check

    yield reach
    for agentless, text in changed.items():
        agentless.write_inventory(text)


@pytest.mark.slow
@pytest.mark.parametrize("library", ["asyncssh", "paramiko"])
def test_dropbear_is_a_jump_host(reach, library):
    assert reach(2201, library)["ok"]


@pytest.mark.slow
def test_tinyssh_is_no_jump_host_and_that_is_said(reach):
    assert "cannot be reached: its jump host forwards no connections (" in reach(2202, "asyncssh")["detail"]


# ---------------------------------------------------------------------- login shells


@pytest.fixture(scope="module")
def users(lab, node):
    """Makes a user with a login shell; gives the name."""
    made: dict[str, str] = {}

    def user(name, shell):
        if name not in made:
            made[name] = lab.add_user(name, docker_group=True, shell=shell)
        return made[name]

    return user


@pytest.mark.parametrize("library", ["asyncssh", pytest.param("paramiko", marks=pytest.mark.slow)])
@pytest.mark.parametrize("shell", ["fish", *(pytest.param(each, marks=pytest.mark.slow) for each in ("tcsh", "zsh"))])
def test_any_login_shell_that_runs_sh_will_do(person, users, shell, library):
    agentless = person("OpenSSH", library, users(shell, SHELLS[shell]))
    until(lambda: agentless.node("other")["state"] == "online")
    done = agentless("submit", "-f", "-t", "other", "--", "sh", "-c", "echo one; exit 3", code=3)
    assert done.out.endswith("one\n")
    assert "Welcome" not in done.out + done.err
    task = agentless.submit("other", "--", "sleep", "600")
    code, screen = agentless.terminal("shell", task, "--", "sh", "-c", "tty; exit 4")
    assert (code, screen.splitlines()[0].split()[-1]) == (4, "/dev/pts/0")


@pytest.mark.parametrize(
    "shell", ["rbash", *(pytest.param(each, marks=pytest.mark.slow) for each in ("nologin", "false"))]
)
def test_a_login_that_runs_no_sh_says_what_it_says(person, users, shell):
    program, says = REFUSING[shell]
    agentless = person("OpenSSH", "asyncssh", users(shell, program))
    expected = (
        f"other ended the shell immediately{says}; check that the login may run sh: its login shell (chsh -s /bin/sh), "
        "ForceCommand, and command= in authorized_keys there"
    )
    assert expected in agentless("nodes", code=None).out or expected in agentless("doctor", code=1).out
    assert agentless("submit", "other", "--", "true", code=4).err == f"agentless: {expected}\n"
