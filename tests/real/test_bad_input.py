"""What cannot be meant gets one clear sentence and its exit code, and changes nothing anywhere."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import pytest

from agentless.client.client import RequestFailed
from tests import ready
from tests.real.cli import Cli, containers, inventory_of


@pytest.fixture
def careless(lab):
    """Somebody with a controller of their own and a broken inventory."""
    cli = Cli(lab, "careless", "version: 1")
    yield cli
    cli.close()


def refuse(agentless, code, *words, **extra):
    """The sentence that the command ends with; nothing was printed as data, and no node has heard of it."""
    done = agentless(*words, code=code, **extra)
    assert done.out == ""
    assert [containers(node) for node in agentless.lab.nodes.values() if node.name in ("node1", "node2")] == [[], []]
    return done.err


# ---------------------------------------------------------------------- command lines


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """The environment of somebody whose only node cannot be reached, and need not."""
    root = tmp_path_factory.mktemp("stranger")
    (root / "inventory.yaml").write_text("version: 1\nnodes: {node1: {host: 127.0.0.1, port: 1, image: x}}\n")
    return {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(root),
        "AGENTLESS_INVENTORY": str(root / "inventory.yaml"),
    }


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        # targets
        (("submit", "node1::", "--", "true"), "agentless: target 'node1::': no GPU after '::'; use "),
        (("submit", "node1::0,0", "--", "true"), "agentless: target 'node1::0,0': GPU 0 is listed twice; "),
        (("submit", "::0", "--", "true"), "agentless: target '::0': no node; use HOST"),
        (("submit", "node1::x", "--", "true"), "agentless: target 'node1::x': GPU 'x' is not a number; "),
        (("submit", "node1:x::0", "--", "true"), "agentless: target 'node1:x::0': NUMA node 'x' is not a number"),
        (("submit", "node1::-1", "--", "true"), "agentless: target 'node1::-1': GPU '-1' is not a number; "),
        (("submit", "-5", "--", "true"), "agentless: unknown option '-5'"),
        (("submit", "-t", "-5", "--", "true"), "agentless: target '-5': '-5' is not a node name; "),
        (("submit", "--", "true"), "agentless: no resources requested; specify GPUs, like node1::0"),
        # sizes, times and numbers
        (
            ("submit", "node1", "--memory", "-1", "--", "true"),
            "agentless: --memory '-1' is not a size; use a number with a unit",
        ),
        (("submit", "node1", "--memory", "lots", "--", "true"), "agentless: --memory 'lots' is not a size; "),
        (("submit", "node1", "--memory", "1.5.5G", "--", "true"), "agentless: --memory '1.5.5G' is not a size; "),
        (("submit", "node1", "--memory", "16", "--", "true"), "agentless: --memory '16' has no unit, and 16 MB is"),
        (("submit", "node1", "--memory", "1K", "--", "true"), "agentless: --memory 1000B is implausible: "),
        (("submit", "1x:40", "--", "true"), "agentless: target '1x:40': '40' has no unit, and 40 MB is implausible"),
        (("submit", "node1", "--shm-size", "1e3", "--", "true"), "agentless: --shm-size '1e3' is not a size; "),
        (
            ("submit", "node1", "--stop-grace", "soon", "--", "true"),
            "agentless: --stop-grace 'soon' is not a duration; ",
        ),
        (("submit", "node1", "--cores", "-1", "--", "true"), "agentless: --cores -1: use a number above 0"),
        (("submit", "--cores", "0", "--memory", "0", "--", "true"), "agentless: no resources requested;"),
        (("submit", "node1", "--cores", "many", "--", "true"), "agentless: Invalid value for '--cores': "),
        # the command
        (("submit", "node1"), "agentless: no command; add it after '--', for example: "),
        (("submit", "node1", "--"), "agentless: no command; add it after '--', for example: "),
        (("submit", "node1", "python", "train.py"), "agentless: no command; add it after '--', for example: "),
        (("submit", "node1", "--", *["x" * 100_000] * 10), "agentless: the command and its variables have 1,0"),
        # words
        (("submit", "node1", "--name", "a\nb", "--", "true"), r"agentless: name 'a\nb': use up to 63 letters, "),
        (("submit", "node1", "--name", "", "--", "true"), "agentless: name '': use up to 63 letters, "),
        (("submit", "node1", "-e", "1A=x", "--", "true"), "agentless: variable '1A': use letters, "),
        (("submit", "node1", "-e", "NOT_SET", "--", "true"), "agentless: --env NOT_SET: not set in your environment; "),
        (("submit", "node1", "-s", "NOT_SET", "--", "true"), "agentless: --secret-env NOT_SET: not set in your "),
        (("submit", "node1", "-e", "AGENTLESS_NODE=x", "--", "true"), "agentless: variable AGENTLESS_NODE"),
        (("submit", "node1", "--label", "x", "--", "true"), "agentless: --label 'x': use KEY=VALUE"),
        (("submit", "node1", "--label", "agentless.task=x", "--", "true"), "agentless: label 'agentless.task': "),
        (("submit", "node1", "--mount", "data:/data", "--", "true"), "agentless: mount 'data:/data': use /path/on/"),
        (("submit", "node1", "--image", "", "--", "true"), "agentless: --image '' must be one word "),
        (("submit", "node1", "--image", "--help", "--", "true"), "agentless: --image '--help' must be one word "),
        (("submit", "node1", "node2", "--follow", "--", "true"), "agentless: --follow works with one task only; "),
        # other verbs
        (("stop", "nonsense", "--grace", "soon"), "agentless: 'soon' is not a duration; "),
        (("logs", "nonsense", "--tail", "-1"), "agentless: Invalid value for '--tail' / '-n': "),
        (("logs", "nonsense", "--since", "soon"), "agentless: --since 'soon': use 10min, "),
        (("logs", "nonsense", "--since", "2026-13-01"), "agentless: --since '2026-13-01': use 10min, "),
        (("show",), "agentless: Missing argument 'TASK'"),
        (("show", ""), "agentless: No task or node named ''. "),
        (("logs", "a/b"), "agentless: No task or node named 'a/b'. "),
        (("nodes", "trust", "../x"), "agentless: No task or node named '../x'. "),
        (("ps", "--limit", "9" * 30), "agentless: Invalid value for '--limit': "),
        (("submit", b"\xff", "--", "true"), r"agentless: target '\udcff': '\udcff' is not a node name; "),
        (("submit", "node1", "--", b"\xff"), r"agentless: '\udcff' is not UTF-8; "),
        (("sbumit", "node1"), "agentless: unknown command 'sbumit' (did you mean 'submit'?)"),
        (("ps", "--jsn"), "agentless: unknown option '--jsn' (did you mean '--json'?)"),
    ],
)
def test_a_command_line_that_cannot_be_meant(stranger, words, sentence):
    """It does not even start a controller."""
    ran = ready.agentless(*words, env=stranger)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(sentence), ran.stderr
    assert ran.stderr.count("\n") == 1
    assert not Path(stranger["HOME"], ".local").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("submit", "nod1::0", "--", "true"), "agentless: no node 'nod1' in the inventory (did you mean 'node1'?)"),
        (("gpus", "nod1"), "agentless: no node 'nod1' in the inventory (did you mean 'node1'?)"),
        (("nodes", "show", "nod2"), "agentless: no node 'nod2' in the inventory (did you mean 'node2'?)"),
        (("show", "nonsense"), "agentless: no task 'nonsense'; to list tasks, run: agentless ps --all"),
        (("logs", "nonsense"), "agentless: no task 'nonsense'; "),
        (("wait", "nonsense"), "agentless: no task 'nonsense'; "),
        (("stop", "nonsense"), "agentless: no task 'nonsense'; "),
        (("rm", "nonsense"), "agentless: no task 'nonsense'; "),
    ],
)
def test_a_word_that_means_nothing_here(agentless, words, sentence):
    before = agentless.client.get("/v1/tasks", ended=True)
    said = refuse(agentless, 2, *words)
    assert said.startswith(sentence), said
    assert said.count("\n") == 1
    assert agentless.client.get("/v1/tasks", ended=True) == before


@pytest.mark.parametrize("name", ["a\0b", "a\nb"])
def test_a_name_that_no_shell_can_type(agentless, name):
    """A NUL cannot stand in an argument, so it comes by the API."""
    with pytest.raises(RequestFailed, match=r"^name ") as refused:
        agentless.client.post("/v1/tasks", {"targets": ["node1"], "spec": {"command": ["true"], "name": name}})
    assert refused.value.exit_code == 2


def test_bytes_that_are_no_text_name_nothing(agentless):
    assert agentless.shell("agentless show $(printf '\\377')").code == 2


def test_an_output_that_cannot_be_written(agentless):
    """Its disk is full, or it was closed."""
    full = agentless.shell("agentless gpus >/dev/full")
    assert (full.code, full.err) == (1, "agentless: Cannot write the output: No space left on device\n")
    assert agentless.shell("agentless gpus >&-").code == 0


def test_1_5_gb_is_a_size(agentless):
    task = agentless.json("submit", "node1", "--memory", "1.5GB", "--", "true")[0]
    assert task["memory_bytes"] == 1_500_000_000


def test_a_number_without_a_unit_is_megabytes_and_a_limit_of_0_is_none(agentless):
    script = "cat /sys/fs/cgroup/memory/memory.limit_in_bytes; df -k /dev/shm | tail -n 1"
    limited = agentless("submit", "node1", "--memory", "512", "--shm-size", "64", "--follow", "--", "sh", "-c", script)
    memory, shm = limited.out.splitlines()
    assert (int(memory), int(shm.split()[1])) == (512 * 10**6 // 4096 * 4096, 64 * 10**6 // 1024)
    zeros = ("--memory", "0", "--cores", "0", "--shm-size", "0", "--time-limit", "0")
    free = agentless("submit", "node1", *zeros, "--follow", "--", "sh", "-c", script).out.splitlines()
    assert (int(free[0]) > 2**40, int(free[1].split()[1])) == (True, 64 * 1024)


def test_a_secret_beyond_what_linux_takes_is_refused_and_one_at_the_limit_arrives(agentless):
    """Through Python, as no command line holds so much."""
    script = """
