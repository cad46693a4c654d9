"""Envs on real engines: made once, and on every node by agentless."""

from __future__ import annotations

import contextlib
import json
import signal

import pytest

from tests.keyboard import at_terminal
from tests.real.cli import Cli, containers, finish, inventory_of, until

NOT_OURS = "lab/strange:1"
"""An image of somebody else's that is on every node; it leaves with its test, for others take a name for the image."""


@pytest.fixture
def agentless(lab):
    for node in lab.nodes.values():
        repo, _, tag = NOT_OURS.partition(":")
        node.ask_docker("POST", f"/images/busybox/tag?repo={repo}&tag={tag}")
    yield Cli(lab).settle()
    lab.reset()
    for node in lab.nodes.values():
        tags = [tag for image in node.ask_docker("GET", "/images/json") for tag in image["RepoTags"] or ()]
        for tag in tags:
            if tag == NOT_OURS or tag.startswith("agentless/"):
                node.ask_docker("DELETE", f"/images/{tag}?force=1")


@pytest.fixture
def node1(lab):
    return lab.nodes["node1"]


@pytest.fixture
def node2(lab):
    return lab.nodes["node2"]


def made(agentless, name, script="true", *words):
    """An env on node1 with one version, in which the script has run."""
    agentless("env", "create", name, "--from", "busybox", "--on", "node1")
    changed(agentless, name, script, *words)


def changed(agentless, name, script, *words):
    agentless("env", "exec", name, "--", "sh", "-c", script)
    return agentless("env", "save", name, *words).out


def image_id(node, image):
    return node.sh(f"docker image inspect --format '{{{{.Id}}}}' {image}").stdout.strip()


def versions(agentless, name):
    return {each["version"]: each for each in agentless.json("env", "history", name)["versions"]}


@pytest.mark.slow
def test_what_is_installed_in_a_shell_on_one_node_runs_on_all_of_them(agentless, node1, node2):
    agentless("env", "create", "proof", "--from", "busybox", "--on", "node1")
    with at_terminal(["agentless", "env", "shell", "proof"], agentless.env) as keyboard:
        keyboard.sees(b"# ")
        keyboard.type(b"until [ \"$(stty size)\" = '23 77' ]; do sleep 0.1; done; echo resi''zed\r")

        def is_resized():
            # Again and again, as in the shell of a task: Docker's client follows the size from a moment on.
            keyboard.resize(78, 23)
            keyboard.resize(77, 23)
            return b"resized" in keyboard.output

        until(is_resized)
        keyboard.type(b"sleep 4321\r")
        until(lambda: "sleep 4321" in node1.sh("docker top agentless-env-proof -eo pid,args").stdout)
        keyboard.type(b"\x03")
        until(lambda: "sleep 4321" not in node1.sh("docker top agentless-env-proof -eo pid,args").stdout)
        keyboard.type(b"echo '#!/bin/sh\necho installed here' >/bin/tool; chmod +x /bin/tool; exit 7\r")
        assert keyboard.ended() == 7
    saved = agentless("env", "save", "proof", "-m", 'with a "tool" for $5').out
    assert saved.startswith("Saved proof:1, ")
    assert "  A /bin/tool" in saved
    pushed = agentless("env", "push", "proof").out
    assert "Sent proof:1 to 1 of 2 nodes, " in pushed
    assert agentless("env", "push", "proof").out == "proof:1 is already on all nodes: node1, node2\n"
    assert image_id(node1, "agentless/proof:1") == image_id(node2, "agentless/proof:1") != ""
    done = agentless("submit", "node1::0", "node2::0", "--container", "proof", "--wait", "--json", "--", "tool").json
    assert [(task["env"], task["exit_code"]) for task in done] == [("proof:1", 0)] * 2
    assert [agentless("logs", task["id"]).out for task in done] == ["installed here\n"] * 2
    [version] = versions(agentless, "proof").values()
    assert (version["message"], version["current"], version["nodes"]) == (
        'with a "tool" for $5', True, ["node1", "node2"],
    )  # fmt: skip


