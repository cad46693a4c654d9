"""AMD GPUs on a real engine: a container has the render nodes of its GPUs and `/dev/kfd`, and no other device."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from tests.lab import Lab, requirements
from tests.lab.amd import AmdCard, AmdCards
from tests.pages import ROOT
from tests.reader import ON_AMD, Reader
from tests.real.cli import Cli, inspect, until

FIRST, SECOND = "79ccd55167a2124a", "04edfb117a17a07d"
LOOK = ("sh", "-c", "ls /dev/dri /dev/kfd 2>/dev/null; id -G; exit 0")
INVENTORY = (
    "version: 1\ndefaults: {{user: root, identity_file: {lab.identity}, image: busybox}}\n"
    "nodes:\n  amd: {{host: {node.host}{more}}}\n"
)


@pytest.fixture(scope="module")
def node(lab):
    (node,) = lab.add_nodes({"amd": 0})
    node.cards = AmdCards(node)
    yield node
    lab.retire("amd")


@pytest.fixture
def cards(node):
    """Two MI100s."""
    two(node)
    yield node.cards
    node.cards.set()


def two(node, renders=(128, 129)):
    first, second = renders
    node.cards.set(
        AmdCard("0000:83:00.0", FIRST, first), AmdCard("0000:a3:00.0", SECOND, second), links={(0, 1): (11, 15)}
    )


@pytest.fixture(scope="module")
def made(lab, node):
    clis = {}

    def make(more=""):
        if more not in clis:
            clis[more] = Cli(lab, f"amd{len(clis)}", INVENTORY.format(lab=lab, node=node, more=more))
        return clis[more]

    yield make
    for cli in clis.values():
        cli.close()


@pytest.fixture
def agentless(made, cards):
    return settled(made())


def settled(cli, count=2):
    """The controller knows these cards, and nothing of what a test before did to them."""

    def is_settled():
        states = [gpu["state"] for gpu in cli.get("/v1/gpus")]
        state = cli.node("amd")["state"]
        if "unhealthy" in states or state == "degraded":  # it has seen a card disappear, or a launch that lacked one
            cli("nodes", "resume", "amd")
        return (states, state) == (["free"] * count, "online")

    until(is_settled)
    return cli


def seen(cli: Cli, *words: str) -> list[str]:
    """What a task sees of devices, and its groups."""
    return cli("logs", cli.submit(*words, "--wait", "--", *LOOK)).out.split()


def test_a_task_gets_the_render_node_of_its_gpu_and_no_other(agentless):
    gpus = agentless.get("/v1/gpus")
    assert [gpu["uuid"] for gpu in gpus] == [f"AMD-{FIRST}", f"AMD-{SECOND}"]
    assert seen(agentless, "amd::1") == ["/dev/kfd", "/dev/dri:", "renderD129", "0", "44", "109"]


def test_a_task_without_gpus_has_no_device_of_any(agentless):
    assert seen(agentless, "amd") == ["0"]


@pytest.mark.slow
def test_all_gpus_of_a_node_are_found_by_their_model(agentless):
    assert seen(agentless, "--gpus", "2", "--gpu-type", "MI100")[2:4] == ["renderD128", "renderD129"]


def test_a_render_node_that_has_another_number_now_is_not_given(agentless, node):
    """As after a reboot, of which the controller has not heard: the ids are where they were, not the files."""
    two(node, (129, 128))
    settled(agentless)
    assert seen(agentless, "amd::0")[2:3] == ["renderD129"]


@pytest.mark.slow
def test_a_card_that_has_gone_is_not_replaced_by_its_neighbour(agentless, node):
    node.cards.set(AmdCard("0000:83:00.0", SECOND, 128))
    done = agentless("submit", "amd::0", "--no-queue", "--", "true", code=None)
    assert done.code in (1, 3)
    assert "AMD" in done.err or "no GPU 0" in done.err, done


@pytest.mark.slow
def test_a_process_outside_agentless_makes_its_gpu_foreign_and_no_other(agentless, node):
    """Every process of ROCm has opened all GPUs; it uses those on which it has memory or a queue."""
    process = node.cards.start(["sleep", "300"], {1: 0, 2: 1 << 30})
    until(lambda: [gpu["state"] for gpu in agentless.get("/v1/gpus")] == ["free", "foreign"])
    assert "(sleep 300, 1 GiB)" in agentless.gpu("amd::1")["reason"]
    process.kill()
    process.wait()


@pytest.mark.slow
def test_a_gpu_whose_processes_cannot_be_read_is_not_free(agentless, node):
    node.sh(f"rm -r {node.cards.root}/class/kfd/kfd/proc")
    until(lambda: {gpu["state"] for gpu in agentless.get("/v1/gpus")} == {"unknown"})
    assert "install amd-smi or rocm-smi" in agentless.node("amd")["reason"]


@pytest.mark.slow
def test_seccomp_is_off_only_for_tasks_with_gpus_where_the_inventory_says_so(made, cards, agentless, node):
    cli = settled(made(", amd: {seccomp: unconfined}"))
    for who, words, expected in (
        (cli, "amd::0", ["seccomp=unconfined"]),
        (cli, "amd", None),
        (agentless, "amd::0", None),
    ):
        task = who.submit(words, "--wait", "--", "true")
        assert inspect(node, task)["HostConfig"]["SecurityOpt"] == expected


@pytest.mark.slow
def test_doctor_proves_by_the_render_node_that_a_container_has_its_gpu_alone(agentless):
    checks = {check["check"]: check for check in agentless.json("doctor", "amd", "--run")}
    proved = "the container has /dev/kfd, /dev/dri/renderD{} and no other: the render node of this GPU"
    assert [checks[f"run {gpu}"]["seen"].partition(" (")[0] for gpu in (0, 1)] == [
        proved.format(number) for number in (128, 129)
    ]
    assert checks["amd-links"]["seen"] == "1 of 1 pairs are joined by XGMI"
    assert "xids" not in checks


@pytest.fixture
def mixed(agentless, node):
    """Two GPUs of NVIDIA, and two MI100s."""
    node.set_gpus(2)
    return settled(agentless, 4)


@pytest.mark.slow
def test_gpus_of_two_vendors_have_their_numbers_one_after_the_other(mixed):
    gpus = mixed.get("/v1/gpus")
    assert [(gpu["index"], gpu["name"].split()[0]) for gpu in gpus] == [
        (0, "NVIDIA"),
        (1, "NVIDIA"),
        (2, "AMD"),
        (3, "AMD"),
    ]
    assert seen(mixed, "amd::3")[2:3] == ["renderD129"]
    assert seen(mixed, "amd::0") == ["0"]
    assert seen(mixed, "--gpu-type", "MI100", "--gpus", "2")[2:4] == ["renderD128", "renderD129"]


@pytest.mark.slow
def test_a_task_gets_gpus_of_one_vendor(mixed):
    done = mixed("submit", "amd::1,2", "--no-queue", "--", "true", code=None)
    assert (done.code, "GPUs 1,2 of amd are of different vendors (nvidia, amd)" in done.err) == (3, True), done
    done = mixed("submit", "--gpus", "3", "--no-queue", "--", "true", code=None)
    assert (done.code, "needs 3 GPUs of one vendor; amd has 2 of nvidia and 2 of amd" in done.err) == (3, True), done


@pytest.mark.slow
def test_what_one_vendor_cannot_say_leaves_the_gpus_of_another_free(mixed, node):
    node.sh(f"rm -r {node.cards.root}/class/kfd/kfd/proc")
    until(lambda: [gpu["state"] for gpu in mixed.get("/v1/gpus")] == ["free", "free", "unknown", "unknown"])
    mixed("submit", "amd::0", "--wait", "--", "true")


@pytest.mark.slow
def test_the_page_can_be_typed_from_top_to_bottom(agentless, tmp_path):
    assert Reader(agentless.env, tmp_path, {}).read((ROOT / ON_AMD).read_text(), {}, ()) == ""


@pytest.mark.slow
def test_a_vps_does_not_come_back_with_the_device_of_another_gpu(agentless, node):
    """A container keeps the names of its devices, and after a reboot another card may have such a name."""
    agentless("vps", "create", "box", "amd::0")
    agentless("vps", "stop", "box", "--grace", "0")
    two(node, (129, 128))
    settled(agentless)
    done = agentless("vps", "start", "box", code=None)
    assert (done.code, "have other numbers on amd since a reboot" in done.err) == (1, True), done
    two(node)
    settled(agentless)
    agentless("vps", "start", "box")
    assert agentless("vps", "ssh", "box", "--", "ls /dev/dri").out == "renderD128\n"
    agentless("vps", "rm", "box", "--force", "--yes")


@pytest.mark.slow
@pytest.mark.skipif(bool(requirements(podman=True)), reason="no podman")
def test_podman_gives_the_same_devices(lab, node, made, cards):
    node.add_podman(lab._shared_network(), lab.root / "image.tar")
    cli = settled(made(", docker: podman, image: lab/busybox"))
    assert seen(cli, "amd::1") == ["/dev/kfd", "/dev/dri:", "renderD129", "0", "44", "109"]
    assert seen(cli, "amd") == ["0"]


@pytest.mark.slow
@pytest.mark.skipif(bool(requirements(systemd=True)), reason="no systemd")
def test_a_task_without_a_container_is_told_of_its_gpus_alone():
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        node = lab.add_systemd_node("amd", gpus=0)
        node.cards = AmdCards(node)
        node.cards.set(AmdCard("0000:83:00.0", FIRST, 128), AmdCard("0000:a3:00.0", None, 129))
        cli = settled(Cli(lab, "bare", INVENTORY.format(lab=lab, node=node, more="")))
        for words, expected in (("amd::0", f"GPU-{FIRST}"), ("amd::1", "1"), ("amd", "-1")):
            look = ("sh", "-c", "echo visible $ROCR_VISIBLE_DEVICES")
            done = cli("submit", words, "--container", "NULL", "--follow", "--", *look)
            assert done.out.split()[-2:] == ["visible", expected], done
        cli.close()
