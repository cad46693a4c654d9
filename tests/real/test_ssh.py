"""`agentless ssh` and plain `ssh NAME.agentless`: OpenSSH's own programs in containers of a real engine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shlex
import socket
import subprocess
import sys
from pathlib import Path

import paramiko
import pytest

from agentless.client.ssh import proxy
from tests.keyboard import at_terminal
from tests.ports import reserve
from tests.real.cli import Cli, until

EVERYTHING = [
    word for mount in ("/usr:/usr:ro", "/usr/lib:/lib:ro", "/usr/lib64:/lib64:ro") for word in ("--mount", mount)
]
"""The programs of this machine in the container: bash, python3, perl, rsync, git, an sftp-server."""
WAITS = ("--", "sleep", "3600")
SERVER = "mkdir -p /tmp/www && hostname >/tmp/www/index.html && busybox httpd -p 127.0.0.1:8888 -h /tmp/www"


class Ssh:
    """OpenSSH's programs with the configuration that `ssh-config` prints."""

    def __init__(self, cli: Cli, folder: Path) -> None:
        self.env = {**cli.env, "PATH": os.environ["PATH"]}
        self.file = folder / "ssh_config"
        self.file.write_text(cli("ssh-config").out)
        self.folder = folder

    def argv(self, program: str, *words: str) -> list[str]:
        return [program, "-F", str(self.file), *words]

    def __call__(
        self, *words: str, program: str = "ssh", code: int = 0, stdin: bytes = b"", **more: str
    ) -> subprocess.CompletedProcess[bytes]:
        done = subprocess.run(
            self.argv(program, *words), input=stdin, capture_output=True, timeout=60, env=self.env | more, check=False
        )
        assert done.returncode == code, (words, done)
        return done

    @contextlib.contextmanager
    def running(self, *words: str):
        """One that runs meanwhile."""
        with subprocess.Popen(self.argv("ssh", *words), env=self.env, stdin=-1, stdout=-1, stderr=-1) as process:
            try:
                yield process
            finally:
                process.kill()

    def rsync(self, *words: str) -> None:
        shell = f"ssh -F {self.file}"
        subprocess.run(["rsync", "-e", shell, *words], env=self.env, check=True, timeout=60, capture_output=True)


@pytest.fixture
def ssh(agentless, tmp_path):
    return Ssh(agentless, tmp_path)


@pytest.fixture
def box(agentless):
    """A task with busybox and nothing else."""
    agentless.submit("node1", "--name", "box", *WAITS)
    return "box.agentless"


@pytest.fixture
def full(agentless):
    """A task with the programs of a distribution."""
    agentless.submit("node1", "--name", "full", *EVERYTHING, *WAITS)
    return "full.agentless"


def inside(node, agentless, name):
    """The commands of what runs in the container of a task, but for its own."""
    container = agentless.task(name)["container"]
    lines = node.sh(f"docker top {container} -eo pid,args").stdout.splitlines()[1:]
    return [words for words in (line.split(None, 1)[1] for line in lines) if words != "sleep 3600"]


# ---------------------------------------------------------------------- sessions


def test_a_command_has_its_streams_its_exit_code_and_its_bytes(ssh, box):
    done = ssh(box, "echo out; echo err >&2; exit 7", code=7)
    assert (done.stdout, done.stderr) == (b"out\n", b"err\n")
    data = random.Random(1).randbytes(3_000_001)
    assert ssh(box, "sha256sum", stdin=data).stdout.split()[0].decode() == hashlib.sha256(data).hexdigest()
    assert ssh(box, "cat", stdin=data).stdout == data


def test_agentless_ssh_needs_no_configuration_and_keeps_words_apart(agentless, box):
    assert agentless("ssh", "box", "--", "echo one; exit 3", code=3).out == "one\n"
    assert (
        agentless("ssh", "box.agentless", "--", "sh", "-c", "echo 'a  b' $0; exit 7", "c d", code=7).out == "a  b c d\n"
    )
    assert "no task 'bax'" in agentless("ssh", "bax", code=2).err


