"""What is uploaded, what of it is new, what comes back: the rules, on folders and archives as they may be."""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.files.snapshot import _bodies, _Known, scan
from agentless.controller.files.packing import packed
from agentless.controller.files.sending import upload_time
from agentless.engines.docker.commands import Commands
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.files import DockerFiles
from agentless.engines.times import CLOCKS_AGREE
from agentless.errors import Refused, UsageError
from agentless.formats.tar import pulled
from agentless.model.files.file_spec import Output, Upload
from agentless.model.files.files_image import FilesImage
from agentless.model.files.snapshot import Entry, parse_snapshot, rows_of, snapshot_id
from agentless.model.files.upload_limits import MAX_FILES
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.node import EngineFacts, NodeConfig
from agentless.model.tasks.spec import Mount, TaskSpec, check_spec
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.files.changed_outputs import MOST_PIECES, changed_paths
from agentless.rules.files.container_tree import (
    MOST_COPIES,
    FileOwner,
    added,
    bytes_of,
    files_of,
    key_of,
    line_of,
    parse_file_owner,
    reused,
    tree_of,
)
from agentless.rules.submit.options import Options
from agentless.rules.submit.run import in_folder, needs_nothing
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request
from agentless.stores.files.arrivals import arrive
from agentless.stores.files.output_archive import Arrival, Unpacking
from agentless.stores.files.outputs import OutputStore
from agentless.stores.files.snapshots import SnapshotStore

SHA = hashlib.sha256(b"x").hexdigest()
FILE = Entry("file", 0o644, 1, SHA)
FOLDER = Entry("folder", 0o755)


def ask(*command: str, targets=("node1",), **options: object) -> TaskRequest:
    return task_request(
        command or ("true",), targets, Options(**options), Outside(0.0, {}, lambda _: (), "/home/ann/p")
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "p").mkdir()
    return tmp_path / "p"


def write(folder: Path, **files: str) -> None:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def paths(folder: Path) -> set[str]:
    return {path for path, entry in scan(folder, _Known(str(folder))).entries.items() if entry.kind != "folder"}


# ------------------------------------------------------------------ what is asked for


@pytest.mark.parametrize(
    ("typed", "upload"),
    [
        (".", Upload("/home/ann/p", ".")),
        ("/home/ann/p", Upload("/home/ann/p", ".")),
        ("data", Upload("/home/ann/p/data", "data")),
        ("sub/dir/", Upload("/home/ann/p/sub/dir", "dir")),
        ("../lib", Upload("/home/ann/lib", "lib")),
        ("data:/data", Upload("/home/ann/p/data", "/data")),
        ("a.txt:conf/", Upload("/home/ann/p/a.txt", "conf/a.txt")),
        ("..:here", Upload("/home/ann", "here")),
    ],
)
def test_an_upload_goes_where_people_expect_it(typed: str, upload: Upload) -> None:
    assert ask(upload=typed).spec.uploads == (upload,)


@pytest.mark.parametrize(
    ("typed", "one", "of_several"),
    [
        ("results", "/home/ann/p/results", "/home/ann/p/{id}/results"),
        ("/tmp/model.pt", "/home/ann/p/model.pt", "/home/ann/p/{id}/model.pt"),
        ("model.pt:best/", "/home/ann/p/best/", "/home/ann/p/{id}/best/"),
        ("model.pt:/x/{id}.pt", "/x/{id}.pt", "/x/{id}.pt"),
        (".", "/home/ann/p", "/home/ann/p/{id}"),
    ],
)
def test_an_output_comes_where_people_expect_it_and_several_not_over_each_other(
    typed: str, one: str, of_several: str
) -> None:
    assert ask(output=typed).spec.outputs[0].local == one
    assert ask("train", "span:{1..2}", output=typed, targets=(), gpus=1).spec.outputs[0].local == of_several


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"upload": ":x"}, "use PATH or PATH:DEST"),
        ({"upload": "x:/proc/1"}, "/proc/1 cannot hold files in a container"),
        ({"output": "/"}, "this is the whole container"),
        ({"output": "x:"}, "use PATH or PATH:LOCAL"),
        (
            {"upload": "a:/data/a", "mount": "/d:/data"},
            "/data/a is inside the mount /d:/data",
        ),
    ],
)
def test_what_cannot_be_meant_is_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        ask(**options)