import agentless
cluster = agentless.Cluster()
task = cluster.submit("sh", "-c", "echo ${#TOKEN}", target="node1", secret_env={"TOKEN": "x" * 131_065})
print(*task.wait().logs())
try:
    cluster.submit("true", target="node1", secret_env={"TOKEN": "x" * 5_000_000})
except agentless.UsageError as error:
    print(error)
"""
    arrived, refused = agentless.python(script).splitlines()
    assert arrived == "131065"
    assert refused.startswith("secret TOKEN has 5,000,006 bytes; the limit of Linux is")


def test_an_image_that_cannot_be_had(agentless):
    """It is neither on the node nor to be pulled: the reason is told, and the GPU is free again."""
    said = refuse(agentless, 1, "submit", "node1::0", "--image", "no/such-image:1", "--", "true")[: -len("\n")]
    assert said.startswith("agentless: image no/such-image:1 is not on node1 and cannot be pulled: ")
    assert agentless.is_free()


def test_a_program_that_is_not_in_the_image(agentless):
    said = refuse(agentless, 1, "submit", "node1::0", "--", "no-such-program")
    assert said.startswith(
        "agentless: node1: the image cannot run 'no-such-program': not found or not executable (task "
    )
    assert agentless.is_free()


def test_a_mount_of_what_is_not_there(agentless):
    said = refuse(agentless, 1, "submit", "node1", "--mount", "/no/such:/x", "--", "true")
    assert said.startswith("agentless: cannot mount /no/such: not found on node1 (task ")


def test_a_network_that_is_not_there(agentless):
    said = refuse(agentless, 1, "submit", "node1", "--network", "no-such", "--", "true")
    assert said.startswith("agentless: node1: network no-such not found (task ")


# ---------------------------------------------------------------------- inventories


@pytest.mark.parametrize(
    ("text", "where", "sentence"),
    [
        ("version: 1\nnodes: [", ":2:9: ", "YAML"),
        ("version: 1\nnodes:\n  a: {hots: x}\n", ":3:7: nodes.a.hots: ", "did you mean 'host'?"),
        ("version: 1\nnodes:\n  a: {host: x, port: many}\n", ":3:22: nodes.a.port: is 'many'; ", "whole number"),
        ("version: 1\nnodes:\n  a: {host: x, connection: paramikko}\n", "connection: ", "did you mean 'paramiko'?"),
        ("version: 2\nnodes:\n  a: {host: x}\n", ":1:10: version: ", "version 1"),
        ("", ": ", "the file is empty"),
    ],
)
def test_a_broken_inventory(careless, text, where, sentence):
    """The complaint names file, line, column, path, value, and what was probably meant."""
    careless.write_inventory(text)
    said = refuse(careless, 2, "gpus")
    assert said.startswith(f"agentless: {careless.inventory}:")
    assert where in said
    assert sentence in said


def test_an_inventory_that_is_a_directory(careless):
    said = refuse(careless, 2, "--inventory", str(careless.config), "gpus")
    assert said == f"agentless: {careless.config} is a folder; specify the inventory file in it\n"


def test_an_inventory_that_is_not_there(careless):
    said = refuse(careless, 2, "-i", "/no/such.yaml", "gpus")
    assert said.startswith("agentless: /no/such.yaml (from --inventory) does not exist; ")


def test_no_inventory_at_all(careless):
    careless.inventory.unlink()
    said = refuse(careless, 2, "submit", "node1", "--", "true")
    assert said.startswith("agentless: no inventory: ")
    assert "agentless init" in said


def test_an_inventory_that_is_no_file(careless):
    assert "is not a regular file" in refuse(careless, 2, "-i", "/dev/null", "gpus")


def test_no_controller_is_started_for_a_broken_inventory(careless):
    refuse(careless, 2, "gpus")
    assert careless("controller", "status", code=1).out.startswith("no controller is running")


def test_what_has_no_image_and_an_inventory_with_clusters_only(careless):
    careless.write_inventory(inventory_of(careless.lab, defaults="port: 22"))
    said = refuse(careless, 2, "submit", "node1", "--", "true")
    assert said.startswith("agentless: no image for node1; add --image, or set image: under defaults: in the inventory")
    careless.lab.root.joinpath("flow.yaml").write_text("jobs: {train: {command: 'true'}}")
    said = refuse(careless, 2, "workflow", "run", str(careless.lab.root / "flow.yaml"))
    assert said.startswith("agentless: no image for job train; add image: to the job in the file of the workflow, or")
    cluster = "hpc: {host: 127.0.0.1, port: 1, engine: slurm}"
    text = inventory_of(careless.lab, defaults="port: 22")
    careless.write_inventory(f"{text}\nclusters:\n  {cluster}\noverflow: [hpc]\n")
    said = refuse(careless, 3, "submit", "99x", "--image", "i", "--", "true")
    assert said.startswith("agentless: no node can run 99x")
    assert "; cannot go to hpc: hpc runs no images; if it has pyxis or apptainer, set container: of hpc" in said
    careless.write_inventory(f"version: 1\nclusters:\n  {cluster}\nnodes: {{}}\n")
    said = refuse(careless, 2, "submit", "hcp", "1x", "--", "true")
    assert said.startswith("agentless: no node 'hcp' in the inventory (did you mean 'hpc'?)")
    said = refuse(careless, 2, "submit", "1x", "--", "true")
    assert said == "agentless: the inventory has no nodes; specify the cluster: hpc 1x\n"
    assert "No GPUs; hpc is a cluster: agentless gpus hpc" in refuse(careless, 0, "gpus")


@pytest.mark.parametrize("words", ["gpus", "-i {} run --node node1 -- true", "-i {} submit node1 --upload . -- true"])
def test_a_folder_that_does_not_exist_any_more(agentless, words):
    """Somebody removed the folder that the shell is in."""
    folder = tempfile.mkdtemp()
    script = f"cd {folder} && rmdir {folder} && agentless {words.format(agentless.inventory)}"
    done = agentless.shell(script)
    assert (done.code, os.path.exists(folder)) == (2, False)
    assert done.err == "agentless: the current folder no longer exists; cd to another folder\n"