def test_a_shell_has_a_terminal_its_size_its_variables_and_its_exit_code(ssh, box):
    words = ssh.argv("ssh", "-t", "-o", "SetEnv COLOUR=blue", box)
    with at_terminal(words, {**ssh.env, "TERM": "xterm-256color"}) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"echo $TERM-$COLOUR-$((40 + 2))\n")
        keyboard.sees(b"xterm-256color-blue-42\r\n")
        keyboard.type(b"until [ \"$(stty size)\" = '33 101' ]; do :; done; echo size $((40 + 2))\n")

        def is_resized():
            keyboard.resize(100, 33)
            keyboard.resize(101, 33)
            return b"size 42\r\n" in keyboard.output

        until(is_resized, 30)
        keyboard.type(b"exit 9\n")
        assert keyboard.ended() == 9


def test_the_shell_is_bash_where_there_is_one(ssh, full):
    assert ssh(full, "echo ${BASH_VERSION:+bash}").stdout == b"bash\n"


def test_with_the_client_its_program_ends(agentless, ssh, node, box):
    with ssh.running(box, "exec sleep 4321"):
        until(lambda: "sleep 4321" in inside(node, agentless, "box"))
    until(lambda: not inside(node, agentless, "box"))


@pytest.mark.slow
def test_what_a_program_has_started_ends_too_but_for_what_wants_to_stay(agentless, ssh, node, box):
    with ssh.running(box, "(trap '' HUP; exec sleep 4444) & sleep 4321; echo"):
        until(lambda: {"sleep 4321", "sleep 4444"} <= set(inside(node, agentless, "box")))
    until(lambda: inside(node, agentless, "box") == ["sleep 4444"])


def test_a_reader_that_has_had_enough_ends_the_program(agentless, ssh, node, box):
    argv = shlex.join(ssh.argv("ssh", box, "exec yes"))
    done = subprocess.run(["sh", "-c", f"{argv} | head -1"], env=ssh.env, capture_output=True, timeout=30, check=True)
    assert done.stdout == b"y\n"
    with ssh.running(box, "exec yes") as process:
        assert process.stdout.read(2) == b"y\n"
    until(lambda: not inside(node, agentless, "box"))


def test_who_logs_in_is_an_event(agentless, ssh, box):
    ssh(box, "true", AGENTLESS_OWNER="anna")
    [event] = [each for each in agentless.get("/v1/tasks/box/events") if each["event"] == "ssh-opened"]
    assert "anna" in event["cause"]


def test_a_task_that_is_not_running_is_a_sentence(agentless, ssh):
    assert b"agentless: " in ssh("nothing.agentless", code=255).stderr
    task = agentless.submit("node1", "--", "true")
    agentless("wait", task)
    assert b"is completed; only running tasks can be entered" in ssh(f"{task}.agentless", code=255).stderr


@pytest.mark.slow
def test_an_image_without_sh_is_a_sentence(agentless, ssh, node):
    node.sh("docker create --name bare busybox x && docker cp bare:/bin/busybox /tmp/ && docker rm bare")
    node.sh("cd /tmp && tar -c busybox | docker import - bare:1 && rm busybox")
    agentless.submit("node1", "--name", "bare", "--image", "bare:1", "--", "/busybox", "sleep", "3600")
    done = ssh("bare.agentless", "true", code=255)
    assert b"agentless: node1: " in done.stderr
    assert b"sh" in done.stderr


def test_a_controller_that_is_killed_ends_the_session_and_not_the_task(agentless, ssh, node, box):
    with ssh.running(box, "echo begun; exec sleep 4321") as process:
        assert process.stdout.readline() == b"begun\n"
        agentless.kill_controller()
        assert process.wait(30) == 255
    until(lambda: not inside(node, agentless, "box"))
    assert ssh(box, "echo again").stdout == b"again\n"
    assert agentless.task("box")["state"] == "running"


def test_a_line_that_is_no_greeting_gets_a_sentence(agentless, box):
    folder = agentless.state
    assert (folder / "ssh.sock").stat().st_mode & 0o077 == 0
    for line in (b"[]\n", b"\xff\n", b'{"host": 1, "owner": "\\u0000"}\n', b"x" * 5000):
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / "ssh.sock"))
            connection.sendall(line)
            assert connection.recv(4096).startswith(b"-")


@contextlib.contextmanager
def transport(ssh, host):
    """Another client, which cannot take a connection."""
    words = [sys.executable, "-IS", proxy.__file__, str(Path(ssh.env["XDG_STATE_HOME"], "agentless")), "", host]
    client = paramiko.Transport(paramiko.ProxyCommand(shlex.join(words)))
    try:
        client.start_client(timeout=30)
        client.auth_none("anybody")
        yield client
    finally:
        client.close()


