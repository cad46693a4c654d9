"""Complaints of a launch when AMD's GPUs cannot be given to it: of `amd-give.sh.j2`, and of engines."""

from __future__ import annotations

from agentless.model.nodes.complaint import Known

_KNOWN = (
    Known(
        r"agentless-amd: no GPU (?P<what>AMD-[0-9a-z-]+)",
        (
            "AMD GPU {what} is no longer on {node}, or was divided in another way; look for it with amd-smi list, and "
            "check dmesg there"
        ),
        "gpus",
    ),
    Known(
        r"agentless-amd: no /dev/kfd",
        "{node} has no /dev/kfd, so nothing can compute on AMD GPUs; load the driver there with: sudo modprobe amdgpu",
        "gpus",
    ),
    Known(
        r"agentless-amd: no (?P<what>device [0-9:]+ in /dev/dri/renderD[0-9]+|/dev/dri/renderD[0-9]+)",
        "{node} has no {what}, which an AMD GPU needs; run there: sudo udevadm trigger --subsystem-match=drm",
        "gpus",
    ),
    Known(
        r"keep-groups.*(crun|not supported)|(crun|not supported).*keep-groups",
        "rootless podman on {node} gives AMD GPUs only with the runtime crun; install crun there",
        "gpus",
    ),
    Known(
        r"(unresolvable CDI devices|failed to stat CDI host device)[^\n]*(amd\.com/gpu|/dev/dri|/dev/kfd)",
        (
            "the CDI list of AMD GPUs on {node} is out of date; run there: sudo amd-ctk cdi generate "
            "--output=/etc/cdi/amd.json"
        ),
        "gpus",
    ),
)


def known() -> tuple[Known, ...]:
    """All of them."""
    return _KNOWN
