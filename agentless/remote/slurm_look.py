"""What Slurm has to know of a node, see `slurm-look.sh.j2`.

Output, line by line:

host gpu1.lab                                     its host name
ssh 192.0.2.1 40000 192.0.2.7 22                  $SSH_CONNECTION
cpu0/topology/physical_package_id:0               the socket of a CPU
cpu0/topology/thread_siblings_list:0,32           the CPUs of its core
nvidia 0000:3b:00.0 0                             the minor number of a GPU: /dev/nvidia0
render 0000:83:00.0 renderD128                    the render node of a GPU: /dev/dri/renderD128
slurmd NodeName=gpu1 CPUs=64 …                    slurmd -C
scontrol NodeName=gpu1 … Gres=gpu:a100:2          scontrol -o show node
sinfo gpu1 gpu:a100:2                             sinfo -o '%N %G'
"""

from __future__ import annotations

import re
from ipaddress import ip_address

from agentless.model.command import Command, Result
from agentless.model.nodes.gpu import pci_bus_id
from agentless.model.text import cut, printable
from agentless.render import Renderer
from agentless.rules.slurm.machine import Look

WITHIN = 30.0
"""Seconds for the answer. Slurm's programs wait for their controller."""
_LINES = 21000
_LINE = 4000
_HOST = re.compile(r"[A-Za-z0-9._-]{1,64}")
_CPU = re.compile(r"cpu([0-9]{1,6})/topology/(physical_package_id|thread_siblings_list):(-?[0-9]{1,6})[0-9,-]*")
_MINOR = re.compile(r"[0-9]{1,4}")
_RENDER = re.compile(r"renderD[0-9]{1,4}")
_MOST = 1 << 21


def look(renderer: Renderer, daemons: str = "") -> Command:
    """The script to run on a node; with `daemons` also what Slurm's programs say of the node of that name."""
    return Command(renderer.script("slurm-look.sh.j2", daemons=daemons) + "\n", timeout=WITHIN, most=_MOST)


def parse(result: Result) -> Look:
    """The answer; what cannot be read is left out."""
    host = address = ""
    cpus: dict[str, dict[int, int]] = {"physical_package_id": {}, "thread_siblings_list": {}}
    devices: dict[str, str] = {}
    said = {"slurmd": "", "scontrol": "", "sinfo": ""}
    for line in result.out.splitlines()[:_LINES]:
        if match := _CPU.fullmatch(line):
            cpus[match[2]][int(match[1])] = int(match[3])
            continue
        match line[:_LINE].split():
            case ["host", name] if _HOST.fullmatch(name):
                host = name
            case ["ssh", _, _, reached, _]:
                address = _address(reached)
            case ["nvidia", bus, minor] if (known := pci_bus_id(bus)) and _MINOR.fullmatch(minor):
                devices[known] = f"/dev/nvidia{minor}"
            case ["render", bus, node] if (known := pci_bus_id(bus)) and _RENDER.fullmatch(node):
                devices.setdefault(known, f"/dev/dri/{node}")
            case [program, *words] if program in said and not said[program]:
                said[program] = cut(printable(" ".join(words)), _LINE)
    sockets, cores = cpus.values()
    both = {cpu: (socket, cores[cpu]) for cpu, socket in sockets.items() if cpu in cores}
    return Look(host, address, both, devices, said["slurmd"], said["scontrol"], said["sinfo"])


def _address(text: str) -> str:
    try:
        return str(ip_address(text.partition("%")[0].removeprefix("::ffff:")))
    except ValueError:
        return ""