def test_a_mount_elsewhere_is_in_nobodys_way() -> None:
    check_spec(TaskSpec(("true",), uploads=(Upload("/a", "/data2"),), mounts=(Mount("/d", "/data"),)))


def test_run_takes_the_folder_along_and_brings_back_what_changes_in_it() -> None:
    spec = in_folder(ask(targets=(), gpus=1), "/home/ann/my project").spec
    assert (spec.workdir, spec.uploads) == ("/workspace/my-project", (Upload("/home/ann/my project", "."),))
    assert spec.outputs == (Output(".", "/home/ann/my project", changed=True),)


@pytest.mark.parametrize(
    ("options", "targets", "nothing"),
    [({}, (), True), ({"gpus": None}, (), True), ({"gpus": 0}, (), False), ({}, ("node1",), False)],
)
def test_run_takes_a_gpu_only_where_nothing_is_said_of_what_it_needs(
    options: dict[str, object], targets: tuple[str, ...], nothing: bool
) -> None:
    assert needs_nothing(options, targets) is nothing


@pytest.mark.parametrize(
    ("asked", "several"),
    [
        (ask("t", targets=("node1",)), False),
        (ask("t", targets=("node1", "node2")), True),
        (ask("t", "span:{1..2}", targets=(), gpus=1), True),
        (ask("t", "span:{1..2}", targets=("node1",)), True),
        (ask("t", "span:{7..7}", targets=(), gpus=1), False),
    ],
)
def test_what_several_tasks_of_a_run_bring_back_goes_into_a_folder_of_each(asked: TaskRequest, several: bool) -> None:
    (output,) = in_folder(asked, "/home/ann/p").spec.outputs
    assert output.local == ("/home/ann/p/{id}" if several else "/home/ann/p")


# ------------------------------------------------------------------ what is uploaded


def test_what_git_ignores_stays_here(folder: Path) -> None:
    """Told from git itself, which is asked about the same folder."""
    write(
        folder,
        a="", b__c__d="", keep__log="", logs__x="", b__x__log="", b__logs="", top="", b__top="", n__skip__x="",
        n__deep__skip="", b__e__f="", **{"b/.gitignore": "*.log\n!keep.log\n/e/\n", "b/keep.log": "", "b/x.log": ""},
        **{".gitignore": "# words\nlogs/\n/top\n**/skip\n\\#odd\n", "#odd": "", "n/.gitignore": "!deep/skip\n"},
        **{"b/ g": "", "n/e\u0301": "", "sub/.git/config": ""},
    )  # fmt: skip
    if not shutil.which("git"):
        pytest.skip("no git here")
    subprocess.run(["git", "init", "-q", folder], check=True)
    shutil.rmtree(folder / "sub")
    (folder / ".git" / "info" / "exclude").write_text("/a\n")
    listed = subprocess.run(
        ["git", "-c", "core.quotepath=off", "-C", folder, "ls-files", "-z", "--others", "--exclude-standard"],
        check=True, capture_output=True,
    )  # fmt: skip
    assert paths(folder) == set(listed.stdout.decode().split("\0")[:-1])
    below = subprocess.run(
        ["git", "-C", folder / "b", "ls-files", "-z", "--others", "--exclude-standard"], check=True, capture_output=True
    )
    assert paths(folder / "b") == set(below.stdout.decode().split("\0")[:-1])


def test_a_pattern_that_is_none_ignores_nothing(folder: Path) -> None:
    """As it does for git."""
    write(folder, a="a", b="b", **{".gitignore": "[z-a]\nb\n\\\n"})
    assert paths(folder) == {"a", ".gitignore"}


def test_a_folder_that_is_named_is_uploaded_also_where_git_ignores_it(folder: Path) -> None:
    write(folder, data__x="", data__y="", **{".gitignore": "data\n", "data/.gitignore": "y\n", ".git/HEAD": ""})
    assert paths(folder / "data") == {".gitignore", "x"}


