"""`agentless init`: which hosts of ~/.ssh/config it takes, what it writes, and what it leaves alone."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import InventoryError, UsageError
from agentless.inventory.first import first_inventory, named_hosts, write_first
from agentless.inventory.inventory import Inventory, load
from agentless.inventory.schema import Defaults
from agentless.inventory.ssh_hosts import SshHosts, parse_login, read_ssh_hosts


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty ~/.ssh."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / ".ssh"
    folder.mkdir()
    return folder


def machines(ssh: Path, text: str) -> tuple[str, ...]:
    (ssh / "config").write_text(text)
    return read_ssh_hosts(ssh / "config").machines


def loaded(folder: Path, text: str) -> Inventory:
    (folder / "first.yaml").write_text(text)
    return load(folder / "first.yaml")


def test_aliases_come_in_the_order_of_the_file_and_once(ssh: Path) -> None:
    assert machines(ssh, "Host gpu2 gpu1\nHost gpu3\nHost gpu1\n") == ("gpu2", "gpu1", "gpu3")


def test_patterns_name_no_host(ssh: Path) -> None:
    assert machines(ssh, "Host * gpu? !bad [x] gpu1\n") == ("gpu1",)


def test_match_blocks_name_no_host(ssh: Path) -> None:
    assert machines(ssh, "Host gpu1\nMatch host gpu2 user me\n  HostName gpu3\n") == ("gpu1",)


def test_every_way_to_write_a_line_is_read(ssh: Path) -> None:
    text = '# Host no\nHOST=gpu1\n\thost = "gpu2"  gpu3 # no comment\nHost\n\n  garbage\nHost gpu4\r\n'
    assert machines(ssh, text) == ("gpu1", "gpu2", "gpu3", "gpu4")


def test_included_files_are_followed_in_place(ssh: Path) -> None:
    (ssh / "conf.d").mkdir()
    (ssh / "conf.d" / "b").write_text("Host gpu3\n")
    (ssh / "conf.d" / "a").write_text(f"Host gpu2\nHost *\nInclude {ssh}/deep\n")
    (ssh / "deep").write_text("Host deep\n")
    (ssh / "home").write_text("Host gpu4\n")
    text = "Host gpu1\nMatch all\nInclude conf.d/* ~/.ssh/home none\nHost gpu5\n"
    assert machines(ssh, text) == ("gpu1", "gpu2", "deep", "gpu3", "gpu4", "gpu5")


def test_an_include_that_holds_for_some_hosts_only_is_not_followed(ssh: Path) -> None:
    (ssh / "other").write_text("Host gpu2\n")
    assert machines(ssh, "Host gpu1\n  Include other\nMatch user me\n  Include other\n") == ("gpu1",)


def test_files_that_include_each_other_end(ssh: Path) -> None:
    (ssh / "other").write_text("Include config config other\nHost gpu2\n")
    assert machines(ssh, "Include other other config\nHost gpu1\n") == ("gpu2", "gpu1")


def test_git_servers_are_told_apart(ssh: Path) -> None:
    (ssh / "config").write_text(
        "Host github.com gitlab.com bitbucket.org\nHost work\n  HostName ssh.github.com\n"
        "Host forge\n  User git\nHost gpu1\n  User me\n  User git\n  HostName gpu1.github.community\n"
    )
    assert read_ssh_hosts(ssh / "config") == SshHosts(
        ("gpu1",), ("github.com", "gitlab.com", "bitbucket.org", "work", "forge")
    )


def test_settings_after_an_include_are_not_of_the_included_host(ssh: Path) -> None:
    (ssh / "other").write_text("Host gpu1\n")
    assert machines(ssh, "Include other\nUser git\n") == ("gpu1",)


@pytest.mark.parametrize("content", [None, b"\xff\xfe\x00Host gpu1"], ids=["missing", "binary"])
def test_a_configuration_that_cannot_be_read_names_no_host(ssh: Path, content: bytes | None) -> None:
    if content is not None:
        (ssh / "config").write_bytes(content)
    assert read_ssh_hosts(ssh / "config") == SshHosts((), ())


def test_aliases_become_nodes_that_ssh_config_explains(tmp_path: Path) -> None:
    nodes = loaded(tmp_path, first_inventory(named_hosts(["gpu1", "gpu2.lab"]))).nodes
    assert [(n.name, n.host, n.user, n.port) for n in nodes.values()] == [
        ("gpu1", "gpu1", None, None),
        ("gpu2.lab", "gpu2.lab", None, None),
    ]


@pytest.mark.parametrize(
    ("text", "host", "user", "port"),
    [
        ("ubuntu@10.0.0.11:2222", "10.0.0.11", "ubuntu", 2222),
        ("10.0.0.11:22", "10.0.0.11", None, 22),
        ("1000@no", "no", "1000", None),
        ("[fe80::1%eth0]:2222", "fe80::1%eth0", None, 2222),
        ("me@::1", "::1", "me", None),
    ],
)
def test_named_hosts_become_nodes(tmp_path: Path, text: str, host: str, user: str | None, port: int | None) -> None:
    (node,) = loaded(tmp_path, first_inventory(named_hosts([text]))).nodes.values()
    assert (node.host, node.user, node.port) == (host, user, port)


def test_names_of_nodes_are_valid_and_unique(tmp_path: Path) -> None:
    hosts = ["gpu1", "root@gpu1", "gpu1:22", "gpu1-2", "fe80::1", "_x", "gpu1"]
    assert list(loaded(tmp_path, first_inventory(named_hosts(hosts))).nodes) == [
        "gpu1", "gpu1-2", "gpu1-3", "gpu1-2-2", "fe80--1", "x",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "@", "me@", "-x", "me@-x", "a b", "gpu1:0", "gpu1:65536", "gpu1:ssh", "10", "a@b@c:x"]
)
def test_a_host_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=re.escape(f"host {text!r}: use [user@]host[:port]")):
        first_inventory(named_hosts([text]))


def test_no_host_is_answered_with_how_to_name_one() -> None:
    with pytest.raises(UsageError, match="agentless init user@host"):
        first_inventory(named_hosts([]))


def test_what_was_left_out_is_said_in_a_comment() -> None:
    text = first_inventory(named_hosts(["gpu1"]), git=["github.com", "forge"])
    assert "  # Left out, because they are git servers: github.com, forge\n" in text


def test_a_host_that_failed_is_a_comment_that_can_be_uncommented(tmp_path: Path) -> None:
    (nodes := named_hosts(["gpu1", "me@gpu2:2222"])).pop("gpu1")
    why = "refused\nnodes: {evil: {}}\x85\u2028x: y" + "!" * 500
    text = first_inventory(named_hosts(["gpu1"]), left_out={"gpu2": (nodes["gpu2"], why)})
    assert list(loaded(tmp_path, text).nodes) == ["gpu1"]
    assert max(map(len, text.splitlines())) < 250
    assert loaded(tmp_path, text.replace("# gpu2: ", "gpu2: ")).nodes["gpu2"].port == 2222


def test_the_default_image_is_the_one_that_was_found(tmp_path: Path) -> None:
    text = first_inventory(named_hosts(["gpu1"]), "registry.lab:5000/me/torch:2.4")
    assert loaded(tmp_path, text).image == "registry.lab:5000/me/torch:2.4"


def test_every_key_is_explained() -> None:
    assert set(re.findall(r"^  (?:# )?(\w+): .+ # \w", first_inventory(named_hosts(["gpu1"])), re.MULTILINE)) == set(
        Defaults.model_fields
    )


def test_every_key_can_be_uncommented(tmp_path: Path) -> None:
    text = re.sub(r"^  # (\w+: .+ # )", r"  \1", first_inventory(named_hosts(["gpu1"])), flags=re.MULTILINE)
    node = loaded(tmp_path, text).nodes["gpu1"]
    assert (node.user, node.docker, node.exclude_gpus) == ("ubuntu", ("sudo", "docker"), (0,))


letters = st.text(st.sampled_from("ab01@:.-_[]%~<*& #\"'{},\n\té²"), max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.one_of(letters, st.text(max_size=8), st.sampled_from(["null", "yes", "0x1F", "1e3", "2024-01-01", "..."])),
        max_size=3,
    )
)
def test_whatever_is_accepted_loads_again(tmp_path_factory: pytest.TempPathFactory, hosts: list[str]) -> None:
    try:
        text = first_inventory(named_hosts(hosts))
    except UsageError:
        return
    nodes = loaded(tmp_path_factory.getbasetemp(), text).nodes.values()
    assert [(n.host, n.user, n.port) for n in nodes] == [parse_login(host) for host in dict.fromkeys(hosts)]


def test_writing_makes_the_folder(tmp_path: Path) -> None:
    write_first(tmp_path / "a" / "b" / "inventory.yaml", "text", force=False)
    assert (tmp_path / "a" / "b" / "inventory.yaml").read_text() == "text"


def test_what_is_there_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("mine")
    with pytest.raises(InventoryError, match="already exists; edit it, or replace it with --force"):
        write_first(path, "text", force=False)
    assert (path.read_text(), os.listdir(tmp_path)) == ("mine", ["inventory.yaml"])


def test_force_overwrites(tmp_path: Path) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("mine")
    write_first(path, "text", force=True)
    assert path.read_text() == "text"


def test_force_writes_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "dotfiles").write_text("mine")
    (tmp_path / "inventory.yaml").symlink_to("dotfiles")
    write_first(tmp_path / "inventory.yaml", "text", force=True)
    assert (tmp_path / "dotfiles").read_text() == "text"


def test_a_full_disk_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "inventory.yaml"
    path.write_text("mine")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InventoryError, match=r"cannot write .*: No space left on device"):
        write_first(path, "text", force=True)
    assert (path.read_text(), os.listdir(tmp_path)) == ("mine", ["inventory.yaml"])


def test_a_file_in_the_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("")
    with pytest.raises(InventoryError, match=r"cannot write .*: .*; choose another path"):
        write_first(tmp_path / "a" / "inventory.yaml", "text", force=False)
