"""The checks of doctor: what each finds wrong, and the command that mends it on each distribution."""

from __future__ import annotations

import ast
import re
import stat
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from agentless.cli.nodes.doctor_script import Script, script_of, write
from agentless.engines.docker import checkup as engine_checkup
from agentless.engines.docker.commands import Commands
from agentless.engines.docker.dialect import DOCKER
from agentless.errors import AuthFailed, HostKeyRejected, Refused, Unreachable
from agentless.gpus.nvidia import checkup as nvidia_checkup
from agentless.gpus.nvidia.checks import checks as nvidia_checks
from agentless.gpus.nvidia.checks import install_toolkit
from agentless.gpus.nvidia.complaints import LIST_DEVICES
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import Result
from agentless.model.nodes.check import SKIPPED, Check, VendorChecks
from agentless.model.nodes.checkup import (
    Approach,
    Checkup,
    Contact,
    Disk,
    EngineCheckup,
    Folder,
    Machine,
    Socket,
    System,
)
from agentless.model.nodes.engine import ToolkitFacts
from agentless.model.nodes.gpu import GpuFault, GpuSample
from agentless.model.nodes.node import Breakdown, EngineFacts, NodeConfig
from agentless.model.nodes.sessions import Sessions
from agentless.model.tasks.spec import Mount
from agentless.remote import checkup as machine_checkup
from agentless.rules.nodes.checks import connection, gpus, remedies
from agentless.rules.nodes.checks import engine as engine_checks
from agentless.rules.nodes.checks import machine as machine_checks
from agentless.rules.nodes.checks.examine import examine
from agentless.rules.nodes.checks.machine import named_folders
from agentless.rules.views.publish import check_view
from tests.engines import RENDERER
from tests.pure.build import NOW, cluster, reading, seen

ROOT = Path(__file__).parents[2]
DEBIAN = System("debian", (), "Debian GNU/Linux 12", "apt", is_root=True)
APPROACH = Approach("node1", "node1.lab", 22, "ann", addresses=("10.0.0.1",), banner="SSH-2.0-OpenSSH_9.2")
MACHINE = Machine(
    DEBIAN, "ann", "/bin/bash", "/usr/bin:/bin", (), True, 0.0, 1.0, None, 64 << 30, 60 << 30, "v2", "6.1", "x86_64"
)
ENGINE = EngineCheckup(
    "/usr/bin/docker",
    socket=Socket("/var/run/docker.sock", True, True, "root:docker 660"),
    disk=Disk("/var/lib/docker", 100 << 30, 50 << 30),
    driver="overlay2",
    registry="docker.io",
)
WELL = Checkup(APPROACH, Contact(began=0.1, noise=0), MACHINE, ENGINE)


def found(known: Checkup = WELL, **changes: Any) -> tuple[Check, ...]:
    return examine(cluster(seen(**changes)).nodes["node1"], known, VendorChecks())


def wrong(*checks: Check) -> dict[str, Check]:
    """Those that are not ok, without the sum of the connection."""
    return {check.name: check for check in checks if check.verdict in ("failed", "warning") and check.name != "reach"}


def only(*checks: Check) -> Check:
    """The only one that is not ok."""
    ((_, check),) = wrong(*checks).items()
    return check


def test_a_healthy_node_passes_every_check() -> None:
    assert {check.verdict for check in found()} == {"ok"}
    assert [check.name for check in found()] == [
        *("name", "tcp", "ssh", "host-key", "login", "shell", "reach"),
        *("path", "clock", "memory", "flock", "cgroups"),
        *("command", "socket", "docker", "storage", "disk", "registry", "nvidia", "numa", "toolkit"),
    ]


# ---------------------------------------------------------------------- what was published before


MISSING = {"nvidia": ToolkitFacts(None, fix=Nvidia.toolkit.fixes["docker"])}


def doctor(**changes: Any) -> dict[str, tuple[bool | None, str]]:
    views = [check_view("node1", check) for check in found(Checkup(), **changes)]
    return {view.check: (view.ok, view.detail) for view in views if view.check != "shell"}


def test_the_engine_is_called_by_its_name() -> None:
    assert doctor()["toolkit"][1] == "Docker can use GPUs"


def test_nothing_is_claimed_of_a_node_that_cannot_be_reached() -> None:
    checks = doctor(error="no route")
    assert checks.pop("reach") == (False, "no route")
    assert set(checks.values()) == {(None, "skipped; fix the failed check above first")}
    assert {"docker", "nvidia", "toolkit"} <= checks.keys()


def test_each_check_that_fails_has_its_own_words() -> None:
    down = doctor(engine=EngineFacts(error="no daemon"))
    assert (down["docker"], down["toolkit"]) == ((False, "no daemon"), (None, SKIPPED))
    assert doctor(sample=GpuSample((), None, "no driver"))["nvidia"] == (False, "no driver")
    sample = GpuSample((reading("node1", 0, vendor="nvidia"),))
    without = doctor(sample=sample, engine=EngineFacts("28.2.2", toolkits=MISSING, containers=()))
    assert without["toolkit"][0] is False
    assert "nvidia-container-toolkit" in without["toolkit"][1]