def test_links_stay_links_and_what_is_no_file_is_left_out_and_said(folder: Path) -> None:
    write(folder, a="x")
    (folder / "in").symlink_to("a")
    (folder / "out").symlink_to("/etc/passwd")
    subprocess.run(["mkfifo", folder / "pipe"], check=True)
    found = scan(folder, _Known(str(folder)))
    assert {path: e.content for path, e in found.entries.items() if path} == {"a": SHA, "in": "a", "out": "/etc/passwd"}
    assert found.notes == [
        "out is a link to /etc/passwd, which is not part of the upload",
        "skipped pipe: not a file",
    ]


def test_what_is_too_much_is_refused_with_another_way(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, a="xxx", b="")
    monkeypatch.setattr("agentless.client.files.snapshot.MAX_BYTES", 2)
    with pytest.raises(UsageError, match=r"more than 2 B to upload; .* --mount, or exclude files"):
        scan(folder, _Known(str(folder)))
    with pytest.raises(UsageError, match="No such file"):
        scan(folder / "nope", _Known("nope"))


def test_folders_far_below_each_other_are_refused_and_not_lost_in(folder: Path) -> None:
    """Some hundred more, and Python would give up."""
    os.makedirs(folder / "/".join("d" * 300))
    with pytest.raises(UsageError, match="more than 256 nested folders; copy data to the nodes"):
        scan(folder, _Known(str(folder)))


def test_a_file_is_read_again_only_when_it_may_have_changed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(folder, a="x")
    monkeypatch.setattr("agentless.client.files.snapshot._SETTLED", -10.0)
    with _Known(str(folder)) as known:
        scan(folder, known)
    (memory,) = (folder.parent / "state" / "agentless" / "read").iterdir()
    memory.write_text(memory.read_text().replace(SHA, "f" * 64))
    with _Known(str(folder)) as known:
        assert scan(folder, known).entries["a"].content == "f" * 64
    write(folder, a="y")
    with _Known(str(folder)) as known:
        assert scan(folder, known).entries["a"].content == hashlib.sha256(b"y").hexdigest()


@pytest.mark.parametrize(
    "rows",
    [
        [["", "d", 0o755, 0, ""], ["../x", "f", 0o644, 1, SHA]],
        [["", "d", 0o755, 0, ""], ["/x", "f", 0o644, 1, SHA]],
        [["", "d", 0o755, 0, ""], ["a/x", "f", 0o644, 1, SHA]],
        [["", "d", 0o755, 0, ""], ["l", "l", 0, 0, "/etc"], ["l/x", "f", 0o644, 1, SHA]],
        [["", "d", 0o755, 0, ""], ["x", "f", 0o644, 1, "../../etc/passwd"]],
        [["", "d", 0o755, 0, ""], ["x", "c", 0o644, 1, SHA]],
        [["x", "f", 0o644, 1, SHA]],
        [["", "f", 0o644, 2 << 30, SHA]],
    ],
)
def test_a_snapshot_that_leads_elsewhere_is_none(rows: list[list[object]]) -> None:
    with pytest.raises(UsageError):
        parse_snapshot(rows)


ROOT = ["", "d", 0o755, 0, ""]


@pytest.mark.parametrize(
    "row",
    [
        ["x", "f", 0o644, -1, SHA],
        ["x", "f", 0o644, 1, "abc"],
        ["x", "?", 0o644, 1, SHA],
        ["x", "f", 0o644, 1],
        ["a\0b", "f", 0o644, 1, SHA],
        ["./x", "f", 0o644, 1, SHA],
        ["", "d", 0o755, 0, ""],
    ],
)
def test_what_is_no_line_of_a_snapshot_is_said(row: list[object]) -> None:
    with pytest.raises(UsageError, match="is not a line of a snapshot"):
        parse_snapshot([ROOT, row])


def test_a_file_may_be_empty_and_its_mode_has_nine_bits() -> None:
    assert parse_snapshot([ROOT, ["x", "f", 0o104755, 0, SHA]])["x"] == Entry("file", 0o755, 0, SHA)


