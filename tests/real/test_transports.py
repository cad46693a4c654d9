"""What a `Session` may be relied on for, over every transport, against a real OpenSSH server."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from agentless import plugins, session
from agentless.errors import AuthFailed, HostKeyRejected, Refused, Timeout, Unreachable
from agentless.model.command import Command
from agentless.model.node import NodeConfig
from agentless.session import Session
from agentless.transports import SshFiles
from tests.real.sshd import PROGRAM, WAIT, Sshd, keygen, processes, public, until

pytestmark = pytest.mark.skipif(not os.path.exists(PROGRAM), reason="no OpenSSH server on this machine")

SSH = ("asyncssh", "paramiko")
MB = 1_000_000


@dataclass
class Node:
    """A node to reach, and a look at it from the inside."""

    config: NodeConfig
    files: SshFiles
    tag: str

    def session(self) -> Session:
        transport = plugins.load("transports", self.config.connection).make(self.config, self.files)
        return Session(transport, self.config.name)

    def processes(self) -> dict[int, str]:
        return processes(self.tag)

    def runs(self, text: str) -> bool:
        return any(text in line for line in self.processes().values())


def node_of(server: Sshd, connection: str, **changes) -> Node:
    config = NodeConfig("node1", "127.0.0.1", port=server.port, connection=connection)
    files = SshFiles(server.home, server.home / "agentless_known_hosts", connect_timeout=WAIT)
    return Node(replace(config, **changes), files, server.tag)


@pytest.fixture(autouse=True)
def _no_agent(monkeypatch):
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    """A server that no test breaks."""
    server = Sshd(tmp_path_factory.mktemp("sshd"))
    yield server
    server.stop()


@pytest.fixture
def start(tmp_path):
    """Starts servers that may be broken."""
    servers = []

    def start(*options, **how):
        servers.append(Sshd(tmp_path / f"sshd{len(servers)}", *options, **how))
        return servers[-1]

    yield start
    for server in servers:
        server.stop()


def local_node(monkeypatch) -> Node:
    tag = f"AGENTLESS_TEST={uuid.uuid4().hex}"
    monkeypatch.setenv(*tag.split("="))
    nowhere = Path("/nonexistent")
    return Node(NodeConfig("node1", "", connection="local"), SshFiles(nowhere, nowhere), tag)


@contextlib.asynccontextmanager
async def opened(node: Node):
    """A session with the node; at its end nothing of ours may be left there."""
    it = node.session()
    await it.connect()
    yield it
    await it.close()
    await until(lambda: not node.processes(), f"left behind: {node.processes()}")


@pytest.fixture(params=[*SSH, "local"])
def node(request, shared_server, monkeypatch):
    return local_node(monkeypatch) if request.param == "local" else node_of(shared_server, request.param)


@pytest.fixture
async def connected(node):
    async with opened(node) as it:
        yield it


@pytest.fixture
def mark():
    """A duration that only one `sleep` in the world has."""
    return f"{uuid.uuid4().int % 10**6 + 10**6}.5"


# ---------------------------------------------------------------------- results


@pytest.mark.parametrize("code", [0, 1, 255])
async def test_exit_code(connected, code):
    assert (await connected.run(Command(f"exit {code}"))).exit_code == code


async def test_exit_code_of_a_signal(connected):
    assert (await connected.run(Command("sh -c 'kill -9 $$'"))).exit_code == 137


async def test_streams_are_apart_and_exact(connected):
    result = await connected.run(Command("printf out; printf 'err\n\n' >&2; printf ' more'"))
    assert (result.stdout, result.stderr) == (b"out more", b"err\n\n")


async def test_every_byte_passes(connected):
    every = bytes(range(256)) * 3
    assert (await connected.run(Command("cat", stdin=every))).stdout == every
    octal = "".join(f"\\{byte:03o}" for byte in range(256))
    result = await connected.run(Command(f"printf '{octal}'; printf '{octal}' >&2"))
    assert (result.stdout, result.stderr) == (bytes(range(256)), bytes(range(256)))


async def test_stdin(connected):
    assert (
        await connected.run(Command("read -r a; cat; echo $a", stdin=b"first\nsecond\n"))
    ).stdout == b"second\nfirst\n"


async def test_a_big_script(connected):
    script = f": '{'x' * MB}'\necho $((1 + 1))"
    assert (await connected.run(Command(script))).stdout == b"2\n"


async def test_100_mb_through_stdin(connected):
    data = os.urandom(MB) * 100
    result = await connected.run(Command("sha256sum", stdin=data, timeout=60))
    assert result.out.split()[0] == hashlib.sha256(data).hexdigest()


# ---------------------------------------------------------------------- many, and again


async def test_a_shell_is_kept_for_the_next_command(connected):
    first = await connected.run(Command("echo $$"))
    assert (await connected.run(Command("echo $$"))).stdout == first.stdout


async def test_a_kept_shell_that_has_died_is_replaced(connected, node):
    pid = int((await connected.run(Command("echo $$"))).stdout)
    os.kill(pid, signal.SIGKILL)
    await until(lambda: pid not in node.processes())
    assert int((await connected.run(Command("echo $$"))).stdout) != pid


async def test_two_commands_run_at_once(connected, tmp_path):
    os.mkfifo(tmp_path / "a")
    os.mkfifo(tmp_path / "b")
    there, back = await asyncio.gather(
        connected.run(Command(f"echo x >{tmp_path}/a; cat {tmp_path}/b", timeout=WAIT)),
        connected.run(Command(f"cat {tmp_path}/a; echo y >{tmp_path}/b", timeout=WAIT)),
    )
    assert (there.stdout, back.stdout) == (b"y\n", b"x\n")


async def test_many_commands_share_a_few_shells(connected):
    results = await asyncio.gather(*(connected.run(Command(f"echo {n} $$")) for n in range(30)))
    words = [result.out.split() for result in results]
    assert [int(number) for number, _ in words] == list(range(30))
    assert len({shell for _, shell in words}) == session.SHELLS


async def test_between_commands_only_shells_are_left(connected, node):
    await connected.run(Command("true"))
    await until(lambda: set(node.processes().values()) == {"sh"}, "more than a sh is left")


# ---------------------------------------------------------------------- ends before its time


async def test_a_timeout_leaves_nothing_running(connected, node, mark):
    script = f"echo some output; (trap '' TERM; sleep {mark}) | (sleep {mark}; cat)"
    with pytest.raises(Timeout, match="node1 did not finish a command within 0.5 s"):
        await connected.run(Command(script, timeout=0.5))
    await until(lambda: not node.runs(mark))
    assert connected.connected
    assert (await connected.run(Command("echo usable"))).ok


async def test_a_timeout_with_stdin_leaves_nothing_running(connected, node, mark):
    with pytest.raises(Timeout):
        await connected.run(Command(f"sleep {mark}", stdin=b"x" * 10 * MB, timeout=0.5))
    await until(lambda: not node.runs(mark))


async def test_a_cancelled_command_is_ended(connected, node, mark):
    task = asyncio.create_task(connected.run(Command(f"sleep {mark} & sleep {mark}")))
    await until(lambda: node.runs(mark))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not node.runs(mark))
    assert (await connected.run(Command("echo usable"))).ok


async def test_cancelling_before_it_has_begun_costs_no_shell(connected, node):
    for _ in range(2 * session.SHELLS):
        task = asyncio.create_task(connected.run(Command("true")))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert (await connected.run(Command("echo usable"))).ok
    await until(lambda: len(node.processes()) <= session.SHELLS, "shells pile up")


async def test_when_all_shells_hang_each_times_out_by_itself(connected, node, mark):
    hanging = [connected.run(Command(f"sleep {mark}", timeout=0.5)) for _ in range(session.SHELLS)]
    results = await asyncio.gather(*hanging, connected.run(Command("echo after")), return_exceptions=True)
    assert [type(result) for result in results[:-1]] == [Timeout] * session.SHELLS
    assert results[-1].ok
    await until(lambda: not node.runs(mark))


# ---------------------------------------------------------------------- streams


async def test_a_stream_has_both_outputs_and_an_exit_code(connected):
    seen = {1: b"", 2: b""}
    async with connected.stream(Command("printf out; printf err >&2; exit 7")) as stream:
        async for fd, data in stream:
            seen[fd] += data
    assert (seen, stream.exit_code) == ({1: b"out", 2: b"err"}, 7)


async def test_a_stream_comes_as_it_is_written(connected, tmp_path):
    os.mkfifo(tmp_path / "go")
    async with asyncio.timeout(WAIT), connected.stream(Command(f"echo one; cat {tmp_path}/go")) as stream:
        assert await anext(stream) == (1, b"one\n")
        (tmp_path / "go").write_bytes(b"two\n")
        assert await anext(stream) == (1, b"two\n")


async def test_100_mb_through_a_stream(connected, tmp_path):
    data = tmp_path / "data"
    data.write_bytes(os.urandom(MB) * 100)
    digest = hashlib.sha256()
    async with connected.stream(Command(f"cat {data}")) as stream:
        async for _, chunk in stream:
            digest.update(chunk)
    assert digest.digest() == hashlib.sha256(data.read_bytes()).digest()
    data.unlink()


async def test_a_stream_that_has_ended_leaves_nothing(connected, node):
    async with connected.stream(Command("echo x")) as stream:
        async for _ in stream:
            pass
        await until(lambda: not node.processes(), "something outlived its stream")


async def test_leaving_a_stream_ends_it_on_the_node(connected, node, mark):
    script = f"sleep {mark} | cat & while :; do (trap '' TERM HUP; sleep {mark}); done"
    async with connected.stream(Command(script)):
        await until(lambda: node.runs(mark))
    await until(lambda: not node.processes(), f"left behind: {node.processes()}")


async def test_a_stream_outlives_the_timeout_of_its_command(connected):
    async with connected.stream(Command("sleep 0.3; echo late", timeout=0.1)) as stream:
        assert [chunk async for chunk in stream] == [(1, b"late\n")]


async def test_a_slow_reader_slows_the_writer_down(connected, tmp_path):
    progress = tmp_path / "progress"
    progress.write_text("0")
    script = f"i=0; while :; do head -c {MB // 10} /dev/zero; i=$((i+1)); echo $i >{progress}; done"
    seen = []

    def stands_still():
        seen.append(progress.read_text())
        return len(seen) > 20 and len(set(seen[-20:])) == 1 and seen[-1] not in ("", "0")

    async with connected.stream(Command(script)):
        await until(stands_still, "the writer never waits")
        assert int(progress.read_text()) < 40


async def test_the_death_of_the_controller_ends_its_streams(node, mark):
    with controller(node, f"stream(Command('sleep {mark} | cat; sleep {mark}'))") as process:
        await until(lambda: node.runs(mark))
        process.kill()
    await until(lambda: not node.processes(), f"left behind: {node.processes()}")


async def test_after_the_death_of_the_controller_a_command_still_ends_in_its_time(node, mark):
    with controller(node, f"run(Command('sleep {mark} & sleep {mark}', timeout=1.0))") as process:
        await until(lambda: node.runs(mark))
        process.kill()
    await until(lambda: not node.processes(), f"left behind: {node.processes()}")


@contextlib.contextmanager
def controller(node: Node, call: str):
    """Another process that does one thing on the node, to be killed."""
    program = f"""
        import asyncio, sys
        from pathlib import Path
        from agentless import plugins, session
        from agentless.model.command import Command
        from agentless.model.node import NodeConfig
        from agentless.transports import SshFiles

        async def main():
            session.GUARD_GRACE = 0.0
            node = NodeConfig("node1", "127.0.0.1", port={node.config.port}, connection={node.config.connection!r})
            files = SshFiles(Path({str(node.files.home)!r}), Path("/nonexistent"))
            it = session.Session(plugins.load("transports", node.connection).make(node, files))
            await it.connect()
            call = it.{call}
            if hasattr(call, "__aenter__"):
                await call.__aenter__()
                await asyncio.sleep(60)
            await call

        asyncio.run(main())
    """
    # Not as an argument: `node.runs` would find it there.
    with subprocess.Popen([sys.executable, "-"], stdin=subprocess.PIPE, text=True) as process:
        process.stdin.write(textwrap.dedent(program))
        process.stdin.close()
        yield process
        process.kill()


# ---------------------------------------------------------------------- secrets


async def test_a_secret_reaches_the_script_and_no_argv(connected):
    secret = uuid.uuid4().hex
    command = Command("printenv TOKEN; sleep 0.2 & cat /proc/[0-9]*/cmdline; wait", secrets={"TOKEN": secret})
    result = await connected.run(command)
    assert result.out.startswith(f"{secret}\n")
    assert result.out.count(secret) == 1


async def test_a_secret_is_in_no_exception(connected):
    secret = uuid.uuid4().hex
    with pytest.raises(Timeout) as caught:
        await connected.run(Command("sleep 60", secrets={"TOKEN": f"{secret}\udcff"}, timeout=0.1))
    error: BaseException | None = caught.value
    while error is not None:
        assert secret not in f"{error} {error!r} {error.args}"
        error = error.__cause__ or error.__context__


# ---------------------------------------------------------------------- shells that nodes have


@pytest.fixture(params=["dash", "bash", "busybox"])
def posix(request, tmp_path, monkeypatch):
    """This machine, with another `sh`."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"no {request.param} here")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/sh").symlink_to(program)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    return local_node(monkeypatch)


