"""What a task may ask for, before any node is asked."""

from __future__ import annotations

import math
import subprocess
from typing import Any

import pytest

from agentless.errors import UsageError
from agentless.model.claim import labels_of
from agentless.model.needs import Needs
from agentless.model.spec import MAX_SPEC, Mount, TaskSpec, Volume, check_spec, parse_mount, parse_volume
from tests.pure.build import placement, spec, task


def test_a_spec_with_everything_in_it_is_fine() -> None:
    check_spec(
        spec(
            "sh",
            "-c",
            "echo 'a\nb' \"$HOME\" é 😀 ''",
            image="registry.lab:5000/team/train:1.2@sha256:" + "0" * 64,
            name="Run.1_a-b",
            cores=0.5,
            memory=1,
            shm_size=2**62,
            env={"A": "1\n2", "_b": ""},
            secret_env=("TOKEN", "A"),
            mounts=(Mount("/data/my set,1", "/data", read_only=True),),
            workdir="/w",
            user="1000:1000",
            network="host",
            privileged=True,
            stop_grace=0,
            labels={"team/x": "any\nthing"},
        )
    )


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": ""}, "name ''"),
        ({"name": "a b"}, "name 'a b'"),
        ({"name": "a\nb"}, "name 'a\\nb'"),
        ({"name": "a\n"}, "name 'a\\n'"),
        ({"name": "a\0"}, "name 'a\\x00'"),
        ({"name": "-a"}, "name '-a'"),
        ({"name": "é"}, "name 'é'"),
        ({"name": "x" * 64}, "up to 63"),
        ({"env": {"1A": ""}}, "environment variable '1A'"),
        ({"env": {"A=B": ""}}, "environment variable 'A=B'"),
        ({"env": {"": ""}}, "environment variable ''"),
        ({"env": {"A\n": ""}}, "environment variable 'A\\n'"),
        ({"env": {"A": "x\0"}}, "NUL"),
        ({"env": {"AGENTLESS_NODE": "x"}}, "AGENTLESS_NODE is set by agentless"),
        ({"env": {"NVIDIA_VISIBLE_DEVICES": "all"}}, "NVIDIA_VISIBLE_DEVICES is set by agentless"),
        ({"secret_env": ("AGENTLESS_X",)}, "AGENTLESS_X is set by agentless"),
        ({"secret_env": ("a b",)}, "environment variable 'a b'"),
        ({"secret_env": ("PATH",)}, "PATH cannot be a secret"),
        ({"secret_env": ("DOCKER_HOST",)}, "DOCKER_HOST cannot be a secret"),
        ({"labels": {"agentless.task": "x"}}, "are agentless's own"),
        ({"labels": {"a b": "x"}}, "label 'a b'"),
        ({"labels": {"a": "\0"}}, "NUL"),
        ({"mounts": (Mount("/a\0", "/b"),)}, "NUL"),
        ({"image": "a b"}, "--image 'a b'"),
        ({"image": ""}, "--image ''"),
        ({"image": "--privileged"}, "--image '--privileged'"),
        ({"workdir": "a\nb"}, "--workdir"),
        ({"user": "-u"}, "--user '-u'"),
        ({"network": "host\0"}, "NUL"),
        ({"cores": 0}, "--cores 0"),
        ({"cores": -1}, "--cores -1"),
        ({"cores": math.nan}, "--cores nan"),
        ({"cores": math.inf}, "--cores inf"),
        ({"memory": 0}, "--memory 0"),
        ({"memory": -5}, "--memory -5"),
        ({"shm_size": 2**63}, "--shm-size"),
        ({"stop_grace": -0.1}, "--stop-grace"),
        ({"stop_grace": math.inf}, "--stop-grace"),
        ({"stop_grace": math.nan}, "--stop-grace"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_name(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(spec(**fields))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_task_needs_a_command() -> None:
    with pytest.raises(UsageError, match="write it after '--'"):
        check_spec(TaskSpec((), image="busybox"))


@pytest.mark.parametrize("word", ["a\0b", "\udcff"])
def test_a_word_that_no_program_could_be_given_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        check_spec(spec("echo", word))


@pytest.mark.parametrize(
    "fields",
    [
        {"command": ("sh", "-c", "x" * 1_000_000)},
        {"command": ("a",) * 50_000},
        {"command": ("sh", "-c", "\x01" * 50_000)},
        {"command": ("true",), "env": {"A": "x" * 1_000_000}},
        {"command": ("true",), "labels": {"a": "x" * 1_000_000}},
    ],
)
def test_a_megabyte_of_command_or_environment_is_refused_with_the_way_out(fields: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=r"into a file on the node and --mount it"):
        check_spec(TaskSpec(image="busybox", **fields))


@pytest.mark.parametrize("letter", ["x", '"', "\\", "\n", "é", "😀"])
def test_the_longest_command_still_fits_into_one_argument_with_its_label(letter: str) -> None:
    length = MAX_SPEC
    while True:
        try:
            check_spec(longest := spec(letter * length))
            break
        except UsageError:
            length -= 1000
    labels = labels_of(task(target="node1:0::0", spec=longest), placement("node1::0,1,2,3,4,5,6,7"), "c1")
    argument = f"agentless.spec={labels['agentless.spec']}"
    assert subprocess.run(["true", argument], check=False).returncode == 0


@pytest.mark.parametrize(
    ("text", "mount"),
    [
        ("/a:/b", Mount("/a", "/b")),
        ("/a:/b:rw", Mount("/a", "/b")),
        ("/a b,c:/b:ro", Mount("/a b,c", "/b", read_only=True)),
    ],
)
def test_a_mount_is_two_absolute_paths(text: str, mount: Mount) -> None:
    assert parse_mount(text) == mount


@pytest.mark.parametrize("text", ["", "/a", "a:/b", "/a:b", "/a:/b:rx", "/a:/b:ro:ro", ":/b", "/a:", "~/a:/b"])
def test_anything_else_is_no_mount(text: str) -> None:
    with pytest.raises(UsageError, match="/path/on/node:/path/in/container"):
        parse_mount(text)


@pytest.mark.parametrize(
    ("text", "volume"),
    [
        ("data:/x", Volume("data", "/x")),
        ("a.b_c-1:/x:ro", Volume("a.b_c-1", "/x", read_only=True)),
        ("data:/x:rw", Volume("data", "/x")),
    ],
)
def test_a_volume_is_a_name_and_an_absolute_path(text: str, volume: Volume) -> None:
    assert parse_volume(text) == volume
    assert parse_volume(str(volume)) == volume


@pytest.mark.parametrize("text", ["", "data", "data:x", "data:/x:rx", "data:/x:ro:ro", "/a:/b", "-a:/b", "a:/b", ":/b"])
def test_anything_else_is_no_volume(text: str) -> None:
    with pytest.raises(UsageError):
        parse_volume(text)


@pytest.mark.parametrize(
    ("needs", "without"),
    [
        (Needs(gpus=1), Needs(gpus=1, exclude=("n1",))),
        (Needs(gpus=1, exclude=("n1",)), Needs(gpus=1, exclude=("n1",))),
        (Needs(nodes=("n1", "n2")), Needs(nodes=("n2",))),
        (Needs(nodes=("n1",)), Needs(nodes=("n1",), exclude=("n1",))),
    ],
)
def test_a_task_without_a_node_goes_to_any_other_that_would_have_done(needs: Needs, without: Needs) -> None:
    assert TaskSpec(("true",), needs=needs).without("n1").needs == without