def test_so_many_files_and_bytes_are_uploaded_and_no_more() -> None:
    rows = [ROOT, *([f"{number}", "l", 0, 0, "x"] for number in range(MAX_FILES - 1))]
    assert len(parse_snapshot(rows)) == MAX_FILES
    with pytest.raises(UsageError, match="more than 50,000 files"):
        parse_snapshot([*rows, ["x", "l", 0, 0, "x"]])
    assert parse_snapshot([ROOT, ["x", "f", 0, 1 << 30, SHA]])
    with pytest.raises(UsageError, match="more than 1 GiB"):
        parse_snapshot([ROOT, ["x", "f", 0, 1 << 30, SHA], ["y", "f", 0, 1, SHA]])


def test_a_snapshot_begins_with_what_it_is_of() -> None:
    assert parse_snapshot([["", "f", 0o644, 1, SHA]])
    with pytest.raises(UsageError, match="must begin with its own folder or file"):
        parse_snapshot([])


def test_a_snapshot_has_an_id_whatever_its_names_are() -> None:
    """A name that is no text comes from the disk as surrogates."""
    assert len({snapshot_id({"": FOLDER, name: FILE}) for name in ("a", "\u00e4", "\udce4")}) == 3


def test_a_snapshot_is_kept_as_long_as_a_task_needs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = SnapshotStore(tmp_path / "s")
    snapshot = {"": FOLDER, "a": FILE}
    name, missing = store.put(snapshot)
    assert missing == [SHA]
    writer = store.writer(SHA)
    writer.write(b"y")
    assert not writer.finish()
    writer = store.writer(SHA)
    writer.write(b"x")
    assert writer.finish()
    assert store.put(snapshot) == (name, [])
    monkeypatch.setattr("agentless.stores.files.snapshots.KEPT", -1.0)
    store.shrink({name})
    assert parse_snapshot(rows_of(store.get(name))) == snapshot
    store.shrink(())
    with pytest.raises(Refused, match="submit again"):
        store.get(name)
    assert not store.content(SHA).exists()


# ------------------------------------------------------------------ what is sent

entries = st.sampled_from([FILE, Entry("file", 0o755, 1, SHA), Entry("link", 0o777, 0, "a")])
trees = st.dictionaries(st.sampled_from(["/w/a", "/w/b", "/w/d/a", "/w/d/b"]), entries)


@given(trees, trees)
def test_what_is_new_over_what_was_there_is_what_there_is_to_be(
    before: dict[str, Entry], now: dict[str, Entry]
) -> None:
    more = added(before, now)
    if more is None:
        assert any(path not in now or now[path].kind != entry.kind for path, entry in before.items())
    else:
        assert {**before, **more} == now
        assert all(before.get(path) != entry for path, entry in more.items())


folders = st.sampled_from(["/w", "/w/d", "/w/d/e", "/w/f"])


@given(trees, trees, st.sets(folders), st.sets(folders))
def test_what_is_copied_and_what_is_sent_are_what_there_is_to_be(
    before: dict[str, Entry], now: dict[str, Entry], had: set[str], have: set[str]
) -> None:
    """And nothing that is gone comes along."""
    before, now = ({**tree, **dict.fromkeys(some, FOLDER)} for tree, some in ((before, had), (now, have)))
    copies, sent = reused(before, now)
    copied = {p: e for p, e in before.items() if any(p == copy or p.startswith(f"{copy}/") for copy in copies)}
    assert {**sent, **copied} == now
    assert not any(copied.get(path) == entry for path, entry in sent.items())


def test_of_a_folder_where_something_is_gone_the_folders_below_are_copied() -> None:
    before = {"/w": FOLDER, "/w/gone": FILE, "/w/a": FILE, "/w/d": FOLDER, "/w/d/x": FILE, "/w/e": FOLDER}
    now = {path: entry for path, entry in before.items() if path != "/w/gone"} | {"/w/d/new": FILE}
    assert reused(before, now) == (
        ("/w/d",), {"/w": FOLDER, "/w/a": FILE, "/w/e": FOLDER, "/w/d/new": FILE},
    )  # fmt: skip


@pytest.mark.parametrize(("count", "copied"), [(MOST_COPIES, MOST_COPIES), (MOST_COPIES + 1, 0)])
def test_where_too_many_folders_would_be_copied_all_is_sent(count: int, copied: int) -> None:
    tree = {"/w/gone": FILE}
    for number in range(count):
        tree |= {f"/w/{number}": FOLDER, f"/w/{number}/x": FILE}
    now = {path: entry for path, entry in tree.items() if path != "/w/gone"}
    copies, sent = reused(tree, now)
    assert (len(copies), sent) == (copied, {} if copied else now)


