"""How GPUs are joined: the parser on published and on damaged tables, nearness, and the link that keeps the last one.

`data/topology/*.json` hold the section's output and what is to be read from it. The script is in test_nvidia_script.py.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.node_link import NodeLink
from agentless.demo.gpus import Gpus
from agentless.gpus.nvidia.topology import closeness
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Command, Result
from agentless.model.nodes.gpu import GpuTopology
from agentless.model.nodes.node import NodeConfig
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine, joined, systemd_engine
from tests.listener import Listener
from tests.pure.build import NOW, SIGNER

RECORDS = sorted((Path(__file__).parent / "data" / "topology").glob("*.json"))
STANDIN = Path(__file__).parents[2] / "agentless" / "demo" / "bin" / "nvidia-smi"
PATIENT = settings(deadline=None)


def parse(table: bytes | str, code: int = 0) -> GpuTopology | None:
    raw = table if isinstance(table, bytes) else table.encode()
    return Nvidia().parse_topology({"nvidia": Result(0, b"@end 0\n@topology\n%b\n@topology %d\n" % (raw, code))})


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_output_is_read_as_its_record_says(path: Path) -> None:
    """Each record: the kind of link of every pair, and the NUMA node of every GPU."""
    record = json.loads(path.read_text())
    found = Nvidia().parse_topology({"nvidia": Result(0, "\n".join(record["output"]).encode())})
    expected = record["expected"]
    assert (
        expected and {**expected, "links": {pair: closeness(kind) for pair, kind in expected["links"].items()}}
    ) == (
        found
        and {
            "links": {f"{one}-{other}": near for (one, other), near in found.links.items()},
            "numa": {str(gpu): numa for gpu, numa in found.numa.items()},
        }
    )


def test_a_section_that_never_came_is_no_topology() -> None:
    """It is not known then, which is not a node whose GPUs are not joined."""
    assert Nvidia().parse_topology({}) is None


def test_more_nvlinks_are_nearer_and_every_nvlink_is_nearer_than_pcie() -> None:
    """The order in which places for two GPUs are preferred."""
    kinds = ["unheard of", "SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV12", "NV18"]
    assert all(closeness(farther) < closeness(nearer) for farther, nearer in pairwise(kinds))


def test_the_first_nvlink_is_one_step_nearer_than_pcie_and_so_is_each_one_more() -> None:
    assert [closeness(kind) - closeness("PIX") for kind in ("NV1", "NV2", "NV12")] == [1, 2, 12]


def test_what_old_drivers_call_soc_is_as_far_as_sys() -> None:
    """The same path got another name."""
    assert closeness("SOC") == closeness("SYS")


def test_a_pair_is_as_near_from_either_side() -> None:
    """Whoever asks need not know which of the two has the lower index."""
    topology = joined({(0, 1): "NV4"})
    assert topology.closeness(1, 0) == topology.closeness(0, 1) == closeness("NV4")


def test_nothing_is_said_of_a_pair_that_is_not_known() -> None:
    """A GPU that the topology does not name is near to none."""
    assert joined({(0, 1): "NV4"}).closeness(0, 7) == 0


# ---------------------------------------------------------------------- damage

_KINDS = st.sampled_from(["SYS", "NODE", "PHB", "PXB", "PIX", "NV1", "NV2", "NV4", "NV12"])


@st.composite
def tables(draw: st.DrawFn) -> tuple[str, GpuTopology]:
    """A table as a driver prints it, and what is in it."""
    count, nics = draw(st.integers(1, 4)), draw(st.integers(0, 2))
    links = {(one, other): draw(_KINDS) for one in range(count) for other in range(one + 1, count)}
    numa = {gpu: draw(st.integers(0, 3)) for gpu in range(count)}
    names = [*(f"GPU{gpu}" for gpu in range(count)), *(f"NIC{nic}" for nic in range(nics))]
    head = "\t".join(names) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"
    lines = ["\t" + (f"\x1b[4m{head}\x1b[0m" if draw(st.booleans()) else head)]
    for gpu in range(count):
        cells = [" X " if gpu == to else links[min(gpu, to), max(gpu, to)] for to in range(count)] + ["SYS"] * nics
        lines.append("\t".join([f"GPU{gpu}", *cells, "0-63,128-191", str(numa[gpu]), "", "N/A"]))
    lines += ["\t".join([f"NIC{nic}", *["SYS"] * (count + nics)]) for nic in range(nics)]
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", ""]), joined(links, numa)


@PATIENT
@given(tables())
def test_what_nvidia_smi_prints_is_what_is_read(table: tuple[str, GpuTopology]) -> None:
    """Every pair and every NUMA node, whatever network cards stand between."""
    text, topology = table
    assert parse(text) == topology


def _insert(text: str, at: int, what: str) -> str:
    return text[:at] + what + text[at:]


def _delete(text: str, at: int, _: str) -> str:
    return text[:at] + text[at + 1 :]


def _end(text: str, at: int, _: str) -> str:
    return text[:at]


@PATIENT
@given(tables(), st.sampled_from([_insert, _delete, _end]), st.sampled_from(["\t", "\n", " ", "X", "\0"]), st.data())
def test_a_damaged_table_says_nothing_false_of_a_pair(
    table: tuple[str, GpuTopology], change: Callable[[str, int, str], str], what: str, data: st.DataObject
) -> None:
    """A character too many or too few anywhere, or an early end: each link is the true one, or is not known."""
    text, topology = table
    found = parse(change(text, data.draw(st.integers(0, len(text) - 1)), what))
    assert found is None or found.links.items() <= topology.links.items()


_PIECES = st.sampled_from(
    [
        *("\t", "\n", "GPU0", "GPU1", "GPU999", " X ", "NV4", "NV", "SYS", "CPU Affinity", "NUMA Affinity", "0"),
        *("9" * 5000, "\x1b[4m", "\x1b[", "@topology\n", "@topology 0\n", "@end 0\n", "\tGPU0\tGPU0\n"),
    ]
)
_TEXTS = st.lists(_PIECES | st.text(max_size=8)).map(lambda parts: "".join(parts).encode("utf-8", "replace"))


@PATIENT
@given(_TEXTS | st.binary())
def test_any_bytes_are_a_topology_or_none(table: bytes) -> None:
    """Nothing is raised."""
    found = parse(table)
    assert found is None or all(closeness(kind) for kind in found.links.values())


# ---------------------------------------------------------------------- where it comes from, and stays


def test_simulated_gpus_are_joined_in_two_halves(tmp_path: Path) -> None:
    """The demo's and the lab's nvidia-smi answers as a node with two sockets does."""
    Gpus(4, "A100", tmp_path)
    done = subprocess.run(
        ["sh", STANDIN, "topo", "-m"],
        env={"PATH": os.environ["PATH"], "AGENTLESS_STANDIN_DIR": str(tmp_path)},
        capture_output=True,
        check=True,
    )
    across = dict.fromkeys([(0, 2), (0, 3), (1, 2), (1, 3)], "SYS")
    assert parse(done.stdout) == joined({**across, (0, 1): "NODE", (2, 3): "NODE"}, {0: 0, 1: 0, 2: 1, 3: 1})


def test_two_simulations_have_no_gpu_in_common(tmp_path: Path) -> None:
    """A launch sees all claims of the machine, also those of another simulation."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = (set(Gpus(4, "A100", folder).uuids) for folder in folders)
    assert (len(one), one & other) == (4, set())