@pytest.fixture
async def sh(posix):
    async with opened(posix) as it:
        yield it


async def test_a_script_that_kills_its_own_shell_has_ended_and_the_next_one_runs(sh):
    result = await sh.run(Command("echo before; kill -9 $$"))
    assert (result.exit_code in (137, 255), result.stdout) == (True, b"before\n")
    assert (await sh.run(Command("echo next"))).stdout == b"next\n"


async def test_no_output_is_none(sh):
    result = await sh.run(Command("# nothing"))
    assert (result.exit_code, result.stdout, result.stderr) == (0, b"", b"")


async def test_a_syntax_error_is_a_result(sh):
    result = await sh.run(Command("if then"))
    assert result.exit_code == 2
    assert b"yntax error" in result.stderr
    assert (await sh.run(Command("echo fine"))).ok


async def test_a_script_does_not_change_the_next_one(sh):
    await sh.run(Command("cd /; x=1; export x; exec 2>/dev/null; trap 'echo trapped' EXIT; set -e; false"))
    result = await sh.run(Command("pwd; echo $x; false; echo on >&2"))
    assert result.stdout.startswith(b"/") is True
    assert result.stdout != b"/\n\n"
    assert (result.stdout.splitlines()[1], result.stderr) == (b"", b"on\n")


