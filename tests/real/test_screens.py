"""What people and scripts read: tables that fit, fields with the documented names, and completion."""

from __future__ import annotations

import re
import unicodedata

import pytest

from tests.real.cli import Cli, until

TASK = """
id name state node gpus gpu_uuids image command env_names batch owner created_at started_at ended_at exit_code reason
container"""
GPU = """
node index uuid name driver memory_total_mib memory_used_mib memory_free_mib utilization_pct temperature_c power_w state
task processes"""
NODE = "name state reason gpus cores memory_mib docker driver"
LONG = ("sh", "-c", "sleep 60 # " + "long " * 40 + "日本語 " * 20)


class Busy:
    """Screens of a busy cluster, as they were taken once for all tests.

    One GPU is held by a task with long words, one used by a foreign process; a node is in trouble; a task has failed.
    """

    TABLES = ("ps", "ps --all", "gpus", "nodes", "doctor", "nodes show node1")

    def __init__(self, lab):
        cli = Cli(lab).settle()
        cli("submit", "node1::0", "--name", "a" * 40, "--", *LONG)
        cli("submit", "node2", "--image", "no/such-image:1", "--", *LONG, code=1)
        lab.nodes["node1"].add_process(1, ["sleep", "3600"])
        lab.nodes["node2"].fault(
            "exit 9\nNVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        )
        until(lambda: cli.gpu("node1::1")["state"] == "foreign" and cli.node("node2")["state"] == "degraded")
        self.reason = cli.node("node2")["reason"]
        self.who = cli.gpu("node1::1")["reason"]
        self.narrow = {words: cli.terminal(*words.split())[1] for words in self.TABLES}
        self.wide = cli.terminal("ps", columns=200)[1]
        self.piped = {words: cli(*words.split()) for words in ("ps", "gpus")}


@pytest.fixture(scope="module")
def busy(lab):
    return Busy(lab)


def width(line):
    """Columns that a terminal needs for it."""
    plain = re.sub(r"\033\[[0-9;]*m", "", line)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in plain)


# ---------------------------------------------------------------------- tables


@pytest.mark.parametrize("words", Busy.TABLES)
def test_a_table_fits_80_columns(busy, words):
    table, _, _sentence = busy.narrow[words].partition("node2 is degraded: ")
    assert len(table.splitlines()) > 1
    assert [line for line in table.splitlines() if width(line) > 80] == []


def test_a_wide_terminal_shows_more(busy):
    assert max(map(width, busy.wide.splitlines())) > 120
    assert len(busy.wide.splitlines()) <= len(busy.narrow["ps"].splitlines())


def test_a_fix_is_never_cut(busy):
    """Not on a narrow terminal either: it goes on in the next line."""
    assert busy.reason in " ".join(busy.narrow["doctor"].split())


def test_who_uses_a_gpu_is_never_cut(busy):
    assert busy.who in " ".join(busy.narrow["gpus"].split())


def test_a_pipe_gets_whole_lines(busy):
    assert LONG[2] in busy.piped["ps"].out


def test_why_a_node_is_not_online_is_told_beside_its_gpus(busy):
    assert busy.piped["gpus"].err == f"node2 is degraded: {busy.reason}\n"


def test_colour_is_for_terminals(busy):
    assert "\033[" in busy.narrow["gpus"]
    assert "\033[" not in busy.piped["gpus"].out


@pytest.mark.parametrize("verb", ["ps", "show steer"])
def test_a_command_cannot_steer_the_terminal(agentless, verb):
    """Of somebody else, for one: `ps` shows what everybody runs."""
    agentless.submit("node1", "--name", "steer", "--", "sh", "-c", "sleep 60 # \033]0;title\a")
    screen = agentless.terminal(*verb.split(), columns=200)[1]
    assert "sleep 60 # �]0;title�" in screen
    assert "\a" not in screen