def test_a_build_container_is_stopped_and_what_is_run_in_it_starts_it(agentless, node1):
    agentless("env", "create", "idle", "--from", "busybox", "--on", "node1")
    agentless("env", "exec", "idle", "--", "touch", "/kept")
    assert agentless("env", "stop", "idle").out == "Stopped the build container of env idle on node1\n"
    assert node1.ask_docker("GET", "/containers/agentless-env-idle/json")["State"]["Status"] == "exited"
    assert "node1 (stopped)" in agentless("env", "list").out
    assert agentless("env", "exec", "idle", "--", "ls", "/kept").out == "/kept\n"
    agentless("env", "rm", "--build-container", "--yes", "idle")
    assert "agentless-env-idle" not in containers(node1)


@pytest.mark.slow
def test_what_is_kept_by_a_container_is_said_and_whose_it_is(agentless, node1):
    made(agentless, "base", "echo 1 >/x")
    build = node1.ask_docker("GET", "/containers/agentless-env-base/json")["Id"][:12]
    said = agentless("env", "rm", "--yes", "base:1", code=1).err
    assert "the build container of env base was made from it; remove that first: agentless env rm --build-" in said, (
        build
    )
    stranger = node1.sh("docker run -d agentless/base:1 sleep 600").stdout[:12]
    agentless("env", "rm", "--build-container", "--yes", "base")
    said = agentless("env", "rm", "--yes", "base", code=1).err
    assert (
        f"container {stranger}, which is not one of agentless, uses it; to remove that, run there: docker rm -f" in said
    )
    node1.sh(f"docker rm -f {stranger}").check_returncode()
    agentless("env", "rm", "--yes", "base")


@pytest.mark.slow
def test_the_state_of_a_build_container_is_unknown_while_its_engine_does_not_answer(agentless, node1):
    agentless("env", "create", "dark", "--from", "busybox", "--on", "node1")
    asked = agentless("env", "rm", "--build-container", "dark", code=3).err
    assert "the whole env, which has no version" in asked
    node1.stop_docker()
    assert "node1 (unknown)" in agentless("env", "list").out
    assert agentless.json("env", "list")[0]["state"] is None
    node1.start_docker()
    until(lambda: "node1 (stopped)" in agentless("env", "list").out)
    agentless("env", "rm", "--yes", "dark")


@pytest.mark.slow
def test_a_build_container_in_which_somebody_works_is_neither_stopped_nor_removed(agentless):
    agentless("env", "create", "idle", "--from", "busybox", "--on", "node1")
    agentless("env", "stop", "idle")
    assert agentless.json("env", "stop", "idle") == {"env": "idle", "node": "node1", "changed": False}
    assert agentless("env", "history", "idle").err.endswith("Build container: node1 (stopped)\n")
    assert agentless("env", "start", "idle").out == "Started the build container of env idle on node1\n"
    assert agentless("env", "start", "idle").out == "The build container of env idle on node1 is already running\n"
    with at_terminal(["agentless", "env", "shell", "idle"], agentless.env) as keyboard:
        keyboard.sees(b"# ")
        for words in (("env", "stop", "idle"), ("env", "rm", "--build-container", "--yes", "idle")):
            assert "a shell is open in the build container of env idle; close it first" in agentless(*words, code=3).err
        keyboard.type(b"exit\r")
        assert keyboard.ended() == 0


@pytest.mark.slow
def test_a_build_container_is_removed_alone_and_made_again_from_the_current_version(agentless, node1):
    made(agentless, "alone", "echo saved >/saved")
    agentless("env", "exec", "alone", "--", "touch", "/unsaved")
    assert "a version has no build container" in agentless("env", "rm", "--build-container", "alone:1", code=2).err
    asked = agentless("env", "rm", "--build-container", "alone", code=3).err
    assert "agentless env rm --yes --build-container alone" in asked
    removed = agentless("env", "rm", "--build-container", "--yes", "alone").out
    assert removed == "Removed from node1: its build container\n"
    assert "agentless-env-alone" not in containers(node1)
    assert [*versions(agentless, "alone")] == [1]
    again = agentless("env", "rm", "--build-container", "--yes", "alone", code=3).err
    assert again == "agentless: env alone has no build container; nothing removed\n"
    assert "agentless env shell alone" in agentless("env", "stop", "alone", code=3).err
    agentless("env", "start", "alone")
    assert agentless("env", "exec", "alone", "--", "ls", "/saved").out == "/saved\n"
    agentless("env", "exec", "alone", "--", "ls", "/unsaved", code=1)


