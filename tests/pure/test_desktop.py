"""Desktops: which programs keep no task from a GPU, and what is said of them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.words import gpu_reason, gpu_state
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.inventory.inventory import load
from agentless.model.command import Result
from agentless.model.nodes.cluster import Gpu
from agentless.model.nodes.gpu import GpuProcess, GpuSample
from agentless.model.nodes.node import ForeignPolicy
from agentless.model.scheduling.needs import parse_target
from agentless.rules.explain.obstacles import brief, refusal
from agentless.rules.nodes.desktop import desktop_processes
from agentless.rules.views.publish import gpu_view
from tests.pure.build import CID, cluster, container, process, reading, seen, spec, task

CAPTURES = Path(__file__).parent / "data" / "nvidia"
WAYLAND = "/usr/bin/kwin_wayland"


def on_it(*processes: GpuProcess, **config: Any) -> Gpu:
    return cluster(seen(gpus=1, processes=processes), **config).nodes["node1"].gpus[0]


def desktop(name: str = WAYLAND, memory: int | None = 25, pid: int = 2165, **more: Any) -> GpuProcess:
    return process("node1", 0, pid, name=name, memory_mib=memory, user=None, command=None, **more)


def capture(name: str) -> GpuSample:
    record = json.loads((CAPTURES / f"{name}.json").read_text())
    return Nvidia().parse({"nvidia": Result(0, "\n".join(record["output"]).encode())})


def test_the_card_of_the_recorded_desktop_is_free_and_its_memory_counts() -> None:
    """A real RTX 4080 SUPER: KWin is a compute process there."""
    found = cluster(seen(sample=capture("capture-rtx-4080-super-595.71.05-idle")))
    (gpu,) = found.nodes["node1"].gpus
    assert (gpu.state, gpu.reason, gpu.strangers) == ("free", "", ())
    assert refusal(found, spec(needs=parse_target("1x:14G"))) is None
    assert str(refusal(found, spec(needs=parse_target("1x:15700MiB")))) == (
        "1x:15700MiB: needs 1 GPU; 0 of 1 on node1 are free (GPU 0 has 15 GiB of free memory, not 15700MiB; "
        "kwin_wayland (25 MiB) and the display take the rest)"
    )


def test_the_recorded_desktop_under_load_is_foreign_for_its_load_only() -> None:
    (gpu,) = cluster(seen(sample=capture("capture-rtx-4080-super-595.71.05-under-load"))).nodes["node1"].gpus
    assert gpu.state == "foreign"
    assert [each.name for each in gpu.strangers] == ["ffmpeg", "ffmpeg"]
    assert gpu.reason == "used by process 5022 (ffmpeg, 503 MiB) and 1 more"


def test_a_free_gpu_is_shown_with_the_desktop_on_it() -> None:
    view = _as_json(on_it(desktop(), desktop("/usr/lib/firefox/firefox -contentproc -childID 3", 140, 7)))
    assert gpu_state(view) == "free (desktop)"
    assert gpu_reason(view) == "kwin_wayland (25 MiB), firefox (140 MiB)"
    assert (view["state"], view["reason"]) == ("free", "")


@pytest.mark.parametrize(
    "name",
    ["python", "Xorg/../python", "/home/eve/Xorg.py", "xorg", "", None, "/usr/bin/python /usr/bin/Xorg", "electron"],
)
def test_any_other_program_is_foreign(name: str | None) -> None:
    assert on_it(desktop(name or "") if name is not None else process("node1", 0, name=None)).state == "foreign"


def test_the_command_line_says_nothing() -> None:
    """Any program may have `Xorg` among its arguments."""
    assert on_it(process("node1", 0, name="python", command="/usr/bin/Xorg", memory_mib=4)).state == "foreign"


def test_who_calls_itself_a_desktop_is_foreign_from_the_limit_on() -> None:
    assert on_it(desktop(memory=511)).state == "free"
    found = on_it(desktop(memory=512))
    assert (found.state, found.reason) == (
        "foreign",
        (
            f"used by process 2165 ({WAYLAND}, 512 MiB); desktop programs use 512 MiB of GPU memory; "
            "they are ignored below 512 MiB"
        ),
    )


def test_all_desktop_programs_on_a_gpu_count_together() -> None:
    assert on_it(*(desktop(memory=100, pid=pid) for pid in range(5))).state == "free"
    assert on_it(*(desktop(memory=100, pid=pid) for pid in range(6))).state == "foreign"


def test_a_desktop_program_whose_memory_is_not_known_is_foreign() -> None:
    found = on_it(desktop(memory=None), desktop(memory=3, pid=8))
    assert found.state == "foreign"
    assert found.reason.endswith(" and 1 more; the GPU memory of a desktop program is not known")


def test_a_browser_in_a_container_is_a_workload() -> None:
    assert on_it(desktop("/usr/bin/chrome", container="a" * 64)).state == "foreign"


def test_a_desktop_beside_a_stranger_is_not_the_one_that_is_named() -> None:
    found = on_it(desktop(), process("node1", 0))
    assert (found.state, found.reason) == ("foreign", "used by bob's process 4711 (python train.py, 2 GiB)")
    assert len(found.processes) == 2


def test_a_desktop_is_no_intruder_on_the_gpu_of_a_task() -> None:
    held = seen(gpus=1, containers=(container(task()),), processes=(desktop(), process("node1", 0, container=CID)))
    (gpu,) = cluster(held, (task(),)).nodes["node1"].gpus
    assert (gpu.state, gpu.reason, gpu.intruders, gpu.strangers) == ("allocated", "held by task t1 of me@here", (), ())
    assert gpu_state(_as_json(gpu)) == "allocated"


def test_a_desktop_closes_no_gpu_to_tasks_that_share_it() -> None:
    """Before the container of a task is known, a process may be its own; a desktop's is not."""
    (gpu,) = cluster(seen(gpus=1, processes=(desktop(),)), (task(state="assigning"),)).nodes["node1"].gpus
    assert gpu.closed == ""


