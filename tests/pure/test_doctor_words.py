"""No word of a node, an inventory or ~/.ssh becomes a command, or a line, of what doctor prints to be run."""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.cli.nodes.doctor_script import script_of
from agentless.errors import AuthFailed, HostKeyRejected, Unreachable
from agentless.gpus.nvidia import checkup as nvidia_checkup
from agentless.gpus.nvidia.checks import checks as nvidia_checks
from agentless.model.command import Result
from agentless.model.nodes.check import Check, VendorChecks
from agentless.model.nodes.checkup import Checkup, Contact, Disk, Folder, Socket
from agentless.model.nodes.gpu import GpuFault, GpuSample
from agentless.model.nodes.node import Breakdown, EngineFacts, NodeConfig
from agentless.model.nodes.sessions import Sessions
from agentless.model.text import shell_word
from agentless.remote.transports._ssh.keys import Tried
from agentless.remote.transports._ssh.route import Hop
from agentless.rules.nodes.checks.examine import examine
from agentless.rules.nodes.checks.machine import KEYS
from tests.pure.build import cluster, reading, seen
from tests.pure.test_doctor import APPROACH, ENGINE, MACHINE, WELL, views

WORD = "EVIL"
_PARTS = ("\n", "\r", "\x0b", "\x85", "\u2028", "\0", "\x1b[2J", "'", '"', "`", "$(", ")", ";", "&", "|", "<", ">", "#",
          "  # ", " ", "\\", "-", "*", "~", "=", "a")  # fmt: skip
hostile = st.lists(st.sampled_from(_PARTS), max_size=6).map(
    lambda parts: f" {''.join(parts)}{WORD}{''.join(parts[::-1])}"
)
HARMLESS = f" {WORD}"
"""Has to be quoted, too."""
HOP = Hop(
    node="node1", name="node1", alias="node1", host="node1.lab", port=2222, user="ann", identities=(), defaults=(),
    certificates=(), identities_only=False, agent=None, connect_timeout=None, proxy_command=None, gate=None,
    known_hosts=(), host_key_alias=None, jump=None,
)  # fmt: skip


def all_checks(evil: str) -> list[Check]:
    """Whatever doctor can find wrong, with this text in each field that comes from elsewhere."""
    config = NodeConfig("node1", host=evil, user=evil, port=2222, docker=("sudo", evil), image=f"{evil}:1/x")
    system = replace(MACHINE.system, id=evil, like=(evil,), title=evil)
    folders = tuple(
        Folder(key, f"/{evil}", problem)
        for key in ("local_temp", "mounts", "shared_dir", "cuda")
        for problem in ("missing", "not writable", "full", "hangs")
    )
    machine = replace(MACHINE, system=system, user=evil, shell=evil, path=evil, kernel=evil, folders=folders)
    approach = replace(APPROACH, host=evil, name=evil, login=evil, via=evil, banner=evil, addresses=(evil,), error=evil)
    engine = replace(
        ENGINE, program=evil, elsewhere=evil, socket=Socket(evil, True, False, evil), words=evil, driver="vfs",
        disk=Disk(evil, 1 << 40, 1 << 10), registry=f"{evil}.x", unreachable=evil, network=evil, has_network=False,
    )  # fmt: skip
    facts = EngineFacts("26", error=evil, note=evil)
    hop = replace(HOP, host=evil, user=evil)
    key = HostKeyRejected(evil, host=evil, key=evil, fingerprint=evil, recorded=(evil,), file=evil)
    failures: list[tuple[Any, Contact]] = [
        *((stopped, Contact(failure=Unreachable(evil))) for stopped in ("route", "name", "tcp", "ssh")),
        ("", Contact(failure=key)),
        ("", Contact(failure=HostKeyRejected(evil, host=evil, key=evil, fingerprint=evil))),
        ("", Contact(failure=Tried().refused(hop))),
        ("", Contact(failure=Tried(locked={Path(evil): "locked"}).refused(hop))),
        ("", Contact(failure=AuthFailed(evil))),
        ("", Contact(failure=Unreachable(evil))),
        ("", Contact(failure=Unreachable(evil), logged_in=True)),
    ]
    found: list[Check] = []
    for stopped, contact in failures:
        node = cluster(seen(error=evil)).nodes["node1"]
        known = Checkup(replace(approach, stopped=stopped), contact)
        found += examine(replace(node, config=config), known, VendorChecks())
    well = replace(WELL, approach=approach, contact=Contact(began=9.0, noise=9999, sessions=Sessions(1, 1, 1)))
    for changed in (
        engine,
        replace(engine, program=None),
        replace(engine, program=None, elsewhere=""),
        *(replace(engine, fault=fault) for fault in ("denied", "sudo", "down", "other")),
    ):
        for its in (facts, replace(facts, error=None, lacks=frozenset({"memory"}))):
            node = cluster(seen(engine=its, broken=Breakdown(evil, "engine", False, 0.0, 1.0))).nodes["node1"]
            found += examine(
                replace(node, config=config), replace(well, machine=machine, engine=changed), VendorChecks(), evil
            )
    return [*found, *of_cards(evil, config, system)]


