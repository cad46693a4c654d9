"""Slices of GPUs in MIG mode: how they are read, from what real drivers printed and from damaged answers."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Result
from agentless.model.nodes.cluster import Gpu
from agentless.model.nodes.gpu import GpuSample
from tests.mig import Capture
from tests.pure.build import cluster, seen

GPU = "GPU-00000000-0000-0000-0000-000000000000"


def sample(output: str) -> GpuSample:
    return Nvidia().parse({"nvidia": Result(0, output.encode())})


def states(output: str) -> dict[Any, tuple[str, str]]:
    """What a cluster makes of it: state and reason by number."""
    found: tuple[Gpu, ...] = cluster(seen(sample=sample(output))).nodes["node1"].gpus
    return {gpu.reading.number: (gpu.state, gpu.reason) for gpu in found}


# ---------------------------------------------------------------------- what real drivers print

READ = {
    ("h100", "idle"): [
        ("0/0", "MIG-00000000", "3g.40gb", 40448, 26, []),
        ("0/1", "MIG-00000001", "2g.20gb", 20096, 17, []),
        ("0/2", "MIG-00000002", "1g.10gb", 9984, 9, []),
        ("0/3", "MIG-00000003", "1g.10gb", 9984, 9, []),
    ],
    ("h100", "load"): [
        ("0/0", "MIG-00000000", "3g.40gb", 40448, 11091, [(21180, 2296), (21181, 1272), (21198, 7484)]),
        ("0/1", "MIG-00000001", "2g.20gb", 20096, 17, []),
        ("0/2", "MIG-00000002", "1g.10gb", 9984, 9, []),
        ("0/3", "MIG-00000003", "1g.10gb", 9984, 9, []),
    ],
    ("h200", "idle"): [
        ("0/0", "MIG-00000000", "1c.3g.71gb", 71424, 22, []),
        ("0/1", "MIG-00000001", "2c.3g.71gb", 71424, 22, []),
        ("0/2", "MIG-00000002", "2g.35gb", 33280, 17, []),
        ("0/3", "MIG-00000003", "1g.18gb", 16384, 9, []),
        ("0/4", "MIG-00000004", "1g.18gb", 16384, 9, []),
    ],
    # Both compute instances of a GPU instance share its memory; the second one is in use.
    ("h200", "load"): [
        ("0/0", "MIG-00000000", "1c.3g.71gb", 71424, 16925, []),
        ("0/1", "MIG-00000001", "2c.3g.71gb", 71424, 16925, [(12249, 2194), (12250, 1170), (12267, 13526)]),
        ("0/2", "MIG-00000002", "2g.35gb", 33280, 17, []),
        ("0/3", "MIG-00000003", "1g.18gb", 16384, 9, []),
        ("0/4", "MIG-00000004", "1g.18gb", 16384, 9, []),
    ],
}
"""Written by hand: number, UUID, profile, memory in total and in use, and processes with their memory."""
MODELS = {"h100": "NVIDIA H100 80GB HBM3", "h200": "NVIDIA H200"}


@pytest.mark.parametrize(("card", "load"), READ)
def test_slices_are_read_as_real_drivers_print_them(card: str, load: str) -> None:
    found = sample(Capture(card).output(load))
    assert found.error is None
    assert found.processes is not None
    whole, *slices = found.gpus
    assert (whole.uuid, whole.kind, whole.parent, whole.mig, whole.number) == (GPU, "gpu", None, True, 0)
    assert READ[card, load] == [
        (
            gpu.number,
            gpu.uuid[:12],
            gpu.profile,
            gpu.memory_total_mib,
            gpu.memory_used_mib,
            [(each.pid, each.memory_mib) for each in found.processes if each.gpu_uuid == gpu.uuid],
        )
        for gpu in slices
    ]
    assert {(gpu.kind, gpu.parent, gpu.index, gpu.vendor) for gpu in slices} == {("slice", GPU, 0, "nvidia")}
    assert [gpu.name for gpu in slices] == [f"{MODELS[card]} MIG {gpu.profile}" for gpu in slices]
    # What only the GPU knows is not known of its slices.
    only = ("utilization_pct", "temperature_c", "power_w", "pci_bus_id", "mig", "memory_free_mib")
    assert {getattr(gpu, field) for gpu in slices for field in only} == {None}
    assert {gpu.driver for gpu in slices} == {whole.driver} == {"590.48.01"}


def test_a_loaded_slice_is_foreign_and_the_others_are_free() -> None:
    found = states(Capture("h100").output("load"))
    assert [state for state, _ in found.values()] == ["partitioned", "foreign", "free", "free", "free"]
    assert found[0][1] == "in MIG mode: 1 foreign, 3 free; ask for a slice, like node1::0/1"
    assert found["0/0"][1].startswith("used by process 21180 (/root/tools/memhog, 2.2 GiB) and 2 more")


# ---------------------------------------------------------------------- what is damaged

UNLISTED = "in MIG mode, but nvidia-smi does not list its slices; check nvidia-smi -L on the node"

OLD = (
    "in MIG mode, but its driver names slices as drivers before R470 did; update the driver, or turn MIG mode off "
    "with: sudo nvidia-smi -i 0 -mig 0"
)
EMPTY = (
    "in MIG mode without slices; create some on the node with: sudo nvidia-smi mig -i 0 -cgi PROFILE -C "
    "(-lgip lists profiles), or turn MIG mode off with: sudo nvidia-smi -i 0 -mig 0"
)


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        (r"@slices 0", "@slices 124", UNLISTED),
        (r"@slices 0\n(.*\n)*", "", UNLISTED),
        (r"\n  MIG 2g.20gb     Device  1: .*", "\n  MIG 2g.20gb     Device  1: (UUID: MIG-000", UNLISTED),
        (r"Device  1:", "Device  0:", UNLISTED),
        (r"MIG-0{7}1-0000-0000-0000-0{11}1", "MIG-00000000-0000-0000-0000-000000000000", UNLISTED),
        (r"MIG 2g.20gb", "MIG whole", UNLISTED),
        (r"GPU 0: NVIDIA H100 80GB HBM3 \(UUID: GPU-00000000", "GPU 0: x (UUID: GPU-99999999", UNLISTED),
        (
            r"MIG-00000001-0000-0000-0000-000000000001",
            "MIG-GPU-00000000-0000-0000-0000-000000000000/3/0",
            OLD,
        ),
        (
            r"\n  MIG .*",
            "",
            EMPTY,
        ),
    ],
)
def test_a_gpu_whose_slices_are_not_known_has_none_and_says_why(old: str, new: str, reason: str) -> None:
    output = re.sub(old, new, Capture("h100").output("idle"))
    assert states(output) == {0: ("partitioned", reason)}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"@table 0", "@table 124"),
        (r"@table 0\n", ""),
        (r"\|    0    2    0            21198 .*\n", ""),  # it began in between
        (r"\|    0    2    0            21198 ", "|    0    7    0            21198 "),  # no slice of these instances
        (r"\|  0    2   0   0  \|.*", ""),
    ],
)
def test_a_process_that_cannot_be_told_apart_leaves_no_slice_free(old: str, new: str) -> None:
    found = states(re.sub(old, new, Capture("h100").output("load")))
    parts = [state for number, (state, _) in found.items() if number != 0]
    assert parts == ["unknown"] * 4


def test_the_sentence_names_the_process() -> None:
    found = states(re.sub(r"\|    0    2    0            21198 .*\n", "", Capture("h100").output("load")))
    assert found["0/2"] == (
        "unknown",
        "nvidia-smi does not say which slice process 21198 uses; agentless retries with the next sample",
    )


def test_a_slice_without_memory_is_unknown_and_the_others_are_free() -> None:
    found = states(Capture("h100").output("idle").replace("17MiB / 20096MiB", "N/A / N/A"))
    assert [state for state, _ in found.values()] == ["partitioned", "free", "unknown", "free", "free"]
    assert found["0/1"][1] == "cannot read its memory"


def test_where_the_driver_breaks_off_the_gpu_is_not_said_to_have_no_slices() -> None:
    output = re.sub(r"@gpus 0\n(.*\n)*", "@gpus 255\n", Capture("h100").output("idle"))
    assert states(output) == {0: ("partitioned", UNLISTED)}


def test_a_gpu_beside_it_that_is_whole_is_not_concerned() -> None:
    whole = (
        "1, GPU-000000b1-0000-0000-0000-000000000000, NVIDIA H100 80GB HBM3, 590.48.01, 00000000:00:0A.0, 81559, 7, "
        "81074, 0, 0, 30, 70.00, 700.00, [N/A], 345, 2619, P0, 0, Disabled, Default\n\n@gpus 0"
    )
    for output in (Capture("h100").output("load"), Capture("h100").output("load").replace("@slices 0", "@slices 9")):
        assert states(output.replace("\n@gpus 0", whole))[1] == ("free", "")


@settings(deadline=None)
@given(st.data(), st.sampled_from(["h100", "h200"]))
def test_a_cut_or_damaged_answer_frees_no_slice_that_is_in_use(data: st.DataObject, card: str) -> None:
    """Wherever a character is missing, or all from there on."""
    whole = Capture(card).output("load")
    used = {"h100": "0/0", "h200": "0/1"}[card]
    at = data.draw(st.integers(whole.index("@end"), len(whole) - 1))
    cut = data.draw(st.booleans())
    found = states(whole[:at] if cut else whole[:at] + whole[at + 1 :])
    assert found.get(used, ("gone", ""))[0] != "free"
    assert found.get(0, ("partitioned", ""))[0] in ("partitioned", "unknown")


@pytest.mark.parametrize("says", ["[Unknown Error]", "[Insufficient Permissions]", "Pending"])
def test_a_gpu_whose_mode_cannot_be_read_is_given_to_nobody(says: str) -> None:
    row = "0, GPU-8b4b9de2-1f1d-4b7c-a9d6-4f3c2d1e0f9a, NVIDIA H100, 550.54, 00000000:3B:00.0, 81559, 1, 81080, 0, 0, "
    row += f"30, 70.0, 700.0, [N/A], 345, 1593, P0, 0, {says}, Default"
    (gpu,) = Nvidia().parse({"nvidia": Result(0, f"{row}\n@gpus 0\n@end 0\n".encode())}).gpus
    assert gpu.memory_total_mib == 81559
    assert gpu.barred == "its MIG mode cannot be read; check nvidia-smi -q on the node"