@pytest.mark.slow
def test_after_a_small_change_a_push_sends_about_one_layer(agentless):
    made(agentless, "small", "head -c 3000000 /dev/urandom >/big")
    (first,) = agentless.json("env", "push", "small", "node2", "node2")["nodes"]  # a node named twice is one
    changed(agentless, "small", "head -c 20000 /dev/urandom >/little")
    second = agentless.json("env", "push", "small", "node2")["nodes"][0]
    assert first["sent"] > 3_000_000
    assert 20_000 < second["sent"] < 60_000


@pytest.mark.slow
def test_a_task_brings_its_env_to_a_node_that_has_never_seen_it(lab, agentless, node2):
    made(agentless, "carried", "echo 1 >/which")
    changed(agentless, "carried", "echo 2 >/which")
    task = agentless.json("submit", "node2::0", "--container", "carried:1", "--wait", "--", "cat", "/which")[0]
    assert agentless("logs", task["id"]).out == "1\n"
    events = agentless.get(f"/v1/tasks/{task['id']}/events")
    steps = [event["task"]["reason"] for event in events if event["event"] == "step"]
    assert steps[0] == "copying carried:1 to node2"
    assert steps[-1].startswith("copied carried:1 to node2: ")
    assert image_id(node2, "agentless/carried:2") == ""
    with contextlib.closing(Cli(lab, "usual", inventory_of(lab, "image: busybox, container: carried"))) as usual:
        usual.settle()
        task = usual.json("submit", "node2::0", "--wait", "--", "cat", "/which")[0]
        assert (task["env"], usual("logs", task["id"]).out) == ("carried:2", "2\n")
        plain = usual.json("submit", "node2::0", "--image", "busybox", "--wait", "--", "test", "!", "-e", "/which")[0]
        assert (plain["env"], plain["exit_code"]) == (None, 0)


@pytest.mark.slow
def test_a_name_of_ours_is_neither_pulled_nor_taken_from_a_stranger(agentless, node2):
    agentless("env", "create", "named", "--from", "busybox", "--on", "node1")
    changed(agentless, "named", "true")
    node2.sh("docker tag busybox agentless/named:1")
    refused = agentless("submit", "node2::0", "--container", "named", "--wait", "--", "true", code=1).err
    assert "node2 has an image agentless/named:1 that agentless did not create" in refused
    missing = agentless("submit", "node2::0", "--image", "agentless/nowhere:1", "--wait", "--", "true", code=1).err
    assert "agentless does not pull images of envs; submit with --container NAME" in missing
    never = agentless(
        "submit", "node2::0", "--image", "lab/none:1", "--pull", "never", "--wait", "--", "true", code=1
    ).err
    assert "--pull is never; use --pull missing" in never
    assert "did you mean 'named'" in agentless("submit", "node2", "--container", "name", "--", "true", code=2).err
    assert (
        "env named has no version 9" in agentless("submit", "node2", "--container", "named:9", "--", "true", code=2).err
    )


@pytest.mark.slow
def test_a_version_of_a_node_that_is_away_is_refused_in_a_sentence(agentless, node1):
    made(agentless, "away")
    node1.stop_sshd()
    until(lambda: agentless.node("node1")["state"] == "offline")
    words = agentless("submit", "node2::0", "--container", "away", "--", "true", code=4).err
    assert "cannot reach any node that has away:1: node1" in words
    assert agentless.json("env", "list")[0]["offline"] == ["node1"]