def test_what_is_sent_is_told_by_its_files_and_bytes() -> None:
    tree = {"/w": FOLDER, "/w/d": FOLDER, "/w/a": FILE, "/w/b": FILE, "/w/l": Entry("link", 0o777, 0, "a")}
    assert (files_of(tree), bytes_of(tree)) == (3, 2)


def test_the_names_of_files_in_an_image_stay_what_they_were() -> None:
    """With other names, everything would be sent again after an update, and what is there would never be removed."""
    assert key_of({"/a": FILE}, FileOwner(7, 8), "busybox") == "7576a111e953f0d49b9dbfb7"
    assert line_of("c1", "ann@x", [Upload("/h/p", ".")]) == "ce62d6f7b7e17021"


def test_folders_of_the_image_stay_as_they_are_and_two_uploads_do_not_fight() -> None:
    tree = tree_of([(Upload("/h", "/"), {"": FOLDER, "etc": FOLDER, "etc/x": FILE})], "/w")
    assert tree == {"/etc/x": FILE}
    with pytest.raises(UsageError, match="/w/a would be both a file and a folder"):
        tree_of([(Upload("/h", "a"), {"": FILE}), (Upload("/g", "a"), {"": FOLDER})], "/w")


def test_files_of_another_image_or_user_are_others() -> None:
    keys = {key_of({"/a": FILE}, owner, image) for owner in (FileOwner(), FileOwner(1)) for image in ("i", "j")}
    assert len(keys | {key_of({"/a": FOLDER}, FileOwner(), "i")}) == 5


@pytest.mark.parametrize(
    ("user", "owner"),
    [
        ("", FileOwner()),
        ("1000:100", FileOwner(1000, 100)),
        ("7", FileOwner(7)),
        ("ann", None),
        ("1000:ann", FileOwner(1000)),
        ("999999999:999999999", FileOwner(999999999, 999999999)),
        ("1000000000", None),
        ("7:1000000000", FileOwner(7)),
        ("٣", None),
        ("7:٣", FileOwner(7)),
        (":7", FileOwner()),
    ],
)
def test_the_owner_is_known_by_number(user: str, owner: FileOwner | None) -> None:
    assert parse_file_owner(user) == owner


def test_what_is_sent_is_an_archive_that_cannot_be_cut_off_unnoticed(tmp_path: Path) -> None:
    (tmp_path / SHA).write_bytes(b"x")
    tree = {"/w": FOLDER, "/w/a": FILE, "/w/l": Entry("link", 0o777, 0, "a"), "/w/" + "é" * 90: FILE}
    sent = b"".join(packed(tree, FileOwner(7, 8), tmp_path.joinpath, 9))
    with tarfile.open(fileobj=io.BytesIO(sent), mode="r:gz") as tar:
        found = {member.name: (member.mode, member.uid, member.gid, member.linkname) for member in tar}
    assert found == {
        "w": (0o755, 7, 8, ""), "w/a": (0o644, 7, 8, ""), "w/l": (0o777, 7, 8, "a"), "w/" + "é" * 90: (0o644, 7, 8, ""),
    }  # fmt: skip
    for end in range(1, len(sent), 7):
        with pytest.raises((EOFError, gzip.BadGzipFile)):
            gzip.decompress(sent[: len(sent) - end])


@pytest.mark.parametrize("clock", [None, -7200.25, 0.0, 3.5])
def test_uploaded_files_are_older_than_all_that_a_task_writes(clock: float | None) -> None:
    """By the node's clock, which is known to a second: `docker diff` passes over a file of the same size and second."""
    engine = None if clock is None else EngineFacts(clock=clock)
    written = 1_000.0 + (clock or 0.0) - CLOCKS_AGREE
    assert upload_time(1_000.0, Observation(engine=engine)) < int(written)


def test_a_file_that_changes_while_it_is_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"y")
    with pytest.raises(UsageError, match="/a changed during the upload"):
        list(_bodies(tmp_path, {SHA: "a"}, {"a": FILE}))


