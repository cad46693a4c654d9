"""NVIDIA GPUs of machines that are no servers: WSL2, Jetson, and those whose memory is the machine's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from agentless.model.nodes.gpu import GpuReading, GpuSample, Platform

_JETSON = re.compile(r"\(nvgpu\)")
"""In the name of a GPU with the driver of Jetsons before Thor, whose nvidia-smi lists no processes."""
_UNIFIED = re.compile(r"\b(?:GB10|Thor|Orin|Xavier|Tegra)\b|\(nvgpu\)")
"""GPUs without memory of their own. GH200 has its own, and its driver says how much."""
_SHARED = "WSL2 gives every container all GPUs of the machine, so agentless uses only machines with one"


def platform_of(gpus: Sequence[GpuReading], *, is_wsl: bool) -> Platform:
    """The platform of a node whose driver does not list processes, empty if it lists them."""
    if is_wsl:
        return "wsl"
    return "jetson" if any(_JETSON.search(gpu.name or "") for gpu in gpus) else ""


def on_platform(sample: GpuSample, platform: Platform) -> GpuSample:
    """The sample of a node of this platform. There, a list of processes that is empty or refused says nothing.

    See github.com/NVIDIA/nvidia-container-toolkit/issues/21 on containers and several GPUs in WSL2.
    """
    gpus = tuple([replace(gpu, unified=True) if _is_unified(gpu) else gpu for gpu in sample.gpus])
    if not platform:
        return sample if gpus == sample.gpus else replace(sample, gpus=gpus)
    gpus = tuple([replace(gpu, unlisted=platform) for gpu in gpus])
    if platform == "wsl" and len(gpus) > 1:
        gpus = tuple([replace(gpu, barred=gpu.barred or _SHARED) for gpu in gpus])
    return replace(sample, gpus=gpus)


def _is_unified(gpu: GpuReading) -> bool:
    memory = (gpu.memory_total_mib, gpu.memory_used_mib, gpu.memory_free_mib)
    return memory == (None, None, None) and not gpu.needs_reset and bool(_UNIFIED.search(gpu.name or ""))
