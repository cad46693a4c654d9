"""Desktops: which programs keep no task from a GPU, and what is said of them."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.words import gpu_reason, gpu_state, memory_in_use
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.inventory.inventory import load
from agentless.model.command import Result
from agentless.model.containers.claim import labels_of
from agentless.model.nodes.cluster import Cluster, Gpu
from agentless.model.nodes.gpu import GpuProcess, GpuSample
from agentless.model.nodes.host_load import HostLoad
from agentless.model.nodes.node import ForeignPolicy, HostFacts
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.task import Running
from agentless.rules.explain.obstacles import brief, refusal
from agentless.rules.nodes.desktop import desktop_processes, program
from agentless.rules.views.publish import gpu_view
from agentless.tui.data.cluster import ClusterState
from agentless.tui.widgets import look
from tests.pure.build import CID, NOW, cluster, container, placement, process, reading, seen, spec, task

CAPTURES = Path(__file__).parent / "data" / "nvidia"
WAYLAND = "/usr/bin/kwin_wayland"


def on_it(*processes: GpuProcess, **config: Any) -> Gpu:
    return cluster(seen(gpus=1, processes=processes), **config).nodes["node1"].gpus[0]


def desktop(name: str = WAYLAND, memory: int | None = 25, pid: int = 2165, **more: Any) -> GpuProcess:
    plain = {"user": "ann", "command": None}
    return process("node1", 0, pid, name=name, memory_mib=memory, **plain | more)


def capture(name: str) -> GpuSample:
    """A recorded card. Who runs its processes was not recorded; the node tells it of each."""
    output = "\n".join(json.loads((CAPTURES / f"{name}.json").read_text())["output"])
    pids = re.findall(r"^>[^,]*, ([0-9]+),", output, re.MULTILINE)
    owners = "".join(f"@owner {pid} 1000 ann\n@cgroup {pid} 0::/user.slice\n" for pid in pids)
    return Nvidia().parse(
        {"nvidia": Result(0, re.sub("^@end ", f"{owners}@end ", output, flags=re.MULTILINE).encode())}
    )


def test_the_card_of_the_recorded_desktop_is_free_and_its_memory_counts() -> None:
    """A real RTX 4080 SUPER: KWin is a compute process there."""
    found = cluster(seen(sample=capture("capture-rtx-4080-super-595.71.05-idle")))
    (gpu,) = found.nodes["node1"].gpus
    assert (gpu.state, gpu.reason, gpu.strangers) == ("free", "", ())
    assert refusal(found, spec(needs=parse_target("1x:14G"))) is None
    assert str(refusal(found, spec(needs=parse_target("1x:15700MiB")))) == (
        "1x:15700MiB: needs 1 GPU; 0 of 1 on node1 are free (GPU 0 has 15 GiB of free memory, not 15700MiB; "
        "kwin_wayland (25 MiB) and the display use the rest)"
    )


def test_the_recorded_desktop_under_load_is_foreign_for_its_load_only() -> None:
    (gpu,) = cluster(seen(sample=capture("capture-rtx-4080-super-595.71.05-under-load"))).nodes["node1"].gpus
    assert gpu.state == "foreign"
    assert [each.name for each in gpu.strangers] == ["ffmpeg", "ffmpeg"]
    assert gpu.reason == "used by ann's process 5022 (ffmpeg, 503 MiB) and 1 more"


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
            f"used by ann's process 2165 ({WAYLAND}, 512 MiB); desktop programs use 512 MiB of GPU memory; to run "
            "tasks beside them, set 'foreign: {below: 1GiB}' for the node in the inventory"
        ),
    )


def test_the_largest_program_of_a_desktop_is_named_and_the_advice_would_do() -> None:
    programs = (desktop("/usr/bin/Xorg", 4, 7), desktop("firefox", 1500, 8), desktop(memory=25))
    found = on_it(*programs)
    assert found.reason.startswith(
        "used by ann's process 8 (firefox, 1.5 GiB) and 2 more; desktop programs use 1.5 GiB"
    )
    assert "set 'foreign: {below: 2GiB}'" in found.reason
    assert on_it(*programs, foreign=ForeignPolicy(below=2 << 30)).state == "free"


def test_another_limit_is_no_advice_while_somebody_else_uses_the_gpu() -> None:
    found = on_it(desktop(memory=1500), process("node1", 0))
    assert found.reason == "used by bob's process 4711 (python train.py, 2 GiB) and 1 more"


def test_all_desktop_programs_on_a_gpu_count_together() -> None:
    assert on_it(*(desktop(memory=100, pid=pid) for pid in range(5))).state == "free"
    assert on_it(*(desktop(memory=100, pid=pid) for pid in range(6))).state == "foreign"


def test_a_desktop_program_whose_memory_is_not_known_is_foreign() -> None:
    found = on_it(desktop(memory=None), desktop(memory=3, pid=8))
    assert found.state == "foreign"
    assert found.reason.endswith(" and 1 more; the GPU memory of a desktop program is not known")


def test_a_desktop_program_is_foreign_if_its_owner_cannot_be_looked_up() -> None:
    """It may run in a container."""
    found = on_it(desktop(user=None), desktop(memory=3, pid=8))
    assert (found.state, found.desktop) == ("foreign", ())
    assert found.reason.endswith(" and 1 more; who runs a desktop program, and in which container, is not known")


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
    assert "has 21.5 GiB of free memory, not 22GiB; kwin_wayland (200 MiB) and the display use the rest" in str(
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
        user=st.none() | st.just("ann"),
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
    assert not any("python" in (each.name or "") or each.user is None for each in found)


# ---------------------------------------------------------------------- inventory

TEXT = """\
version: 1
defaults:
  foreign: {ignore: [Xorg], below: 1GiB}
