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
        r"agentless: its devices are those of other GPUs now",
        (
            "the render nodes of the container's AMD GPUs have other numbers on {node} since a reboot, so it is not "
            "started; create it again, or start a VPS with: agentless vps start NAME --anywhere"
        ),
        "task",
    ),
    Known(
        r"unresolvable CDI devices (?P<what>amd\.com/gpu=[\w.-]+)",
        (
            "{engine} on {node} does not know the AMD GPU {what}; update its device list there with: "
            "sudo amd-ctk cdi generate --output=/etc/cdi/amd.json"
        ),
        "gpus",
    ),
)


def known() -> tuple[Known, ...]:
    """All of them."""
    return _KNOWN