async def test_a_script_that_reads_gets_nothing_of_the_conversation(sh):
    assert (await sh.run(Command("cat; echo $#"))).stdout == b"0\n"


async def test_quotes_and_here_documents_mean_what_they_say(sh):
    script = "cat <<'END'\nit's \"$x\" `y` \\z\nEND\necho 'a  b'  # end"
    assert (await sh.run(Command(script))).stdout == b'it\'s "$x" `y` \\z\na  b\n'


async def test_stdin_that_nobody_reads(sh):
    assert (await sh.run(Command("exit 3", stdin=b"echo run me\n" * 100_000))).exit_code == 3


async def test_stdin_is_never_taken_for_commands(sh, tmp_path):
    await sh.run(Command("read -r a", stdin=f"a\ntouch {tmp_path}/taken\n".encode()))
    assert not (tmp_path / "taken").exists()


async def test_many_commands_in_a_row(sh):
    for n in range(100):
        result = await sh.run(Command(f"echo {n}; printf err >&2; exit {n}"))
        assert (result.exit_code, result.stdout, result.stderr) == (n, b"%d\n" % n, b"err")


async def test_a_command_with_stdin(sh):
    result = await sh.run(Command("cat; exit 4", stdin=b"data"))
    assert (result.exit_code, result.stdout) == (4, b"data")