@pytest.mark.slow
def test_a_stop_and_a_ctrl_c_end_the_bringing_of_an_env(lab, agentless, node2):
    made(agentless, "slow", "head -c 100000 /dev/urandom >/big")
    slow = lab.root / "slow"
    slow.write_text('#!/bin/sh\n[ "$1" != load ] || exec sleep 4711\nexec docker "$@"\n')
    slow.chmod(0o755)
    with contextlib.closing(Cli(lab, "slow", inventory_of(lab, node2=f"docker: {slow}"))) as other:
        other.settle()
        process = other.start("submit", "node2::0", "--container", "slow", "--", "true")
        task = until(lambda: next((t for t in other.get("/v1/tasks") if "copying slow:1" in (t["reason"] or "")), None))
        other("stop", task["id"])
        assert process.wait(30) == 1
        assert other.task(task["id"])["state"] == "cancelled"
        until(lambda: not [command for _, command in node2.leftovers() if "4711" in command])
        pushing = other.start("env", "push", "slow", "node2")
        until(lambda: [command for _, command in node2.leftovers() if "4711" in command])
        pushing.send_signal(signal.SIGINT)
        done = finish(pushing)
        assert done.code == 130
        assert "To send the rest: agentless env push slow" in done.err
        until(lambda: not [command for _, command in node2.leftovers() if "4711" in command])
    assert image_id(node2, "agentless/slow:1") == ""


@pytest.mark.slow
def test_what_is_current_can_be_an_older_version_again(agentless, node1):
    made(agentless, "older", "echo 1 >/which")
    changed(agentless, "older", "echo 2 >/which")
    agentless("env", "exec", "older", "--", "touch", "/unsaved")
    kept = agentless("env", "rollback", "older")
    assert kept.out == "older:1 is the current version now\n"
    assert "unsaved changes (1 added)" in kept.err
    agentless("env", "rollback", "older:1", "--force")
    assert agentless("env", "exec", "older", "--", "cat", "/which").out == "1\n"
    agentless("submit", "node1::0", "--container", "older", "--wait", "--", "grep", "1", "/which")
    assert changed(agentless, "older", "echo 3 >/which").startswith("Saved older:3, ")
    assert [number for number, each in versions(agentless, "older").items() if each["current"]] == [3]
    agentless.kill_controller()
    assert sorted(versions(agentless, "older")) == [1, 2, 3]


@pytest.mark.slow
def test_after_a_lost_state_the_current_version_is_an_assumption_until_somebody_says_so(agentless, node1):
    made(agentless, "rolled", "echo 1 >/which")
    changed(agentless, "rolled", "echo 2 >/which")
    agentless("env", "rollback", "rolled", "--force")
    assert "assumed" not in agentless("env", "list").err
    agentless("controller", "stop")
    for kept in agentless.state.glob("state.json*"):
        kept.unlink()
    assumed = "env rolled: it is not recorded which version is current; assuming the newest, 2"
    assert assumed in agentless("recover", "--yes").err
    assert assumed in agentless("env", "list").err
    which = ("submit", "node1::0", "--container", "rolled", "--wait", "--follow", "--", "cat", "/which")
    said = agentless(*which)
    assert (said.out, assumed in said.err) == ("2\n", True)
    assert "agentless/rolled:1" not in str(agentless.json("env", "prune", "--dry-run")["removed"])
    agentless("env", "rollback", "rolled:1", "--force")
    said = agentless(*which)
    assert (said.out, "assumed" in said.err) == ("1\n", False)


@pytest.mark.slow
def test_an_env_that_an_ended_task_keeps_says_which(agentless):
    made(agentless, "keeps", "echo 1 >/which")
    task = agentless.submit("node2::0", "--container", "keeps", "--wait", "--", "true")
    said = agentless("env", "rm", "--force", "keeps", code=1).err
    assert said.endswith(f"the container of task {task} uses it; remove the task first: agentless rm {task}\n")
    agentless("rm", task)
    agentless("env", "rm", "--force", "keeps")


@pytest.mark.slow
def test_what_is_removed_is_ours_and_nobody_uses_it(agentless, node1, node2):
    made(agentless, "gone", "echo 1 >/which")
    changed(agentless, "gone", "echo 2 >/which")
    changed(agentless, "gone", "echo 3 >/which")
    task = agentless.submit("node2::0", "--container", "gone:1", "--", "sleep", "1000")
    would = agentless.json("env", "prune", "--dry-run")
    assert (
        would["removed"] == agentless.json("env", "prune")["removed"] == [{"node": "node1", "what": "agentless/gone:2"}]
    )
    assert task in agentless("env", "rm", "--force", "gone", code=3).err
    agentless("rm", "--force", task)
    assert "Cannot ask for confirmation without a terminal" in agentless("env", "rm", "gone", code=3).err
    agentless("env", "rm", "--force", "gone")
    for node in (node1, node2):
        assert node.sh("docker image ls --quiet 'agentless/*'").stdout == ""
        assert image_id(node, NOT_OURS) == image_id(node, "busybox") != ""
        assert containers(node) == []
    agentless("env", "create", "gone", "--from", "busybox")
    assert agentless("env", "save", "gone").out.startswith("Saved gone:4, ")


