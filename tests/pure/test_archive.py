"""Tar streams from a node that is not trusted, and the script that takes one there."""

from __future__ import annotations

import contextlib
import io
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import CopyFailed
from agentless.formats.archive import Unpacker, pack
from agentless.paths import template_dir
from agentless.remote.node_files import NodeFiles
from agentless.render import Renderer
from tests.pure.shells import SHELLS

shells = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)


def member(name, kind=tarfile.REGTYPE, data=b"", **fields):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    for key, value in fields.items():
        setattr(info, key, value)
    return info, data


def stream(*members):
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, data in members:
            archive.addfile(info, io.BytesIO(data))
    file.seek(0)
    return file


def unpack(folder, *members, strip=0, name="new"):
    unpacker = Unpacker(str(folder), name, strip, lambda _: None)
    unpacker.unpack(stream(*members))
    return unpacker.notes


@pytest.fixture
def inside(tmp_path):
    """A folder to fill, in one that must stay as it is."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "precious").write_text("precious")
    (tmp_path / "elsewhere").mkdir()
    return tmp_path / "inside"


def is_untouched(inside):
    outside = inside.parent
    kept = (outside / "precious").read_text() == "precious" and not list((outside / "elsewhere").iterdir())
    return kept and sorted(path.name for path in outside.iterdir()) == ["elsewhere", "inside", "precious"]


@pytest.mark.parametrize("strip", [0, 1])
@pytest.mark.parametrize("name", ["../precious", "a/../../precious", "..", "a/.."])
def test_no_member_climbs_out(inside, strip, name):
    with pytest.raises(CopyFailed, match="path leads outside"):
        unpack(inside, member(name, data=b"x"), strip=strip)
    assert is_untouched(inside)


def test_an_absolute_member_is_none(inside):
    with pytest.raises(CopyFailed, match="path leads outside"):
        unpack(inside, member(str(inside.parent / "precious"), data=b"x"))
    assert is_untouched(inside)


@pytest.mark.parametrize("target", ["../../elsewhere", "{}/elsewhere", "."])
def test_nothing_goes_through_a_link(inside, target):
    link = member("a", tarfile.SYMTYPE, linkname=target.format(inside.parent))
    with pytest.raises(CopyFailed, match="is in the way: not a folder"):
        unpack(inside, link, member("a/x", data=b"x"))
    assert is_untouched(inside)
    assert not (inside / "new/x").exists()


def test_nor_through_one_that_was_there_before(inside):
    (inside / "new").symlink_to(inside.parent / "elsewhere")
    with pytest.raises(CopyFailed, match="is in the way: not a folder"):
        unpack(inside, member("x", data=b"x"))
    assert is_untouched(inside)


def test_a_file_takes_the_place_of_a_link_and_not_of_what_it_leads_to(inside):
    (inside / "new").mkdir()
    (inside / "new/a").symlink_to(inside.parent / "precious")
    unpack(inside, member("a", data=b"x"))
    assert (inside / "new/a").read_text() == "x"
    assert is_untouched(inside)


@pytest.mark.parametrize("target", ["../precious", "never", "/etc/passwd"])
def test_a_hard_link_is_to_what_was_brought_before(inside, target):
    with pytest.raises(CopyFailed):
        unpack(inside, member("a", tarfile.LNKTYPE, linkname=target))
    assert is_untouched(inside)


def test_a_hard_link_is_kept(inside):
    unpack(inside, member("./a", data=b"x"), member("./b/c", tarfile.LNKTYPE, linkname="./a"))
    assert (inside / "new/a").samefile(inside / "new/b/c")
    unpack(inside, member("./a", data=b"y"), member("./b/c", tarfile.LNKTYPE, linkname="./a"))
    assert (inside / "new/b/c").read_text() == "y"
    assert sorted(os.listdir(inside / "new")) == ["a", "b"]


@pytest.mark.parametrize("kind", [tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE])
def test_devices_and_pipes_are_left_out_and_told(inside, kind):
    (note,) = unpack(inside, member("dev", kind), member("x", data=b"x"))
    assert "a device or a pipe" in note
    assert os.listdir(inside / "new") == ["x"]


def test_no_bit_lets_a_program_run_as_its_owner(inside):
    unpack(inside, member("./", tarfile.DIRTYPE, mode=0o7755), member("su", data=b"x", mode=0o6755))
    assert stat.S_IMODE((inside / "new/su").stat().st_mode) == 0o755
    assert stat.S_IMODE((inside / "new").stat().st_mode) == 0o755


def test_modes_times_and_owners(inside):
    unpack(inside, member("./", tarfile.DIRTYPE, mode=0o550, mtime=7), member("x", mode=0o640, mtime=9.5, uid=12345))
    found = (inside / "new/x").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_mtime, found.st_uid) == (0o640, 9.5, os.getuid())
    assert (stat.S_IMODE((inside / "new").stat().st_mode), (inside / "new").stat().st_mtime) == (0o550, 7)


def test_a_folder_that_is_there_keeps_its_mode(inside):
    (inside / "new").mkdir(0o700)
    unpack(inside, member("./", tarfile.DIRTYPE, mode=0o777), member("x"))
    assert stat.S_IMODE((inside / "new").stat().st_mode) == 0o700


def test_a_file_does_not_replace_a_folder_nor_a_folder_a_file(inside):
    (inside / "new/x").mkdir(parents=True)
    (inside / "new/y").write_text("kept")
    with pytest.raises(CopyFailed, match="new/x: is a folder; a file cannot replace it"):
        unpack(inside, member("x", data=b"x"))
    with pytest.raises(CopyFailed, match="new/y: is in the way: not a folder"):
        unpack(inside, member("y/z", data=b"x"))
    assert sorted(os.listdir(inside / "new")) == ["x", "y"]


def test_half_a_file_gets_no_name(inside):
    whole = stream(member("x", data=os.urandom(100_000))).read()
    unpacker = Unpacker(str(inside), "new", 0, lambda _: None)
    with pytest.raises(CopyFailed):
        unpacker.unpack(io.BytesIO(whole[:50_000]))
    assert os.listdir(inside / "new") == []


@given(data=st.binary(max_size=3000))
@settings(max_examples=60)
def test_any_bytes_are_a_tree_or_a_sentence(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("any")
    whole = bytearray(stream(member("a", data=b"x"), member("b/c", tarfile.SYMTYPE, linkname="a")).read())
    whole[: len(data)] = bytes(a ^ b for a, b in zip(whole, data.ljust(len(data), b"\0"), strict=False))
    for junk in (data, bytes(whole)):
        with contextlib.suppress(CopyFailed):
            Unpacker(str(folder), "new", 0, lambda _: None).unpack(io.BytesIO(junk))


# ------------------------------------------------------------------------------------ there


def receive(shell, folder, name, data):
    script = NodeFiles(Renderer([template_dir()])).receive(f"{folder}/{name}", "00ff").script
    return subprocess.run([*shell, "-c", script], input=data, capture_output=True, check=False)


def packed(source, whole="whole"):
    sink = io.BytesIO()
    assert pack(sink, str(source), "t", whole=whole) == []
    return sink.getvalue()


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "source"
    (folder / "sub/deep").mkdir(parents=True)
    (folder / "sub/deep/x y").write_text("new")
    (folder / "-rf").write_text("new")
    (folder / ".hidden").write_text("new")
    (folder / "link").symlink_to("sub")
    return folder


def texts(folder: Path):
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file() and not p.is_symlink()}


@shells
def test_a_tree_is_merged_into_the_one_that_is_there(shell, source, inside):
    new = {"sub/deep/x y": "new", "-rf": "new", ".hidden": "new"}
    for expected in (new, {**new, "sub/old": "old"}):
        assert receive(shell, inside, "it's", packed(source)).returncode == 0
        assert texts(inside / "it's") == expected
        assert os.readlink(inside / "it's/link") == "sub"
        (inside / "it's/sub/old").write_text("old")
    assert os.listdir(inside) == ["it's"]


@shells
def test_what_is_not_whole_leaves_nothing(shell, source, inside):
    data = packed(source)
    for part in (data[:1500], packed(source, whole=None), b""):
        assert receive(shell, inside, "new", part).returncode != 0
        assert os.listdir(inside) == []


@shells
def test_what_is_in_the_way_stays(shell, source, inside):
    (inside / "new/sub").mkdir(parents=True)
    (inside / "new/sub/deep").write_text("kept")
    (inside / "new/-rf").mkdir()
    done = receive(shell, inside, "new", packed(source))
    assert done.returncode != 0
    assert sorted(done.stderr.decode().splitlines()) == [
        "new/-rf: is a folder; a file cannot replace it",
        "new/sub/deep: is in the way: not a folder",
    ]
    assert (inside / "new/sub/deep").read_text() == "kept"
    assert os.listdir(inside) == ["new"]


@shells
def test_a_link_that_is_there_is_replaced_and_not_followed(shell, source, inside):
    (inside / "new").symlink_to("../elsewhere")
    assert receive(shell, inside, "new", packed(source / "-rf")).returncode == 0
    assert (inside / "new").read_text() == "new"
    assert os.listdir(inside.parent / "elsewhere") == []


def test_a_file_that_becomes_shorter_while_it_is_read_is_told_and_fills_its_place(tmp_path, monkeypatch):
    (tmp_path / "x").write_bytes(b"x" * 1000)
    size = os.path.getsize(tmp_path / "x")
    gettarinfo = tarfile.TarFile.gettarinfo

    def shrinking(archive, path, name):
        info = gettarinfo(archive, path, name)
        os.truncate(path, 10)
        return info

    monkeypatch.setattr(tarfile.TarFile, "gettarinfo", shrinking)
    sink = io.BytesIO()
    (note,) = pack(sink, str(tmp_path / "x"), "t")
    assert note.endswith("shrank during the copy")
    sink.seek(0)
    with tarfile.open(fileobj=sink) as archive:
        assert archive.extractfile("t").read() == b"x" * 10 + bytes(size - 10)
