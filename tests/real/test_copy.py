"""`agentless cp` with real nodes: there and back, by rsync and by tar, and what goes wrong on the way."""

from __future__ import annotations

import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from tests.real.cli import Cli, inventory_of, until

NAMES = [
    "plain", ".hidden", "a b", "ta\tb", "new\nline", "-rf", "*", "[a]?", "back\\slash", "q'u\"ote", "$HOME", "é",
    os.fsdecode(b"\xff\xfe"), "~", "a:b", "%41",
]  # fmt: skip
WAYS = ["rsync", "tar"]


@pytest.fixture(params=WAYS)
def way(request, lab):
    """How files travel: by what the node has."""
    if request.param == "rsync":
        yield request.param
        return
    hidden = lab.nodes["node1"].dir / "bin/rsync"
    hidden.write_text("#!/bin/sh\nexit 127\n")
    hidden.chmod(0o755)
    tar = lab.nodes["node1"].dir / "bin/tar"
    if request.param == "busybox":
        tar.write_text('#!/bin/sh\nexec busybox tar "$@"\n')
        tar.chmod(0o755)
    yield request.param
    hidden.unlink()
    tar.unlink(missing_ok=True)


@pytest.fixture
def far(lab, tmp_path):
    """A folder of the node."""
    folder = lab.nodes["node1"].dir / "far"
    folder.mkdir()
    yield folder
    shutil.rmtree(folder)


def plant(root: Path) -> Path:
    """A tree with all that a tree may have."""
    (root / "sub/empty").mkdir(parents=True)
    for number, name in enumerate(NAMES):
        (root / name).write_bytes(os.urandom(100 * number))
        (root / "sub" / (name * 3)).write_text(name, "utf-8", "surrogateescape")
    (root / "plain").chmod(0o640)
    (root / "a b").chmod(0o555)
    (root / "deep").mkdir()
    (root / "deep" / ("x" * 200)).mkdir()
    (root / "deep" / ("x" * 200) / ("y" * 200)).write_text("long")
    (root / "link").symlink_to("sub")
    (root / "links").mkdir()
    (root / "links/nowhere").symlink_to("/nonexistent/$x")
    (root / "sub/empty").chmod(0o750)
    for path in [*root.rglob("*"), root]:
        if not path.is_symlink():
            os.utime(path, (1_500_000_000, 1_500_000_000))
    return root


def tree(root: Path) -> dict[bytes, tuple[object, ...]]:
    """All that matters of what is in a folder."""
    found = {}
    for folder, folders, files in os.walk(os.fsencode(root)):
        for name in [*folders, *files, b"."]:
            path = os.path.join(folder, name)
            status = os.lstat(path)
            if stat.S_ISLNK(status.st_mode):
                content: object = os.readlink(path)
            else:
                kept = Path(os.fsdecode(path)).read_bytes() if stat.S_ISREG(status.st_mode) else b""
                content = (kept, oct(status.st_mode), int(status.st_mtime))
            found[os.path.relpath(path, os.fsencode(root))] = (content,)
    return found


@pytest.mark.parametrize("way", [*WAYS, "busybox"], indirect=True)
def test_a_tree_goes_there_and_back(agentless, far, way, tmp_path):
    source = plant(tmp_path / "so*urce")
    agentless("cp", str(source), f"node1:{far}/new")
    if way == "busybox":  # its tar makes such links last of all, when it has set the time of their folder
        os.utime(far / "new/links", (1_500_000_000, 1_500_000_000))
    assert tree(far / "new") == tree(source)
    agentless("cp", f"node1:{far}/new", str(tmp_path / "back"))
    assert tree(tmp_path / "back") == tree(source)
    assert [path.name for path in far.iterdir()] == ["new"]