@pytest.mark.slow
def test_an_env_goes_through_a_file_to_another_lab(lab, agentless, node1, node2):
    made(agentless, "filed", "echo here >/which", "-m", "for a friend")
    file = lab.home / "filed.tar.zst"
    agentless("env", "export", "filed", str(file))
    before = image_id(node1, "agentless/filed:1")
    agentless("env", "rm", "--force", "filed")
    with contextlib.closing(Cli(lab, "friend")) as friend:
        friend.settle()
        assert friend.json("env", "import", str(file), "--on", "node2")["version"] == 1
        assert image_id(node2, "agentless/filed:1") == before
        assert friend.json("env", "import", str(file), "--on", "node2")["new"] is False
        renamed = friend.json("env", "import", str(file), "mine", "--on", "node2")
        assert (renamed["env"], renamed["version"]) == ("mine", 1)
        friend("submit", "node2::0", "--container", "mine", "--wait", "--", "grep", "here", "/which")
        [version] = versions(friend, "mine").values()
        assert version["message"] == "for a friend"
        node1.sh(f"docker save {NOT_OURS} >{lab.home}/strange.tar")
        assert "name it" in friend("env", "import", f"{lab.home}/strange.tar", code=2).err
        friend("env", "import", f"{lab.home}/strange.tar", "taken")
    assert sorted(node2.sh("docker image ls --format '{{.Repository}}:{{.Tag}}'").stdout.split()) == [
        "agentless/filed:1", "agentless/mine:1", "busybox:latest", "lab/busybox:latest", NOT_OURS,
    ]  # fmt: skip
    assert containers(node2)[1:] == []


@pytest.mark.slow
def test_a_build_container_that_somebody_removed_is_made_again(agentless, node1):
    made(agentless, "again", "echo here >/which")
    node1.sh("docker rm --force agentless-env-again")
    assert (
        "no build container; to create one, run: agentless env shell again"
        in agentless("env", "save", "again", code=3).err
    )
    assert agentless("env", "exec", "again", "--", "cat", "/which").out == "here\n"
    node1.sh("docker stop --time 0 agentless-env-again")
    assert agentless("env", "exec", "again", "--", "cat", "/which").out == "here\n"
    node1.sh("docker rm --force agentless-env-again; docker run --name agentless-env-again busybox true")
    assert "that agentless did not create" in agentless("env", "exec", "again", "--", "true", code=3).err


def test_a_version_is_built_of_a_folder_of_this_machine(lab, agentless, node1):
    folder = lab.home / "context"
    folder.mkdir(exist_ok=True)
    (folder / "Dockerfile").write_text('FROM busybox\nCOPY . /app\nRUN echo "while it builds"\nENTRYPOINT ["cat"]\n')
    (folder / "kept").write_text("kept\n")
    (folder / "secret.key").write_text("secret\n")
    (folder / ".dockerignore").write_text("*.key\n")
    done = agentless("env", "build", "built", str(folder), "--on", "node1", "-m", "of a file")
    assert "while it builds" in done.out
    found = agentless.json("submit", "node1::0", "--container", "built", "--wait", "--", "/app/kept")
    assert agentless("logs", found[0]["id"]).out == "kept\n"
    assert agentless("env", "exec", "built", "--", "ls", "/app").out == "Dockerfile\nkept\n"
    (folder / "Dockerfile").write_text("FROM agentless/nowhere:1\n")
    assert "no env 'nowhere'" in agentless("env", "build", "built", str(folder), code=2).err
    (folder / "Dockerfile").write_text("FROM agentless/built:1\nRUN false\n")
    assert "the build failed" in agentless("env", "build", "built", str(folder), code=1).err
    assert sorted(versions(agentless, "built")) == [1]
    assert "fresh" not in node1.sh("docker image ls --all").stdout
    config = json.loads(node1.sh("docker image inspect agentless/built:1").stdout)[0]["Config"]
    assert config["Entrypoint"] == ["cat"]
