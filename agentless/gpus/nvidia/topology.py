"""How the GPUs of a node are joined, asked through `nvidia-smi topo -m`.

`nvidia-topology.sh.j2` asks in the same section as the other questions, after them. The section ends at the first
question without an answer, so that a driver that hangs is not asked again. The output, with tabs between the cells:

    @topology
            GPU0   GPU1   NIC0   CPU Affinity   NUMA Affinity   GPU NUMA ID       underlined with escapes by most
    GPU0     X     NV12   PXB    0-63           0                       N/A
    GPU1    NV12    X     SYS    64-127         1                       N/A
    NIC0    PXB    SYS     X
    @topology 0                     the exit code

Older drivers have no NUMA columns, and name a network card as Linux does (`mlx5_0`). A legend follows the table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import combinations

from agentless.model.nodes.gpu import MOST_GPUS, GpuTopology

_LINES, _CELLS = 300, 200
"""Lines of the table with its legend, and cells of a line: enough for 64 GPUs and as many network cards as fit."""
_END = re.compile(r"\n@topology (?:0|14)$", re.MULTILINE)
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU(0|[1-9][0-9]{0,2})")
_NUMA = re.compile(r"[0-9]{1,4}")
_NVLINKS = re.compile(r"NV([1-9][0-9]?)")
_PATHS = {"SYS": 1, "SOC": 1, "NODE": 2, "PHB": 3, "PXB": 4, "PIX": 5}
"""`SOC` is what drivers before 2018 wrote for `SYS`."""
_JOINED = re.compile(r"(?:SYS|NODE|PHB|PXB|PIX)(?=SYS|NODE|PHB|PXB|PIX)")
"""The end of a cell without a tab behind it, which some drivers print from ten network cards on."""


def parse(output: str) -> GpuTopology | None:
    """The topology in the output of the section; None where it is missing, not whole, or contradicts itself."""
    answer = output.partition("\n@topology\n")[2]
    end = _END.search(answer)
    lines = _ESCAPE.sub("", answer[: end.start()]).split("\n") if end else []
    return None if len(lines) > _LINES else _joined(tuple(lines))


@lru_cache(maxsize=256)  # it is the same each minute, and on machines of one kind
def _joined(lines: Sequence[str]) -> GpuTopology | None:
    table = [[cell.strip() for cell in _JOINED.sub(r"\g<0>\t", line).split("\t", _CELLS)] for line in lines]
    header = next((row for row in table if row[0] == "" and any(map(_GPU.fullmatch, row))), [])
    names = [cell for cell in header if _GPU.fullmatch(cell)]
    rows = [row for row in table if _GPU.fullmatch(row[0])]
    if not 0 < len(names) <= MOST_GPUS or len(set(names)) < len(names) or names != [row[0] for row in rows]:
        return None
    by_gpu = {int(row[0].removeprefix("GPU")): row for row in rows}
    column = {int(name.removeprefix("GPU")): header.index(name) for name in names}
    links: dict[tuple[int, int], int] = {}
    for one, other in combinations(sorted(by_gpu), 2):
        kind = _cell(by_gpu[one], column[other])
        if kind != _cell(by_gpu[other], column[one]):
            return None
        if near := closeness(kind):
            links[one, other] = near
    numa = {}
    if "NUMA Affinity" in header:
        numa = {gpu: _cell(row, header.index("NUMA Affinity")) for gpu, row in by_gpu.items()}
    return GpuTopology(links, {gpu: int(text) for gpu, text in numa.items() if _NUMA.fullmatch(text)})


def _cell(row: Sequence[str], at: int) -> str:
    return row[at] if at < len(row) else ""


def closeness(kind: str) -> int:
    """How near a link of this kind brings two GPUs: 1 (`SYS`) to 5 (`PIX`) over PCIe, then one more for each NVLink.

    0 for a word that is no kind of link.
    """
    nvlinks = _NVLINKS.fullmatch(kind)
    return 5 + int(nvlinks[1]) if nvlinks else _PATHS.get(kind, 0)