@pytest.mark.parametrize("shell", [["dash"], ["bash"], ["busybox", "sh"]], ids=" ".join)
@pytest.mark.parametrize("broken", ["", "create", "cp", "commit"])
def test_an_image_is_made_of_all_files_or_not_at_all_and_nothing_else_is_left(
    tmp_path: Path, shell: list[str], broken: str
) -> None:
    """Run by real shells, with a stand-in that reads as the engine does, to which nothing is an empty archive."""
    docker, got = tmp_path / "docker", tmp_path / "got"
    docker.write_text(
        f'#!/bin/sh\necho "$*" >>{tmp_path}/said\n[ "$1" != "{broken}" ] || exit 9\n'
        f'[ "$1" != cp ] || {{ cat >{got}; [ ! -s {got} ] || gzip -t <{got}; }}\n'
    )
    docker.chmod(0o755)
    image = FilesImage("a" * 16, "b" * 24, 0xC0FFEE)
    script = (
        DockerFiles(Commands(NodeConfig("node1", "h", docker=(str(docker),)), Renderer([template_dir()]), DOCKER))
        .make("base", image, "mark")
        .text()
    )
    packed = b"\n" + gzip.compress(b"x" * 10_000)
    for sent in (packed, packed[:-1], b""):
        (tmp_path / "said").write_text("")
        # The script is an argument, as it is a word of the shell that reads its input after it.
        ran = subprocess.run([*shell, "-c", script], input=sent, capture_output=True, check=False)
        said = [line.split()[0] for line in (tmp_path / "said").read_text().splitlines()]
        whole = not broken and sent == packed
        assert (ran.returncode == 0, "commit" in said) == (whole, whole or (broken == "commit" and sent == packed))
        assert (b"mark;" in ran.stdout) == (broken != "create")
        assert said[-1] == ("create" if broken == "create" else "rm")


# ------------------------------------------------------------------ what comes back


def test_what_has_changed_is_told_by_its_topmost_paths() -> None:
    diff = (
        "C /workspace\nC /workspace/p\nA /workspace/p/new\nA /workspace/p/new/x\nC /workspace/p/sub\n"
        "C /workspace/p/sub/file\nD /workspace/p/sub/gone\nC /workspace/p/only-less\nD /workspace/p/only-less/x\n"
        "A /workspace/p/__pycache__\nA /workspace/p/sub/a b\nA /etc/x\nA /workspace/pp\n"
    )
    assert changed_paths(diff, "/workspace/p") == ("new", "sub/a b", "sub/file")
    many = "".join(f"A /w/{n}\n" for n in range(300))
    assert changed_paths(many, "/w") == (".",)
    most = many[: many.index(f"A /w/{MOST_PIECES}\n")]
    assert len(changed_paths(most, "/w")) == MOST_PIECES
    assert changed_paths("A /w\nA /w/x", "/w") == (".",)


@pytest.mark.parametrize(
    "line", ["A /w/../../evil", "C /w/..", "A /w/x\nA /w/..\nC", "A /w/x\ny", "evil", "A ", "A /w//x"]
)
def test_a_line_that_no_path_makes_leads_nowhere(line: str) -> None:
    """The node says what has changed, and the task how its files are called."""
    assert changed_paths(f"C /w\nA /w/a\n{line}\n", "/w") == (".",)
    assert changed_paths("A /w/one\u2028two\n", "/w") == ("one\u2028two",)


def archive(path: Path, *members: tuple[str, object]) -> Path:
    """A tar archive of these: text for a file, `->…` for a link, `=>…` for a hard link, a number for an odd type."""
    with tarfile.open(path, "w") as tar:
        for name, what in members:
            info = tarfile.TarInfo(name)
            info.mode = 0o4777
            if what is None:
                info.type = tarfile.DIRTYPE
            elif isinstance(what, bytes):
                info.type = what
            elif str(what).startswith("->"):
                info.type, info.linkname = tarfile.SYMTYPE, str(what)[2:]
            elif str(what).startswith("=>"):
                info.type, info.linkname = tarfile.LNKTYPE, str(what)[2:]
            else:
                info.size = len(str(what))
            tar.addfile(info, io.BytesIO(str(what).encode()) if info.size else None)
    return path