async def test_the_time_of_a_command_is_up(sh, posix, mark):
    with pytest.raises(Timeout):
        await sh.run(Command(f"(trap '' TERM; sleep {mark}) & sleep {mark} | cat", timeout=0.2))
    await until(lambda: not posix.runs(mark))
    assert (await sh.run(Command("echo usable"))).ok


async def test_a_stream_is_left(sh, posix, mark):
    async with sh.stream(Command(f"sleep {mark} | cat; sleep {mark}")):
        await until(lambda: posix.runs(mark))
    await until(lambda: not posix.runs(mark))


async def test_a_stream_ends(sh, posix):
    async with sh.stream(Command("echo x; exit 5")) as stream:
        assert [chunk async for chunk in stream] == [(1, b"x\n")]
        await until(lambda: not posix.processes(), "something outlived its stream")
    assert stream.exit_code == 5


# ---------------------------------------------------------------------- over SSH: what goes wrong


@pytest.fixture(params=SSH)
def library(request):
    return request.param


async def refusal(node: Node) -> Unreachable:
    """What connecting raises."""
    it = node.session()
    with pytest.raises(Unreachable) as caught:
        await it.connect()
    assert not it.connected
    return caught.value


async def test_a_login_that_prints_does_not_get_into_results(start, library):
    server = start("ForceCommand sh -c 'echo Welcome; printf noise >&2; cat /proc/self/stat; exec sh'")
    it = node_of(server, library).session()
    await it.connect()
    result = await it.run(Command("echo x; echo y >&2"))
    assert (result.stdout, result.stderr) == (b"x\n", b"y\n")
    async with it.stream(Command("echo z")) as stream:
        assert [chunk async for chunk in stream] == [(1, b"z\n")]
    await it.close()


