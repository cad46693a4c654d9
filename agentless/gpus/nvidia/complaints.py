"""Complaints of nvidia-container-cli, its hooks, CDI and Docker when they cannot give a GPU to a container."""

from __future__ import annotations

from agentless.model.nodes.complaint import Known
from agentless.rules.tasks.known_complaints import ENGINE_ITSELF

LIST_DEVICES = "sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
"""The command that makes the CDI list of GPUs, by the names that we give: their indices are not in it."""

_CLI = r"nvidia-container-cli(\.real)?: "
_GONE = r"executable file not found|(stat .*)?no such file"

_KNOWN = (
    Known(
        (
            r"(could not select device driver.*(gpu|nvidia)|discover GPU vendor from CDI|"
            r"(unknown or invalid runtime name:|Unknown runtime specified) nvidia)"
        ),
        (
            "Docker on {node} cannot use NVIDIA GPUs; install nvidia-container-toolkit there and run: "
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        ),
        "gpus",
    ),
    Known(
        r"NVIDIA Container Runtime Hook directly .*is not supported",
        (
            "{engine} on {node} can use GPUs only with NVIDIA's runtime; run there: "
            "sudo nvidia-ctk runtime configure --runtime=docker --set-as-default && sudo systemctl restart docker"
        ),
        "gpus",
    ),
    Known(
        r"requirement.*unsatisfied condition: (?P<what>[^,\n(\\]+)",
        (
            "the image requires {what}, but the NVIDIA driver on {node} does not support it; update the driver, or "
            "use an image for an earlier CUDA version"
        ),
        "fit",
    ),
    Known(
        (
            r"(device error: (unknown device id: )?|unresolvable CDI devices \S*=)"
            r"(?P<what>MIG-[\w/-]+|[0-9]+:[0-9]+(?=: unknown device))"
        ),
        "MIG instance {what} no longer exists on {node}; list instances there with: nvidia-smi -L",
        "fit",
    ),
    Known(
        (
            rf"{_CLI}(?P<what>device error: [^\n]*|"
            r"[^\n]*/proc/driver/nvidia/gpus/[^\n]*: no such file or directory)"
        ),
        "{engine} on {node} cannot find the GPU ({what}); check nvidia-smi there, and reboot the node",
        "gpus",
    ),
    Known(
        rf"{_CLI}(?P<what>[^\n]*(device or resource busy|in use by another client))",
        (
            "a GPU of {node} is busy ({what}); end its processes (nvidia-smi lists them there), "
            "or allow sharing with: sudo nvidia-smi -c DEFAULT"
        ),
        "gpus",
    ),
    Known(
        r"load library failed: (?P<what>[^\s:]+)",
        (
            "{what} of the NVIDIA driver is missing on {node}; reinstall the driver there, check nvidia-smi, "
            "then run: sudo ldconfig"
        ),
        "gpus",
    ),
    Known(
        rf"{_CLI}.*driver/library version mismatch",
        "the NVIDIA driver on {node} was updated, but the old one is still loaded; reboot the node",
        "gpus",
    ),
    Known(
        rf"{_CLI}(?P<what>initialization error: [^\n]*timed out)",
        (
            "the NVIDIA driver on {node} is too slow to answer ({what}); keep it loaded with: "
            "sudo nvidia-smi -pm 1, and check nvidia-smi there"
        ),
        "gpus",
    ),
    Known(
        rf"{_CLI}(?P<what>(initialization|detection) error: [^\n]*)",
        "the NVIDIA driver on {node} fails in containers ({what}); check nvidia-smi there, and reboot the node",
        "gpus",
    ),
    Known(
        r"(bpf_prog_query\(BPF_CGROUP_DEVICE\) failed|/devices\.allow): operation not permitted",
        (
            "{engine} on {node} has no permission to give GPUs to a container; if it is rootless, run there: "
            "sudo nvidia-ctk config --set nvidia-container-cli.no-cgroups --in-place"
        ),
        "gpus",
    ),
    Known(
        rf"{_CLI}mount error: file creation failed: \S*/merged(?P<what>/\S+): file exists",
        "the image contains {what}, a file of the node's NVIDIA driver; remove it from the image",
        "task",
    ),
    Known(
        r"unresolvable CDI devices (?P<what>(?!amd\.com)[^\n]*)",
        "{engine} on {node} does not know the GPU ({what}); install nvidia-container-toolkit there and run: {cdi}",
        "gpus",
    ),
    Known(
        r"failed to stat CDI host device \"?(?P<what>[^\s\"\\]+)",
        "{engine} on {node} cannot find {what}; update its device list there with: {cdi}",
        "gpus",
    ),
    Known(
        r"stat nvidia\.com/gpu=\S+: no such file",
        "{engine} on {node} is too old to use GPUs (CDI needs podman 4.1); update it there",
        "gpus",
    ),
    Known(
        (
            rf"({ENGINE_ITSELF}exec: [\\\"]*|fork/exec |hook: stat )(\S*/)?"
            rf"(?P<what>nvidia-(container-(runtime|cli|toolkit)[\w.-]*|ctk|cdi-hook))[\\\"]*: ({_GONE})"
        ),
        "{engine} on {node} cannot use GPUs: {what} is missing; reinstall nvidia-container-toolkit there",
        "gpus",
    ),
    Known(
        r"error executing hook `(\S*/)?(?P<what>nvidia-[\w.-]+` \(exit code: \d+\))",
        (
            "{engine} on {node} cannot use GPUs: `{what}; check nvidia-smi there, update "
            "nvidia-container-toolkit, then run: {cdi}"
        ),
        "gpus",
    ),
)


def known() -> tuple[Known, ...]:
    """All of them, with the command that makes the CDI list."""
    return tuple(each._replace(sentence=each.sentence.replace("{cdi}", LIST_DEVICES)) for each in _KNOWN)