def test_what_is_there_goes_below_a_folder_and_replaces_a_file(agentless, far, way, tmp_path):
    for folder in (tmp_path, far):
        (folder / "box").mkdir()
        (folder / "box/old").write_text("old")
        (folder / "file").write_text("old")
    (tmp_path / "box/new").write_text("new")
    far.joinpath("box").chmod(0o1777)
    agentless("cp", str(tmp_path / "box"), str(tmp_path / "file"), f"node1:{far}")
    agentless("cp", f"{tmp_path}/box/.", f"node1:{far}")
    (tmp_path / "file").write_text("other")
    agentless("cp", str(tmp_path / "file"), f"node1:{far}/file")
    found = {str(path.relative_to(far)) for path in far.rglob("*")}
    assert found == {"box", "box/old", "box/new", "old", "new", "file"}
    assert (far / "file").read_text() == "other"
    assert stat.S_IMODE((far / "box").stat().st_mode) == 0o1777
    back = tmp_path / "back"
    back.mkdir(0o750)
    agentless("cp", f"node1:{far}/box", f"node1:{far}/file", str(back))
    agentless("cp", f"node1:{far}/box/.", str(back))
    (far / "file").write_text("changed")
    agentless("cp", f"node1:{far}/file", str(back / "file"))
    assert {str(path.relative_to(back)) for path in back.rglob("*")} == found
    assert (back / "file").read_text() == "changed"
    assert stat.S_IMODE(back.stat().st_mode) == 0o750


def test_what_cannot_be_copied_is_a_sentence(agentless, far, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    (far / "folder").mkdir()
    (far / "file").write_text("x")
    os.mkfifo(far / "pipe")

    def fails(*words: str) -> str:
        done = agentless("cp", *words, code=None)
        assert done.code in (1, 2), done
        assert done.err.startswith("agentless: ")
        return done.err

    assert f"node1:{far}/none: no such file or folder" in fails(f"node1:{far}/none", str(tmp_path))
    assert f"{tmp_path}/none: no such file or folder" in fails(f"{tmp_path}/none", f"node1:{far}")
    assert "the parent folder does not exist" in fails(f"{tmp_path}/file", f"node1:{far}/no/file")
    assert "the parent folder does not exist" in fails(f"node1:{far}/file", f"{tmp_path}/no/file")
    assert "is a file and" in fails(f"{tmp_path}/folder", f"node1:{far}/file")
    assert "is neither a file nor a folder" in fails(f"node1:{far}/pipe", str(tmp_path))
    (far / "folder/file").mkdir()
    assert "is a folder; a file cannot replace it" in fails(f"{tmp_path}/file", f"node1:{far}/folder")
    assert "is not a folder; 2 sources need one" in fails(f"{tmp_path}/file", f"{tmp_path}/folder", f"node1:{far}/file")
    assert "are local; use NODE:PATH" in fails("a", "b")
    assert "no task 'nodeX'" in fails("nodeX:a", ".")


def megabytes(screen: str) -> float:
    """What has gone over the link, in MiB."""
    moved, unit = re.findall(r"([0-9.]+) (B|KiB|MiB) transferred", screen)[-1]
    return float(moved) / {"B": 2**20, "KiB": 2**10, "MiB": 1}[unit]


def test_a_small_change_sends_little_by_rsync(agentless, far, tmp_path):
    data = bytearray(os.urandom(5_000_000))
    (tmp_path / "big").write_bytes(data)
    agentless("cp", str(tmp_path / "big"), f"node1:{far}")
    data[2_000_000:2_000_007] = b"changed"
    (tmp_path / "big").write_bytes(data)
    code, screen = agentless.terminal("cp", str(tmp_path / "big"), f"node1:{far}", columns=300)
    assert code == 0
    assert (far / "big").read_bytes() == data
    assert megabytes(screen) < 0.1
    data[0:7] = b"changed"
    (far / "big").write_bytes(data)
    code, screen = agentless.terminal("cp", f"node1:{far}/big", str(tmp_path), columns=300)
    assert (tmp_path / "big").read_bytes() == data
    assert megabytes(screen) < 0.1


def mine(folder: Path) -> list[Path]:
    """What only agentless would call so."""
    return sorted(folder.rglob(".agentless-*"))


def copies(node) -> list[str]:
    """What runs on the node for a copy."""
    return [command for _, command in node.leftovers() if "tar" in command or "rsync" in command]


@pytest.mark.slow
@pytest.mark.parametrize("is_coming", [False, True], ids=["there", "back"])
def test_a_copy_whose_link_is_cut_is_told_and_goes_on_when_it_is_run_again(
    agentless, lab, far, way, tmp_path, is_coming
):
    near = tmp_path / "near"
    near.mkdir()
    source, target = (far, near) if is_coming else (near, far)
    with (source / "big").open("wb") as file:
        for _ in range(6):
            file.write(os.urandom(10_000_000))
    words = [f"node1:{far}/big", str(near)] if is_coming else [str(near / "big"), f"node1:{far}"]
    copy = agentless.start("cp", *words)
    until(lambda: any(path.is_file() and path.stat().st_size > 1_000_000 for path in target.rglob("*")))
    lab.nodes["node1"].kill_connections()
    _, err = copy.communicate(timeout=60)
    assert copy.returncode == 4, err
    assert "the copy was interrupted: run the command again" in err
    until(
        lambda: not [command for _, command in lab.nodes["node1"].leftovers() if "tar" in command or "rsync" in command]
    )
    assert not (target / "big").exists()
    left = mine(target)
    if way == "rsync":
        assert [path.name for path in left] == [".agentless-partial"]
    else:
        until(lambda: not mine(target))
    until(lambda: agentless.node("node1")["state"] == "online")
    code, screen = agentless.terminal("cp", *words, columns=300)
    assert code == 0
    if way == "rsync":
        assert megabytes(screen) < 57.2 - 0.9
    assert (target / "big").read_bytes() == (source / "big").read_bytes()
    assert mine(target) == []


def test_no_room_is_a_sentence_and_leaves_nothing(agentless, far, way, tmp_path):
    (tmp_path / "big").write_bytes(os.urandom(3_000_000))
    small = far / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "none", str(small)], check=True)
    try:
        done = agentless("cp", str(tmp_path / "big"), f"node1:{small}", code=1)
        assert done.err == "agentless: the disk of node1 is full\n"
        assert list(small.iterdir()) == []
        agentless("cp", f"{tmp_path}/big", f"node1:{far}")
        done = agentless("cp", f"node1:{far}/big", str(small), code=1)
        assert "disk is full" in done.err
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