def unpack(archive: Path, top: Path) -> Arrival:
    unpacking = Unpacking(top, "")
    with archive.open("rb") as file:
        pulled(unpacking.reading(), file.read)
    return unpacking.arrival


@pytest.mark.parametrize(
    "members",
    [
        [("../evil", "x")],
        [("r/../../evil", "x")],
        [("/evil", "x")],
        [("r", None), ("r/l", "->/"), ("r/l/evil", "x")],
        [("r", None), ("r/l", "->../.."), ("r/l/evil", "x")],
        [("r", None), ("r/s", None), ("r/a/b/c/l", "->../../../s"), ("r/m", "->a/b/c/l/../..")],
        [("r", None), ("r/h", "=>../../secret")],
        [("r", None), ("r/h", "=>/etc/passwd")],
        [("r", None), ("r/dev", tarfile.CHRTYPE), ("r/pipe", tarfile.FIFOTYPE), ("r/block", tarfile.BLKTYPE)],
        [("r", "->/etc/passwd")],
    ],
    ids=str,
)
def test_nothing_of_a_hostile_archive_leaves_its_folder(tmp_path: Path, members: list[tuple[str, object]]) -> None:
    (tmp_path / "secret").write_text("s")
    room, local = tmp_path / "room", tmp_path / "here" / "local"
    room.mkdir()
    store = OutputStore(tmp_path / "o.sqlite")
    arrival = unpack(archive(tmp_path / "a.tar", *members), room / "new")
    arrive(room / "new", local, "t1", store, {}, [arrival])
    assert sorted(path.name for path in tmp_path.iterdir() if "sqlite" not in path.name) in (
        ["a.tar", "here", "room", "secret"], ["a.tar", "room", "secret"],
    )  # fmt: skip
    for path in tmp_path.glob("here/**/*"):
        assert path.resolve().is_relative_to(tmp_path / "here")
        assert path.is_symlink() or path.is_dir() or path.is_file()
    store.close()


def test_an_output_keeps_modes_without_the_dangerous_bits_and_links_inside(tmp_path: Path) -> None:
    store = OutputStore(tmp_path / "o.sqlite")
    made = archive(tmp_path / "a.tar", ("r", None), ("r/x", "text"), ("r/l", "->x"), ("r/h", "=>r/x"))
    placed = arrive(tmp_path / "n", tmp_path / "l", "t1", store, {}, [unpack(made, tmp_path / "n")])
    assert placed.words == "3 files, 9 B"
    assert (tmp_path / "l" / "x").stat().st_mode & 0o7777 == 0o755
    assert ((tmp_path / "l" / "l").read_text(), (tmp_path / "l" / "h").read_text()) == ("text", "text")
    store.close()


def test_what_is_somebodys_own_is_not_written_over(tmp_path: Path) -> None:
    """What was uploaded or came from an output is replaced, as long as it is as it was."""
    store, local = OutputStore(tmp_path / "o.sqlite"), tmp_path / "l"

    def bring(task: str, text: str, known: dict[str, str] | None = None) -> str:
        made = archive(tmp_path / "a.tar", ("r", None), ("r/x", text))
        shutil.rmtree(tmp_path / "n", ignore_errors=True)
        return arrive(tmp_path / "n", local, task, store, known or {}, [unpack(made, tmp_path / "n")]).words

    assert bring("t1", "one") == "1 file, 3 B"
    assert bring("t2", "two") == "1 file, 3 B"
    assert bring("t2", "two") == "no new or changed files"
    (local / "x").write_text("mine")
    assert bring("t3", "three") == "1 file, 5 B; kept your changes; saved the task's files beside them: x.t3"
    assert ((local / "x").read_text(), (local / "x.t3").read_text()) == ("mine", "three")
    assert bring("t4", "four", {str(local / "x"): hashlib.sha256(b"mine").hexdigest()}) == "1 file, 4 B"
    (local / "x").unlink()
    (tmp_path / "elsewhere").write_text("theirs")
    (local / "x").symlink_to("../elsewhere")
    bring("t5", "five")
    assert ((tmp_path / "elsewhere").read_text(), (local / "x.t5").read_text()) == ("theirs", "five")
    store.close()