def test_a_node_without_gpus_needs_no_toolkit() -> None:
    assert doctor(gpus=0, engine=EngineFacts("28.2.2", toolkits=MISSING, containers=()))["toolkit"][0] is True


def test_gpus_of_one_driver_are_counted_in_words() -> None:
    assert doctor(gpus=1)["nvidia"] == (True, "1 GPU, driver 550.54.15")
    assert doctor(gpus=2)["nvidia"] == (True, "2 GPUs, driver 550.54.15")
    unknown = GpuSample((reading("node1", 0, driver=None),))
    assert doctor(sample=unknown)["nvidia"] == (True, "1 GPU")


def test_each_vendor_with_gpus_has_a_check_of_its_driver_and_no_other_has() -> None:
    amd = reading("node1", 1, vendor="amd", driver="6.3.6")
    alone = doctor(sample=GpuSample((amd,)))
    assert (alone["amd"], "nvidia" in alone) == ((True, "1 GPU, driver 6.3.6"), False)
    both = doctor(sample=GpuSample((reading("node1", 0, vendor="nvidia"), amd)))
    assert (both["nvidia"], both["amd"]) == ((True, "1 GPU, driver 550.54.15"), (True, "1 GPU, driver 6.3.6"))
    assert doctor(sample=GpuSample((amd,), None, "amd-smi hangs"))["amd"] == (False, "amd-smi hangs")


def test_without_a_gpu_it_is_said_what_runs_there() -> None:
    without = EngineFacts("28.2.2", toolkits=MISSING, containers=())
    assert doctor(sample=GpuSample(()), engine=without)["nvidia"] == (True, "no GPU: CPU tasks only")


def test_an_engine_that_can_hand_out_gpus_where_none_is_found_is_a_warning() -> None:
    check = only(*(each for each in found(sample=GpuSample(())) if each.name == "nvidia"))
    assert (check.verdict, check.wrong) == ("warning", "Docker can hand out GPUs, but none is found")


@pytest.mark.parametrize("missing", ["engine", "sample"])
def test_what_has_not_answered_yet_is_neither_well_nor_ill(missing: str) -> None:
    checks = doctor(**{missing: None})
    assert [(check, ok) for check, (ok, _) in checks.items()] == [("reach", True), ("docker", None)]


@pytest.mark.parametrize(("fault", "check"), [("engine", "docker"), ("start", "docker"), ("gpus", "toolkit")])
def test_a_launch_that_failed_is_told_where_the_trouble_is(fault: Any, check: str) -> None:
    checks = doctor(broken=Breakdown("no hook", fault, bare=False, again=NOW, pause=5))
    assert checks.pop(check) == (
        False,
        "no hook; after the fix, run: agentless nodes resume node1 (or let a task try the node)",
    )
    assert {ok for ok, _ in checks.values()} == {True}


def test_a_machine_with_two_names_fails_its_check() -> None:
    checks = examine(cluster(seen()).nodes["node1"], WELL, VendorChecks(), "it is node2")
    assert only(*checks).detail == "it is node2"


# ---------------------------------------------------------------------- the way to the node


def unreached(failure: Unreachable, approach: Approach = APPROACH, *, logged_in: bool = False) -> tuple[Check, ...]:
    return found(Checkup(approach, Contact(failure, logged_in)), error=str(failure))


@pytest.mark.parametrize(("stopped", "check"), [("route", "name"), ("name", "name"), ("tcp", "tcp"), ("ssh", "ssh")])
def test_the_first_step_that_fails_is_the_one_that_is_red(stopped: Any, check: str) -> None:
    approach = replace(APPROACH, stopped=stopped, error="trouble")
    assert only(*unreached(Unreachable("no"), approach)).name == check


def test_a_port_at_which_nobody_answers_is_compared_with_22() -> None:
    approach = replace(APPROACH, port=2222, stopped="tcp", error="Connection refused")
    assert "systemctl enable --now ssh" in only(*unreached(Unreachable("no"), approach)).fix
    bad = only(*unreached(Unreachable("no"), replace(approach, usual="SSH-2.0-OpenSSH_9.2")))
    assert bad.wrong == (
        "port 2222 of node1.lab cannot be reached (Connection refused), but an SSH server answers at port 22 "
        "(SSH-2.0-OpenSSH_9.2)"
    )
    assert (bad.here, bad.fix) == (
        True, "# Set 'port: 22' for node1 in ~/.ssh/config (Port), or in the inventory."
    )  # fmt: skip


def test_the_address_that_answers_is_named() -> None:
    checks = {check.name: check.seen for check in found(replace(WELL, contact=Contact(address="ann@vpn", began=0.1)))}
    assert (checks["login"], checks["reach"]) == ("ann@vpn", "ann@vpn via asyncssh")


def test_a_step_that_fails_is_no_trouble_while_the_node_answers() -> None:
    assert wrong(*found(replace(WELL, approach=replace(APPROACH, stopped="tcp", error="trouble")))) == {}