def of_cards(evil: str, config: NodeConfig, system: Any) -> list[Check]:
    """What NVIDIA's part makes of its answer, in which each value is this text."""
    keys = ("module", "nouveau", "pci 0000:01:00.0", "mode", "cdi", "cdiname", "dev", "minor", "ask1", "ask3")
    text = "\n".join(f"{key} {evil}" for key in keys)
    fault = GpuFault("0000:01:00.0", evil, evil, meaning=evil)
    found: list[Check] = []
    for sample in (GpuSample(), GpuSample((reading("node1", 0, ecc_uncorrected=1, mig=True),), error=evil)):
        node = replace(cluster(seen(sample=sample, faults=(fault,))).nodes["node1"], config=config)
        answer = nvidia_checkup.parse({nvidia_checkup.SECTION: Result(0, text.encode("utf-8", "replace"))})
        each = nvidia_checks(node, answer, system)
        found += [*each.before, *each.after]
    return found


@given(hostile)
def test_a_script_has_only_our_commands_whatever_a_node_says(evil: str) -> None:
    script, ours = (script_of(views(*all_checks(text)), warnings=True).text.split("\n") for text in (evil, HARMLESS))
    assert subprocess.run(["sh", "-n"], input="\n".join(script), text=True, stderr=-2, check=False).returncode == 0
    assert [*map(skeleton, script)] == [*map(skeleton, ours)]


@given(hostile)
def test_so_have_a_fix_and_the_line_made_of_it(evil: str) -> None:
    for check, ours in zip(all_checks(evil), all_checks(HARMLESS), strict=True):
        assert [*map(skeleton, check.fix.split("\n"))] == [*map(skeleton, ours.fix.split("\n"))]
        if check.verdict in ("failed", "warning") and not check.words:
            assert skeleton(check.detail[len(check.wrong) :]) == skeleton(ours.detail[len(ours.wrong) :])


def test_every_fix_that_has_a_word_from_elsewhere_is_tried() -> None:
    found = {check.name for check in all_checks(HARMLESS) if WORD in check.fix}
    assert found == {
        "name", "host-key", "login", "shell", "command", "docker", "socket", "disk", "network", "registry", *KEYS
    }  # fmt: skip


def skeleton(line: str) -> str:
    """What a shell reads in a line beside words in quotes; of a comment, that it is one."""
    assert line.isprintable(), line
    return "#" if line.startswith(("# ", "#!")) else re.sub(r"'[^']*'|\"'\"", "", line)


@pytest.mark.parametrize("text", ["a", "a b", "a'b", "\n", "a\nrm -rf /", "$(x)", ""])
def test_a_word_is_one_word_in_one_line(text: str) -> None:
    assert len(shlex.split(shell_word(text))) == 1
    assert shell_word(text).isprintable()