async def test_a_shell_that_does_not_lead_its_group_gets_one_of_its_own(start, library, mark):
    server = start("ForceCommand sh -c 'sh; true'")
    node = node_of(server, library)
    it = node.session()
    await it.connect()
    with pytest.raises(Timeout):
        await it.run(Command(f"sleep {mark}", timeout=0.3))
    await until(lambda: not node.runs(mark))
    assert (await it.run(Command("echo usable"))).ok
    await it.close()


async def test_a_login_shell_that_lets_nobody_in(start, library):
    it = node_of(start("ForceCommand echo This account is not available"), library).session()
    await it.connect()
    with pytest.raises(Unreachable, match="node1 ended the shell at once"):
        await it.run(Command("true"))
    await it.close()


async def test_no_more_sessions_than_the_server_allows(start, library, mark):
    node = node_of(start("MaxSessions 2"), library)
    it = node.session()
    await it.connect()
    async with it.stream(Command(f"sleep {mark}")), it.stream(Command(f"sleep {mark}")):
        with pytest.raises(Refused, match="MaxSessions"):
            await it.run(Command("true"))
    assert it.connected
    await until(lambda: not node.processes())
    assert (await it.run(Command("echo usable"))).ok
    await it.close()


async def test_a_server_that_goes_away_breaks_what_is_in_flight(start, library, mark):
    server = start()
    node = node_of(server, library)
    it = node.session()
    await it.connect()
    async with it.stream(Command(f"sleep {mark}")) as stream:
        flying = asyncio.gather(it.run(Command(f"sleep {mark}")), anext(stream), return_exceptions=True)
        await until(lambda: sum(mark in line for line in node.processes().values()) == 2)
        server.break_connections()
        async with asyncio.timeout(2):
            errors = await flying
    assert [str(error) for error in errors] == ["node1 closed the connection"] * 2
    assert not it.connected
    with pytest.raises(Unreachable, match="node1 is not connected"):
        await it.run(Command("true"))
    await it.close()


async def test_a_broken_link_ends_a_stream_on_the_node(start, library, mark):
    server = start()
    node = node_of(server, library)
    it = node.session()
    await it.connect()
    with pytest.raises(Unreachable):
        async with it.stream(Command(f"sleep {mark} | cat; sleep {mark}")) as stream:
            await until(lambda: node.runs(mark))
            server.break_connections()
            await anext(stream)
    await until(lambda: not node.processes(), f"left behind: {node.processes()}")
    await it.close()


async def test_closing_breaks_what_is_in_flight(node, mark):
    it = node.session()
    await it.connect()
    running = asyncio.create_task(it.run(Command(f"sleep {mark}", timeout=1.0)))
    await until(lambda: node.runs(mark))
    await it.close()
    with pytest.raises(Unreachable):
        await running


async def test_connecting_again_after_the_server_was_restarted(start, library):
    server = start()
    it = node_of(server, library).session()
    await it.connect()
    assert (await it.run(Command("true"))).ok
    server.stop()
    with pytest.raises(Unreachable):
        await it.run(Command("true"))
    with pytest.raises(Unreachable, match="node1 .* cannot be reached: Connection refused"):
        await it.connect()
    server.start()
    await it.connect()
    assert it.connected
    assert (await it.run(Command("echo back"))).stdout == b"back\n"
    await it.close()