def test_a_key_that_is_not_known_and_one_that_has_changed_are_mended_in_two_ways() -> None:
    key = {"host": "[node1]:2222", "key": "ssh-ed25519 AAAA", "fingerprint": "SHA256:new"}
    assert only(*unreached(HostKeyRejected("unknown", **key))).fix == "agentless nodes trust node1"
    changed = only(*unreached(HostKeyRejected("changed", **key, recorded=("SHA256:old",), file="/home/a b/known")))
    assert changed.fix == (
        "# Another machine may pretend to be it: compare the key first. Then:\n"
        "# ssh-keygen -R '[node1]:2222' -f '/home/a b/known'\n# agentless nodes trust node1"
    )
    assert changed.here
    revoked = only(*unreached(HostKeyRejected("revoked", **key, recorded=("SHA256:new",), revoked=True)))
    assert revoked.fix == ""


def test_a_login_that_is_refused_is_mended_by_the_key() -> None:
    refused = only(*unreached(AuthFailed("rejected; run: ssh-copy-id ann@node1", "rejected", "ssh-copy-id ann@node1")))
    assert (refused.name, refused.wrong, refused.fix) == ("login", "rejected", "ssh-copy-id ann@node1")
    assert only(*unreached(Unreachable("closed the connection"))).name == "login"


def test_after_the_login_it_is_the_shell() -> None:
    assert only(*unreached(Unreachable("ended the shell"), logged_in=True)).name == "shell"


def test_what_is_behind_a_jump_host_or_a_proxy_is_not_claimed_to_have_been_seen() -> None:
    jump = found(replace(WELL, approach=replace(APPROACH, via="jump host gate")))
    assert [check.seen for check in jump[:3] if "behind it was not looked at" not in check.seen] == []
    proxied = found(replace(WELL, approach=replace(APPROACH, proxied=True, via="a ProxyCommand")))
    assert {check.seen for check in proxied[:3]} == {"a ProxyCommand connects; not looked at"}


def test_a_shell_that_prints_or_is_slow_is_a_warning() -> None:
    noisy = only(*found(replace(WELL, contact=Contact(noise=9000, began=0.1))))
    assert (noisy.name, noisy.verdict) == ("shell", "warning")
    assert "~/.bashrc" in noisy.fix
    assert only(*found(replace(WELL, contact=Contact(noise=0, began=4.0)))).wrong == (
        "the login shell takes 4.0 s to start"
    )


def test_few_sessions_are_a_warning() -> None:
    limited = replace(WELL, contact=Contact(sessions=Sessions(1, 1, each=1, total=4), began=0.1))
    assert only(*found(limited)).name == "sessions"


# ---------------------------------------------------------------------- the machine


@pytest.mark.parametrize(
    ("change", "check", "verdict"),
    [
        ({"lacks": ("timeout", "grep")}, "path", "failed"),
        ({"ahead": 60.0}, "clock", "warning"),
        ({"ahead": -3600.0}, "clock", "failed"),
        ({"memory_available": 1 << 20}, "memory", "warning"),
        ({"has_flock": False}, "flock", "failed"),
        ({"cgroups": ""}, "cgroups", "warning"),
        ({"folders": (Folder("local_temp", "/scratch", "missing"),)}, "local_temp", "failed"),
        ({"folders": (Folder("local_temp", "/scratch", "not writable"),)}, "local_temp", "failed"),
        ({"folders": (Folder("local_temp", "/scratch", "full"),)}, "local_temp", "failed"),
        ({"folders": (Folder("shared_dir", "/nfs", "missing"),)}, "shared_dir", "failed"),
        ({"folders": (Folder("shared_dir", "/nfs", "hangs"),)}, "shared_dir", "failed"),
        ({"folders": (Folder("shared_dir", "/nfs", "not writable"),)}, "shared_dir", "warning"),
        ({"folders": (Folder("cuda", "/usr/local/cuda-1/.", "missing", writable=False),)}, "cuda", "warning"),
    ],
)
def test_each_trouble_of_the_machine_turns_its_line_red(change: dict[str, Any], check: str, verdict: str) -> None:
    bad = only(*found(replace(WELL, machine=replace(MACHINE, **change))))
    assert (bad.name, bad.verdict) == (check, verdict)
    assert bad.fix


def test_a_clock_within_what_the_question_took_is_right() -> None:
    assert wrong(*found(replace(WELL, machine=replace(MACHINE, ahead=9.0, unsure=5.0)))) == {}


# ---------------------------------------------------------------------- the engine


@pytest.mark.parametrize(
    ("change", "check", "fix"),
    [
        ({"program": None}, "command", "apt-get install -y docker.io\nsystemctl enable --now docker"),
        ({"program": None, "elsewhere": "/snap/bin/docker"}, "command", "ln -s -- /snap/bin/docker /usr/local/bin/"),
        ({"fault": "denied", "words": "permission denied"}, "socket", "sudo usermod -aG docker ann"),
        ({"fault": "sudo", "words": "sudo: a password is required"}, "socket", "NOPASSWD"),
        ({"fault": "down", "words": "Cannot connect"}, "docker", "systemctl enable --now docker"),
    ],
)
def test_each_trouble_with_the_engine_turns_its_line_red(change: dict[str, Any], check: str, fix: str) -> None:
    facts = EngineFacts(error="no engine")
    bad = only(*found(replace(WELL, engine=replace(ENGINE, **change)), engine=facts))
    assert (bad.name, bad.verdict) == (check, "failed")
    assert fix in bad.fix


