"""What tasks bring back does not wait for what others bring, and what can never come is said once."""

from __future__ import annotations

import tarfile

import pytest

from agentless.rules.tasks.retention import AT_ONCE
from tests.real.cli import until
from tests.real.test_workspace import Person


@pytest.fixture
def ann(lab, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    cli = Person(lab, folder)
    yield cli.settle()
    cli.close()


@pytest.fixture
def program(lab):
    """Puts a program before those of node1."""
    made = []

    def put(name: str, script: str) -> None:
        path = lab.nodes["node1"].dir / "bin" / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        made.append(path)

    yield put
    for path in made:
        path.unlink()


def output(ann, task: str) -> dict:
    (found,) = ann.task(task)["outputs"]
    return found


WORDS = ("node1", "--gpus", "0", "--workdir", "/w", "--output")


@pytest.mark.slow
def test_a_large_sparse_file_and_a_copy_that_hangs_delay_nobody(ann, program, tmp_path):
    """Neither what others bring nor their logs; whoever waits is told for whom."""
    go, begin = tmp_path / "go", tmp_path / "begin"
    wait = "until [ -e {} ]; do sleep .1; done"
    held = f"*cp*:/w/stuck*) {wait.format(go)} ;; *cp*:/w/big*) {wait.format(begin)} ;;"
    program("docker", f'case "$*" in {held} esac\nexec /usr/bin/docker "$@"')
    stuck = ann.submit_here(*WORDS, "stuck", "--", "sh", "-c", "echo said; echo x > stuck")
    until(lambda: output(ann, stuck)["words"] == "copying")
    sparse = ann.submit_here(*WORDS, "big", "--", "sh", "-c", "truncate -s 100M big; echo end >> big")
    small = ann.submit_here(*WORDS, "small", "--", "sh", "-c", "echo small > small")
    ann.here("wait", small)
    assert (ann.folder / "small").read_text() == "small\n"
    assert output(ann, sparse)["state"] == "coming"
    begin.touch()
    until(lambda: list(ann.state.glob(f"logs/**/*{stuck}*")))
    more = [ann.submit_here(*WORDS, "stuck", "--", "sh", "-c", "echo x > stuck") for _ in range(AT_ONCE)]
    until(lambda: output(ann, more[-1])["words"].startswith("waiting for the outputs of task "))
    assert f"outputs  stuck: waiting for the outputs of task {stuck}" in ann.here("show", more[-1]).out
    ann.here("wait", sparse)
    big = (ann.folder / "big").stat()
    assert (big.st_size, big.st_blocks * 512 < 1 << 20) == ((100 << 20) + 4, True)
    go.touch()
    ann.here("wait", *more)


def member(name, kind=tarfile.REGTYPE, data=b""):
    info = tarfile.TarInfo(name)
    info.type, info.size = kind, len(data)
    return info.tobuf(tarfile.GNU_FORMAT) + data + bytes(-len(data) % tarfile.BLOCKSIZE)


CHAINED = member("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"r/x") * 3000
GARBAGE = member("r/x", data=b"x") + b"\1" * tarfile.BLOCKSIZE + member("r/y", data=b"y")
LEVELS = b"".join(member("r" + "/d" * depth, tarfile.DIRTYPE) for depth in (1, 2, 3000)) + member("r/x", data=b"x")


@pytest.mark.parametrize(
    ("archive", "state", "words"),
    [
        (CHAINED, "missing", "invalid archive: a member has more than 16 extended headers"),
        (GARBAGE, "missing", "invalid archive: damaged: unreadable header"),
        (LEVELS, "here", "1 file, 1 B; skipped: d/d/d"),
        (member("r/" + "n" * 256, data=b"x"), "here", "no new or changed files; skipped: nnnn"),
    ],
    ids=["chained headers", "garbage in the middle", "3,000 levels", "a long name"],
)
@pytest.mark.slow
def test_what_can_never_be_unpacked_is_said_once(ann, program, tmp_path, archive, state, words):
    (tmp_path / "archive").write_bytes(archive + bytes(1024))
    asked = tmp_path / "asked"
    give = f"echo >> {asked}; cat {tmp_path}/archive; exit 0"
    program("docker", f'case "$*" in *cp*:/w/bad*) {give} ;; esac\nexec /usr/bin/docker "$@"')
    task = ann.submit_here(*WORDS, "bad", "--", "true")
    said = ann.here("wait", task, code=None).err
    found = output(ann, task)
    assert (found["state"], found["words"][: len(words)]) == (state, words)
    assert words in said
    assert "warning" not in ann.here("ps").err
    assert asked.read_text() == "\n"


@pytest.mark.slow
def test_a_file_of_a_tebibyte_of_zeros_is_refused_and_the_limit_is_told(ann):
    task = ann.submit_here(*WORDS, "huge", "--", "truncate", "-s", "1024G", "huge")
    ann.here("wait", task, code=1)
    found = output(ann, task)
    assert found["state"] == "missing"
    assert "not enough disk space: a file has 1 TiB" in found["words"]
    assert [path.name for path in ann.folder.iterdir()] == []