nodes:
  a: {host: a.lab}
  b: {host: b.lab, foreign: {below: 64MiB}}
  c: {host: c.lab, foreign: {ignore: []}}
  d: {host: d.lab, foreign: null, wsl: {assume: free}}
"""


def test_a_node_overrides_each_key_of_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "inventory.yaml").write_text(TEXT)
    nodes = load(tmp_path / "inventory.yaml").nodes
    assert nodes["a"].foreign == ForeignPolicy(frozenset({"Xorg"}), 1 << 30)
    assert nodes["b"].foreign == ForeignPolicy(frozenset({"Xorg"}), 64 << 20)
    assert nodes["c"].foreign == ForeignPolicy(frozenset(), 1 << 30)
    assert nodes["d"].foreign == ForeignPolicy()
    assert (nodes["c"].assume_free, nodes["d"].assume_free) == (frozenset(), frozenset({"wsl"}))


def _as_json(gpu: Gpu) -> dict[str, Any]:
    return asdict(gpu_view("node1", gpu))


# ---------------------------------------------------------------------- GPUs whose processes nobody lists

WSL = {"assume_free": frozenset({"wsl"})}


def record(name: str, **config: Any) -> Gpu:
    return cluster(seen(sample=capture(name)), **config).nodes["node1"].gpus[0]


@pytest.mark.parametrize("name", ["wsl2", "wsl2-refuses-the-list"])
@pytest.mark.parametrize("assume", [frozenset(), frozenset({"jetson"})])
def test_a_gpu_in_wsl2_is_unknown_until_the_inventory_says_what_to_assume(name: str, assume: frozenset[str]) -> None:
    """No list, and an empty one, say nothing there."""
    found = record(name, assume_free=assume)
    assert (found.state, found.reason) == (
        "unknown",
        (
            "WSL2 does not list what uses it, also in Windows; if only tasks use it, set 'wsl: {assume: free}' for the "
            "node in the inventory"
        ),
    )
    assert found.assumed == ""


@pytest.mark.parametrize("name", ["wsl2", "wsl2-refuses-the-list"])
def test_a_gpu_in_wsl2_that_is_assumed_to_be_free_says_so(name: str) -> None:
    found = record(name, **WSL)
    assert (found.state, found.reason) == ("free", "")
    view = _as_json(found)
    assert gpu_state(view) == "free (assumed)"
    assert gpu_reason(view) == "WSL2 does not list what uses it, also in Windows"


def test_memory_that_windows_uses_is_not_free() -> None:
    found = cluster(seen(sample=capture("wsl2")), **WSL)
    assert refusal(found, spec(needs=parse_target("1x:5G"))) is None
    assert str(refusal(found, spec(needs=parse_target("1x:6G")))).endswith(
        "has 5.2 GiB of free memory, not 6G; programs of Windows use the rest)"
    )


def test_a_program_that_wsl2_does_name_is_foreign_all_the_same() -> None:
    sample = capture("wsl2")
    (gpu,) = sample.gpus
    known = GpuProcess(gpu.uuid, 23, "/python3.10")
    found = cluster(seen(sample=GpuSample((gpu,), (known,))), **WSL).nodes["node1"].gpus[0]
    assert (found.state, found.reason) == ("foreign", "used by process 23 (/python3.10)")
    xwayland = GpuProcess(gpu.uuid, 24, "/Xwayland")
    found = cluster(seen(sample=GpuSample((gpu,), (xwayland,))), **WSL).nodes["node1"].gpus[0]
    assert (found.state, found.desktop) == ("free", (xwayland,))


def test_a_task_in_wsl2_has_no_intruders_since_nobody_knows_whose_a_process_is() -> None:
    sample = capture("wsl2")
    (gpu,) = sample.gpus
    own = GpuProcess(gpu.uuid, 23, "/python3.10")
    at = replace(placement(), gpu_uuids=(gpu.uuid,))
    running = replace(task(), status=Running(at, CID, NOW))
    there = replace(container(task()), labels=labels_of(running, at, "c1"))
    held = seen(sample=GpuSample((gpu,), (own,)), containers=(there,))
    (found,) = cluster(held, (running,), **WSL).nodes["node1"].gpus
    assert (found.state, found.reason, found.intruders) == ("allocated", "held by task t1 of me@here", ())


def test_of_several_gpus_in_wsl2_none_is_given() -> None:
    """A container would see them all."""
    row = "0, GPU-a, NVIDIA RTX A5000, 511.79, 00000000:0{}:00.0, 24564, 1659, 22905, 12"
    more = ", 0, 35, 26.00, 207.00, 100, 210, 405, P8, [N/A], [N/A], Default"
    rows = [row.format(3) + more, row.replace("0, GPU-a", "1, GPU-b").format(4) + more]
    sample = Nvidia().parse({"nvidia": Result(0, "\n".join([*rows, "", "@gpus 0", "@wsl", "@end 0", ""]).encode())})
    for found in cluster(seen(sample=sample), **WSL).nodes["node1"].gpus:
        assert (found.state, found.reason) == (
            "unknown",
            "WSL2 gives every container all GPUs of the machine, so agentless uses only machines with one",
        )


def test_an_answer_that_was_cut_off_is_no_answer_in_wsl2_either() -> None:
    row = "0, GPU-a, NVIDIA L4, 550.54.15, 00000000:03:00.0, 23034, 1, 23033, 0, 0, 35, 16.00, 72.00, [N/A]"
    row += ", 210, 405, P8, 0, [N/A], Default"
    for end in ("@gpus 0\n@wsl", "@gpus 0\n@wsl\n>GPU-a, 1", "@gpus 0\n@wsl\n@end 124\n"):
        sample = Nvidia().parse({"nvidia": Result(0, f"{row}\n\n{end}".encode())})
        assert sample.processes is None, end
        assert cluster(seen(sample=sample), **WSL).nodes["node1"].gpus[0].state == "unknown"


# ---------------------------------------------------------------------- memory of the machine

SPARK = "dgx-spark-unified-memory"


def spark(available: int | None, name: str = SPARK, **config: Any) -> Cluster:
    load = None if available is None else HostLoad(memory_available_mib=available)
    facts = HostFacts(20, 124610)
    return cluster(seen(sample=capture(name), load=load, host=facts), **config)


def test_a_gpu_without_memory_of_its_own_has_that_of_its_machine() -> None:
    (gpu,) = spark(115787).nodes["node1"].gpus
    assert (gpu.state, gpu.reading.memory_total_mib, gpu.reading.memory_used_mib) == ("free", 124610, 8823)
    view = _as_json(gpu)
    assert (view["unified"], memory_in_use(view)) == (True, "8.6/121.7 GiB unified")
    assert gpu_state(view) == "free (desktop)"
    assert gpu_reason(view) == "gnome-shell (61 MiB)"
    assert refusal(spark(115787), spec(needs=parse_target("1x:100G"))) is None
    assert str(refusal(spark(11578), spec(needs=parse_target("1x:100G")))).endswith(
        "has 11.3 GiB of free memory, not 100G; it is the memory of the machine, and other programs use the rest)"
    )


@pytest.mark.parametrize("available", [None, 124611])
def test_without_the_memory_of_its_machine_it_is_unknown(available: int | None) -> None:
    (gpu,) = spark(available).nodes["node1"].gpus
    assert (gpu.state, gpu.reason) == ("unknown", "cannot read its memory")


def test_a_jetson_has_the_memory_of_its_machine_and_lists_no_processes() -> None:
    found = spark(115787, "jetson-orin").nodes["node1"]
    assert found.state == "online"
    assert found.gpus[0].state == "unknown"
    assert found.gpus[0].reason == (
        "the driver of a Jetson does not list what uses it; if only tasks use it, set 'jetson: {assume: free}' for the "
        "node in the inventory"
    )
    (gpu,) = spark(115787, "jetson-orin", assume_free=frozenset({"jetson"})).nodes["node1"].gpus
    assert (gpu.state, gpu.reading.memory_total_mib) == ("free", 124610)


def test_a_card_whose_memory_cannot_be_read_does_not_get_that_of_its_machine() -> None:
    """Such as one whose driver is in trouble."""
    broken = reading("node1", 0, memory_total_mib=None, memory_used_mib=None)
    host = seen(sample=GpuSample((broken,)), load=HostLoad(memory_available_mib=1000))
    assert cluster(host).nodes["node1"].gpus[0].reason == "cannot read its memory"


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("capture-rtx-4080-super-595.71.05-idle", "free"),
        ("capture-rtx-4080-super-595.71.05-under-load", "foreign"),
        ("capture-rtx-2080-super-595.71.05-under-load", "foreign"),
        ("capture-h100-80gb-hbm3-590.48.01-idle", "free"),
        ("xml-rtx-4000-sff-ada-v13", "foreign"),  # Chromium and python
        ("xml-gtx-1070-ti", "free"),
        ("xml-tesla-t4", "foreign"),
        ("geforce-laptop", "free"),
    ],
)
def test_recorded_cards_are_free_but_for_their_work(name: str, gpu: str) -> None:
    """Without fan, ECC or power readings, too."""
    (found,) = cluster(seen(sample=capture(name))).nodes["node1"].gpus
    assert found.state == gpu


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("/usr/lib/xorg/Xorg", "Xorg"),
        ("cosmic-comp", "cosmic-comp"),
        ("/opt/microsoft/msedge/msedge --type=gpu-process --crashpad-handler-p", "msedge"),
        ("/usr/lib/chromium/chromium", "chromium"),
        ("/opt/visual-studio-code/code --type=gpu-process --enable-crash-reporter=", "code"),
        ("/usr/lib/firefox/firefox", "firefox"),
        ("/usr/bin/gnome-shell", "gnome-shell"),
    ],
)
def test_names_that_real_drivers_print_are_known(name: str, file: str) -> None:
    """As in nvidia-xml of influxdata/telegraf."""
    found = desktop(name)
    assert program(found) == file
    assert desktop_processes([found], ForeignPolicy()) == ((found,), "")


# ---------------------------------------------------------------------- dashboard


def test_the_dashboard_shows_what_is_on_a_free_gpu() -> None:
    shown, cards = ClusterState(), [on_it(desktop()), record("wsl2", **WSL)]
    rows = [_as_json(card) for card in cards]
    assert [look.state_of(row, shown) for row in rows] == [("free (desktop)", "good"), ("free (assumed)", "good")]
    assert [look.who(row, shown) for row in rows] == [
        "kwin_wayland (25 MiB)",
        "WSL2 does not list what uses it, also in Windows",
    ]
    assert [look.sign(row, silent=False) for row in rows] == ["·", "·"]