@pytest.mark.parametrize(
    ("change", "check", "verdict"),
    [
        ({"disk": Disk("/var/lib/docker", 9 << 30, 1 << 20)}, "disk", "failed"),
        ({"disk": Disk("/var/lib/docker", 9 << 30, 1 << 30)}, "disk", "warning"),
        ({"driver": "vfs"}, "storage", "warning"),
        ({"unreachable": "no such host"}, "registry", "warning"),
        ({"network": "lab", "has_network": False}, "network", "failed"),
    ],
)
def test_each_trouble_of_an_engine_that_answers(change: dict[str, Any], check: str, verdict: str) -> None:
    bad = only(*found(replace(WELL, engine=replace(ENGINE, **change))))
    assert (bad.name, bad.verdict) == (check, verdict)


def test_missing_control_groups_are_one_warning() -> None:
    """Placement goes by limits, so tasks without one run there."""
    facts = EngineFacts("28", containers=(), lacks=frozenset({"memory"}))
    limits = only(*found(engine=facts))
    assert (limits.name, limits.verdict) == ("limits", "warning")


def test_mounts_are_one_line_that_names_what_is_missing() -> None:
    paths = ("/a", "/b", "/c")
    mounts = [Folder("mounts", path, "missing" if path != "/b" else "", writable=False) for path in paths]
    bad = only(*found(replace(WELL, machine=replace(MACHINE, folders=tuple(mounts)))))
    assert (bad.verdict, bad.wrong) == ("failed", "/a does not exist, /c does not exist (mounts in the inventory)")
    well = found(replace(WELL, machine=replace(MACHINE, folders=tuple(replace(each, problem="") for each in mounts))))
    assert next(check.seen for check in well if check.name == "mounts") == "/a, /b, /c are there"


def test_what_the_inventory_names_is_looked_for() -> None:
    config = NodeConfig("n", "h", local_temp="/t", shared_dir="/s", cuda="/cuda", mounts=(Mount("/d", "/data"),))
    assert [(each.key, each.path, each.writable) for each in named_folders(config)] == [
        ("local_temp", "/t", True), ("shared_dir", "/s", True), ("mounts", "/d", False), ("cuda", "/cuda/.", False),
    ]  # fmt: skip


# ---------------------------------------------------------------------- engines of other kinds


ROOTLESS = EngineFacts("28.5.2", containers=(), rootless=True, cgroup_version=2, lacks=frozenset({"memory"}))
OLD = EngineFacts("20.10.24+dfsg1", containers=())
PODMAN = EngineFacts("podman 5.4.2", containers=())
USER = replace(DEBIAN, is_root=False)


def fix_of(check: str, facts: EngineFacts, system: System = DEBIAN, docker: str = "docker", **change: Any) -> str:
    """What mends this check of an engine."""
    node = cluster(seen(engine=facts)).nodes["node1"]
    node = replace(node, config=replace(node.config, docker=(docker,)))
    known = replace(WELL, machine=replace(MACHINE, system=system), engine=replace(ENGINE, **change))
    return next(each.fix for each in examine(node, known, VendorChecks()) if each.name == check)


@pytest.mark.parametrize(
    ("facts", "docker", "place", "restart"),
    [
        (EngineFacts("28", containers=()), "docker", "/etc/docker/daemon.json", "# systemctl restart docker"),
        (OLD, "docker", "/etc/systemd/system/docker.service.d/http-proxy.conf", "# systemctl restart docker"),
        (ROOTLESS, "docker", "~/.config/docker/daemon.json", "# systemctl --user restart docker"),
        (PODMAN, "podman", "/etc/containers/containers.conf", 'env = ["https_proxy=http://PROXY:3128"]'),
        (replace(PODMAN, rootless=True), "podman", "~/.config/containers/containers.conf", "https_proxy"),
    ],
)
def test_a_proxy_is_set_where_this_engine_reads_it(facts: EngineFacts, docker: str, place: str, restart: str) -> None:
    fix = fix_of("registry", facts, docker=docker, unreachable="no such host")
    assert f"in {place}" in fix
    assert restart in fix
    assert "docker" not in fix.partition("Behind a proxy")[2] or docker == "docker"


@pytest.mark.parametrize(
    ("facts", "docker", "place"),
    [
        (OLD, "docker", "/etc/docker/daemon.json"),
        (ROOTLESS, "docker", "~/.config/docker/daemon.json"),
        (PODMAN, "podman", "/etc/containers/storage.conf"),
    ],
)
def test_a_storage_driver_is_set_where_this_engine_reads_it(facts: EngineFacts, docker: str, place: str) -> None:
    assert f"In {place}" in fix_of("storage", facts, docker=docker, driver="vfs")