class Answers:
    """A session with a node that answers each full look with the next of these topologies."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)

    async def run(self, command: Command) -> Result:
        table = "\tGPU0\tGPU1\nGPU0\t X \tNV4\nGPU1\tNV4\t X "
        answer = "@gpus 0\n@end 0"
        if "nvidia-smi topo -m" in command.script:
            answer += f"\n@topology\n{table}\n@topology {self.codes.pop(0)}"
        return Result(0, f"@@agentless nvidia\n{answer}\n@@agentless = 0\n".encode())


class At:
    def now(self) -> float:
        return NOW


def look(*codes: int) -> NodeLink:
    session, config = Answers(*codes), NodeConfig("node1", "node1.lab")
    renderer = Renderer([template_dir()])
    docker, units = docker_engine(config, renderer, SIGNER), systemd_engine(config, renderer, SIGNER)
    return NodeLink(config, session, Nvidia(), NodeEngines(docker, units), renderer, At(), Listener())


async def test_a_full_look_asks_for_the_topology_and_keeps_it() -> None:
    """In its one round trip."""
    link = look(0)
    await link.refresh()
    assert link.observation.topology == joined({(0, 1): "NV4"})


async def test_the_last_topology_outlives_a_look_that_could_not_read_it() -> None:
    """Nobody has pulled the cards out because nvidia-smi was slow once."""
    link = look(0, 124)
    await link.refresh()
    await link.refresh()
    assert link.observation.topology == joined({(0, 1): "NV4"})
