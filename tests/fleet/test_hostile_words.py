"""What nodes and other users say steers no terminal and passes for no line of ours.

On n1 somebody else has started containers whose labels hold escapes, line breaks and markup; the engine of n2 and the
driver of n3 fail in such words, and the GPUs of n4 are called so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest
from textual.widgets import Static

from agentless import paths
from agentless.client.client import Client
from agentless.demo import node as simulated
from agentless.demo.engine.container import Config
from agentless.demo.engine.engine import DEFAULT_IMAGE
from agentless.demo.fleet import NodePlan
from agentless.model.containers.claim import CONTROLLER, GPUS, OWNER, SPEC, TASK
from agentless.tui.app import Dashboard
from tests import ready
from tests.fleet.eyes import Eyes
from tests.fleet.inhabited import inhabited
from tests.fleet.world import World
from tests.real.cli import until

BEGUN = "FORGED"
"""What a value writes behind its line breaks."""
EVIL = (
    "evil\x1b[31m\x1b]0;title\x07\x1b]8;;http://x\x1b\\\x9b2J\x90\x85\u2028\u202e\u2066\x7f\x08"
    f"\n{BEGUN}: all is well\r\n  {BEGUN} \r\tx[bold]y[/bold][@click=app.quit]z[/][link=http://x]l[/link][/nope]"
)
IDS = ("zzzzzzzz001", "zzzzzzzz002", f"zzzzzzzz003{EVIL}", "zzzzzzzz004")
"""Of the tasks that the containers say to be."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    plans = [NodePlan("n1", 4), NodePlan("n2", 1), NodePlan("n3", 1), NodePlan("n4", 2)]
    with pytest.MonkeyPatch.context() as patch, inhabited(tmp_path_factory.mktemp("fleet"), plans) as world:
        patch.setattr(simulated, "docker_without_engine", fails)
        client = Client.found(None)
        (start,) = client.post(
            "/v1/tasks",
            {"targets": ["n1::3"], "spec": {"command": ["sleep", "600"], "image": DEFAULT_IMAGE, "needs": {}}},
        )
        assert start["task"], start
        (honest,) = world.containers()
        for at, task in enumerate(IDS):
            world.do(forge, world.nodes["n1"], at, task, dict(honest.labels))
        for name, value in {"name": EVIL, "driver_version": EVIL.replace("\n", " ")}.items():
            # A line break would be another row: of that the parser makes no GPU at all.
            world.do(world.nodes["n4"].gpus.show, 0, {name: value.replace("\n", " ").replace("\r", " ")})
        world.do(world.nodes["n4"].gpus.use, 1, os.getpid(), EVIL.replace("\n", " ").replace("\r", " "), 512)
        world.nodes["n3"].gpus._folder.joinpath("fault").write_bytes(b"exit 9\n" + EVIL.encode())
        world.do(world.nodes["n2"].stop_engine)
        until(lambda: known(client))
        yield world


def known(client: Client) -> bool:
    """Whether the controller has heard all of it."""
    states = {node["name"]: node["state"] for node in client.get("/v1/nodes")}
    held = [gpu["state"] for gpu in client.get("/v1/gpus", node="n1")]
    return states["n2"] == states["n3"] == "degraded" and held.count("allocated") == 4


async def fails(call) -> int:
    await call.complain(f"Error response from daemon: {EVIL}")
    return 1


def forge(node, at: int, task: str, labels: dict[str, str]) -> None:
    """Start a container that says to be this task; every other one of them says to be of our controller."""
    spec = evil(json.loads(labels[SPEC]) | {"labels": {"k": "v"}})
    labels |= {TASK: task, OWNER: EVIL, SPEC: json.dumps(spec), GPUS: node.gpus.uuids[min(at, 2)], EVIL: EVIL}
    labels |= {CONTROLLER: EVIL} if at % 2 else {}
    labels |= {SPEC: EVIL} if at == 3 else {}
    config = Config(f"forged-{at}", DEFAULT_IMAGE, ["sleep", "600"], labels, gpus=[node.gpus.uuids[min(at, 2)]])
    node.engine.start(node.engine.create(config))


def evil(spec: dict) -> dict:
    """The spec with hostile words in all places that take any."""
    inner = spec["spec"] | {
        "command": ["sh", "-c", EVIL],
        "name": EVIL,
        "image": EVIL,
        "env": {"A": EVIL},
        "labels": {EVIL: EVIL},
        "workdir": EVIL,
    }
    return spec | {"batch": EVIL, "spec": inner}


@pytest.fixture
def type_(world: World):
    def typed(*words: str) -> tuple[str, str]:
        done = ready.agentless(*words)
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout, done.stderr

    return typed


def check(text: str) -> None:
    """No character of it but a line break is invisible, and no line of it is begun by a value."""
    odd = sorted({c for c in text if not c.isprintable() and c != "\n"})
    assert not odd, (odd, text)
    assert not [line for line in text.split("\n") if line.lstrip(" ").startswith(BEGUN)], text