def test_a_policy_of_its_own() -> None:
    policy = ForeignPolicy(frozenset({"blender"}), 2 << 30)
    assert on_it(desktop("/opt/blender", 1500), foreign=policy).state == "free"
    assert on_it(desktop(memory=4), foreign=policy).state == "foreign"


def test_enough_free_memory_is_explained_on_every_face() -> None:
    full = reading("node1", 0, memory_used_mib=1034, memory_free_mib=22000)
    found = cluster(seen(sample=GpuSample((full,), (desktop(memory=200),))))
    wanted = spec(needs=parse_target("1x:22GiB"))
    assert brief(found, wanted) == "needs 1 GPU; 0 of 1 on node1 are free"
    assert "has 21.5 GiB of free memory, not 22GiB; kwin_wayland (200 MiB) and the display take the rest" in str(
        refusal(found, wanted)
    )


NAMES = st.sampled_from([WAYLAND, "Xorg", "python", "", "/a b/Xorg", "firefox -x"])
PROCESSES = st.lists(
    st.builds(
        GpuProcess,
        st.just("GPU-a"),
        st.integers(1, 99),
        NAMES,
        st.none() | st.integers(0, 600),
        container=st.none() | st.just("c" * 64),
    )
)


@given(PROCESSES, st.integers(1, 1 << 30))
def test_what_is_ignored_is_known_listed_outside_containers_and_below_the_limit(
    processes: list[GpuProcess], below: int
) -> None:
    found, why = desktop_processes(processes, ForeignPolicy(below=below))
    assert not (found and why)
    assert sum(each.memory_mib << 20 for each in found if each.memory_mib is not None) < below or not found
    assert all(each in processes and each.container is None and each.memory_mib is not None for each in found)
    assert not any("python" in (each.name or "") for each in found)


# ---------------------------------------------------------------------- inventory

TEXT = """\
version: 1
defaults:
  foreign: {ignore: [Xorg], below: 1GiB}
nodes:
  a: {host: a.lab}
  b: {host: b.lab, foreign: {below: 64MiB}}
  c: {host: c.lab, foreign: {ignore: []}}
  d: {host: d.lab, foreign: null}
"""


def test_a_node_overrides_each_key_of_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(TEXT)
    nodes = load(tmp_path / "inventory.yaml").nodes
    assert nodes["a"].foreign == ForeignPolicy(frozenset({"Xorg"}), 1 << 30)
    assert nodes["b"].foreign == ForeignPolicy(frozenset({"Xorg"}), 64 << 20)
    assert nodes["c"].foreign == ForeignPolicy(frozenset(), 1 << 30)
    assert nodes["d"].foreign == ForeignPolicy()


def _as_json(gpu: Gpu) -> dict[str, Any]:
    return asdict(gpu_view("node1", gpu))
