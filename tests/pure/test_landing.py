"""Where copies come to lie, and what is said of those that cannot."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import CopyFailed, UsageError
from agentless.model.files.location import Location, decoded, encoded, parse_location, split, there
from agentless.rules.files.copy_errors import is_good_rsync, sentences
from agentless.rules.files.destination import Landing, check_target, landings

FILE = Location(None, "data/x")
FOLDER = Location(None, "src/")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("node1:/data", Location("node1", "/data")),
        ("node1:", Location("node1", "")),
        ("node1:a:b", Location("node1", "a:b")),
        ("here", Location(None, "here")),
        ("./a:b", Location(None, "./a:b")),
        ("/a:b", Location(None, "/a:b")),
        (":x", Location(None, ":x")),
    ],
)
def test_a_name_and_a_colon_are_a_place_elsewhere(text, place):
    assert parse_location(text) == place


@pytest.mark.parametrize("text", ["", "a\0b"])
def test_what_is_no_path(text):
    with pytest.raises(UsageError):
        parse_location(text)


@pytest.mark.parametrize(
    ("path", "folder", "name"),
    [
        ("", ".", "."),
        (".", ".", "."),
        ("~", ".", "."),
        ("/", "/", "."),
        ("/a", "/", "a"),
        ("/a/b//", "/a", "b"),
        ("a", ".", "a"),
        ("~/a", ".", "a"),
        ("-rf", ".", "-rf"),
        ("a/-b", "./a", "-b"),
    ],
)
def test_a_path_of_a_node_begins_in_the_home_folder_and_is_never_an_option(path, folder, name):
    assert split(there(path)) == (folder, name)
    assert there(path)[0] in "./"


@pytest.mark.parametrize("path", ["", ".", "./", "~", "~/"])
def test_the_home_folder_is_a_dot(path):
    assert there(path) == "."


@given(st.binary(min_size=1, max_size=50).filter(lambda data: b"\0" not in data))
def test_a_path_of_any_bytes_comes_over(data):
    path = os.fsdecode(data)
    assert decoded(encoded(path)) == path
    assert encoded(path).isascii()


def put(*sources, to, kind):
    return [(landing.target, landing.is_folder) for landing in landings(sources, Location("node1", to), kind)]


@pytest.mark.parametrize(
    ("to", "kind", "target"),
    [
        ("/d", "folder", "/d/x"),
        ("/d/", "folder", "/d/x"),
        ("", "folder", "x"),
        ("/d", "nothing", "/d"),
        ("/d", "file", "/d"),
    ],
)
def test_a_file_goes_below_a_folder_and_in_the_place_of_anything_else(to, kind, target):
    assert put((FILE, "file"), to=to, kind=kind) == [(target, False)]


def test_a_folder_goes_below_a_folder_or_gets_the_name():
    assert put((FOLDER, "folder"), to="/d", kind="folder") == [("/d/src", True)]
    assert put((FOLDER, "folder"), to="/d/", kind="nothing") == [("/d", True)]


def test_what_is_in_a_folder_goes_into_the_folder():
    assert put((Location(None, "src/."), "folder"), to="/d", kind="folder") == [("/d", True)]
    assert put((Location(None, "."), "folder"), to="", kind="folder") == [("", True)]


def test_several_go_into_a_folder_only():
    assert put((FILE, "file"), (FOLDER, "folder"), to="/d", kind="folder") == [("/d/x", False), ("/d/src", True)]
    with pytest.raises(CopyFailed, match="node1:/d is not a folder; 2 sources"):
        put((FILE, "file"), (FOLDER, "folder"), to="/d", kind="nothing")


@pytest.mark.parametrize(
    ("source", "to", "kind", "words"),
    [
        ((FILE, "nothing"), "/d", "folder", "data/x: no such file or folder"),
        ((FILE, "orphan"), "/d", "folder", "data/x: no such file or folder"),
        ((FILE, "denied"), "/d", "folder", "data/x: permission denied"),
        ((FILE, "other"), "/d", "folder", "is neither a file nor a folder; copy only"),
        ((FOLDER, "file"), "/d", "folder", "is a file, not a folder; remove the slash"),
        ((FILE, "file"), "/d", "denied", "node1:/d: permission denied"),
        ((FILE, "file"), "/d", "orphan", "the parent folder does not exist"),
        ((FILE, "file"), "/d", "other", "is neither a file nor a folder; choose another name"),
        ((FILE, "file"), "/d/", "nothing", "is not a folder; create it first"),
        ((FOLDER, "folder"), "/d", "file", "node1:/d is a file and src/ is a folder"),
    ],
)
def test_what_does_not_fit_is_told(source, to, kind, words):
    with pytest.raises(CopyFailed, match=words):
        put(source, to=to, kind=kind)


def test_two_of_one_name_would_be_one():
    with pytest.raises(UsageError, match="have the same name"):
        put((FILE, "file"), (Location(None, "other/x"), "file"), to="/d", kind="folder")


def test_a_folder_is_named_itself():
    with pytest.raises(UsageError, match="specify the folder by its own path"):
        put((Location(None, "a/.."), "folder"), to="/d", kind="folder")


@pytest.mark.parametrize(("is_folder", "kind"), [(False, "folder"), (True, "file"), (True, "other"), (False, "denied")])
def test_what_is_in_the_way_is_told(is_folder, kind):
    with pytest.raises(CopyFailed):
        check_target(Landing(FILE, is_folder, "/d"), Location("node1", "/d"), kind)


@pytest.mark.parametrize(
    ("is_folder", "kind"), [(False, "nothing"), (False, "file"), (True, "nothing"), (True, "folder"), (False, "orphan")]
)
def test_where_nothing_is_in_the_way_it_lands(is_folder, kind):
    check_target(Landing(FILE, is_folder, "/d"), Location("node1", "/d"), kind)


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (
            (
                'rsync: [sender] send_files failed to open "/a b/x": Permission denied (13)\n'
                "rsync error: some files/attrs were not transferred (see previous errors) (code 23) at main.c(1865)\n"
            ),
            ["/a b/x: permission denied"],
        ),
        (
            (
                'rsync: [receiver] write failed on "/mnt/x": No space left on device (28)\n'
                "rsync error: error in file IO (code 11) at receiver.c(381) [receiver=3.2.7]\n"
            ),
            ["the disk of node1 is full"],
        ),
        ('rsync: change_dir#3 "/nope" failed: No such file or directory (2)', ["/nope: no such file or directory"]),
        (
            "tar: ./sub/x: Cannot open: Permission denied\ntar: Exiting with failure status due to previous errors\n",
            ["sub/x: Permission denied"],
        ),
        ("tar: t/sub/x: Cannot write: No space left on device", ["the disk of node1 is full"]),
        ("tar: t/sub/x: Cannot open: Permission denied", ["data/sub/x: Permission denied"]),
        ("tar: can't open './x': Permission denied", ["x: Permission denied"]),
        ("sh: 3: tar: not found", ["tar not found on node1; install it there, or install rsync on both machines"]),
        ("sh: tar: command not found", ["tar not found on node1; install it there, or install rsync on both machines"]),
        ("mkdir: cannot create directory './.agentless-00ff': Permission denied", ["its folder: Permission denied"]),
        ("sh: 5: cd: can't cd to ./x", ["cd: can't cd to ./x"]),
        ("a/x: is a folder; a file cannot replace it", ["a/x: is a folder; a file cannot replace it"]),
        ("\n\n", []),
        (
            (
                'rsync: [receiver] write failed on "/data/big": No space left on device (28)\n'
                "rsync: [sender] write error: Broken pipe (32)\n"
            ),
            ["the disk of node1 is full"],
        ),
        (
            "\ntar: Exiting with failure status due to previous errors\n\ntar: ./x: Cannot open: Permission denied\n",
            ["x: Permission denied"],
        ),
        ("?" * 400, ["?" * 300]),
        ("tar: " + "?" * 400, ["?" * 300]),
    ],
)
def test_complaints_are_sentences(words, found):
    assert sentences(words, "node1", there=True, name="data") == found


@pytest.mark.parametrize(
    ("words", "is_good"),
    [
        (b"rsync  version 3.2.7  protocol version 31\n", True),
        (b"rsync  version v3.2.7pre1  protocol", True),
        (b"rsync  version 3.1.3  protocol", True),
        (b"rsync  version 3.1.2  protocol", False),
        (b"rsync  version 3.10.0  protocol", True),
        (b"rsync  version 3.0.9  protocol", False),
        (b"rsync  version 2.6.9  protocol", False),
        (b"openrsync: protocol version 29\n", False),
        (b"", False),
    ],
)
def test_which_rsync_will_do(words, is_good):
    assert is_good_rsync(words) is is_good