def test_what_may_not_be_read_or_written_is_told_and_the_rest_is_copied(lab, far, way, tmp_path):
    login = lab.add_user(way)
    cli = Cli(lab, way, inventory_of(lab, node1=f"user: {login}"))
    try:
        far.chmod(0o755)
        (far / "mine").mkdir()
        (far / "mine/open").write_text("open")
        (far / "mine/closed").write_text("closed")
        (far / "mine/closed").chmod(0o600)
        done = cli("cp", f"node1:{far}/mine", str(tmp_path / "got"), code=1)
        assert "closed: permission denied" in done.err.lower()
        assert os.listdir(tmp_path / "got") == ["open"]
        (tmp_path / "file").write_text("x")
        done = cli("cp", str(tmp_path / "file"), f"node1:{far}/file", code=1)
        assert "permission denied" in done.err.lower()
    finally:
        cli.close()


@pytest.mark.slow
def test_files_of_a_container_running_or_ended(agentless, lab, tmp_path):
    source = plant(tmp_path / "source")
    shutil.rmtree(source / "links")
    task = agentless.submit(
        "node1", "--", "sh", "-c", "mkdir /out; echo result >/out/x; until [ -e /new/plain ]; do :; done"
    )
    agentless("cp", str(source), f"{task}:/new")
    agentless("wait", task)
    (tmp_path / "back").mkdir()
    agentless("cp", f"{task}:/new", f"{task}:/out", str(tmp_path / "back"))
    assert tree(tmp_path / "back/new") == tree(source)
    assert (tmp_path / "back/out/x").read_text() == "result\n"
    agentless("cp", f"{task}:/new/.", str(tmp_path / "back/out"))
    agentless("cp", f"{task}:/new/.", str(tmp_path / "third"))
    assert tree(tmp_path / "third") == tree(source)
    assert {*tree(tmp_path / "back/out")} == {*tree(source), b"x"}
    agentless("cp", f"{task}:/out/x", str(tmp_path / "one"))
    assert (tmp_path / "one").read_text() == "result\n"
    assert "none: no such file or folder" in agentless("cp", f"{task}:/none", ".", code=1).err
    agentless("cp", str(tmp_path / "one"), f"{task}:/out")
    agentless("cp", f"{task}:/out/one", str(tmp_path / "two"))
    assert (tmp_path / "two").read_text() == "result\n"