@pytest.mark.parametrize("extra", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colour_can_be_switched_off(lab, agentless, extra):
    assert "\033[" not in Cli(lab, **extra).terminal("gpus")[1]


def test_a_submit_on_a_terminal_tells_what_next(agentless):
    screen = agentless.terminal("submit", "node1::0", "--", "sleep", "60")[1]
    task = re.search(r"([0-9a-z]{11})  running on node1, GPU 0\n", screen)[1]
    assert f"agentless logs -f {task}" in screen


def test_an_empty_list_is_told_in_words_beside_the_data(agentless):
    done = agentless("ps")
    assert (done.out, done.err) == ("", "No live tasks. To list ended ones: agentless ps --all\n")


# ---------------------------------------------------------------------- fields


def test_fields_of_a_task(agentless):
    (task,) = agentless.json("submit", "node1::0", "-e", "A=1", "--", "sleep", "60")
    assert set(TASK.split()) <= set(task)
    until(lambda: agentless.json("ps") == [agentless.json("show", task["id"])])  # the engine knows better when it began
    (listed,) = agentless.json("ps")
    assert listed == task | {"started_at": listed["started_at"]}


def test_values_of_a_task(lab, agentless):
    (task,) = agentless.json("submit", "node1::1", "--name", "n", "-e", "A=1", "--", "sleep", "60")
    node = lab.nodes["node1"]
    assert {key: task[key] for key in TASK.split() if not key.endswith("_at")} == {
        "id": task["batch"],
        "name": "n",
        "state": "running",
        "node": "node1",
        "gpus": [1],
        "gpu_uuids": node.gpu_uuids[1:],
        "image": "busybox",
        "command": ["sleep", "60"],
        "env_names": ["A"],
        "batch": task["id"],
        "owner": task["owner"],
        "exit_code": None,
        "reason": None,
        "container": node.sh(f"docker inspect -f '{{{{.Id}}}}' agentless-{task['id']}").stdout.strip(),
    }
    assert re.fullmatch(r"[a-z]+@\S+", task["owner"])


def test_times_are_utc(agentless):
    (task,) = agentless.json("submit", "node1", "--wait", "--", "true")
    for key in ("created_at", "started_at", "ended_at"):
        assert re.fullmatch(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", task[key])


def test_fields_of_a_gpu(lab, agentless):
    gpu = agentless.json("gpus", "node1")[1]
    assert {key: gpu[key] for key in GPU.split()} == {
        "node": "node1",
        "index": 1,
        "uuid": lab.nodes["node1"].gpu_uuids[1],
        "name": "NVIDIA H100 80GB HBM3",
        "driver": "550.54.15",
        "memory_total_mib": 81559,
        "memory_used_mib": 1,
        "memory_free_mib": 81080,
        "utilization_pct": 0,
        "temperature_c": 31,
        "power_w": 69.53,
        "state": "free",
        "task": None,
        "processes": [],
    }


def test_what_cannot_be_read_is_null(lab, agentless):
    lab.nodes["node1"].set_gpus([{"temperature.gpu": "[N/A]", "power.draw": "[Unknown Error]"}, {}])
    gpu = until(lambda: (gpu := agentless.gpu("node1::0"))["temperature_c"] is None and gpu)
    assert (gpu["power_w"], gpu["utilization_pct"], gpu["state"]) == (None, 0, "free")


def test_fields_of_a_node(agentless):
    node = agentless.json("nodes", "show", "node1")
    assert set(NODE.split()) <= set(node)
    assert (node["name"], node["state"], node["reason"], node["gpus"]) == ("node1", "online", "", 2)
    assert isinstance(node["cores"], int)
    assert isinstance(node["memory_mib"], int)
    assert [gpu["index"] for gpu in node["gpu_list"]] == [0, 1]


def test_how_busy_a_node_is_is_shown_beside_what_tasks_have(lab, agentless):
    """With and without GPUs' drivers, Docker's root is what has to have room."""
    agentless("submit", "node1", "--cores", "0.5", "--memory", "1GiB", "--", "sleep", "600")
    node = until(lambda: (n := agentless.json("nodes", "show", "node1"))["cores_busy"] is not None and n)
    assert node["disk_path"] == lab.nodes["node1"].ask_docker("GET", "/info")["DockerRootDir"]
    assert 0 < node["disk_used_mib"] < node["disk_total_mib"]
    assert 0 <= node["cores_busy"] <= node["cores"]
    assert node["memory_used_mib"] + node["memory_available_mib"] == node["memory_mib"]
    out = agentless("nodes", "show", "node1").out
    lines = dict(line.strip().split("  ", 1) for line in out.splitlines() if "  " in line.strip())
    assert re.fullmatch(r"[0-9.]+ of [0-9]+ busy, 0.5 set aside, load [0-9.]+ [0-9.]+ [0-9.]+", lines["cores"])
    assert re.fullmatch(r"[0-9.]+ of [0-9.]+ [GT]iB used, 1 GiB set aside", lines["memory"])
    assert re.fullmatch(r"[0-9.]+ of [0-9.]+ [GT]iB used \(/.*\)", lines["disk"])


@pytest.mark.slow
def test_a_card_without_a_driver_is_there_without_a_driver(lab, agentless):
    """A machine whose driver was forgotten is no CPU machine."""

    def said():
        (check,) = [
            each for each in agentless("doctor", "node1", "--json", code=None).json if each["check"] == "nvidia"
        ]
        return check["ok"], check["detail"]

    node, pci = lab.nodes["node1"], "/sys/bus/pci/devices"
    card = f"{pci}/0000:3b:00.0"
    node.set_gpus(0)
    files = f"echo 0x10de >{card}/vendor; echo 0x030200 >{card}/class; echo 0 >{card}/numa_node"
    done = node.sh(f"mount -t tmpfs tmpfs {pci} && mkdir {card} && {{ {files}; }}")
    assert done.returncode == 0, done.stderr
    try:
        ok, words = said()
        assert (ok, words.partition(": ")[0]) == (False, "1 NVIDIA card on the PCI bus, but no driver")
        assert f"cards  {words}" in agentless("nodes", "show", "node1").out
        assert f"node1: {words}" in agentless("gpus", "node1").err
    finally:
        node.sh(f"umount {pci}")
    assert said()[0] is True


def test_the_schema_of_the_inventory(agentless):
    schema = agentless("inventory", "schema").json
    keys = {
        "version",
        "defaults",
        "keep",
        "queue",
        "health",
        "idle",
        "notify",
        "metrics",
        "clusters",
        "overflow",
        "nodes",
    }
    assert set(schema["properties"]) == keys


# ---------------------------------------------------------------------- completion


def complete(agentless, words, shell="bash"):
    """What the Tab key offers after these words."""
    typed = ["agentless", *words]
    found = agentless(
        _AGENTLESS_COMPLETE=f"complete_{shell}",
        COMP_WORDS=" ".join(typed),
        COMP_CWORD=str(len(typed) - 1),
        _TYPER_COMPLETE_ARGS=" ".join(typed),
        _TYPER_COMPLETE_FISH_ACTION="get-args",
        code=None,
    ).out
    return found.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["submit", "no"], ["node1", "node2"]),
        (["submit", "node1", "node2"], ["node2"]),
        (["nodes", "show", ""], ["node1", "node2"]),
        (["nodes", "trust", "node2"], ["node2"]),
        (["gpus", "n"], ["node1", "node2"]),
        (["pau"], ["pause"]),
        (["submit", "--stop-g"], ["--stop-grace"]),
    ],
)
def test_completion(agentless, words, offered):
    assert complete(agentless, words) == offered


def test_free_gpus_are_completed(agentless):
    agentless.submit("node1::0", "--", "sleep", "60")
    assert complete(agentless, ["submit", "node1::"]) == ["node1::1"]


def test_tasks_are_completed(agentless):
    task = agentless.submit("node1", "--name", "train", "--", "sleep", "60")
    for verb in ("logs", "stop", "kill", "pause", "resume", "wait", "show", "rm"):
        assert complete(agentless, [verb, ""]) == [task, "train"], verb


def test_zsh_and_fish_are_told_what_each_is(agentless):
    agentless.submit("node1", "--name", "train", "--", "sleep", "60")
    for shell in ("zsh", "fish"):
        assert re.search("running on node1.*: sleep 60", " ".join(complete(agentless, ["logs", "tr"], shell)))


def test_completion_starts_no_controller(lab):
    cli = Cli(lab, "tab")
    assert complete(cli, ["submit", "no"]) == []
    assert cli("controller", "status", code=1).code == 1
    cli.close()