async def test_a_server_that_says_nothing(shared_server, library):
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    node = node_of(shared_server, library, port=silent.sockets[0].getsockname()[1])
    node.files = replace(node.files, connect_timeout=0.3)
    async with asyncio.timeout(2):
        assert "did not answer within 0.3 s" in str(await refusal(node))
    silent.close()


async def test_a_host_that_does_not_exist(shared_server, library):
    assert "its name is not known" in str(await refusal(node_of(shared_server, library, host="no-such.invalid")))


async def test_a_cancelled_connect_and_a_close_leave_no_thread(shared_server, library):
    before = set(threading.enumerate())
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    it = node_of(shared_server, library, port=silent.sockets[0].getsockname()[1]).session()
    connecting = asyncio.create_task(it.connect())
    await asyncio.sleep(0.1)
    connecting.cancel()
    await asyncio.gather(connecting, return_exceptions=True)
    silent.close()
    it = node_of(shared_server, library).session()
    await it.connect()
    running = asyncio.create_task(it.run(Command("cat", stdin=b"x" * 20 * MB, timeout=60)))
    await asyncio.sleep(0.1)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await it.close()
    await until(lambda: not [t for t in threading.enumerate() if t not in before and "asyncio" not in t.name])


# ---------------------------------------------------------------------- over SSH: who is let in


async def test_a_wrong_key(shared_server, library, tmp_path):
    other = keygen(tmp_path / "other")
    node = node_of(shared_server, library)
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/known_hosts").write_text(shared_server.known_hosts.read_text())
    node.files = replace(node.files, home=home)
    node.config = replace(node.config, user="root", identity_file=str(other))
    error = await refusal(node)
    assert isinstance(error, AuthFailed)
    assert str(error) == (
        f"node1 (root@127.0.0.1 port {shared_server.port}) does not let us in: it took none of {other}; "
        f"run: ssh-copy-id -p {shared_server.port} root@127.0.0.1"
    )


async def test_no_key_at_all(shared_server, library, tmp_path):
    node = node_of(shared_server, library)
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").write_text(shared_server.known_hosts.read_text())
    node.files = replace(node.files, home=tmp_path)
    error = await refusal(node)
    assert isinstance(error, AuthFailed)
    assert "there was no key to offer; run: ssh-keygen -t ed25519 && ssh-copy-id" in str(error)


@pytest.fixture
def encrypted(start, tmp_path):
    """A server that takes a key which has a passphrase."""
    server = start()
    key = keygen(tmp_path / "encrypted", passphrase="open sesame")
    server.authorized_keys.write_text(public(key))
    return server, key


async def test_an_encrypted_key_without_an_agent(encrypted, library):
    server, key = encrypted
    error = await refusal(node_of(server, library, identity_file=str(key)))
    assert isinstance(error, AuthFailed)
    assert f"{key} is encrypted and no SSH agent holds it; run: ssh-add {key}" in str(error)


async def test_an_encrypted_key_that_the_agent_holds(encrypted, library, tmp_path, monkeypatch):
    server, key = encrypted
    agent = subprocess.Popen(["ssh-agent", "-D", "-a", tmp_path / "agent"], stdout=subprocess.DEVNULL)
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "agent"))
    ask = tmp_path / "ask"
    ask.write_text("#!/bin/sh\necho open sesame\n")
    ask.chmod(0o700)
    await until((tmp_path / "agent").exists)
    env = os.environ | {"SSH_ASKPASS": str(ask), "SSH_ASKPASS_REQUIRE": "force"}
    subprocess.run(["ssh-add", "-q", key], env=env, check=True)
    it = node_of(server, library, identity_file=str(key)).session()
    await it.connect()
    assert (await it.run(Command("true"))).ok
    await it.close()
    agent.kill()
    agent.wait()


# ---------------------------------------------------------------------- over SSH: whom we trust