WARNING = "WARNING: Error loading config file: /root/.docker/config.json: unexpected end of JSON input"


@pytest.mark.slow
def test_what_the_engines_command_warns_of_fails_no_copy_and_is_nothing_that_a_task_said(lab, tmp_path):
    program = lab.nodes["node1"].dir / "bin/docker"
    program.write_text(f"#!/bin/sh\necho '{WARNING}' >&2\nexec /usr/bin/docker \"$@\"\n")
    program.chmod(0o755)
    cli = Cli(lab, "warned")
    try:
        script = "mkdir /é; echo x > /é/y; echo out; echo err >&2; until [ -e /é/stop ]; do sleep .1; done"
        task = cli.settle().submit("node1", "--", "sh", "-c", script)
        until(lambda: cli("logs", task).out == "out\n")
        assert cli("logs", task).err == "err\n"
        shell = cli("shell", task, "--", "sh", "-c", "echo out; echo err >&2")
        assert (shell.out, shell.err) == ("out\n", "err\n")
        done = cli("cp", f"{task}:/é", str(tmp_path))
        assert done.err == f"agentless: warning: {task}: {WARNING}\n"
        assert (tmp_path / "é/y").read_text() == "x\n"
        (tmp_path / "stop").write_text("")
        cli("cp", str(tmp_path / "stop"), f"{task}:/é")
        cli("wait", task)
        kept = cli("logs", task)
        assert (kept.out, kept.err) == ("out\n", "err\n")
    finally:
        program.unlink()
        cli.close()


@pytest.mark.slow
def test_a_sparse_file_stays_sparse_and_no_bit_to_write_comes_that_the_umask_forbids(agentless, far, way, tmp_path):
    with (far / "sparse").open("wb") as file:
        file.write(b"begin")
        file.truncate(200_000_000)
    (far / "open").write_text("x")
    (far / "open").chmod(0o666)
    agentless.shell(f"umask 022; agentless cp node1:{far}/sparse node1:{far}/open {tmp_path}")
    found = (tmp_path / "sparse").stat()
    assert (found.st_size, found.st_blocks * 512 < 1_000_000) == (200_000_000, True)
    assert stat.S_IMODE((tmp_path / "open").stat().st_mode) == 0o644
    (tmp_path / "open").chmod(0o666)
    agentless.shell(f"umask 002; agentless cp {tmp_path}/open node1:{far}/there")
    assert stat.S_IMODE((far / "there").stat().st_mode) == 0o664


def test_a_line_break_in_a_name_begins_no_line(agentless, far, way, tmp_path):
    name = "x\nagentless: all is well"
    (far / "box" / name / "kept").mkdir(parents=True)
    (tmp_path / "box").mkdir()
    (tmp_path / "box" / name).write_text("x")
    done = agentless("cp", str(tmp_path / "box"), f"node1:{far}", code=1)
    assert "all is well" in done.err
    assert len(done.err.splitlines()) == 1
