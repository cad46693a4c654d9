"""Xids in the kernel log: the script in every common shell, and its parser on published and on broken output.

`data/xid/*.json` hold the section's output and what is to be read from it.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.gpus.nvidia import faults as _xid
from agentless.model.command import Result, join_sections, split_sections
from agentless.model.nodes.gpu import GpuFault, pci_bus_id
from tests.engines import RENDERER

RECORDS = sorted((Path(__file__).parent / "data" / "xid").glob("*.json"))
SHELLS = {"dash": ["dash"], "bash": ["bash", "--posix"], "busybox": ["busybox", "sh"]}
SCRIPT = join_sections(_xid.sections(RENDERER))
STANDIN = SCRIPT.replace("timeout -k 1 5 dmesg", "timeout -k 1 5 ./dmesg")
"""BusyBox prefers a dmesg of its own to any on PATH."""
LOST = "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_output_is_read_as_its_record_says(path: Path) -> None:
    """Each record: every error with its GPU, its code and its age; null is a log that cannot be read."""
    record = json.loads(path.read_text())
    xids = _xid.parse({"xid": Result(0, "\n".join(record["output"]).encode())})
    found = None if xids is None else [_recorded(xid) for xid in xids]
    assert record["expected"] == found


def _recorded(xid: GpuFault) -> dict[str, object]:
    fields = asdict(xid)
    del fields["name"], fields["meaning"]
    return {**fields, "code": int(xid.name.removeprefix("Xid ")), "age_seconds": _rounded(xid.age_seconds)}


def _rounded(age: float | None) -> float | None:
    return None if age is None else round(age, 6)


def test_a_section_that_never_came_is_a_log_that_is_not_known() -> None:
    """Which is not a log without errors."""
    assert _xid.parse({}) is None


_PIECES = st.sampled_from(
    [
        *("[    1.5] ", "[ 1.5][ T1] ", f"[{'9' * 400}.1] ", "NVRM: Xid (", "PCI:", "0000:3b:00", "3b:00.0", "): "),
        *("79", "9" * 5000, ", x", "\n", "@dmesg 0\n", "@dmesg 1\n", "@uptime 9.5\n", f"@uptime {'9' * 400}.0\n"),
        *(f"{LOST}\n", "\0", "\x85"),
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=8)).map(lambda parts: "".join(parts).encode("utf-8", "replace"))


@settings(deadline=None)
@given(_TEXTS | st.binary())
def test_any_bytes_are_xids_or_none(stdout: bytes) -> None:
    """Nothing is raised; an address is spelled in the one way, an age is not below zero, a message is one line."""
    for xid in _xid.parse({"xid": Result(0, b"@dmesg 0\n" + stdout)}) or ():
        assert pci_bus_id(xid.pci_bus_id) == xid.pci_bus_id
        assert xid.age_seconds is None or 0 <= xid.age_seconds < float("inf")
        assert xid.message.isprintable()


# ---------------------------------------------------------------------- the script


class Node:
    """A folder that is the node's PATH, with a stand-in for dmesg."""

    def __init__(self, folder: Path, shell: str) -> None:
        self.folder, self.shell = folder, shell
        for program in ("timeout", "sed", "tail", "cat", "sleep", "head"):
            found = shutil.which("busybox" if shell == "busybox" else program)
            assert found, f"{program} is not installed"
            (folder / program).symlink_to(found)

    def install(self, body: str) -> None:
        program = self.folder / "dmesg"
        program.write_text(f"#!/bin/sh\nhere=${{0%/*}}\n{body}\n")
        program.chmod(0o755)

    def logs(self, *lines: str) -> None:
        (self.folder / "log").write_text("".join(f"{line}\n" for line in lines))
        self.install('cat "$here/log"')

    def run(self, script: str) -> bytes:
        return subprocess.run(
            [shutil.which(SHELLS[self.shell][0]) or "", *SHELLS[self.shell][1:]],
            input=script.encode(),
            cwd=self.folder,
            env={"PATH": str(self.folder)},
            capture_output=True,
            timeout=30,
            check=True,
        ).stdout

    def xids(self, script: str = STANDIN) -> tuple[GpuFault, ...] | None:
        return _xid.parse(split_sections(self.run(script)))


@pytest.fixture(params=SHELLS)
def node(tmp_path: Path, request: pytest.FixtureRequest) -> Node:
    if not shutil.which(SHELLS[request.param][0]):
        pytest.skip(f"{request.param} is not installed")
    return Node(tmp_path, request.param)


def test_errors_are_found_between_everything_else_in_the_log(node: Node) -> None:
    """With their GPU, and how long ago they were by this machine's own uptime."""
    node.logs("[    0.000000] Linux version 6.1.0", f"[    2.500000] {LOST}", "[    3.000000] usb 1-1: new device")
    (xid,) = node.xids() or ()
    assert (xid.pci_bus_id, xid.name, xid.logged_at) == ("0000:3b:00.0", "Xid 79", 2.5)
    assert xid.age_seconds is not None
    assert 0 <= xid.age_seconds <= float(Path("/proc/uptime").read_text().split()[0]) - 2.5


def test_a_log_without_errors_is_known_to_be_without(node: Node) -> None:
    """Of a healthy node nothing but two short lines travels."""
    node.logs("[    0.000000] Linux version 6.1.0")
    assert node.xids() == ()


def test_of_many_errors_the_last_fifty_travel(node: Node) -> None:
    """A GPU in trouble writes them by the thousand, and a log is read each minute."""
    node.logs(*(f"[{second:5}.000000] {LOST}" for second in range(1, 201)))
    assert [xid.logged_at for xid in node.xids() or ()] == [float(second) for second in range(151, 201)]


@pytest.mark.parametrize("words", ["dmesg: read kernel buffer failed", "dmesg: klogctl"])
def test_a_log_that_users_may_not_read_is_not_known(node: Node, words: str) -> None:
    """kernel.dmesg_restrict is the default of most distributions: no error, and no clean bill either."""
    node.install(f"echo '{words}: Operation not permitted' >&2\nexit 1")
    assert node.xids() is None


def test_a_node_without_dmesg_is_asked_in_vain(node: Node) -> None:
    """Nothing is known, and the section ends well."""
    assert node.xids() is None


def test_a_dmesg_that_does_not_end_is_ended(node: Node) -> None:
    """It must not hold up the look at the rest of the node."""
    node.install(f"echo '[    2.500000] {LOST}'\nwhile :; do sleep 0.1; done")
    assert node.xids(STANDIN.replace("timeout -k 1 5", "timeout -k 1 1")) is None


def test_a_log_that_is_no_text_is_read_all_the_same(node: Node) -> None:
    """A device's name may put any bytes into it."""
    node.install(f"printf '[    1.000000] usb: \\000\\377\\n[    2.500000] {LOST}\\n'")
    assert [xid.name for xid in node.xids() or ()] == ["Xid 79"]


def test_this_machine_s_log_is_known_where_it_may_be_read(node: Node) -> None:
    """By the real program, util-linux's or BusyBox's."""
    dmesg = ["busybox", "dmesg"] if node.shell == "busybox" else ["dmesg"]
    if not shutil.which("dmesg"):
        pytest.skip("dmesg is not installed")
    (node.folder / "dmesg").symlink_to(shutil.which("dmesg") or "")
    readable = subprocess.run(dmesg, capture_output=True, check=False).returncode == 0
    assert (node.xids(SCRIPT) is not None) is readable