async def test_an_unknown_host_key(shared_server, library, tmp_path):
    node = node_of(shared_server, library, identity_file=str(shared_server.key))
    node.files = replace(node.files, home=tmp_path)
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    assert str(error).endswith("run: agentless nodes trust node1")
    assert (error.host, error.key, error.recorded) == (
        shared_server.host_field,
        public(shared_server.host_keys[0]),
        (),
    )
    assert error.fingerprint == fingerprint(shared_server.host_keys[0])


async def test_what_an_unknown_host_key_says_is_what_trusts_it(shared_server, library, tmp_path):
    node = node_of(shared_server, library, identity_file=str(shared_server.key))
    node.files = replace(node.files, home=tmp_path, known_hosts=tmp_path / "ours")
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    node.files.known_hosts.write_text(f"{error.host} {error.key}\n")
    it = node.session()
    await it.connect()
    await it.close()


async def test_a_changed_host_key(shared_server, library, tmp_path):
    node = node_of(shared_server, library, identity_file=str(shared_server.key))
    old = keygen(tmp_path / "old")
    known = tmp_path / ".ssh/known_hosts"
    known.parent.mkdir()
    known.write_text(f"{shared_server.host_field} {public(old)}\n")
    node.files = replace(node.files, home=tmp_path)
    error = await refusal(node)
    assert isinstance(error, HostKeyRejected)
    assert (error.fingerprint, error.recorded) == (fingerprint(shared_server.host_keys[0]), (fingerprint(old),))
    assert "has changed" in str(error)
    assert error.fingerprint in str(error)
    assert error.recorded[0] in str(error)
    assert f"ssh-keygen -R '{shared_server.host_field}' -f {known}" in str(error)


@pytest.mark.parametrize("kind", ["ed25519", "ecdsa", "rsa"])
async def test_the_host_key_on_record_is_the_one_asked_for(start, library, kind):
    server = start(kinds=("rsa", "ecdsa", "ed25519"))
    key = next(key for key in server.host_keys if key.name.endswith(kind))
    server.known_hosts.write_text(f"{server.host_field} {public(key)}\n")
    async with opened(node_of(server, library)):
        pass


async def test_hashed_names_in_known_hosts(start, library):
    server = start()
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", server.known_hosts], check=True, capture_output=True)
    assert "127.0.0.1" not in server.known_hosts.read_text()
    async with opened(node_of(server, library)):
        pass


async def test_a_revoked_host_key(start, library):
    server = start()
    server.known_hosts.write_text(server.known_hosts.read_text() + f"@revoked * {public(server.host_keys[0])}\n")
    assert "revoked" in str(await refusal(node_of(server, library)))


def fingerprint(key: Path) -> str:
    return subprocess.run(["ssh-keygen", "-lf", key], capture_output=True, text=True, check=True).stdout.split()[1]


# ---------------------------------------------------------------------- over SSH: the way there


async def test_an_alias_of_the_ssh_configuration(shared_server, library, tmp_path):
    (tmp_path / ".ssh/conf.d").mkdir(parents=True)
    (tmp_path / ".ssh/config").write_text("Include conf.d/*\nHost *\n  Port 1\n  User nobody\n")
    (tmp_path / ".ssh/conf.d/gpus").write_text(
        f"""
        Host gpu?
          HostName 127.0.0.1
          Port={shared_server.port}
          User root
          IdentityFile "%d/keys/{library}"
          HostKeyAlias the-gpu
          UserKnownHostsFile ~/known
        """
    )
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / library).write_bytes(shared_server.key.read_bytes())
    (tmp_path / "keys" / library).chmod(0o600)
    (tmp_path / "known").write_text(f"the-gpu {public(shared_server.host_keys[0])}\n")
    node = node_of(shared_server, library, host="gpu1", port=None)
    node.files = replace(node.files, home=tmp_path)
    it = node.session()
    await it.connect()
    assert (await it.run(Command("true"))).ok
    await it.close()


