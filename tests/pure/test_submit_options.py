"""What is asked for at a submit, from Python and from the command line, becomes a spec."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import math
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless import errors
from agentless.cli.scheduling.explain import explain
from agentless.cli.submit.submit import submit
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import Mount, TaskSpec
from agentless.model.tasks.terms import Terms
from agentless.rules.submit.options import OPTIONS, Options, options_of
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request

NOW = 1_777_634_400.0  # 2026-05-01T11:20:00Z


def read_lines(path: str) -> list[str]:
    if path != "seeds.txt":
        raise errors.UsageError(f"cannot read {path!r}")
    return ["1", "2"]


def ask(*command: str, targets=("node1",), environ=None, **options: object) -> TaskRequest:
    outside = Outside(NOW, environ or {}, read_lines)
    return task_request(command or ("true",), targets, Options(**options), outside)


def test_options_are_read_as_the_command_line_reads_them():
    spec = ask(
        "python",
        "train.py",
        gpus=2,
        gpu_memory="40G",
        gpu_type="A100,H100",
        on="rack=a",
        time_limit="8h",
        memory="16GiB",
        mount="/data:/data:ro",
        label=["team=vision"],
        policy="best-fit",
        stop_grace="1m",
        targets=(),
    ).spec
    assert spec == TaskSpec(
        ("python", "train.py"),
        memory=16 * 2**30,
        mounts=(Mount("/data", "/data", read_only=True),),
        stop_grace=60.0,
        labels={"team": "vision"},
        needs=Needs(2, 40 * 10**9, ("A100", "H100"), on={"rack": "a"}, policy="best_fit"),
        terms=Terms(time_limit=28800.0),
    )


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ({"time_limit": "90min"}, {"time_limit": timedelta(minutes=90)}),
        ({"time_limit": "90min"}, {"time_limit": 5400}),
        ({"memory": "512M"}, {"memory": 512}),
        ({"gpus": 1, "gpu_memory": "40G"}, {"gpus": 1, "gpu_memory": 40_000}),
        ({"gpus": 1, "gpu_type": "A100,H100"}, {"gpus": 1, "gpu_type": ["A100", "H100"]}),
        ({"exclude": "node2"}, {"exclude": ["node2"]}),
        ({"label": ["a=b", "c=d"]}, {"label": {"a": "b", "c": "d"}}),
        ({"env": "A=1"}, {"env": {"A": "1"}}),
        ({"no_queue": True}, {"wait_for": 0}),
        ({"after": "1h"}, {"after": timedelta(hours=1)}),
        ({"at": "2026-05-01T12:20:00Z"}, {"at": datetime(2026, 5, 1, 12, 20, tzinfo=UTC)}),
        ({"at": "2026-05-01T12:20:00Z"}, {"after": 3600}),
        ({"retries": 3, "retry_on": "oom,exit:75"}, {"retries": 3, "retry_on": ["oom", "exit:75"]}),
        ({"time_limit": "1h", "signal": "SIGUSR1"}, {"time_limit": 3600, "signal": "usr1"}),
        ({}, {"time_limit": None, "env": None, "node": None, "image": None}),
    ],
)
def test_a_value_means_what_its_text_means(text, value):
    targets = () if "gpus" in text else ("1x",)
    assert ask(targets=targets, **text) == ask(targets=targets, **value)


@given(st.floats(0.001, 1e8))
def test_a_time_is_the_same_as_number_and_as_timedelta(seconds):
    span = timedelta(seconds=seconds)
    assert ask(time_limit=span).spec.terms.time_limit == span.total_seconds()
    assert math.isclose(ask(time_limit=round(seconds, 3)).spec.terms.time_limit, seconds, abs_tol=0.001)


def test_a_node_that_is_named_twice_is_one():
    asked = ask(node=["n1", "n1"], targets=()).spec.needs
    assert (asked.nodes, asked.node) == (("n1",), "n1")
    assert ask(exclude=["n1", "n2", "n1"], targets=("1x",)).spec.needs.exclude == ("n1", "n2")


def test_a_variable_without_a_value_is_the_users_own():
    asked = ask(env=["HOME", "A=1"], secret_env=["TOKEN"], environ={"HOME": "/home/ann", "TOKEN": "s3cret"})
    assert asked.spec.env == {"HOME": "/home/ann", "A": "1"}
    assert (asked.spec.secret_env, asked.secrets) == (("TOKEN",), {"TOKEN": "s3cret"})


def test_the_value_of_a_secret_is_not_in_the_spec():
    asked = ask(secret_env={"TOKEN": "s3cret"})
    assert "s3cret" not in repr(asked.spec)
    assert asked.request()["secrets"] == {"TOKEN": "s3cret"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gpu": 1}, "unknown option 'gpu' (did you mean 'gpus'?)"),
        ({"gpus": "two"}, "--gpus must be a whole number, not 'two'"),
        ({"gpus": True}, "--gpus must be a whole number, not True"),
        ({"cores": True}, "--cores must be a number, not True"),
        ({"cores": "four"}, "--cores must be a number, not 'four'"),
        ({"image": 7}, "--image must be a string, not 7"),
        ({"node": 7}, "--node must be a string, not 7"),
        ({"env": {"A": 1}}, "--env must be a string, not 1"),
        ({"on": "rack"}, "--on 'rack': use KEY=VALUE; for a node or a cluster, use --node rack"),
        ({"env": "NOWHERE"}, "--env NOWHERE: not set in your environment; use NOWHERE=VALUE"),
        ({"time_limit": "soon"}, "--time-limit 'soon' is not a duration; use 30s, 10min, 2h30m or 1d"),
        ({"at": "tomorrow"}, "--at 'tomorrow': use 18:30, 2026-05-01T18:30 or 2026-05-01T18:30Z"),
        ({"at": "2026-05-01T10:20:00Z"}, "--at '2026-05-01T10:20:00Z' was 1h 0m ago; use a time in the future"),
        (
            {"at": datetime(2026, 5, 1, tzinfo=UTC)},
            "'2026-05-01 00:00:00+00:00' was 11h 20m ago; use a time in the future",
        ),
        ({"at": "12:00", "after": "1h"}, "--at and --in cannot be combined; use one of them"),
        ({"zipped": True}, "--zip needs a span in the command, like 'span:{1..3}'"),
        ({"max_parallel": 2}, "--max-parallel needs more than one task; omit it, or add a span or a target"),
        ({"retry_on": "oom"}, "--retry-on needs --retries; for example: --retries 3"),
        (
            {"after": ""},
            (
                "--in '' is not a duration; use 30s, 10min, 2h30m or 1d; to start after another task, use --after; in "
                "Python, requires="
            ),
        ),
        ({"at": date(2026, 5, 1)}, "--at must be a string or a datetime, not datetime.date(2026, 5, 1)"),
        ({"at": "30min"}, "--at '30min' is a delay; use --in 30min"),
        ({"after": "2026-12-24T08:00"}, "--in '2026-12-24T08:00' is a date; use --at 2026-12-24T08:00"),
        ({"signal": "USR1"}, "--signal USR1 needs a --time-limit"),
        (
            {"no_queue": True, "wait_for": "5m"},
            "--no-queue and --wait-for cannot be combined; use one of them",
        ),
        ({"on": ["rack=a", "rack=b"]}, "--on rack has two values, a and b; keep one"),
        ({"memory": -1}, "--memory '-1' is not a size; use a number with a unit, like 512M, 1.5GB or 16GiB"),
        ({"priority": 5000}, "--priority 5000: use a number from -1000 to 1000; higher ones start first"),
    ],
)
def test_what_cannot_be_meant_is_said_in_a_sentence(options, words):
    with pytest.raises(errors.UsageError) as refused:
        ask(**options)
    assert str(refused.value) == words


WRONG = [
    5, -1, 0.5, math.nan, math.inf, 10**400, True, b"x", "", "x", "\0", "\ud800", [], [5], ["a", None], {}, {1: 2},
    {"a": 1}, object(), len, NOW, date(2026, 5, 1), timedelta(-1), timedelta.max, datetime(9999, 12, 31, tzinfo=UTC),
]  # fmt: skip


@pytest.mark.parametrize("option", sorted(Options.__annotations__))
def test_whatever_an_option_is_given_is_read_or_refused_in_a_sentence(option):
    for value in WRONG:
        with contextlib.suppress(errors.UsageError):
            json.dumps(ask(targets=("1x",), **{option: value}).request(), allow_nan=False)


def test_gpu_memory_is_repeated_as_it_was_typed():
    with pytest.raises(errors.UsageError, match=r"^--gpu-memory '1e3' is not a size"):
        ask(targets=("1x",), gpu_memory="1e3")
    with pytest.raises(errors.UsageError, match=r"^target '1x:1e3': '1e3' is not a size"):
        ask(targets=("1x:1e3",))


@pytest.mark.parametrize(
    "options",
    [{"memory": 16 * 2**30}, {"memory": "17179869184"}, {"shm_size": 16 * 2**30}, {"gpu_memory": 16 * 2**30}],
    ids=str,
)
def test_bytes_without_a_unit_are_refused_with_what_was_meant(options):
    with pytest.raises(errors.UsageError, match=r"has no unit, .*; did you mean 16GiB\?"):
        ask(targets=("1x",), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"cores": 0},
        {"memory": 0},
        {"memory": "0"},
        {"shm_size": "0"},
        {"time_limit": 0},
        {"max_parallel": 0},
        {"gpu_memory": 0},
    ],
    ids=str,
)
def test_a_limit_of_0_is_as_one_that_is_left_out(options):
    assert ask(targets=("1x",), **options) == ask(targets=("1x",))


@pytest.mark.parametrize("options", [{"cores": 0}, {"memory": "0"}], ids=str)
def test_no_limit_is_no_word_on_what_a_task_needs(options):
    with pytest.raises(errors.UsageError, match="no resources requested"):
        ask(targets=(), **options)


def test_a_secret_that_no_program_could_have_is_refused_before_anything_is_sent():
    with pytest.raises(errors.UsageError, match=r"secret TOKEN has 5,000,006 bytes; .* 131,071"):
        ask(secret_env={"TOKEN": "x" * 5_000_000})
    with pytest.raises(
        errors.UsageError, match=r"the command and its variables have 5,\d+,\d+ bytes; the limit is 120,000"
    ):
        ask(env={"A": "x" * 5_000_000})


def test_spans_make_a_sweep():
    asked = ask("train", "--lr", "span:[0.1,0.01]", "--seed", "span:[@seeds.txt]", zipped=True)
    assert asked.request()["sweep"] == [
        {"command": ("train", "--lr", "0.1", "--seed", "1"), "parameters": {"lr": "0.1", "seed": "1"}},
        {"command": ("train", "--lr", "0.01", "--seed", "2"), "parameters": {"lr": "0.01", "seed": "2"}},
    ]
    assert ask("train").request()["sweep"] == []


@pytest.mark.parametrize("command", [(["python", "train.py"],), ("sleep", 7)])
def test_a_command_that_is_not_all_words_is_refused(command):
    with pytest.raises(errors.UsageError, match="a command is a list of words"):
        ask(*command)


def test_a_submit_that_needs_nothing_is_refused():
    with pytest.raises(errors.UsageError, match="no resources requested"):
        ask(targets=())


@pytest.mark.parametrize("options", [{"gpu_type": "MI100"}, {"gpu_memory": "10G"}, {"gpu_type": "mig", "node": "a"}])
def test_who_says_which_gpu_wants_one(options):
    assert ask(targets=(), **options) == ask(targets=(), gpus=1, **options)


@pytest.mark.parametrize(
    ("targets", "word", "local"),
    [
        (("node1",), "x", "/out"),
        (("1x", "2x"), "x", "/{id}/out"),
        (("node1",), "span:{1..2}", "/{id}/out"),
        (("1x", "2x"), "span:{1..2}", "/{id}/out"),
    ],
)
def test_what_more_than_one_task_brings_goes_into_a_folder_for_each(targets, word, local):
    assert ask("train", word, targets=targets, output="/data/out").spec.outputs[0].local == local


def test_tasks_on_two_targets_may_be_held_to_so_many_at_a_time():
    assert ask(targets=("1x", "2x"), max_parallel=1).spec.terms.max_parallel == 1


def test_one_target_may_be_written_without_a_list():
    assert ask(targets="node1::0").targets == ("node1::0",)


def test_each_option_goes_to_just_one_field():
    known = [field.name for part in (TaskSpec, Needs, Terms) for field in dataclasses.fields(part)]
    beside = ("launcher", "on_member_failure")  # parts of `gang`
    homes = {
        name: [field for field in known if field in (name, f"{name}s")]
        for name in Options.__annotations__
        if name
        not in (
            "no_queue",
            "at",
            "after",
            "after_batch",
            "each",
            "zipped",
            "owner",
            "public_key_file",
            "public_key_string",
            *beside,
        )
    }
    assert [name for name, found in homes.items() if len(found) != 1] == []


def test_python_has_the_options_that_the_command_line_has():
    own = {"context", "targets", "more_targets", "file", "wait", "follow", "dry_run", "as_json", "_"}
    assert set(inspect.signature(submit).parameters) - own == {option.name for option in options_of("task")}


def test_what_the_command_line_passes_for_an_option_that_is_left_out_changes_nothing():
    defaults = {name: option.default for name, option in OPTIONS.items()}
    assert ask(**defaults) == ask()


def test_no_two_options_are_written_alike():
    flags = [flag for option in OPTIONS.values() for flag in option.flags]
    assert len(flags) == len(set(flags))


def test_explain_has_options_of_a_submit_and_asks_only_for_what_is_given():
    taken = inspect.signature(explain).parameters
    own = {"context", "task", "target", "there", "as_json"}
    assert taken.keys() - own < OPTIONS.keys()
    assert {taken[name].default for name in taken.keys() - own} == {None, False}