TYPED = [
    *("ps", "ps --all", "ps --mine", "queue", "queue --shares", "gpus", "gpus --free", "gpus n4", "nodes", "doctor"),
    *("nodes show n1", "nodes show n2", "nodes show n3", "nodes show n4", "doctor n2", "doctor n3"),
    *("explain n1::0", "explain 4x", "explain n2::0", "explain n3::0", "explain n2", "explain 9x --node n1 --node n2"),
    *("events", "events --last 5", "usage", "usage --by task", "usage --by node", "recover", "controller status"),
    *("volume list", "volume create v --on n2", "volume rm v --force", "env list", "env history e", "env prune"),
    *("env create e --from img --on n2", "reserve n1 --maintenance --from now --to 1h", "reservations"),
    *("submit n1::0 --no-queue -- true", "submit n1 4x --no-queue -- true", "submit n2::0 --no-queue -- true"),
    *("submit n3::0 --no-queue -- true", "submit n1::0 --dry-run -- true", "submit n1::0 --node n2 -- true"),
    *("submit 8x --no-queue -- true", "submit n1::0 n1::1 n1::2 --no-queue -- true", "cp n2:/nope .", "cp n1:/nope ."),
    *("nodes drain n1", "nodes resume n1", "nodes resume n1 --gpu 0", "nodes drain n2", "nodes resume n2"),
    *("submit n2::0 -- true", "queue", "nodes trust n1"),
]
OF_A_TASK = ("show", "explain", "events", "logs", "logs --timestamps", "wait", "retry", "queue top", "cp {}:/nope .")
ENDS = ("pause", "resume", "stop --grace 0s", "kill", "rm", "rm --force", "logs", "show", "retry", "events")


@pytest.mark.parametrize("line", TYPED)
def test_no_command_prints_what_others_chose_as_it_is(type_, line):
    for text in type_(*line.split()):
        check(text)


@pytest.mark.parametrize("line", ["ps", "gpus", "queue", "nodes", "doctor", "events", "usage", "reservations"])
def test_json_has_the_same_values_and_no_invisible_character(type_, line):
    out, err = type_(*line.split(), "--json")
    check(out)
    check(err)
    for text in out.splitlines() if line == "events" else [out]:
        json.loads(text)


def test_json_keeps_the_words_of_others_as_they_are(type_):
    out, _ = type_("ps", "--json")
    assert EVIL in {task["owner"] for task in json.loads(out)}


@pytest.mark.parametrize("task", IDS)
def test_no_command_about_such_a_task_prints_it_as_it_is(type_, task):
    for line in OF_A_TASK:
        if line == "wait":
            continue  # it lives
        words = line.split()
        given = [word.format(task) for word in words] if "{}" in line else [*words, task]
        for text in type_(*given):
            check(text)


def test_what_tab_offers_can_be_typed_and_evaluated(world):
    """Task ids and names of others are put on the command line as they are; zsh evaluates what is said of them."""
    environment = os.environ | {"_AGENTLESS_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "agentless show "}
    done = subprocess.run(
        [sys.executable, "-m", "agentless"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    check(done.stdout)
    assert IDS[3] in done.stdout
    assert "evil\x1b" not in done.stdout
    assert not set(done.stdout) & set("$`[]")
    assert not done.stderr


# ------------------------------------------------------------------------------------------------ the dashboard


@pytest.mark.parametrize(
    ("gpus", "nodes", "ids"), [(1, 2, IDS[2:3]), pytest.param(2, 3, IDS[:3:2], marks=pytest.mark.slow)]
)
async def test_the_dashboard_shows_it_as_plain_words(world, gpus, nodes, ids):
    app = Dashboard(Client.found(None))
    async with app.run_test(size=(200, 60), notifications=True) as pilot:
        eyes = Eyes(app, pilot)
        await eyes.see("evil", "n1")

        async def look(*keys: str, see: str = "") -> None:
            await eyes.press(*keys)
            await eyes.see(see)
            for static in app.screen.query(Static):
                check(getattr(static.visual, "plain", ""))  # a long line of it may begin anew where the screen ends
            for strip in app.screen._compositor.render_strips():
                assert strip.text.isprintable(), strip.text
                metas = [segment.style.meta for segment in strip if segment.style and segment.style.meta]
                assert "app.quit" not in str(metas)
                assert not [segment for segment in strip if segment.style and segment.style.link]

        for key in "123456":
            await look(key, see="agentless")
        await look("2", see="[bold]y[/bold]")
        for _ in range(gpus):
            await look("enter", see="[10 min]")
            await look("escape", "down")
        await look("3", see="n2")
        for _ in range(nodes):
            await look("enter", see="Checks")
            await look("escape", "down")
        await look("4", see="evil")
        for task in ids:
            app.view.table.choose(task)
            await look("enter", see="Summary")
            for number in "23456":
                await look(number, see="Summary")
            await look("escape")
            keys = {"l": "Search", "K": "Kill (y)"} | ({"N": "Variables"} if task == IDS[0] else {})
            for key, words in keys.items():
                await look(key, see=words)
                await look("escape")


# ------------------------------------------------------------------------------------------------------ the end


@pytest.mark.parametrize("line", ENDS)
def test_what_is_said_of_ending_such_a_task_is_printed_as_plain_words(type_, line):
    for task in IDS:
        for text in type_(*line.split(), task):
            check(text)


@pytest.mark.slow
def test_the_log_of_the_controller_has_no_such_words(world, type_):
    type_("env", "list")  # n2's answer to it is logged
    log = paths.state_dir().joinpath("controller.log").read_text()
    assert BEGUN in log
    check(log)
