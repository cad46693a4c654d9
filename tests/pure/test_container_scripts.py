"""The scripts that run in a container, by real shells: programs that connect with a port, and files in lines."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.model.command import escaped
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.pure.shells import SHELLS

CARRIER, RELAY, LISTEN, FILES, WRITE = (
    Renderer([template_dir()]).script(f"container-{name}.sh.j2")
    for name in ("carrier", "relay", "listen", "files", "write")
)
WITHIN = 30
RELAYS = ("perl", "socat", "bash", "nc")


@pytest.fixture(params=SHELLS, ids=" ".join)
def shell(request: pytest.FixtureRequest) -> list[str]:
    if shutil.which(request.param[0]) is None:
        pytest.skip(f"no {request.param[0]} here")
    return list(request.param)


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets, with `!` at the end of it."""

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.settimeout(WITHIN)
                data = connection.recv(65536)
                connection.sendall(data + b"!")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def only(folder: Path, *programs: str) -> dict[str, str]:
    """An environment in which there are these programs, and what the scripts need beside them."""
    busybox = shutil.which("busybox")
    for name in (
        "cat",
        "dd",
        "head",
        "stat",
        "mv",
        "rm",
        "mkdir",
        "rmdir",
        "chmod",
        "touch",
        "ls",
        "xargs",
        "readlink",
        "ln",
    ):
        (folder / name).symlink_to(busybox or "")
    for name in programs:
        found = busybox if name == "nc" else shutil.which(name)
        if found is None:
            pytest.skip(f"no {name} here")
        (folder / name).symlink_to(found)
    return {"PATH": str(folder)}


def run(shell: list[str], script: str, data: bytes, env: dict[str, str]) -> subprocess.CompletedProcess[bytes]:
    argv = [shutil.which(shell[0]) or "", *shell[1:], "-c", script]
    return subprocess.run(argv, input=data, env=env, capture_output=True, timeout=WITHIN, check=False)


@pytest.mark.parametrize("program", RELAYS)
def test_each_program_connects_with_a_port(shell: list[str], program: str, echo: int, tmp_path: Path) -> None:
    done = run(shell, RELAY, f"127.0.0.1 {echo}\nhello".encode(), only(tmp_path, program))
    assert done.stdout == b"+hello!", done


def test_what_carries_many_connections_is_one_of_them_without_python3(
    shell: list[str], echo: int, tmp_path: Path
) -> None:
    done = run(shell, CARRIER, f"127.0.0.1 {echo}\nhello".encode(), only(tmp_path, "perl"))
    assert done.stdout == b".+hello!", done


@pytest.mark.parametrize("program", ["perl", "bash"])
def test_a_port_that_nobody_listens_on_has_a_reason(shell: list[str], program: str, tmp_path: Path) -> None:
    done = run(shell, RELAY, b"127.0.0.1 1\n", only(tmp_path, program))
    assert done.stdout.startswith(b"-")
    assert b"refused" in done.stdout.lower()


def test_without_any_program_it_says_which_it_needs(shell: list[str], tmp_path: Path) -> None:
    if shell[0] == "busybox":
        pytest.skip("it is nc itself")
    done = run(shell, RELAY, b"127.0.0.1 1\n", only(tmp_path))
    assert done.stdout == b"-needs python3, perl, socat, bash or nc in the container"


def test_one_that_is_never_needed_ends_with_its_input(shell: list[str], tmp_path: Path) -> None:
    for program in ("perl", "bash"):
        folder = tmp_path / program
        folder.mkdir()
        assert run(shell, RELAY, b"", only(folder, program)).stdout == b""


# ---------------------------------------------------------------------- the user's agent


