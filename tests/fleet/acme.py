"""A GPU vendor that agentless knows nothing of: all that there is of it is in this file.

Its program on a node, `acme-smi`, is a stand-in, as the others of simulated nodes are: it prints `acme.csv` from the
node's folder, a line `index,id,MiB in all,MiB used` for each GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentless.model.command import Result, Section
from agentless.model.nodes.check import VendorChecks
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.complaint import Known
from agentless.model.nodes.engine import EngineName, Injection, Toolkit, Way
from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.trial import Proof
from agentless.ports import ScriptRenderer

PROGRAM = """\
#!/bin/sh
cat "$AGENTLESS_STANDIN_DIR/acme.csv" 2> /dev/null
"""
VISIBLE = "ACME_VISIBLE_DEVICES"


class Acme:
    """A `ports.GpuVendor`."""

    name = "acme"
    programs = ("acme-smi",)
    pci = ("0xacac:0x12",)
    toolkit: Toolkit | None = None
    exposing: frozenset[str] = frozenset()
    device_mounts: tuple[str, ...] = ()

    def sections(self, renderer: ScriptRenderer, *, topology: bool = False) -> tuple[Section, ...]:
        del renderer, topology  # one line for all
        return (Section("acme", "acme-smi"),)

    def parse(self, sections: Mapping[str, Result]) -> GpuSample:
        answer = sections.get("acme")
        rows = [line.split(",") for line in answer.out.splitlines() if line] if answer else []
        return GpuSample(tuple(self._reading(*row) for row in rows))

    def _reading(self, index: str, uuid: str, total: str, used: str) -> GpuReading:
        memory = {"memory_total_mib": int(total), "memory_used_mib": int(used)}
        return GpuReading(int(index), uuid, "Acme One", **memory, vendor=self.name)

    def parse_topology(self, sections: Mapping[str, Result]) -> GpuTopology | None:
        del sections  # nobody says how they are joined
        return None

    def parse_faults(self, sections: Mapping[str, Result]) -> tuple[GpuFault, ...] | None:
        del sections  # it writes nothing into the kernel log
        return None

    def reserved(self, engine: EngineName) -> tuple[str, ...]:
        del engine  # the same for all
        return (VISIBLE,)

    def injection(self, engine: EngineName, devices: Sequence[str], way: Way | None = None) -> Injection:
        del engine, way  # the same for all
        arguments = tuple(word for uuid in devices for word in ("--device", f"/dev/acme/{uuid}"))
        return Injection(arguments, {VISIBLE: ",".join(devices) or "none"})

    def checkup(self, renderer: ScriptRenderer) -> tuple[Section, ...]:
        del renderer  # nothing to ask
        return ()

    def checks(self, sections: Mapping[str, Result], node: Node, system: System) -> VendorChecks:
        del sections, node, system
        return VendorChecks()

    def look(self, renderer: ScriptRenderer) -> str:
        del renderer
        return f"echo ${VISIBLE}"

    def proof(self, saw: str, gpu: GpuReading, sections: Mapping[str, Result]) -> Proof:
        del sections
        return Proof("ok" if gpu.uuid in saw else "failed", saw)

    def complaints(self, engine: EngineName) -> tuple[Known, ...]:
        del engine
        return ()