@pytest.mark.parametrize(
    ("manager", "words"),
    [
        ("apt", "sudo tee /etc/default/grub.d/agentless.cfg\nsudo update-grub\n# Reboot the node: sudo reboot"),
        (
            "dnf",
            "--args='cgroup_enable=memory swapaccount=1'\n# Reboot the node: sudo reboot",
        ),
        ("zypper", "sudo grub2-mkconfig -o /boot/grub2/grub.cfg"),
        ("pacman", "sudo grub-mkconfig -o /boot/grub/grub.cfg"),
        ("apk", "sudo update-extlinux"),
        ("", "# Add to the command line of the kernel: cgroup_enable=memory"),
    ],
)
def test_a_control_group_is_switched_on_as_the_distribution_boots(manager: Any, words: str) -> None:
    lacking = replace(OLD, lacks=frozenset({"memory"}))
    assert words in fix_of("limits", lacking, replace(USER, manager=manager))


def test_a_rootless_engine_gets_its_control_groups_by_delegation_and_needs_version_2() -> None:
    fix = fix_of("limits", ROOTLESS, USER)
    assert "Delegate=cpu cpuset io memory pids" in fix
    assert "cgroup_enable" not in fix
    assert "systemd.unified_cgroup_hierarchy=1" not in fix
    assert "systemd.unified_cgroup_hierarchy=1" in fix_of("limits", replace(ROOTLESS, cgroup_version=1), USER)


@pytest.mark.parametrize(
    ("system", "socket", "fix"),
    [
        (
            DEBIAN,
            "/var/run/docker.sock",
            "systemctl enable --now docker\n# If it does not start: journalctl -u docker -n 50",
        ),
        (replace(USER, has_systemd=False), "/var/run/docker.sock", "sudo service docker start\n"),
        (
            USER,
            "/run/user/1000/docker.sock",
            (
                "# As ann:\nsystemctl --user enable --now docker\nsudo loginctl enable-linger ann\n"
                "# If it does not start: journalctl --user -u docker -n 50"
            ),
        ),
    ],
)
def test_a_daemon_is_started_as_its_service_is_kept(system: System, socket: str, fix: str) -> None:
    gone = Socket(socket, exists=False, writable=False)
    down: dict[str, Any] = {"fault": "down", "words": "Cannot connect", "socket": gone}
    assert fix in fix_of("docker", EngineFacts(error="down"), system, **down)
    known = replace(WELL, engine=replace(ENGINE, **down))
    checks = {check.name: check for check in found(known, engine=EngineFacts(error="down"))}
    assert checks["docker"].wrong.endswith(f"does not answer at {socket}, which does not exist")
    assert checks["socket"].verdict == "skipped"


def test_a_rootless_daemon_is_known_by_the_place_of_its_socket() -> None:
    down: dict[str, Any] = {"fault": "down", "words": "at /home/ann/d.sock", "rootless": True}
    gone = Socket("/home/ann/d.sock", exists=False, writable=False)
    fix = fix_of("docker", EngineFacts(error="down"), USER, socket=gone, **down)
    assert fix.startswith("# As ann:\nsystemctl --user enable --now docker\n")
    assert "docker context use" not in fix
    fix = fix_of("docker", EngineFacts(error="down"), replace(USER, has_systemd=False), socket=gone, **down)
    assert fix.startswith("# Start it as ann: dockerd-rootless.sh\n# If it does not start: dockerd-rootless.sh --debug")


def test_podman_in_place_of_docker_is_used_by_a_line_of_the_inventory() -> None:
    fix = fix_of("command", EngineFacts(error="no docker"), program=None, has_podman=True)
    assert fix == "# In the inventory, for node1:\n#   docker: podman"


def test_a_disk_is_never_emptied_of_our_containers_and_nothing_is_lost_unasked() -> None:
    """A stopped one may be a VPS that somebody keeps."""
    fix = fix_of("disk", OLD, disk=Disk("/var/lib/docker", 9 << 30, 1 << 20))
    assert [line for line in fix.splitlines() if not line.startswith("#")] == [
        "docker system df  # shows what could go"
    ]
    prunes = [line for line in fix.splitlines() if "container prune" in line]
    assert prunes == ["# docker container prune --force --filter 'label!=agentless.task'"]


def test_who_may_not_use_an_engine_is_told_what_helps_with_that_one() -> None:
    denied: dict[str, Any] = {"fault": "denied", "words": "permission denied"}
    theirs = Socket("/run/user/7/docker.sock", exists=True, writable=False)
    error = EngineFacts(error="denied")
    assert "'user:' of node1" in fix_of("socket", error, **denied, socket=theirs)
    assert fix_of("socket", error, docker="podman", **denied).startswith("podman info")
    sudo: dict[str, Any] = {"fault": "sudo", "words": "sudo: a password is required"}
    assert "NOPASSWD:SETENV: /usr/bin/podman'" in fix_of(
        "socket", error, docker="podman", program="/x;y/podman", **sudo
    )
    fix = fix_of("socket", error, program="/opt/bin/docker", **sudo)
    assert "NOPASSWD:SETENV: /opt/bin/docker' | sudo tee '/etc/sudoers.d/agentless-ann'\n" in fix