@contextlib.contextmanager
def sftp(ssh, host):
    with transport(ssh, host) as client:
        yield paramiko.SFTPClient.from_transport(client)


def test_a_client_that_cannot_take_a_connection_has_the_bytes_passed_through(ssh, box):
    with transport(ssh, box) as client:
        channel = client.open_session()
        channel.exec_command("echo $((40 + 2))")
        assert channel.makefile().read() == b"42\n"
        assert channel.recv_exit_status() == 0


# ---------------------------------------------------------------------- ports


@pytest.fixture
def port():
    """One of this machine that nobody else takes."""
    with reserve() as holder:
        yield holder.getsockname()[1]


def fetch(port: int) -> bytes:
    """What the web server behind a local port answers; nothing while it cannot be reached."""
    done = subprocess.run(
        ["curl", "-s", "--max-time", "20", f"http://127.0.0.1:{port}/"], capture_output=True, check=False
    )
    return done.stdout


@pytest.mark.parametrize("programs", ["box", "full"])
def test_a_port_on_the_loopback_of_the_container_is_reached(agentless, ssh, programs, port, request):
    host = request.getfixturevalue(programs)
    name = agentless("exec", programs, "--", "sh", "-c", f"{SERVER}; hostname").out.strip().encode()
    with ssh.running("-N", "-L", f"{port}:localhost:8888", host):
        until(lambda: fetch(port).strip() == name)
        assert fetch(port).strip() == name


def test_as_vs_code_does_it(ssh, full, port):
    """`ssh -T -D PORT HOST bash`, a script on stdin that starts a server on loopback, reached through SOCKS."""
    script = b"cd /tmp && echo served >file && python3 -m http.server --bind 127.0.0.1 8890 >/dev/null 2>&1 & echo up\n"
    with ssh.running("-T", "-D", str(port), full, "bash") as process:
        process.stdin.write(script)
        process.stdin.flush()
        assert process.stdout.readline() == b"up\n"

        def served():
            url = "http://127.0.0.1:8890/file"
            words = ["curl", "-s", "--max-time", "20", "--socks5-hostname", f"127.0.0.1:{port}", url]
            return subprocess.run(words, capture_output=True, check=False).stdout

        until(lambda: served() == b"served\n")


def test_many_connections_at_once_are_one_program_in_the_container(agentless, ssh, node, full, port):
    agentless("exec", "full", "--", "sh", "-c", SERVER)
    with ssh.running("-N", "-L", f"{port}:localhost:8888", full), contextlib.ExitStack() as stack:
        until(lambda: fetch(port))
        held = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(40)]
        for each in held:
            each.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert all(b"200 OK" in each.recv(4096) for each in held)
        assert sum(words.startswith("python3 -ISc") for words in inside(node, agentless, "full")) == 1


