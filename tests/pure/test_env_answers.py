"""What an engine says of envs, and what is said to it, word for word."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.controller.nodes.broken import broken
from agentless.engines.dialect import Dialect
from agentless.engines.docker import checkup
from agentless.engines.docker.commands import Commands
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.envs import _quoted
from agentless.engines.podman.dialect import PODMAN
from agentless.errors import Refused, RuntimeFailed
from agentless.model.command import Result
from agentless.model.containers.launch import Launch
from agentless.model.images.env import EnvRef, FileChanges, ImageFacts, labels_of_version
from agentless.model.nodes.node import NodeConfig
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.pure.build import SIGNER

WORDS = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER).envs
REF = EnvRef("torch", 3)
FRESH = "agentless/torch:fresh-0123456789abcdef"


def said(*objects: Any, code: int = 0, err: str = "") -> Result:
    return Result(code, "\n".join(json.dumps(each) for each in objects).encode() + b"\n", err.encode())


def an_image(*tags: str, **labels: str) -> dict[str, Any]:
    named = {f"agentless.{key}": value for key, value in labels.items()}
    return {
        "id": "sha256:1",
        "tags": list(tags),
        "size": 7,
        "created": "2026-11-22T08:00:00.5Z",
        "labels": named or None,
    }


def a_container(name: str, **labels: str) -> dict[str, Any]:
    named = {f"agentless.{key}": value for key, value in labels.items()}
    return {
        "container": "c1", "name": f"/{name}", "image": "sha256:1", "state": "running",
        "created": "2026-11-22T08:00:00Z", "labels": named,
    }  # fmt: skip


def test_a_version_is_an_image_whose_labels_say_what_it_is_called():
    labels = {"env": "torch", "version": "3", "message": "m", "by": "ann@x", "at": "12.5"}
    [found] = WORDS.parse_look(said(an_image("agentless/torch:3", "other:1", **labels))).images
    assert (found.ref, found.id, found.message, found.by, found.at) == (REF, "sha256:1", "m", "ann@x", 12.5)


@pytest.mark.parametrize(
    "labels", [{}, {"env": "torch"}, {"env": "torch", "version": "2"}, {"env": "x", "version": "3"}]
)
def test_an_image_that_is_called_like_ours_and_is_not_is_strange(labels):
    found = WORDS.parse_look(said(an_image("agentless/torch:3", **labels)))
    assert (found.images, found.foreign) == ((), {"agentless/torch:3"})


def test_a_build_container_has_its_name_and_its_label():
    found = WORDS.parse_look(said(a_container("agentless-env-a", build="a"), a_container("agentless-env-b", build="a")))
    assert [container.env for container in found.containers] == ["a"]
    assert found.foreign == {"agentless-env-b"}


def test_what_broke_off_is_a_leftover():
    found = WORDS.parse_look(said(an_image(FRESH), a_container("agentless-env-a-IMPORT", build="a")))
    assert sorted(found.leftovers) == ["agentless-env-a-IMPORT", FRESH]
    assert WORDS.parse_look(said(an_image("agentless/torch:fresh-x"))).foreign == {"agentless/torch:fresh-x"}


def test_an_engine_that_does_not_say_has_said_nothing():
    with pytest.raises(RuntimeFailed, match="node1"):
        WORDS.parse_look(said(code=1, err="Cannot connect to the Docker daemon"))


def test_changes_are_counted_and_some_are_named():
    assert WORDS.parse_diff(Result(0, b"2\n1\n0\nA /x\nA /y\nC /etc\n")) == FileChanges(
        2, 1, 0, ("A /x", "A /y", "C /etc")
    )
    assert str(FileChanges(2, 1, 0)) == "2 added, 1 changed"
    assert not WORDS.parse_diff(Result(0, b"0\n0\n0\n\n"))


def test_the_loop_that_does_nothing_is_no_program():
    idle = 'PID  COMMAND\n7    sh -c trap "exit 0" TERM; while sleep 86400 & wait "$!"; do :; done\n8    sleep 86400\n'
    assert WORDS.parse_programs(Result(0, idle.encode())) == ()
    assert WORDS.parse_programs(Result(0, idle.encode() + b"9    vi notes\n")) == ("vi notes",)


def test_a_number_that_somebody_else_was_faster_with_is_refused():
    with pytest.raises(Refused, match="another process just created torch:3"):
        WORDS.parse_named(REF, Result(75))


def test_a_saved_version_is_run_as_the_image_that_it_began_as():
    base = ImageFacts("sha256:1", 7, ("python",), ("-i",), ("PATH=/bin", "NVIDIA_VISIBLE_DEVICES=all"))
    script = WORDS.save("c1", base, REF, {}, "0123456789abcdef").script
    assert """--change 'CMD ["-i"]'""" in script
    assert """--change 'ENTRYPOINT ["python"]'""" in script
    assert """--change 'ENV NVIDIA_VISIBLE_DEVICES="all"'""" in script


def test_a_build_container_sees_no_gpu_also_where_its_image_asks_for_all():
    plain, cuda = ImageFacts("sha256:1", 7, env=("PATH=/bin",)), ImageFacts("sha256:1", 7, env=("CUDA_VERSION=12",))
    assert "NVIDIA_VISIBLE_DEVICES" not in WORDS.create("torch", plain).script
    assert "--env NVIDIA_VISIBLE_DEVICES=void " in WORDS.create("torch", cuda).script


@given(st.text())
def test_no_message_can_be_more_than_the_word_of_a_label(text):
    [line] = _quoted(text).splitlines() or [""]
    assert line.startswith('"')
    inside = line[1:-1].replace("\\\\", "").replace('\\"', "").replace("\\$", "")
    assert not set(inside) & {'"', "\\", "$"}


def test_a_message_reaches_the_label_as_it_is():
    labels = labels_of_version(REF, 'it\'s "50 $" \\o/', "ann", 1.0)
    script = WORDS.save("c1", ImageFacts("sha256:1", 7), REF, labels, "0123456789abcdef").script
    assert r'''LABEL agentless.message="it'"'"'s \"50 \$\" \\o/"''' in script


def test_a_launch_looks_at_the_image_under_its_lock(tmp_path):
    from agentless.errors import ImageMissing
    from agentless.model.tasks.spec import TaskSpec
    from agentless.model.tasks.task import Placement, Task

    spec = TaskSpec(("true",), container="torch:3", image=REF.image, image_id="sha256:1")
    task = Task("t1", spec, "t1", "ann", 0.0)
    docker = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)
    script = docker.launches([Launch(task, Placement("node1"))]).script
    assert script.index("flock") < script.index("image inspect") < script.index("docker create")
    with pytest.raises(ImageMissing):
        docker.parse_launch(task, Result(79))


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(["id", "tags", "size", "created", "labels", "container", "name"]), JUNK))
def test_an_answer_of_the_wrong_types_is_that_nodes_failure_only(answer: dict[str, Any]) -> None:
    for parse in (WORDS.parse_look, WORDS.parse_facts):
        with contextlib.suppress(RuntimeFailed):
            parse(said(answer))


@pytest.mark.parametrize("line", [b"{bad", b'{"id":"x"}', b'{"id":"x","tags":5}', b'{"id":"x","labels":[1]}'])
def test_an_answer_that_cannot_be_read(line: bytes) -> None:
    with pytest.raises(RuntimeFailed, match="node1 gave an answer that cannot be read"):
        WORDS.parse_look(Result(0, line, b""))


def test_changes_that_are_no_numbers() -> None:
    with pytest.raises(RuntimeFailed, match="cannot be read"):
        WORDS.parse_diff(Result(0, b"x\n1\n1\n", b""))


def test_other_answers_that_cannot_be_read() -> None:
    engine = docker_engine(NodeConfig("node1", "h"), Renderer([template_dir()]), SIGNER)
    for said_by_trial in (b"@launch\nsaid exit code 1\n", b'@launch\ntimes "9999-99-99T00:00:00Z" "1"\ncode 1\n'):
        with contextlib.suppress(RuntimeFailed):
            engine.parse_trial(Result(0, said_by_trial, b""))


@pytest.mark.parametrize("dialect", [DOCKER, PODMAN], ids=lambda each: each.name)
@given(answer=st.dictionaries(st.sampled_from(["Driver", "ServerErrors", "Warnings", "host", "store"]), JUNK))
def test_facts_of_an_engine_of_the_wrong_types(dialect: Dialect, answer: dict[str, Any]) -> None:
    commands = Commands(NodeConfig("node1", "h"), Renderer([template_dir()]), dialect)
    said = Result(0, f"info {json.dumps(answer)}\n".encode())
    assert checkup.parse(commands, {checkup.SECTION: said})


@pytest.mark.parametrize("error", [RuntimeFailed("node1 gave an answer that cannot be read"), TypeError("x")])
def test_what_goes_wrong_with_one_node_is_a_failed_check(error: Exception) -> None:
    assert (found := broken("answer", "node1", error)).verdict == "failed"
    assert "node1" in found.wrong