def test_the_toolkit_is_told_to_the_engine_that_is_there() -> None:
    def install(facts: EngineFacts, docker: str = "docker", system: System = USER) -> str:
        node = cluster(seen(engine=facts)).nodes["node1"]
        return install_toolkit(replace(node, config=replace(node.config, docker=(docker,))), system)

    assert "sudo nvidia-ctk runtime configure --runtime=docker\n" in install(OLD)
    rootless = install(ROOTLESS)
    assert "--config=$HOME/.config/docker/daemon.json" in rootless
    assert "nvidia-container-cli.no-cgroups" in rootless
    assert rootless.endswith("\nsystemctl --user restart docker")
    assert install(PODMAN, "podman").endswith("\nsudo " + LIST_DEVICES.removeprefix("sudo "))
    assert install(PODMAN, "podman", DEBIAN).endswith("\n" + LIST_DEVICES.removeprefix("sudo "))


# ---------------------------------------------------------------------- GPUs


CARD = reading("node1", 0, vendor="nvidia", pci_bus_id="0000:01:00.0")
NVIDIA = """\
module 550.54.15
pci 0000:01:00.0 nvidia
minor {uuid} 0
dev nvidia0
mode auto
ask1 {uuid}, Enabled
ask2 {uuid}, Not Active, Not Active, Not Active
ask3 {uuid}, Enabled, 0
"""


def gpu_checks(output: str = NVIDIA, card: Any = CARD, **changes: Any) -> tuple[Check, ...]:
    answer = {nvidia_checkup.SECTION: Result(0, output.format(uuid=CARD.uuid).encode())}
    node = cluster(seen(sample=GpuSample((card,)), **{"faults": (), **changes})).nodes["node1"]
    vendor = nvidia_checks(node, nvidia_checkup.parse(answer), DEBIAN)
    return examine(node, WELL, vendor)


def test_a_healthy_card_passes_every_check() -> None:
    names = [check.name for check in gpu_checks() if check.verdict == "ok"]
    assert names[names.index("bus") :] == [
        *("bus", "driver-match", "nvidia", "persistence", "ecc", "xids", "thermals", "cdi", "numa", "toolkit"),
    ]
    assert wrong(*gpu_checks()) == {}


@pytest.mark.parametrize(
    ("before", "after", "check", "fix"),
    [
        ("01:00.0 nvidia", "01:00.0 nouveau", "bus", "update-initramfs -u"),
        ("01:00.0 nvidia", "01:00.0 vfio-pci", "bus", "lspci"),
        ("module 550.54.15\npci 0000:01:00.0 nvidia", "secureboot\npci 0000:01:00.0 ", "bus", "mokutil"),
        ("ask1 {uuid}, Enabled", "ask1 {uuid}, Disabled", "persistence", "nvidia-smi -pm 1"),
        ("ask2 {uuid}, Not Active", "ask2 {uuid}, Active", "thermals", "nvidia-smi -q"),
        ("mode auto", "mode cdi\ncdi /etc/cdi/nvidia.yaml\ncdiname GPU-other", "cdi", "nvidia-ctk cdi generate"),
    ],
)
def test_each_trouble_with_a_card_turns_its_line_red(before: str, after: str, check: str, fix: str) -> None:
    bad = only(*gpu_checks(NVIDIA.replace(before, after)))
    assert bad.name == check
    assert fix in bad.fix


def test_a_cdi_file_with_a_name_that_cannot_be_read_may_name_every_card() -> None:
    cdi = "mode cdi\ncdi /etc/cdi/nvidia.yaml\ncdiname GPU-other\ncdiname "
    assert wrong(*gpu_checks(NVIDIA.replace("mode auto", cdi))) == {}


@pytest.mark.parametrize(
    ("change", "check"), [({"ecc_uncorrected": 2}, "ecc"), ({"temperature_c": 95}, "thermals"), ({"mig": True}, "mig")]
)
def test_each_bad_reading_turns_its_line_red(change: dict[str, Any], check: str) -> None:
    assert only(*gpu_checks(card=replace(CARD, **change))).name == check


def test_a_fault_in_the_kernel_log_and_a_log_that_cannot_be_read() -> None:
    fault = GpuFault("0000:01:00.0", "Xid 79", meaning="the GPU has fallen off the bus")
    bad = only(*gpu_checks(faults=(fault,)))
    assert (bad.name, bad.wrong) == ("xids", "Xid 79 on GPU 0: the GPU has fallen off the bus")
    assert only(*gpu_checks(faults=None)).fix.startswith("sysctl -w kernel.dmesg_restrict=0\n")


def test_a_driver_that_was_updated_under_the_loaded_one_is_the_only_red_line() -> None:
    node = cluster(seen(sample=GpuSample((), None, "differs", mismatch=True), faults=())).nodes["node1"]
    vendor = nvidia_checks(node, nvidia_checkup.NvidiaCheckup(module="535.1"), DEBIAN)
    checks = examine(node, WELL, vendor)
    assert only(*checks).name == "driver-match"
    assert {check.name: check.verdict for check in checks}["nvidia"] == "skipped"


# ---------------------------------------------------------------------- distributions