def test_a_port_that_nobody_listens_on_is_a_sentence_and_the_session_goes_on(ssh, full, port):
    with ssh.running("-L", f"{port}:localhost:1", full, "cat") as process:
        process.stdin.write(b"one\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"one\n"
        assert fetch(port) == b""
        assert b"Connection refused" in process.stderr.readline()
        process.stdin.write(b"two\n")
        process.stdin.flush()
        assert process.stdout.readline() == b"two\n"


# ---------------------------------------------------------------------- files


def test_scp_sftp_and_rsync_copy_there_and_back(ssh, full, tmp_path):
    source, data = tmp_path / "there", random.Random(2).randbytes(5_000_003)
    source.write_bytes(data)
    ssh(str(source), f"{full}:/tmp/there", program="scp")
    ssh(f"{full}:/tmp/there", str(tmp_path / "back"), program="scp")
    assert (tmp_path / "back").read_bytes() == data
    ssh("-b", "-", full, program="sftp", stdin=f"get /tmp/there {tmp_path}/sftp\n".encode())
    assert (tmp_path / "sftp").read_bytes() == data
    ssh.rsync("-a", f"{source}", f"{full}:/tmp/folder/")
    ssh.rsync("-a", f"{full}:/tmp/folder/", f"{tmp_path}/rsync/")
    assert (tmp_path / "rsync/there").read_bytes() == data


def test_an_image_without_an_sftp_server_has_scp_and_sftp_all_the_same(ssh, box, tmp_path):
    folder, data = tmp_path / "there", random.Random(3).randbytes(3_000_001)
    (folder / "sub").mkdir(parents=True)
    (folder / "hollow").mkdir()
    names = ("small", "-dash", "two words", "line\nbreak", "ümlaut", "$(touch x)", "'quote", "sub/deep")
    for name in names:
        (folder / name).write_text(name)
    (folder / "large").write_bytes(data)
    (folder / "empty").touch()
    (folder / "large").chmod(0o640)
    os.utime(folder / "large", (1_000_000_000, 1_000_000_000))
    ssh("-rp", str(folder), f"{box}:/tmp/there", program="scp")
    assert ssh(box, "sha256sum /tmp/there/large").stdout[:64].decode() == hashlib.sha256(data).hexdigest()
    assert ssh(box, "stat -c '%a %Y' /tmp/there/large").stdout == b"640 1000000000\n"
    ssh("-rp", f"{box}:/tmp/there", str(tmp_path / "back"), program="scp")
    assert (tmp_path / "back/large").read_bytes() == data
    assert (tmp_path / "back/large").stat().st_mtime == 1_000_000_000
    assert {name: (tmp_path / "back" / name).read_text() for name in names} == {name: name for name in names}
    assert (tmp_path / "back/empty").stat().st_size == 0
    assert list((tmp_path / "back/hollow").iterdir()) == []


@pytest.mark.slow
def test_such_an_upload_keeps_the_mode_of_what_is_there(ssh, box, tmp_path):
    ssh(box, "echo old >/tmp/script; chmod 755 /tmp/script; touch -d @-5 /tmp/script")
    (tmp_path / "script").write_text("new")
    (tmp_path / "script").chmod(0o600)
    (tmp_path / "locked").write_text("locked")
    (tmp_path / "locked").chmod(0o444)
    (tmp_path / "program").write_text("program")
    (tmp_path / "program").chmod(0o755)
    files = [str(tmp_path / name) for name in ("script", "locked", "program")]
    ssh(*files, f"{box}:/tmp/", program="scp")
    ssh(str(tmp_path / "script"), f"{box}:/dev/null", program="scp")
    shown = ssh(box, "cd /tmp; cat script locked program; stat -c %a script locked program /dev/null").stdout
    assert shown == b"newlockedprogram755\n444\n755\n666\n"


@pytest.mark.slow
def test_such_files_are_read_and_written_as_files_are(ssh, box):
    with sftp(ssh, box) as files:
        with files.open("/tmp/file", "w+b") as file:
            file.write(b"hello")
            file.seek(0)
            assert file.read() == b"hello"
            file.seek(0)
            file.write(b"J")
            file.seek(0)
            assert file.read() == b"Jello"
        with files.open("/tmp/file", "ab") as file:
            file.write(b"1")
            file.flush()
            file.stat()
            ssh(box, "printf 2 >>/tmp/file")
            file.write(b"3")
        with files.open("/tmp/file") as file:
            assert file.read() == b"Jello123"
        with pytest.raises(OSError, match="No such file"):
            files.utime("/tmp/nothing", (1, 1))
        ssh(box, "mkdir /tmp/folder; ln -s /tmp/folder /tmp/link")
        for taken in ("/tmp/folder", "/tmp/link", "/tmp/file"):
            with pytest.raises(OSError, match="File exists"):
                files.symlink("/x", taken)
        with pytest.raises(OSError, match="File exists"):
            files.rename("/tmp/file", "/tmp/link")
        assert files.listdir("/tmp/folder") == []


@pytest.mark.slow
def test_such_an_image_has_the_other_commands_of_sftp(ssh, box, tmp_path):
    data = random.Random(4).randbytes(2_000_003)
    (tmp_path / "whole").write_bytes(data)
    (tmp_path / "part").write_bytes(data[:1_500_001])
    script = f"""\
mkdir /tmp/d
put {tmp_path}/part /tmp/d/file
reput {tmp_path}/whole /tmp/d/file
rename /tmp/d/file /tmp/d/other
symlink /tmp/d/other /tmp/d/link
chmod 600 /tmp/d/other
get /tmp/d/link {tmp_path}/back
-rmdir /tmp/d
-get /tmp/d/nothing
rm /tmp/d/link
rm /tmp/d/other
rmdir /tmp/d
df /
cd /tmp
pwd
"""
    done = ssh("-b", "-", box, program="sftp", stdin=script.encode())
    assert (tmp_path / "back").read_bytes() == data
    assert b"Remote working directory: /tmp\n" in done.stdout
    assert b'File "/tmp/d/nothing" not found' in done.stderr
    assert b"Directory not empty" in done.stderr or b"Failure" in done.stderr
    assert ssh(box, "ls /tmp").stdout == b""


@pytest.mark.slow
def test_a_full_disk_is_told_and_the_connection_goes_on(agentless, ssh, tmp_path):
    agentless.submit("node1", "--name", "tight", "--shm-size", "1MiB", *WAITS)
    (tmp_path / "large").write_bytes(bytes(4_000_000))
    done = ssh(str(tmp_path / "large"), "tight.agentless:/dev/shm/large", program="scp", code=1)
    assert b"No space left" in done.stderr
    assert ssh("tight.agentless", "echo well").stdout == b"well\n"


@pytest.mark.slow
def test_git_clones_from_a_container(ssh, full, tmp_path):
    ssh(
        full,
        "cd /tmp && git init -q repo && cd repo && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m x",
    )
    env = {**ssh.env, "GIT_SSH_COMMAND": f"ssh -F {ssh.file}"}
    subprocess.run(["git", "clone", "-q", f"{full}:/tmp/repo", str(tmp_path / "repo")], env=env, check=True, timeout=60)
    assert (tmp_path / "repo/.git").is_dir()


# ---------------------------------------------------------------------- the user's configuration


def test_install_includes_ours_in_front_and_remove_leaves_it_as_it_was(agentless, tmp_path):
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    config = home / ".ssh/config"
    config.write_text("Host other\n  User me\n")
    config.chmod(0o640)
    assert "cannot ask" in agentless("ssh-config", "--install", HOME=str(home), code=2).err
    assert config.read_text() == "Host other\n  User me\n"
    shown = agentless("ssh-config", "--install", "--yes", HOME=str(home)).err
    assert "Include" in shown
    assert config.read_text().splitlines()[1].startswith("Include ")
    assert config.read_text().endswith("\nHost other\n  User me\n")
    agentless("ssh-config", "--install", "--yes", HOME=str(home))
    assert config.read_text().count("Include") == 1
    asked = subprocess.run(["ssh", "-F", str(config), "-G", "x.agentless"], capture_output=True, text=True, check=True)
    assert "hostkeyalias agentless" in asked.stdout
    asked = subprocess.run(["ssh", "-F", str(config), "-G", "other"], capture_output=True, text=True, check=True)
    assert "user me\n" in asked.stdout
    assert "agentless" not in asked.stdout
    agentless("ssh-config", "--remove", HOME=str(home))
    assert config.read_text() == "Host other\n  User me\n"
    assert config.stat().st_mode & 0o777 == 0o640


def test_a_host_name_never_becomes_a_command(agentless, ssh, tmp_path):
    marker = tmp_path / "ran"
    for name in (f"x';touch {marker};'.agentless", f"$(touch {marker}).agentless", f"`touch {marker}`.agentless"):
        subprocess.run(ssh.argv("ssh", name), env=ssh.env, capture_output=True, timeout=60, check=False)
    assert not marker.exists()


# ---------------------------------------------------------------------- agentless forward


@contextlib.contextmanager
def forwarding(agentless, *words):
    """`agentless forward`, once it listens."""
    argv = ["agentless", "forward", *words]
    with subprocess.Popen(argv, env=agentless.env, stdout=-1, stderr=-1, text=True) as process:
        try:
            assert "Forwarding http" in process.stdout.readline()
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_forward_reaches_a_port_and_goes_on_over_a_controller_and_a_retry(agentless, box, port):
    agentless("exec", "box", "--", "sh", "-c", SERVER)
    with forwarding(agentless, "box", f"8888:{port}"):
        name = fetch(port)
        assert name.strip()
        agentless.kill_controller()
        until(lambda: fetch(port) == name)
        agentless("kill", "box")
        agentless("wait", "box", code=None)
        agentless("retry", "box")
        until(lambda: agentless.task("box")["state"] == "running")
        agentless("exec", "box", "--", "sh", "-c", SERVER)
        until(lambda: fetch(port).strip() and fetch(port) != name)


@pytest.mark.slow
def test_many_connections_at_once_leave_nothing_but_a_few_that_are_ready(agentless, node, box, port):
    agentless("exec", "box", "--", "sh", "-c", SERVER)
    relays = f"docker top {agentless.task('box')['container']} -eo pid,args | grep -c 'read -r host port'"
    with forwarding(agentless, "box", f"8888:{port}"):
        for _ in range(3):
            asking = [
                subprocess.Popen(["curl", "-sf", "--max-time", "60", f"http://127.0.0.1:{port}/"], stdout=-1)
                for _ in range(12)
            ]
            assert all(process.communicate()[0] for process in asking)
        until(lambda: int(node.sh(relays).stdout) <= 3)


@pytest.mark.slow
def test_a_forward_that_is_killed_leaves_no_connection(agentless, node, box, port):
    agentless("exec", "box", "--", "sh", "-c", "(nc -l -p 8877 -e sleep 4321) </dev/null >/dev/null 2>&1 &")
    with forwarding(agentless, "box", f"8877:{port}") as process:

        def begun():
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 5).close()
            return "sleep 4321" in inside(node, agentless, "box")

        until(begun)
        process.kill()
    until(lambda: not [each for each in inside(node, agentless, "box") if each.startswith("nc localhost")])


