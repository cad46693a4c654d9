"""Checks of WSL2, of Jetsons and of nodes that Slurm manages: what is special about their GPUs."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.model.nodes.check import Check, ok, skipped
from agentless.model.nodes.checkup import System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.node import HostFacts, WslFacts
from agentless.rules.nodes.checks import remedies
from agentless.rules.nodes.slurm_nodes import why_slurm
from agentless.rules.nodes.unlisted import assumed, why_unlisted

_RESTART = "# Then, in Windows: wsl --shutdown"
_UPDATE = (
    "# In Windows: install the current driver of the GPU from https://www.nvidia.com/drivers, then: wsl --shutdown"
)
_CPU = "Without a GPU, this node runs CPU tasks only."


def checks(node: Node, system: System) -> Iterator[Check]:
    """Those of the node's platform, none on any other machine."""
    host = node.observation.host
    if host is None:
        return
    if host.wsl:
        yield _gpu(node, host.wsl, system)
        yield _systemd(system)
        if node.config.has_podman and host.wsl.has_nvidia:
            why = "In WSL2 a CDI file names all GPUs of the machine as one, and podman gives GPUs by CDI only."
            wrong = "podman cannot give one GPU to a container in WSL2"
            fix = "# Install Docker in WSL2, and remove 'docker: podman' of this node from the inventory."
            yield Check("wsl-engine", "warning", "podman", wrong, fix, why)
    yield from _processes(node)
    yield from _slurm(node, host)


def _gpu(node: Node, wsl: WslFacts, system: System) -> Check:
    """Whether Windows gives WSL2 a GPU that agentless can use."""
    sample = node.observation.sample
    if wsl.others:
        files, root = ", ".join(wsl.others), remedies.sudo(system)
        fix = f"{root}apt-get purge 'nvidia-*' 'libnvidia-*'\n" if system.manager == "apt" else ""
        fix += f"# Remove the packages of these files: {files}\n{_RESTART}"
        why = "In WSL2 the driver is that of Windows. A Linux driver hides it and finds no card."
        return Check("wsl", "failed", files, f"a Linux driver is installed inside WSL2 ({files})", fix, why)
    if sample and sample.gpus:
        return ok("wsl", "WSL2, with the driver of Windows")
    if not wsl.has_gpu:
        fix = "# In Windows: wsl --update && wsl --shutdown"
        return Check("wsl", "warning", "no /dev/dxg", "Windows shares no GPU with WSL2", fix, _CPU)
    if wsl.has_nvidia:
        wrong = "nvidia-smi of Windows lists no GPU"
        return Check("wsl", "warning", "no GPU", wrong, f"/usr/lib/wsl/lib/nvidia-smi\n{_UPDATE}", _CPU)
    wrong = "there is no /usr/lib/wsl/lib/nvidia-smi"
    why = f"agentless uses NVIDIA's GPUs in WSL2, those of AMD and Intel under Linux only. {_CPU}"
    return Check("wsl", "warning", "no driver of NVIDIA", wrong, _UPDATE, why)


def _systemd(system: System) -> Check:
    if system.has_systemd:
        return ok("wsl-systemd", "systemd runs")
    fix = f"printf '[boot]\\nsystemd=true\\n' | {remedies.sudo(system)}tee -a /etc/wsl.conf\n{_RESTART}"
    why = "Without it, Docker and sshd do not start with WSL2, and tasks without a container cannot run."
    return Check("wsl-systemd", "warning", "off", "systemd is off in WSL2", fix, why)


def _processes(node: Node) -> Iterator[Check]:
    """Whether somebody says what to assume of GPUs whose processes nobody lists."""
    sample = node.observation.sample
    gpu = next((gpu for gpu in sample.gpus if gpu.unlisted), None) if sample else None
    if gpu is None:
        return
    if gpu.barred:
        yield Check("gpu-processes", "warning", "several GPUs", gpu.barred, "", _CPU)
    elif words := why_unlisted(gpu, node.config):
        fix = f"# In the inventory: {node.name}: {{…, {gpu.unlisted}: {{assume: free}}}}"
        why = "A process that is not listed may use the GPU, so no task gets it unless you say so."
        yield Check("gpu-processes", "warning", "not listed", words.partition(";")[0], fix, why, here=True, words=words)
    else:
        yield ok("gpu-processes", f"{assumed(gpu, node.config)}; assumed to be free, as the inventory says")


def _slurm(node: Node, host: HostFacts) -> Iterator[Check]:
    """Whether Slurm gives the GPUs of the node to its jobs."""
    if host.slurmd is None and host.boot:  # the whole answer came
        yield skipped("slurmd", "processes of others are hidden (hidepid), so nobody knows whether slurmd runs")
    elif words := why_slurm(node.config, node.observation):
        fix = (
            "# Submit to the Slurm cluster instead: add it to clusters: in the inventory.\n"
            "# Or drain the node in Slurm: scontrol update NodeName=… State=DRAIN Reason=agentless\n"
            f"# Then, in the inventory: {node.name}: {{…, allow: slurm}}"
        )
        why = "agentless does not know which GPUs Slurm has given to its jobs, and would give them a second time."
        yield Check("slurmd", "failed", "runs", words.partition(";")[0], fix, why, here=True, words=words)
    elif host.slurmd:
        yield ok("slurmd", "runs; the inventory allows tasks beside it")