@pytest.mark.parametrize(
    ("release", "manager", "install"),
    [
        ("ID=debian", "apt", "sudo apt-get update && sudo apt-get install -y util-linux"),
        ("ID=pop\nID_LIKE='ubuntu debian'", "apt", "sudo apt-get update && sudo apt-get install -y util-linux"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"', "dnf", "sudo dnf install -y util-linux"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "zypper", "sudo zypper --non-interactive install util-linux"),
        ("ID=arch", "pacman", "sudo pacman -S --noconfirm util-linux"),
        ("ID=alpine", "apk", "sudo apk add util-linux"),
        ("ID=nixos", "", "# Install these with the package manager of the node: util-linux"),
    ],
)
def test_each_distribution_has_its_own_command(release: str, manager: str, install: str) -> None:
    lines = "".join(f"os {line}\n" for line in release.splitlines())
    machine = parsed(f"{lines}user 1000 ann\nnow 100\n")
    assert machine.system.manager == manager
    assert remedies.install(machine.system, "util-linux") == install


FOLDERS = (Folder("shared_dir", "/s"), Folder("mounts", "/d", writable=False))


def parsed(output: str) -> Machine:
    machine = machine_checkup.parse({machine_checkup.SECTION: Result(0, output.encode())}, FOLDERS, 99, 101)
    assert machine
    return machine


def test_a_machine_is_read_and_what_makes_no_sense_is_left_out() -> None:
    machine = parsed(
        'os ID=debian\nos PRETTY_NAME="Debian 12"\ninit systemd\nuser 0 root\nshell /bin/bash\npath /bin\n'
        "lacks timeout\nlacks rm -rf /\nflock no\nMemTotal: 1024\nMemAvailable: x\ncgroups v2\nkernel $(reboot)\n"
        "machine x86_64\nNTPSynchronized=yes\nfolder 1 readonly\nfolder 2 hangs\nfolder 9 missing\nnow 160\n"
    )
    assert machine == Machine(
        System("debian", (), "Debian 12", "apt", has_systemd=True, is_root=True),
        *("root", "/bin/bash", "/bin", ("timeout",), False, 60.5, 1.5, True, 1 << 20, None, "v2", "", "x86_64"),
        (replace(FOLDERS[0], problem="not writable"), replace(FOLDERS[1], problem="hangs")),
    )  # fmt: skip
    assert machine_checkup.parse({}, (), 0, 0) is None


COMMANDS = Commands(NodeConfig("node1", "h", image="ghcr.io/a/b"), RENDERER, DOCKER)


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (
            "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock",
            "denied",
        ),
        ("sudo: a password is required", "sudo"),
        ("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", "down"),
        ("something new", "other"),
    ],
)
def test_why_an_engine_does_not_answer(words: str, fault: str) -> None:
    answer = engine_checkup.parse(COMMANDS, {engine_checkup.SECTION: Result(0, f"info ERROR: {words}\n".encode())})
    assert answer
    assert answer.fault == fault


def test_docker_28_complains_beside_its_answer() -> None:
    words = "Cannot connect to the Docker daemon at unix:///run/docker.sock. Is the docker daemon running?"
    output = f'program /usr/bin/docker\ninfo {{"ID":"","ServerVersion":"","Warnings":null}}\ninfo {words}\n'
    answer = engine_checkup.parse(COMMANDS, {engine_checkup.SECTION: Result(0, output.encode())})
    assert answer
    assert (answer.fault, answer.words) == ("down", words)


@pytest.mark.parametrize(
    ("said", "reached"),
    [
        ("Error response from daemon: pull access denied for agentless/doctor", True),
        ('Get "https://ghcr.io/v2/": dial tcp: lookup ghcr.io: no such host', False),
        ('Get "https://ghcr.io/v2/": dial tcp 1.2.3.4:443: i/o timeout', False),
        ("manifest unknown", True),
    ],
)
def test_a_registry_that_refuses_an_image_has_answered(said: str, reached: bool) -> None:
    output = f"program /usr/bin/docker\ninfo {{}}\npull {said}\npull code 1\n"
    answer = engine_checkup.parse(COMMANDS, {engine_checkup.SECTION: Result(0, output.encode())})
    assert answer
    assert (answer.registry, answer.unreachable is None) == ("ghcr.io", reached)


# ---------------------------------------------------------------------- the documentation


def names_in_the_code() -> set[str]:
    """The name of each check that is made anywhere."""
    names = {*connection.NAMES, *machine_checks.NAMES, *engine_checks.NAMES, *machine_checks.KEYS, gpus.DRIVER}
    folders = ("rules/nodes/checks", "gpus", "controller/nodes")
    for file in (file for folder in folders for file in (ROOT / "agentless" / folder).rglob("*.py")):
        for call in ast.walk(ast.parse(file.read_text())):
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.args:
                made = {"Check": 0, "ok": 0, "skipped": 0, "broken": 0, "CheckView": 1}.get(call.func.id)
                name = None if made is None else call.args[made]
                if isinstance(name, ast.Constant):
                    names.add(str(name.value))
    return names