def test_what_a_forward_cannot_reach_is_told_once(agentless, full, port):
    with forwarding(agentless, "full", f"1:{port}") as process:
        assert fetch(port) == fetch(port) == b""
        assert "port 1: " in (line := process.stderr.readline())
        assert "refused" in line


def test_a_port_that_is_taken_and_one_that_is_none_are_sentences(agentless, box):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        here = taken.getsockname()[1]
        assert f"cannot listen on port {here} of this machine" in agentless("forward", "box", f"80:{here}", code=3).err
    for wrong in ("x", "0", "1:2:3", "65536", "١"):
        assert "is no port" in agentless("forward", "box", wrong, code=2).err
    assert "nothing" in agentless("forward", "nothing", "80", code=None).err


def test_a_port_of_the_container_leads_here(agentless, ssh, full, box, port):
    with socket.create_server(("127.0.0.1", 0)) as server:
        here = server.getsockname()[1]
        with ssh.running("-N", "-v", "-R", f"8899:127.0.0.1:{here}", full):
            script = (
                "import socket; s = socket.create_connection(('127.0.0.1', 8899)); s.sendall(b'hi'); print(s.recv(9))"
            )

            def connects():
                asked = ssh.argv("ssh", full, f'python3 -c "{script}"')
                with subprocess.Popen(asked, env=ssh.env, stdout=-1, stderr=-1) as asking:
                    server.settimeout(5)
                    with contextlib.suppress(TimeoutError):
                        connection, _ = server.accept()
                        with connection:
                            assert connection.recv(9) == b"hi"
                            connection.sendall(b"there")
                    return asking.communicate(timeout=30)[0] == b"b'there'\n"

            until(connects)
        done = ssh("-vN", "-o", "ExitOnForwardFailure=yes", "-R", f"8899:127.0.0.1:{here}", box, code=255)
        assert b"needs python3 in the container" in done.stderr


