"""`agentless init` on real nodes: what it asks, what it writes, and that the command it ends with works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

from tests.keyboard import at_terminal
from tests.real.cli import fingerprint


def configure(newcomer, text=""):
    """The newcomer's ~/.ssh/config: node1, node2, and what the test adds in front."""
    config = Path(newcomer.env["HOME"], ".ssh/config")
    config.write_text(f"{text}\n{config.read_text()}")


def knows(newcomer, shown, key=None):
    """Their ssh has seen this node, with this node's key."""
    line = f"{shown.host} {((key or shown).dir / 'host_key.pub').read_text()}"
    Path(newcomer.env["HOME"], ".ssh/known_hosts").write_text(line)


def typed(newcomer, *words, answers):
    """Type a command, and answer each question; gives its exit code and what was on the screen."""
    with at_terminal(["agentless", *words], newcomer.env, size=(200, 40)) as keyboard:
        place = 0
        for answer in answers:
            place = keyboard.sees(b"[y/N]", place)
            keyboard.type(answer)
        return keyboard.ended(), keyboard.text()


def written(newcomer):
    return yaml.safe_load(newcomer.inventory.read_text())


@pytest.mark.slow
def test_it_asks_once_leaves_out_what_fails_and_its_last_command_works(newcomer):
    """One key is known to ssh, one is not, and one host is not there."""
    first, second = (newcomer.lab.nodes[name] for name in ("node1", "node2"))
    host, port = newcomer.lab.add_closing_server()
    configure(newcomer, f"Host gone\n  HostName {host}\n  Port {port}")
    knows(newcomer, first)
    code, screen = typed(newcomer, "init", answers=[b"y\n"])
    assert code == 0
    assert re.findall("SHA256:[^ \n]+", screen) == [fingerprint(second)]
    assert screen.count("[y/N]") == 1
    assert written(newcomer)["nodes"] == {"node1": {"host": "node1"}, "node2": {"host": "node2"}}
    assert written(newcomer)["defaults"]["image"] == "lab/busybox:latest"
    assert re.search(r"gone +FAIL +gone \S", screen)
    assert "  # gone: {host: gone}  # left out: " in newcomer.inventory.read_text()
    assert "github.com" not in screen
    (command,) = re.findall("(?<=Try it: ).*", screen)
    assert newcomer(*shlex.split(command)[1:]).out == "hello\n"


@pytest.mark.slow
def test_a_key_behind_a_jump_host_is_a_second_question_and_no_key_is_shown_twice(newcomer):
    first, second = (newcomer.lab.nodes[name] for name in ("node1", "node2"))
    configure(newcomer, f"Host behind\n  HostName {second.host}\nHost behind node2\n  ProxyJump node1")
    code, screen = typed(newcomer, "init", "node1", "behind", answers=[b"y\n", b"y\n"])
    assert code == 0
    assert re.findall("SHA256:[^ \n]+", screen) == [fingerprint(first), fingerprint(second)]
    assert list(written(newcomer)["nodes"]) == ["node1", "behind"]


def test_no_is_an_answer(newcomer):
    code, screen = typed(newcomer, "init", answers=[b"n\n"])
    assert code == 1
    assert f"the host key of {newcomer.lab.nodes['node1'].host} is not trusted" in screen
    assert not newcomer.inventory.exists()
    assert not (newcomer.config / "known_hosts").exists()


def test_without_a_terminal_it_writes_what_passed_and_prints_only_the_path(newcomer):
    knows(newcomer, newcomer.lab.nodes["node1"])
    done = newcomer("init")
    assert done.out == f"{newcomer.inventory}\n"
    assert list(written(newcomer)["nodes"]) == ["node1"]
    assert f"the host key of {newcomer.lab.nodes['node2'].host} is not trusted" in done.err
    assert "Left out: node2." in done.err


def test_a_changed_key_is_never_offered(newcomer):
    first, second = (newcomer.lab.nodes[name] for name in ("node1", "node2"))
    knows(newcomer, first, key=second)
    done = newcomer("init", "--yes")
    assert list(written(newcomer)["nodes"]) == ["node2"]
    assert f"the host key of {first.host} has changed" in done.err


def test_all_writes_every_host(newcomer):
    newcomer("init", "--all")
    assert list(written(newcomer)["nodes"]) == ["node1", "node2"]


def test_hosts_can_be_named(newcomer):
    node = newcomer.lab.nodes["node1"]
    newcomer("init", "--yes", f"root@{node.host}:22")
    assert list(written(newcomer)["nodes"].values()) == [{"host": node.host, "user": "root", "port": 22}]


def test_what_an_admin_can_learn_from_is_written(newcomer):
    newcomer("init", "--all")
    comments = [line for line in newcomer.inventory.read_text().splitlines() if "#" in line]
    assert {"user:", "jump:", "docker:", "exclude_gpus:"} <= {word for line in comments for word in line.split()}


def test_an_inventory_is_only_replaced_with_force(newcomer):
    newcomer.write_inventory("mine")
    assert "--force" in newcomer("init", code=2).err
    assert newcomer.inventory.read_text() == "mine"
    newcomer("init", "--force", "--yes")
    assert newcomer("inventory", "check").out.endswith("2 nodes, no errors\n")


def test_an_inventory_here_that_would_win_is_named(newcomer):
    here = newcomer.lab.home / "inventory.yaml"
    here.write_text("version: 1")
    try:
        done = newcomer("init", "--yes")
    finally:
        here.unlink()
    assert f"commands in this folder use {here}" in done.err
    assert f"Try it: agentless -i {newcomer.inventory} submit node1::0" in done.err


def test_nothing_of_the_check_is_left(newcomer, tmp_path):
    newcomer("init", "--yes", TMPDIR=str(tmp_path))
    assert list(tmp_path.iterdir()) == []
