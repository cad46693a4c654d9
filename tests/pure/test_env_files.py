"""A folder as the context of a build, and an image in a file."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile

import pytest

from agentless.cli.envs.archive import nameless, read, write
from agentless.cli.envs.context import dockerfile_of, packed
from agentless.errors import UsageError
from agentless.rules.images.dockerignore import Ignore, bases
from tests.pure.test_tar import BROKEN


@pytest.mark.parametrize(
    ("patterns", "path", "out"),
    [
        (["*.key"], "a.key", True),
        (["*.key"], "sub/a.key", False),
        (["**/*.key"], "sub/deep/a.key", True),
        (["**/*.key"], "a.key", True),
        (["sub"], "sub/a", True),
        (["/sub/"], "sub/a", True),
        (["su?"], "sub", True),
        (["su?"], "su/", False),
        (["s[a-z]b"], "sub", True),
        (["s[^a-z]b"], "sub", False),
        (["*", "!a"], "a", False),
        (["*", "!a"], "b", True),
        (["sub", "!sub/a"], "sub/a", False),
        (["!a", "a"], "a", True),
        (["# a", "", "  b  "], "a", False),
        (["# a", "", "  b  "], "b", True),
        (["."], "a", False),
        (["#a"], "#a", False),
        ([" #a"], "#a", True),
        (["\ufeff*.key"], "a.key", True),
        (["\ufeff#a"], "#a", False),
        (["x", "\ufeffa"], "a", False),
        (["a/../b"], "b", True),
        ([r"\*"], "*", True),
        ([r"\*"], "a", False),
        (["docs/**"], "docs/x/y", True),
        (["docs/**"], "docsx", False),
        (["a**b"], "ax/yb", True),
        (["a**b"], "ax", False),
        (["a/**/b"], "a/b", True),
        (["a/**/b"], "a/x/y/b", True),
        (["[ab]"], "b", True),
        (["[a]"], "a", True),
        (["[^a]"], "b", True),
        (["[a^]"], "^", True),
        (["[]a]"], "]", True),
        (["[a"], "[a", True),
        (["a\\"], "a\\", True),
        ([r"\*a"], "*a", True),
        (["[[a]"], "[", True),
        (["[a&&b]"], "&", True),
    ],
)
def test_what_a_dockerignore_leaves_out(patterns, path, out):
    assert Ignore.read(patterns).leaves_out(path) is out


@pytest.mark.parametrize("pattern", ["[z-a]", "x/**/[9-0]*", "!a[b-a]"])
def test_a_pattern_that_is_none_is_told_with_its_line(pattern):
    with pytest.raises(UsageError, match=r"\.dockerignore, line 2: .* is not a valid pattern"):
        Ignore.read(["a", pattern])


@pytest.mark.parametrize(("patterns", "back"), [(["*", "!a"], True), (["*", "a"], False), ([], False)])
def test_a_folder_that_is_left_out_is_looked_into_only_where_a_pattern_may_take_back(patterns, back):
    assert Ignore.read(patterns).takes_back is back


def test_images_of_ours_that_a_dockerfile_names_are_found():
    text = (
        "ARG BASE=agentless/a:1\nFROM --platform=x docker.io/agentless/b:2 AS one\nFROM \\\n  agentless/c\n"
        "COPY --from=agentless/d:4 /x /y\nRUN echo agentless/e:5\nFROM ghcr.io/agentless/f:6\n"
    )
    assert bases(text) == ("agentless/a:1", "agentless/b:2", "agentless/c", "agentless/d:4")


def members(data: bytes) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return {member.name: member for member in archive}


@pytest.fixture
def context(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "Dockerfile").write_text("FROM busybox\n")
    (tmp_path / "sub" / "run.sh").write_text("echo\n")
    (tmp_path / "sub" / "run.sh").chmod(0o755)
    (tmp_path / "secret.key").write_text("s")
    (tmp_path / "link").symlink_to("sub/run.sh")
    (tmp_path / ("d" * 120)).mkdir()
    return tmp_path


def test_a_context_is_the_folder_without_what_is_ignored(context):
    (context / ".dockerignore").write_text("*.key\nDockerfile\n")
    found = members(b"".join(packed(context, *dockerfile_of(context, None))))
    assert sorted(found) == [".dockerignore", "Dockerfile", "d" * 120, "link", "sub", "sub/run.sh"]
    assert (found["sub/run.sh"].mode, found["sub/run.sh"].uid) == (0o755, 0)
    assert found["link"].linkname == "sub/run.sh"


def test_folders_far_below_each_other_are_refused_until_they_are_ignored(context):
    """Some hundred more, and Python would give up."""
    os.makedirs(context / "/".join("d" * 300))
    with pytest.raises(UsageError, match="more than 256 nested folders; exclude some of them in"):
        list(packed(context, *dockerfile_of(context, None)))
    (context / ".dockerignore").write_text("d\n")
    assert "d" not in members(b"".join(packed(context, *dockerfile_of(context, None))))


def test_a_folder_that_may_not_be_read_is_not_left_out_silently(context, monkeypatch):
    real = os.scandir

    def scandir(path):
        if str(path).endswith("/sub"):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(UsageError, match="sub cannot be read: Permission denied; exclude it in"):
        list(packed(context, *dockerfile_of(context, None)))


def test_a_dockerfile_from_elsewhere_goes_along(context, tmp_path_factory):
    other = tmp_path_factory.mktemp("other") / "My.Dockerfile"
    other.write_text("FROM x\n")
    name, text = dockerfile_of(context, other)
    assert members(b"".join(packed(context, name, text)))[name].size == len("FROM x\n")
    with pytest.raises(UsageError, match="cannot be read"):
        dockerfile_of(context, context / "nowhere")


def test_a_file_that_shrinks_while_it_is_sent_does_not_break_the_archive(context):
    big = context / "a.big"
    big.write_bytes(bytes(3 << 20))
    chunks = packed(context, *dockerfile_of(context, None))
    data = b""
    for chunk in chunks:
        data += chunk
        if len(chunk) > 1 << 16:
            os.truncate(big, 1 << 20)
    assert members(data)["a.big"].size == 3 << 20


def saved(*names: str) -> bytes:
    """As `docker save` writes an image."""
    out = io.BytesIO()
    manifest = [{"Config": "c.json", "RepoTags": list(names), "Layers": ["l/layer.tar"]}]
    index = {"manifests": [{"digest": "d", "annotations": {"io.containerd.image.name": names[0], "kept": "1"}}]}
    files = {
        "l/layer.tar": os.urandom(700_000),
        "c.json": b"{}",
        "manifest.json": json.dumps(manifest).encode(),
        "index.json": json.dumps(index).encode(),
        "repositories": b"{}",
    }
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_an_archive_loses_its_names_and_nothing_else():
    before = saved("busybox:latest")
    after = b"".join(nameless(io.BytesIO(before)))
    with tarfile.open(fileobj=io.BytesIO(before)) as old, tarfile.open(fileobj=io.BytesIO(after)) as new:
        assert new.getnames() == ["l/layer.tar", "c.json", "manifest.json", "index.json"]
        assert new.extractfile("l/layer.tar").read() == old.extractfile("l/layer.tar").read()
        assert json.load(new.extractfile("manifest.json"))[0]["RepoTags"] is None
        assert json.load(new.extractfile("index.json"))["manifests"][0]["annotations"] == {"kept": "1"}


@pytest.mark.parametrize("name", ["e.tar", "e.tar.zst"])
def test_what_was_written_is_read_again(tmp_path, name):
    data = saved("a:1")
    size = write(tmp_path / name, [data[:1000], data[1000:]])
    assert size == (tmp_path / name).stat().st_size
    assert members(b"".join(read(tmp_path / name))).keys() == {"l/layer.tar", "c.json", "manifest.json", "index.json"}
    assert os.listdir(tmp_path) == [name]


def test_a_file_that_could_not_be_written_whole_is_not_there(tmp_path):
    def breaks():
        yield b"begin"
        raise RuntimeError

    with pytest.raises(RuntimeError):
        write(tmp_path / "e.tar.zst", breaks())
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("cut", [0, 100, 300_000])
def test_a_file_that_is_no_whole_archive_is_refused(tmp_path, cut):
    write(tmp_path / "e.tar.zst", [saved("a:1")])
    data = (tmp_path / "e.tar.zst").read_bytes()
    (tmp_path / "e.tar.zst").write_bytes(data[:cut])
    with pytest.raises(UsageError, match="not a complete image archive"):
        list(read(tmp_path / "e.tar.zst"))


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize("name", ["manifest.json", "index.json"])
@pytest.mark.parametrize(
    "content", [b"", b"nonsense", b"7", b"null", b'"x"', b"[7]", b"[[]]", b'{"manifests": 7}', b'{"manifests": [7]}',
                b'{"manifests": [{"annotations": 7}]}', b'{"manifests": [{"annotations": [1]}]}', DEEP,
                b'{"manifests": ' + DEEP + b"}", b'[{"RepoTags": ' + DEEP + b"}]"],
    ids=lambda content: content[:40].decode(),
)  # fmt: skip
def test_an_image_whose_manifest_or_index_has_another_shape_is_no_traceback(tmp_path, name, content):
    """Of a shape that is right for the other one, too."""
    path = tmp_path / "e.tar"
    with tarfile.open(path, "w") as archive:
        info = tarfile.TarInfo(name)
        info.size = len(content)
        archive.addfile(info, io.BytesIO(content))
    said = ""
    try:
        assert members(b"".join(read(path))).keys() == {name}
    except UsageError as error:
        said = str(error)
    assert said in ("", f"{path} is not a complete image archive: its {name} is invalid")


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_a_damaged_archive_of_an_image_is_no_traceback(tmp_path, data):
    (tmp_path / "e.tar").write_bytes(data)
    with pytest.raises(UsageError, match="not a complete image archive"):
        list(read(tmp_path / "e.tar"))


def test_a_damaged_gzip_is_no_traceback(tmp_path):
    packed = bytearray(gzip.compress(saved("a:1")))
    packed[1000:1100] = bytes(100)
    (tmp_path / "e.tar").write_bytes(packed)
    with pytest.raises(UsageError, match=r"not a complete image archive|cannot be read"):
        list(read(tmp_path / "e.tar"))
