"""What a task may ask for, before any node is asked."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import asdict, replace
from typing import Any

import pytest

from agentless.errors import UsageError
from agentless.model.containers.claim import labels_of
from agentless.model.files.file_spec import Output, Upload
from agentless.model.scheduling.needs import MAX_GPUS, Needs
from agentless.model.tasks.spec import (
    MAX_NUMBER,
    MAX_SPEC,
    MAX_VARIABLE,
    Mount,
    TaskSpec,
    Volume,
    check_secrets,
    check_spec,
    on_targets,
    parse_mount,
    parse_volume,
    without_zeros,
)
from agentless.model.tasks.terms import MAX_RETRIES, Terms
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
            memory=6 * 2**20,
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
        ({"env": {"1A": ""}}, "variable '1A'"),
        ({"env": {"A=B": ""}}, "variable 'A=B'"),
        ({"env": {"": ""}}, "variable ''"),
        ({"env": {"A\n": ""}}, "variable 'A\\n'"),
        ({"env": {"A": "x\0"}}, "NUL"),
        ({"env": {"AGENTLESS_NODE": "x"}}, "AGENTLESS_NODE is reserved for agentless"),
        ({"secret_env": ("AGENTLESS_X",)}, "AGENTLESS_X is reserved for agentless"),
        ({"secret_env": ("a b",)}, "variable 'a b'"),
        ({"secret_env": ("PATH",)}, "PATH cannot be a secret"),
        ({"secret_env": ("DOCKER_HOST",)}, "DOCKER_HOST cannot be a secret"),
        ({"secret_env": ("OPTIND",)}, "OPTIND cannot be a secret"),
        ({"labels": {"agentless.task": "x"}}, "is reserved; choose another name"),
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
        ({"memory": 32768}, "--memory 32768B is implausible: the minimum is 6 MiB; did you mean 32768M?"),
        ({"memory": 5 * 10**6}, "--memory 5M is implausible: the minimum is 6 MiB; did you mean 5G?"),
        ({"memory": 4 << 20}, "--memory 4MiB is implausible: the minimum is 6 MiB; did you mean 4GiB?"),
        ({"shm_size": 64}, "--shm-size 64B is implausible: the minimum is 1 MiB; did you mean 64M?"),
        ({"needs": Needs(gpus=1, gpu_memory=4096)}, "--gpu-memory 4096B is implausible: the minimum is 1 MiB"),
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


@pytest.mark.parametrize(
    "fields",
    [
        {"memory": MAX_NUMBER},
        {"share": True},
        {"image": None, "container": "NULL", "workdir": "/data"},
        {"needs": Needs(gpus=MAX_GPUS)},
        {"needs": Needs(gpus=1, gpu_memory=2**20)},
        {"needs": Needs(gpus=1, gpu_memory=2**63 - 1)},
        {"needs": Needs(gpus=1, gpu_memory=2**20, gpu_share=100)},
        {"needs": Needs(nodes=("n1",), numa=0)},
        {"needs": Needs(gpus=2, nodes=("n1",), indices=(0, 1))},
        {"needs": Needs(nodes=("n1", "n2"), exclude=("n3",))},
        {"terms": Terms(priority=1000)},
        {"terms": Terms(priority=-1000)},
        {"terms": Terms(time_limit=0.5)},
        {"terms": Terms(time_limit=1, signal="USR1", signal_before=0.5)},
        {"terms": Terms(wait_for=0)},
        {"terms": Terms(start_at=0)},
        {"terms": Terms(start_at=5, wait_for=1)},
        {"terms": Terms(retries=MAX_RETRIES)},
        {"terms": Terms(backoff=0)},
        {"terms": Terms(max_parallel=1)},
        {"terms": Terms(max_parallel=1, wait_for=1)},
    ],
    ids=str,
)
def test_the_least_and_the_most_that_may_be_asked_for_is_fine(fields: dict[str, Any]) -> None:
    check_spec(spec(**fields))


def test_a_limit_of_0_is_no_limit() -> None:
    zeros = spec(cores=0, memory=0, shm_size=0, terms=Terms(time_limit=0, signal_before=0, max_parallel=0))
    assert without_zeros(replace(zeros, needs=Needs(gpus=1, gpu_memory=0))) == spec(needs=Needs(gpus=1))


def test_a_count_or_a_time_of_0_stays_what_it_is() -> None:
    none = spec(stop_grace=0, needs=Needs(gpus=0), terms=Terms(priority=0, retries=0, backoff=0, wait_for=0))
    assert without_zeros(none) == none


def test_a_secret_is_refused_beyond_what_linux_gives_a_program() -> None:
    check_secrets({"TOKEN": "x" * (MAX_VARIABLE - 6)})
    with pytest.raises(UsageError, match=r"secret TOKEN has 131,072 bytes; .* 131,071; move the value"):
        check_secrets({"TOKEN": "x" * (MAX_VARIABLE - 5)})
    with pytest.raises(UsageError, match=r"secret TOKEN has 131,072 bytes"):
        check_secrets({"TOKEN": "é" * (MAX_VARIABLE // 2 - 2)})


@pytest.mark.parametrize("value", ["hush\0", "hush\udc80"])
def test_a_secret_that_no_variable_can_hold_is_refused_without_its_value(value: str) -> None:
    with pytest.raises(UsageError, match="secret TOKEN contains NUL") as refused:
        check_secrets({"TOKEN": value})
    assert "hush" not in str(refused.value)


def test_the_secrets_of_a_task_are_refused_beyond_what_linux_gives_a_program_at_once() -> None:
    with pytest.raises(UsageError, match=r"the secrets have 1,100,\d+ bytes; the limit per task is 1,048,576"):
        check_secrets({f"S{number}": "x" * 100_000 for number in range(11)})


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(gpus=-1), "--gpus -1"),
        (Needs(gpus=MAX_GPUS + 1), "--gpus 10001"),
        (Needs(gpu_memory=5), "need GPUs; set the number with --gpus"),
        (Needs(gpu_types=("A100",)), "need GPUs; set the number with --gpus"),
        (Needs(gpus=1, gpu_memory=0), "--gpu-memory 0"),
        (Needs(gpus=1, gpu_memory=2**63), "--gpu-memory 9223372036854775808"),
        (Needs(gpu_share=2), "--gpu-share 2: no GPUs requested"),
        (Needs(gpus=1, gpu_share=2), "--gpu-share 2 needs --gpu-memory"),
        (Needs(gpus=1, indices=(0,)), "GPU indices need exactly one node"),
        (Needs(gpus=1, nodes=("a", "b"), indices=(0,)), "GPU indices need exactly one node"),
        (Needs(gpus=2, nodes=("a",), indices=(0,)), "a matching number of GPUs"),
        (Needs(numa=0), "a NUMA node needs a node"),
        (Needs(nodes=("a b",)), "'a b' is not a node name"),
        (Needs(exclude=("-a",)), "'-a' is not a node name"),
        (
            Needs(nodes=("a",), numa=2**63),
            "a number of the task is greater than the limit of 9,223,372,036,854,775,807",
        ),
    ],
    ids=str,
)
def test_needs_that_contradict_themselves_or_are_too_many_are_refused(needs: Needs, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(spec(needs=needs))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("terms", "words"),
    [
        (Terms(priority=1001), "--priority 1001"),
        (Terms(priority=-1001), "--priority -1001"),
        (Terms(time_limit=0), "--time-limit 0"),
        (Terms(time_limit=math.inf), "--time-limit inf"),
        (Terms(wait_for=-1), "--wait-for -1"),
        (Terms(wait_for=math.inf), "--wait-for inf"),
        (Terms(start_at=-1), "--at -1"),
        (Terms(start_at=1e11), "--at 1e+11"),
        (Terms(start_at=5, wait_for=0), "--no-queue cannot be combined with --at"),
        (Terms(signal="USR1"), "--signal USR1 needs a --time-limit"),
        (Terms(signal_before=5), "--signal-before needs a --time-limit"),
        (Terms(time_limit=9, signal_before=0), "--signal-before 0s"),
        (Terms(time_limit=9, signal_before=9), "--signal-before 9s"),
        (Terms(retries=-1), "--retries -1"),
        (Terms(retries=MAX_RETRIES + 1), "--retries 1001"),
        (Terms(max_parallel=0), "--max-parallel 0"),
        (Terms(max_parallel=1, wait_for=0), "--max-parallel and --no-queue cannot be combined"),
        (Terms(backoff=-1), "--backoff -1"),
        (Terms(backoff=math.inf), "--backoff inf"),
    ],
    ids=str,
)
def test_terms_that_nobody_could_keep_are_refused(terms: Terms, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        check_spec(spec(terms=terms))
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"uploads": (Upload("/a", "x"),)}, "--upload and --output need a container"),
        ({"outputs": (Output("x", "/a"),)}, "--upload and --output need a container"),
        ({"volumes": (Volume("data", "/x"),)}, "--volume needs a container"),
    ],
)
def test_without_a_container_nothing_goes_into_one(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        check_spec(TaskSpec(("true",), container="NULL", **fields))


@pytest.mark.parametrize(("workdir", "target"), [(None, "/data"), ("/w", "/w/data"), ("/w", "/w")])
def test_an_upload_into_a_mount_is_refused_also_below_the_working_folder(workdir: str | None, target: str) -> None:
    asked = spec(workdir=workdir, uploads=(Upload("/a", "data"),), mounts=(Mount("/d", target),))
    with pytest.raises(UsageError, match=f"is inside the mount /d:{target}"):
        check_spec(asked)


def test_processes_of_strangers_and_shares_of_tasks_are_two_things() -> None:
    with pytest.raises(UsageError, match="cannot be combined; use one"):
        check_spec(spec(share=True, needs=Needs(gpus=1, gpu_memory=2**20, gpu_share=2)))


def test_a_spec_may_be_as_long_as_is_said() -> None:
    rest = MAX_SPEC - len(json.dumps(asdict(spec(""))))
    check_spec(spec("x" * rest))
    with pytest.raises(UsageError, match="120,001 bytes; the limit is 120,000"):
        check_spec(spec("x" * (rest + 1)))


@pytest.mark.parametrize(
    ("terms", "seconds"),
    [(Terms(), None), (Terms(time_limit=60), 65), (Terms(time_limit=60, signal_before=9), 60)],
)
def test_when_a_task_is_over_for_certain(terms: Terms, seconds: float | None) -> None:
    """One that is warned before its time is over has had its grace time then."""
    assert spec(terms=terms, stop_grace=5).ends_within == seconds


def test_each_target_is_a_task_and_none_is_one_too() -> None:
    asked = spec(needs=Needs(gpus=1))
    assert on_targets(asked, ()) == (asked,)
    assert [each.needs.node for each in on_targets(asked, ("n1", "n2"))] == ["n1", "n2"]


def test_a_task_needs_a_command() -> None:
    with pytest.raises(UsageError, match="add it after '--'"):
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
    assert parse_mount(str(mount)) == mount


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