async def test_a_proxy_command(shared_server, library, tmp_path):
    relay = tmp_path / "relay.py"
    relay.write_text(
        "import os, socket, sys, threading\n"
        "s = socket.create_connection((sys.argv[1], int(sys.argv[2])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): s.sendall(data)\n"
        "    os._exit(0)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := s.recv(65536): os.write(1, data)\n"
    )
    node = node_of(shared_server, library, identity_file=str(shared_server.key))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/known_hosts").write_text(shared_server.known_hosts.read_text())
    command = f"{shlex.quote(sys.executable)} {relay} %h %p"
    (tmp_path / ".ssh/config").write_text(f"Host 127.0.0.1\n  ProxyCommand {command}\n")
    node.files = replace(node.files, home=tmp_path)
    it = node.session()
    await it.connect()
    assert (await it.run(Command("cat", stdin=b"x" * MB))).stdout == b"x" * MB
    assert any(str(relay) in line for line in processes("").values())
    await it.close()
    await until(lambda: not any(str(relay) in line for line in processes("").values()))


@pytest.fixture
def behind(start, library):
    """A node that is reached through a jump host, which it is configured as on the node or in the SSH configuration."""
    jump, target = start(), start()
    jump.known_hosts.write_text(jump.known_hosts.read_text() + target.known_hosts.read_text())
    target.authorized_keys.write_text(public(jump.key))
    node = node_of(jump, library, port=target.port)
    return jump, replace(node, tag=target.tag)


@pytest.mark.parametrize("how", ["inventory", "alias", "config"])
async def test_a_jump_host(behind, how):
    jump, node = behind
    node.config = replace(
        node.config, jump={"inventory": f"127.0.0.1:{jump.port}", "alias": "bastion", "config": None}[how]
    )
    (jump.home / ".ssh/config").write_text(
        f"Host bastion\n  HostName 127.0.0.1\n  Port {jump.port}\n"
        + "Host 127.0.0.1\n  ProxyJump bastion\n" * (how == "config")
        + "Match originalhost bastion\n ProxyJump none\n"
    )
    it = node.session()
    await it.connect()
    assert (await it.run(Command("true"))).ok
    assert len(jump.connections()) == 1
    assert len(node.processes()) == 1
    await it.close()
    await until(lambda: not jump.connections())


async def test_a_jump_host_that_does_not_answer(shared_server, library):
    silent = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    node = node_of(shared_server, library, jump=f"127.0.0.1:{silent.sockets[0].getsockname()[1]}")
    node.files = replace(node.files, connect_timeout=0.3)
    async with asyncio.timeout(2):
        errors = await asyncio.gather(*(refusal(node) for _ in range(20)))
    assert all("jump host 127.0.0.1" in str(error) for error in errors)
    silent.close()


async def test_nodes_behind_a_jump_host_share_it_and_ten_start_at_once(behind):
    jump, node = behind
    accepted, finished, most = 0, 0, 0
    ten = asyncio.Event()
    port = node.config.port

    async def relay(reader, writer):
        nonlocal accepted, most
        accepted += 1
        most = max(most, accepted - finished)
        if accepted == session_starts():
            ten.set()
        await ten.wait()
        other_reader, other_writer = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(pump(reader, other_writer), pump(other_reader, writer))

    async def connect(it):
        nonlocal finished
        await it.connect()
        finished += 1

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    node.config = replace(
        node.config, port=server.sockets[0].getsockname()[1], jump=f"127.0.0.1:{jump.port}", identity_file=None
    )
    known = jump.known_hosts.read_text()
    jump.known_hosts.write_text(known + known.replace(f":{port} ", f":{node.config.port} "))
    sessions = [node.session() for _ in range(25)]
    async with asyncio.timeout(WAIT):
        await asyncio.gather(*(connect(it) for it in sessions))
    assert (accepted, most) == (25, session_starts())
    assert len(jump.connections()) == 1
    for it in sessions[:-1]:
        await it.close()
    assert (await sessions[-1].run(Command("true"))).ok
    await sessions[-1].close()
    await until(lambda: not jump.connections())
    server.close()


def session_starts() -> int:
    return 10


async def pump(reader, writer):
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()


# ---------------------------------------------------------------------- cold start


def test_the_libraries_are_imported_when_they_are_used():
    program = "import sys, agentless.transports, agentless.session; print('asyncssh' in sys.modules, 'paramiko' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False False\n"


@pytest.mark.parametrize(("library", "other"), [SSH, SSH[::-1]])
def test_a_transport_imports_its_own_library_only(library, other):
    program = f"import sys, agentless.transports.{library}; print({other!r} in sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "False\n"