@pytest.mark.parametrize("program", ["python3", "perl"])
def test_the_socket_of_an_agent_carries_connections_and_is_gone_at_the_end(
    shell: list[str], program: str, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    env = only(tmp_path / "bin", program) | {"TMPDIR": str(tmp_path)}
    argv = [shutil.which(shell[0]) or "", *shell[1:], "-c", LISTEN]
    with subprocess.Popen(argv, env=env, stdin=-1, stdout=-1, bufsize=0) as running:
        assert running.stdin
        assert running.stdout
        running.stdin.write(b"agent\n")
        path = Path(running.stdout.readline()[1:-1].decode())
        assert (path.parent.stat().st_mode, path.stat().st_mode) == (0o40700, 0o140600)
        first, second = (socket.socket(socket.AF_UNIX) for _ in range(2))
        for number, connection in ((1, first), (2, second)):
            connection.settimeout(WITHIN)
            connection.connect(str(path))
            assert running.stdout.read(9) == struct.pack("!IBI", number, 0, 0)
        second.sendall(b"asked")
        assert running.stdout.read(14) == struct.pack("!IBI", 2, 1, 5) + b"asked"
        first.shutdown(socket.SHUT_WR)
        assert running.stdout.read(9) == struct.pack("!IBI", 1, 2, 0)
        frames = struct.pack("!IBI", 2, 1, 8) + b"answered" + struct.pack("!IBI", 2, 3, 0)
        running.stdin.write(frames[:12])
        running.stdin.write(frames[12:])
        assert second.recv(99, socket.MSG_WAITALL) == b"answered"
        running.stdin.close()
        assert running.wait(WITHIN) == 0
        first.close()
        second.close()
    assert not path.parent.exists()


# ---------------------------------------------------------------------- files


class Files:
    """Requests to the file server in lines, and its answers."""

    def __init__(self, shell: list[str], env: dict[str, str], folder: Path) -> None:
        self._shell, self._env, self.folder = shell, env, folder

    def __call__(self, *requests: tuple[bytes | str, ...]) -> list[tuple[int, bytes]]:
        lines = [b" ".join([_bytes(words[0]), *(escaped(_bytes(word)) for word in words[1:])]) for words in requests]
        script = FILES[FILES.index("printf -\n") :]  # not the sftp-server of this machine
        done = run(self._shell, script, b"\n".join([b"MARK", *lines, b""]), self._env)
        assert done.stdout.startswith(b"-"), done
        found = []
        for answer in done.stdout[1:].split(b";")[:-1]:
            output, _, code = answer.rpartition(b"MARK")
            found.append((int(code), output))
        return found


def _bytes(word: bytes | str) -> bytes:
    return word if isinstance(word, bytes) else word.encode()


@pytest.fixture
def files(shell: list[str], tmp_path: Path) -> Files:
    (tmp_path / "bin").mkdir()
    (tmp_path / "root").mkdir()
    return Files(shell, only(tmp_path / "bin"), tmp_path / "root")


ODD = [b"-dash", b"two words", b"line\nbreak", b"\xff\xfe", b"$(touch x)", b"`touch x`", b"'quote\"", b"%s\\0101", b"*"]


@pytest.mark.parametrize("name", ODD)
def test_a_name_may_be_anything(files: Files, name: bytes) -> None:
    path = os.fsencode(files.folder) + b"/" + name
    answers = files(("exclusive", path), ("write", path, b"a\0b\n"), ("read", path, "0"), ("list", str(files.folder)))
    assert [code for code, _ in answers] == [0, 0, 0, 0]
    assert answers[2][1] == b"a\0b\n"
    assert answers[3][1].endswith(b" ./" + name + b"/\n")
    assert os.listdir(os.fsencode(files.folder)) == [name]
    assert files(("remove", path)) == [(0, b"")]
    assert os.listdir(files.folder) == []


def test_what_fails_has_an_exit_code_and_a_reason(files: Files) -> None:
    at = str(files.folder)
    answers = files(("stat", f"{at}/no"), ("rmdir", f"{at}/no"), ("read", f"{at}/no", "0"), ("wipe", at), ("pwd",))
    assert [code == 0 for code, _ in answers] == [False, False, False, False, True]
    assert all(b"No such file" in words for _, words in answers[:3])
    assert answers[3][1] == b"Operation not supported\n"


def test_a_rename_takes_no_others_place_and_a_replacement_does(files: Files) -> None:
    one, two = (files.folder / name for name in ("one", "two"))
    one.write_text("1")
    two.write_text("2")
    [(code, words)] = files(("rename", str(one), str(two)))
    assert (code, words) == (1, b"File exists\n")
    assert files(("replace", str(one), str(two))) == [(0, b"")]
    assert two.read_text() == "1"


@pytest.mark.parametrize(("before", "start"), [(0, 0), (100, 100), (70_000, 70_000), (70_000, 65_536), (9, 4)])
def test_writing_begins_where_it_is_told_and_leaves_the_rest(
    shell: list[str], before: int, start: int, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    file, old, new = tmp_path / "two words", os.urandom(before), os.urandom(150_000)
    file.write_bytes(old)
    line = b"%s %d %d\n" % (escaped(os.fsencode(file)), *divmod(start, 65536))
    assert run(shell, WRITE, line + new, only(tmp_path / "bin")).returncode == 0
    assert file.read_bytes() == old[:start] + new
