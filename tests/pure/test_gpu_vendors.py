"""Several GPU vendors as one: whose GPUs a node has, and what gives them to a task, and hides the others'."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.errors import UsageError
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.gpus.vendors import GpuVendors
from agentless.model.command import Result
from agentless.model.nodes.device import Device
from agentless.model.nodes.engine import Injection, ToolkitFacts
from agentless.model.nodes.gpu import GpuFault, GpuReading, GpuSample, GpuTopology
from agentless.model.nodes.node import EngineFacts
from agentless.model.tasks.spec import Mount, TaskSpec, Volume, check_devices_are_ours, check_no_device_mounts
from agentless.rules.nodes.gpu_findings import find_faults
from tests.engines import RENDERER
from tests.fleet.acme import Acme
from tests.pure.build import cluster, seen

BOTH = GpuVendors((Nvidia(), Acme()))
NONE = Result(0, b"@gpus none\n")
HANGS = Result(0, b"@gpus 124\n")
ONE = Result(0, b"0,ACME-a,65536,12\n")


def test_a_node_has_the_gpus_of_the_vendor_that_names_some() -> None:
    found = BOTH.parse({"nvidia": NONE, "acme": ONE})
    assert ([gpu.device for gpu in found.gpus], found.error) == ([Device("ACME-a", vendor="acme")], None)


def test_what_another_vendors_driver_could_not_do_is_said_of_the_node() -> None:
    found = BOTH.parse({"nvidia": HANGS, "acme": ONE})
    assert (len(found.gpus), found.hung) == (1, True)
    assert "did not answer" in (found.error or "")


def test_a_node_without_gpus_has_none_of_any_vendor() -> None:
    assert BOTH.parse({"nvidia": NONE, "acme": Result(127)}).gpus == ()


def test_a_node_whose_only_vendor_with_gpus_lists_none_is_degraded_for_that_reason() -> None:
    found = GpuVendors((Acme(), Nvidia())).parse({"acme": Result(127), "nvidia": HANGS})
    assert (found.gpus, found.processes, found.hung) == ((), None, True)
    now = cluster(seen(sample=found)).nodes["node1"]
    assert (now.state, now.reason) == ("degraded", found.error)


def test_every_vendor_is_asked_in_one_script() -> None:
    assert [section.name for section in BOTH.sections(RENDERER)] == ["nvidia", "acme"]


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        (
            [Device("GPU-1", vendor="nvidia"), Device("GPU-2", vendor="nvidia")],
            Injection(
                ("--gpus", '"device=GPU-1,GPU-2"'),
                {"NVIDIA_VISIBLE_DEVICES": "GPU-1,GPU-2", "ACME_VISIBLE_DEVICES": "none"},
            ),
        ),
        (
            [Device("ACME-a", vendor="acme")],
            Injection(
                ("--device", "/dev/acme/ACME-a"),
                {"NVIDIA_VISIBLE_DEVICES": "void", "ACME_VISIBLE_DEVICES": "ACME-a"},
            ),
        ),
        ([], Injection((), {"NVIDIA_VISIBLE_DEVICES": "void", "ACME_VISIBLE_DEVICES": "none"})),
    ],
)
def test_a_task_gets_its_devices_and_sees_no_others(devices: list[Device], expected: Injection) -> None:
    assert BOTH.injection("docker", devices) == expected


def test_a_device_of_which_nobody_has_said_whose_it_is_is_the_first_vendors() -> None:
    """As in the state of a controller from before there were others."""
    assert BOTH.injection("podman", [Device("GPU-1")]).arguments == ("--device", "nvidia.com/gpu=GPU-1")


def test_a_docker_without_nvidias_hook_gets_each_gpu_by_its_uuid() -> None:
    facts = EngineFacts(toolkits={"nvidia": ToolkitFacts("cdi")})
    found = GpuVendors((Nvidia(),)).injection("docker", [Device("GPU-1"), Device("GPU-2")], facts)
    words = ("--device", "nvidia.com/gpu=GPU-1", "--device", "nvidia.com/gpu=GPU-2")
    assert found == Injection(words, {"NVIDIA_VISIBLE_DEVICES": "void"})


def test_a_process_without_a_container_is_told_of_its_gpus() -> None:
    found = GpuVendors((Nvidia(),)).injection("systemd", [Device("GPU-1", vendor="nvidia")])
    assert found == Injection((), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "GPU-1"})


@pytest.mark.parametrize(
    ("env", "container", "words"),
    [
        ("NVIDIA_VISIBLE_DEVICES", None, "variable NVIDIA_VISIBLE_DEVICES is reserved for agentless; choose"),
        ("ACME_VISIBLE_DEVICES", None, "variable ACME_VISIBLE_DEVICES is reserved for agentless; choose"),
        ("NVIDIA_VISIBLE_DEVICES", "NULL", "variable NVIDIA_VISIBLE_DEVICES is reserved for agentless; choose"),
        (
            "CUDA_VISIBLE_DEVICES",
            "NULL",
            "CUDA_VISIBLE_DEVICES is reserved for agentless with --container NULL; request",
        ),
    ],
)
def test_the_variables_of_a_vendor_are_not_for_tasks_to_set(env: str, container: str | None, words: str) -> None:
    for fields in ({"env": {env: "all"}}, {"secret_env": (env,)}):
        of = TaskSpec(("true",), container=container, **fields)  # type: ignore[arg-type]
        with pytest.raises(UsageError, match=words):
            check_devices_are_ours(of, BOTH.reserved("docker"), BOTH.reserved("systemd"))


def test_a_container_may_have_variables_of_its_own_for_the_gpus_that_it_sees() -> None:
    of = TaskSpec(("true",), env={"CUDA_VISIBLE_DEVICES": "1", "CUDA_DEVICE_ORDER": "FASTEST_FIRST"})
    check_devices_are_ours(of, BOTH.reserved("docker"), BOTH.reserved("systemd"))


def test_gpus_are_hidden_from_images_that_would_show_them_and_from_no_others() -> None:
    assert BOTH.hiding(["PATH", "CUDA_VERSION"]) == {"NVIDIA_VISIBLE_DEVICES": "void"}
    assert BOTH.hiding(["PATH"]) == {}


def test_a_claim_to_a_slice_names_the_whole_gpu_too() -> None:
    assert Device("GPU-1").claimed == ("GPU-1",)
    assert Device("MIG-1", "slice", parent="GPU-1").claimed == ("GPU-1", "GPU-1_MIG-1")


def test_a_fault_keeps_its_gpu_out_by_the_name_that_its_vendor_gives_it() -> None:
    gpu = GpuReading(0, "ACME-a", pci_bus_id="0000:01:00.0")
    fault = GpuFault("0000:01:00.0", "RAS 7", "…", 12.5, meaning="the memory cannot be trusted")
    (found,) = find_faults(GpuSample((gpu,)), (gpu,), (fault,))
    assert (found.gpu, found.key, found.reason) == ("ACME-a", "ras 7 12.5", "RAS 7: the memory cannot be trusted")
    assert find_faults(GpuSample((gpu,)), (gpu,), (replace(fault, meaning=None),)) == ()


@pytest.mark.parametrize("target", ["/all", "", "/../nvidia-container-devices/0", "0", "/cdi/nvidia.com/gpu/0"])
def test_a_mount_that_requests_gpus_is_not_for_tasks_to_set(target: str) -> None:
    path = f"/var//run/nvidia-container-devices{target}"
    for fields in ({"mounts": (Mount("/dev/null", path),)}, {"volumes": (Volume("data", path),)}):
        with pytest.raises(UsageError, match="requests GPUs, and agentless gives them; use --gpus"):
            check_no_device_mounts(TaskSpec(("true",), **fields), BOTH.device_mounts)  # type: ignore[arg-type]
    beside = TaskSpec(("true",), mounts=(Mount("/dev/null", f"/data{path}"),))
    check_no_device_mounts(beside, BOTH.device_mounts)


def test_the_inventory_knows_such_paths_of_every_vendor_by_their_names() -> None:
    assert BOTH.device_mounts
    assert all("-container-devices" in path for path in BOTH.device_mounts)


@pytest.mark.parametrize(
    ("engine", "way", "expected"),
    [
        ("docker", "runtime", Injection(("--gpus", '"device=MIG-1"'), {"NVIDIA_VISIBLE_DEVICES": "MIG-1"})),
        ("docker", "cdi", Injection(("--device", "nvidia.com/gpu=MIG-1"), {"NVIDIA_VISIBLE_DEVICES": "void"})),
        ("podman", "cdi", Injection(("--device", "nvidia.com/gpu=MIG-1"), {"NVIDIA_VISIBLE_DEVICES": "void"})),
        ("systemd", None, Injection((), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": "MIG-1"})),
    ],
)
def test_a_slice_is_given_by_its_own_uuid(engine: Any, way: Any, expected: Injection) -> None:
    facts = EngineFacts(toolkits={"nvidia": ToolkitFacts(way)})
    assert GpuVendors((Nvidia(),)).injection(engine, [Device("MIG-1", "slice", "GPU-1", "nvidia")], facts) == expected


NVIDIA = b"0, GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a, NVIDIA H100, 550.54, 00000000:3B:00.0, 81559, 1, 81080, 0"
LISTED = b"%b%b\n@gpus 0\n" % (NVIDIA, b", [N/A]" * 11)
WHOLE, UNLISTED = Result(0, LISTED + b"@end 0\n"), Result(0, LISTED + b"@end 124\n")


def test_numbers_go_on_from_vendor_to_vendor() -> None:
    found = BOTH.parse({"nvidia": WHOLE, "acme": ONE})
    assert [(gpu.index, gpu.vendor, gpu.hidden) for gpu in found.gpus] == [(0, "nvidia", ""), (1, "acme", "")]
    assert (found.error, found.processes) == (None, ())


def test_processes_that_one_vendor_cannot_tell_leave_its_gpus_unknown_alone() -> None:
    found = BOTH.parse({"nvidia": UNLISTED, "acme": ONE})
    assert [(gpu.vendor, bool(gpu.hidden)) for gpu in found.gpus] == [("nvidia", True), ("acme", False)]
    assert (found.processes, found.hung) == ((), True)


def test_gpus_whose_numbers_are_not_known_are_given_to_nobody() -> None:
    """A driver that lists nothing has GPUs all the same: those behind them would have their numbers."""
    found = BOTH.parse({"nvidia": HANGS, "acme": ONE})
    assert found.processes is None


def test_links_have_the_numbers_of_the_node() -> None:
    class Joined(Acme):
        def parse_topology(self, sections: object) -> GpuTopology:
            del sections
            return GpuTopology({(0, 1): 6}, {0: 1})

    found = GpuVendors((Nvidia(), Joined())).parse_topology({"nvidia": WHOLE, "acme": ONE})
    assert found == GpuTopology({(1, 2): 6}, {1: 1})
