"""Files that are no inventory at all: each ends in an InventoryError, soon, whatever is in it."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import InventoryError
from agentless.inventory.inventory import MAX_BYTES, load
from agentless.inventory.schema import Node


def message(folder: Path, text: str | bytes) -> str:
    path = folder / "inventory.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(InventoryError) as caught:
        load(path)
    return str(caught.value)


BOMBS = {
    "a billion laughs": "a: &a [x,x,x,x,x,x,x,x,x]\n"
    + "".join(f"{b}: &{b} [{','.join(['*' + a] * 9)}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "merged laughs": "a: &a {x: 1}\n"
    + "".join(f"{b}: &{b} {{<<: [{','.join(['*' + a] * 9)}]}}\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True)),
    "one large mapping merged often": f"a: &a {{{','.join(f'k{n}: ' for n in range(400))}}}\n"
    f"b: {{<<: [{','.join(['*a'] * 400)}]}}",
    "a list in itself": "a: &a [*a]",
    "a mapping merged into itself": "a: &a {<<: *a}",
    "deep brackets": "[" * 100_000,
    "deep dashes": "- " * 100_000,
}


@pytest.mark.parametrize("bomb", BOMBS.values(), ids=BOMBS.keys())
def test_a_small_file_cannot_stand_for_a_huge_one(tmp_path: Path, bomb: str) -> None:
    assert re.search("too large|too deeply", message(tmp_path, bomb))


def test_a_huge_file_is_not_read(tmp_path: Path) -> None:
    assert "is this the right file?" in message(tmp_path, "#" * (MAX_BYTES + 1))


def test_a_binary_file_is_no_text(tmp_path: Path) -> None:
    assert "is this a text file?" in message(tmp_path, b"\x7fELF\x02\x01\x01\x00")


def test_a_missing_file_is_answered_with_init(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match=r"none\.yaml: no such file; create one with: agentless init"):
        load(tmp_path / "none.yaml")


def test_a_directory_is_no_inventory(tmp_path: Path) -> None:
    with pytest.raises(InventoryError, match="is a folder; specify the inventory file in it"):
        load(tmp_path)


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InventoryError, match="not a regular file"):
        load(tmp_path / "pipe")


def test_a_file_that_may_not_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read everything, so the refusal is put in the way."""

    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert message(tmp_path, "version: 1").endswith("cannot read the inventory: Permission denied")


keys = st.sampled_from(
    [
        *Node.model_fields,
        "version",
        "defaults",
        "nodes",
        "<<",
        "shared_dir",
        "node1",
        "gpu 1",
        "*a",
        "&a x",
        "!t y",
    ]
)
scalars = st.one_of(
    st.text(max_size=8), st.integers(), st.floats(), st.booleans(), st.none(), st.dates(), st.binary(max_size=4),
    st.sampled_from(["h", "u@h:22", "22", "local", "asyncssh", "/x", "1"]),
)  # fmt: skip
trees = st.recursive(
    scalars,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=5)),
    max_leaves=20,
)
files = st.fixed_dictionaries(
    {"version": st.just(1), "nodes": st.dictionaries(keys, st.dictionaries(keys, trees), min_size=1)},
    optional={"defaults": st.dictionaries(keys, trees)},
)
yaml_letters = st.text(st.sampled_from("ab01:-?[]{},#&*!|>'\"%@`~<=. \t\n\r\\\x00\x85\u2028\ufeff"), max_size=40)


any_file = st.one_of(
    st.binary(),
    st.text(),
    yaml_letters,
    yaml_letters.map(lambda text: f"version: 1\nnodes:\n  a: {text}"),
    st.one_of(trees, files).map(lambda tree: yaml.safe_dump(tree, allow_unicode=True)),
)


@settings(max_examples=60, deadline=None)
@given(any_file)
def test_nothing_but_an_inventory_or_an_inventory_error_comes_of_any_file(
    tmp_path_factory: pytest.TempPathFactory, text: str | bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
    with contextlib.suppress(InventoryError):
        assert load(path).nodes


CONTROLS = ["\\n", "\\r", "\\t", "\\0", "\\e[31m", "\\x7f", "\\u0085", "\\u2028", "\\u202e"]


@pytest.mark.parametrize("control", CONTROLS)
def test_no_word_has_a_control_character_and_its_line_is_told(tmp_path: Path, control: str) -> None:
    words = ("host", "user", "jump", "identity_file", "docker", "image", "network", "local_temp")
    lists = ("mounts", "address", "accept_engines")
    lines = ["version: 1", 'defaults: {shared_dir: "/a{}b"}', "nodes:", "  n1:", '    cuda: {path: "/a{}b"}']
    lines += [f'    {key}: "/a{{}}b"' for key in words] + [f'    {key}: ["/a{{}}b:/c"]' for key in lists]
    file = tmp_path / "inventory.yaml"
    file.write_text("\n".join(lines).replace("{}", control) + "\n")
    with pytest.raises(InventoryError) as raised:
        load(file)
    told = {int(line.split(":")[1]) for line in str(raised.value).splitlines()}
    assert told == {2, *range(5, len(lines) + 1)}
    assert str(raised.value).replace("\n", "").isprintable()


@pytest.mark.parametrize("target", ["/var/run/nvidia-container-devices", "/var/run/nvidia-container-devices/all"])
def test_a_mount_that_gives_gpus_is_refused(tmp_path: Path, target: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(f"version: 1\nnodes:\n  n1: {{host: h, mounts: [/dev/null:{target}]}}\n")
    with pytest.raises(InventoryError, match=r"a mount at .* would give tasks GPUs"):
        load(file)