@pytest.mark.slow
def test_the_build_container_of_an_env_is_reached_by_its_name(agentless, ssh):
    agentless("env", "create", "torch", "--from", "busybox")
    ssh("torch.env.agentless", "echo here >/made")
    assert ssh("torch.env.agentless", "cat /made").stdout == b"here\n"
    assert "no env" in ssh("nothing.env.agentless", "true", code=255).stderr.decode().lower()
    agentless("env", "rm", "torch", "--yes")


@pytest.mark.parametrize(
    "content",
    [b"Host a\r\n  User x\r\n", b"#Include x\nHost a\n  User x\nHost b", b"", b'Host a\n  LocalCommand "\r"\n'],
)
def test_remove_gives_back_every_byte(agentless, tmp_path, content):
    config = tmp_path / ".ssh/config"
    config.parent.mkdir()
    config.write_bytes(content)
    agentless("ssh-config", "--install", "--yes", HOME=str(tmp_path))
    assert config.read_bytes() != content
    agentless("ssh-config", "--remove", HOME=str(tmp_path))
    assert config.read_bytes() == content


def test_a_line_that_is_commented_or_under_a_host_is_not_installed(agentless, tmp_path):
    config = tmp_path / ".ssh/config"
    config.parent.mkdir()
    line = f'Include "{agentless.config}/ssh_config"'
    for content in (f"#{line}\nHost a\n", f"Host a\n  {line}\n"):
        config.write_text(content)
        agentless("ssh-config", "--install", "--yes", HOME=str(tmp_path))
        assert config.read_text().splitlines()[1] == line
        agentless("ssh-config", "--remove", HOME=str(tmp_path))
        assert config.read_text() == content