def test_the_page_has_a_row_for_each_check() -> None:
    page = (ROOT / "docs/how-to/nodes/doctor.md").read_text()
    table = page.partition("## All checks\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| ((?:`[a-z_-]+` ?)+)\| \S", table, re.MULTILINE)
    assert sorted(name for row in rows for name in re.findall("`([^`]+)`", row)) == sorted(names_in_the_code())
    obstacles = page.partition("## The usual obstacles\n")[2]
    assert set(re.findall(r"^\| `([a-z_-]+)`:", obstacles, re.MULTILINE)) <= names_in_the_code()


# ---------------------------------------------------------------------- the script


def views(*checks: Check) -> list[dict[str, Any]]:
    return [asdict(check_view("node1", check)) for check in checks]


def test_nothing_to_mend_is_no_script() -> None:
    assert script_of(views(Check("a", "ok", "fine")), warnings=True) is None


def test_warnings_are_mended_if_that_is_wanted() -> None:
    """Failed checks are, in any case."""
    checks = views(Check("a", "warning", "", "slow", "tune"), Check("b", "failed", "", "broken", "mend"))
    assert "tune" not in text_of(*checks, warnings=False)
    assert "\n# a (warning): slow\ntune\n\n# b: broken\nmend\n" in text_of(*checks, warnings=True)
    assert script_of(checks[:1], warnings=False) is None


def text_of(*checks: dict[str, Any], warnings: bool = True) -> str:
    script = script_of(checks, warnings=warnings)
    assert script
    return script.text


def test_a_script_is_written_for_its_owner_alone_and_over_nothing(tmp_path: Path) -> None:
    one, two = Script("node1", "on node1", "#!/bin/sh\n"), Script("node2", "on node2", "#!/bin/sh\ntrue\n")
    folder = tmp_path / "new" / "fixes"
    assert [path.name for path, _ in write(folder, [two])] == ["node2.sh"]
    assert stat.S_IMODE((folder / "node2.sh").stat().st_mode) == 0o700
    with pytest.raises(Refused, match=r"node2\.sh exists already, nothing written"):
        list(write(folder, [one, two]))
    assert [path.name for path in folder.iterdir()] == ["node2.sh"]
    (folder / "node1.sh").symlink_to("elsewhere")
    with pytest.raises(Refused, match=r"node1\.sh exists already"):
        list(write(folder, [one]))
    with pytest.raises(Refused, match=r"cannot write .*: File exists"):
        list(write(folder / "node2.sh", [one]))


def test_a_script_explains_itself_and_reboots_last_and_only_by_hand() -> None:
    script = text_of(
        *views(
            Check("bus", "failed", "", "nouveau holds it", "one\n# Reboot the node: sudo reboot", "because"),
            Check("disk", "failed", "", "full\nrm -rf /", "two"),
        )
    )
    assert script.splitlines() == [
        "#!/bin/sh",
        "# node1: read this, then run it on node1 as the user that agentless logs in as. agentless has run none of it.",
        *("set -e", ""),
        *("# bus: nouveau holds it", "# because", "one", ""),
        *("# disk: full rm -rf /", "two", ""),
        *("# Then reboot the node:", "# sudo reboot"),
    ]


def test_a_script_says_who_runs_it_and_ends_with_what_fails_but_not_with_what_only_shows() -> None:
    shows = "docker system df  # shows what could go\nsudo false\ntouch after"
    text = text_of(*views(Check("a", "failed", "", "x", shows)))
    assert "run it on node1 as a user with sudo." in text
    run = text.replace("docker system df", "false").replace("sudo false", "echo on; false")
    done = subprocess.run(["sh"], input=run, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (1, "on\n")


def test_what_has_no_known_fix_is_named_with_what_was_seen() -> None:
    script = script_of(views(Check("docker", "failed", "E1", "podman is broken")), warnings=False)
    assert script
    assert script.text.splitlines() == [
        *("#!/bin/sh", "# node1: read this; a person has to decide, so all of it is comments.", ""),
        *("# docker: podman is broken", "# No command is known that mends this. Seen: E1"),
    ]
    assert not script.runs


def test_a_script_names_the_inventory_that_is_to_be_changed() -> None:
    checks = views(Check("a", "failed", "", "x", "# Set 'port: 22' in the inventory.", here=True))
    script = script_of(checks, warnings=False, inventory="/home/ann/inventory.yaml")
    assert script
    assert "# Inventory, where agentless runs: /home/ann/inventory.yaml\n" in script.text


def test_what_is_to_be_run_here_is_a_comment_in_the_script_of_a_node() -> None:
    script = text_of(*views(Check("a", "failed", "", "x", "one"), Check("b", "failed", "", "y", "two", here=True)))
    assert "\n# Run here, where agentless runs:\n# two\n" in script
    assert "where agentless runs. agentless" in text_of(*views(Check("b", "failed", "", "y", "two", here=True)))


@pytest.mark.parametrize("user", ["ann;reboot", "$(reboot)", "a'b", "-x", "a b"])
def test_a_login_that_could_be_a_command_is_not_printed(user: str) -> None:
    answer = f"user 1000 {user}\nnow 1763980000\n".encode()
    machine = machine_checkup.parse({machine_checkup.SECTION: Result(0, answer, b"")}, (), 0.0, 0.0)
    assert machine is not None
    assert machine.user == ""
