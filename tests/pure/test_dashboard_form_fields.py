"""The forms of the dashboard: their fields, what is wrong in them, and that a copy of a task asks for the same task."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from agentless.controller.scheduling.queue import POLICIES
from agentless.errors import UsageError
from agentless.model.tasks.spec import on_targets
from agentless.rules.submit.options import OPTIONS, PANELS, Options, options_of
from agentless.rules.submit.task_request import Outside, task_request
from agentless.tui.data import form, local_files
from agentless.tui.data.copied import fields_of, fields_of_vps, mates
from agentless.tui.data.form import TASK, VPS, checked, previews_of, with_files_of
from agentless.tui.widgets.fields import LABEL
from tests.pure.forms import submission_of

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJqfJ8vLpN1lS1kQwM0u3bq3Jp1h5N2o0dW0v0m8Q9aB"
TEXTS = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=8)
NAMES = st.from_regex(r"[A-Za-z][A-Za-z0-9_]{0,5}", fullmatch=True)
PATHS = st.from_regex(r"/[a-z '$.]{1,6}[a-z]", fullmatch=True)
TIMES = st.sampled_from(["90s", "8h", "2h30m", "1d", "1234567.25", "0.05s", "61m"])
PAIRS = st.dictionaries(NAMES, TEXTS, min_size=1, max_size=3)


def some(each: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(each, min_size=1, max_size=3, unique=True)


VALUES: dict[str, st.SearchStrategy] = {
    "node": some(NAMES),
    "exclude": some(NAMES),
    "on": PAIRS,
    "gang": st.integers(2, 5),
    "time_limit": TIMES,
    "signal_before": st.just("60s"),
    "stop_grace": TIMES,
    "at": st.sampled_from(["2099-05-01T18:30", "2099-05-01T18:30:07.25Z"]),
    "after": st.sampled_from(["100d"]),
    "requires": some(st.sampled_from(["2mxf", "train:failed", "box:ended"])),
    "after_batch": some(st.sampled_from(["2mxf", "train:failed", "box:ended"])),
    "priority": st.integers(-1000, 1000),
    "min_run": TIMES,
    "wait_for": TIMES,
    "gpus": st.integers(0, 8),
    "gpu_memory": st.sampled_from(["40G", "16GiB", "1.5G", "12345678B"]),
    "gpu_type": some(st.sampled_from(["A100", "RTX 3090", "H*", "1g.10gb"])),
    "gpu_share": st.integers(1, 4),
    "cores": st.sampled_from([4, 0.5, 1e-5, 1234567.5]),
    "memory": st.sampled_from(["512M", "16GiB", "1.7TB", "123456789B"]),
    "shm_size": st.sampled_from(["8G", "65MiB"]),
    "image": NAMES,
    "container": st.sampled_from(["torch", "torch:3"]),
    "env": PAIRS,
    "secret_env": PAIRS,
    "workdir": NAMES,
    "user": st.just("1000:1000"),
    "network": st.just("host"),
    "port": some(st.sampled_from(["8888", "80:9999"])),
    "public_key_string": st.just([KEY, f"{KEY[:-1]}C a b's"]),
    "upload": some(PATHS.map(lambda path: f"{path}:to")),
    "output": some(PATHS),
    "mount": some(PATHS.map(lambda path: f"{path}:/in:ro")),
    "volume": some(NAMES.map(lambda name: f"{name}x:/in")),
    "retries": st.integers(0, 9),
    "backoff": TIMES,
    "expires": st.just("7d"),
    "idle_stop": st.just("4h"),
    "snapshot_on_stop": st.integers(0, 9),
    "name": NAMES,
    "label": PAIRS,
    "owner": NAMES,
    "overflow": st.sampled_from(("hpc", "hpc,big", "none")),
} | {
    name: some(st.sampled_from(option.choices[:4]))
    if name in ("retry_on", "notify")
    else st.sampled_from(option.choices)
    for name, option in OPTIONS.items()
    if option.choices
} | {name: st.just(True) for name, option in OPTIONS.items() if option.argument_type is bool}  # fmt: skip
"""Values of each option. One without any fails."""

NO_SPEC = {"max_parallel", "zipped", "each", "owner", "public_key_file"}
"""Options that the spec of one task does not have: of a batch, of who asks, or one that stands for another."""

WITH = {
    "signal": {"time_limit": "8h"},
    "signal_before": {"time_limit": "8h"},
    "min_run": {"preemptible": True},
    "on_preempt": {"preemptible": True},
    "if_impossible": {"requires": "2mxf"},
    "launcher": {"gang": 2},
    "on_member_failure": {"gang": 2},
    "retry_on": {"retries": 2},
    "gpu_share": {"gpus": 1, "gpu_memory": "8G"},
    "gpu_memory": {"gpus": 2},
    "gpu_type": {"gpus": 2},
}
"""What an option needs beside it."""


def wanted(kind, options: dict[str, Any], command, target) -> Any:
    """The spec of the first task of a submit."""
    outside = Outside(float(int(time.time())), {}, lambda _: [])
    workload = None if kind is TASK else "vps"
    asked = task_request(command, [target] if target else [], Options(**options), outside, workload)
    return on_targets(asked.spec, asked.targets)[0]


def copied(kind, spec: Any, secrets: Iterable[str] = ()) -> Any:
    """The spec that the form asks for, when it was opened for a copy and nothing was changed in it."""
    sent = json.loads(json.dumps(asdict(spec)))
    waits = sent["terms"]["requires"]
    fields = fields_of({"waits_for": waits}, sent) if kind is TASK else fields_of_vps({"waits_for": waits}, sent)
    fields |= {"name": "dev"} if kind is VPS else {}
    fields |= {"secret_env": "\n".join(f"{name}=x" for name in secrets)} if secrets else {}
    asked = with_files_of(submission_of(kind, fields), sent)
    return json.loads(json.dumps(asdict(on_targets(asked.spec, asked.targets)[0])))


def same(kind, options: dict[str, Any], command=("true",), target="") -> None:
    spec = wanted(kind, options, command, target)
    assert copied(kind, spec, options.get("secret_env") or ()) == json.loads(json.dumps(asdict(spec)))


def names_of(kind) -> list[str]:
    return sorted({option.name for option in options_of(kind.workload)} - NO_SPEC)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind in (TASK, VPS) for name in names_of(kind)])
@settings(max_examples=4)
@given(data=st.data())
def test_a_copy_has_each_option(kind, name, data):
    options = {"cores": 1} | {"name": "dev"} | WITH.get(name, {}) | {name: data.draw(VALUES[name])}
    same(kind, options | ({"name": "dev"} if kind is VPS else {}))


@st.composite
def several(draw, kind) -> dict[str, Any]:
    chosen = draw(st.lists(st.sampled_from(names_of(kind)), max_size=6, unique=True))
    found = {name: draw(VALUES[name]) for name in chosen}
    for name in chosen:
        found = WITH.get(name, {}) | found
    return found | ({"name": "dev"} if kind is VPS else {})


@pytest.mark.parametrize("kind", [TASK, VPS], ids=["task", "vps"])
@settings(max_examples=25, suppress_health_check=[HealthCheck.filter_too_much])
@given(data=st.data())
def test_an_unchanged_copy_is_the_same_task(kind, data):
    options = data.draw(several(kind))
    command = data.draw(st.lists(TEXTS | st.sampled_from(["span:[1]", "\\span:{1..2}"]), min_size=1, max_size=3))
    target = data.draw(
        st.sampled_from(["", "1x", "2xA100,H100:40G", "node1", "node1:0", "node1::0-2,5", "node1:1::0/1"])
    )
    escaped = [re.sub(r"(\\*)span:", r"\1\1\\span:", word) for word in command]
    try:
        wanted(kind, options, escaped, target)
    except UsageError:
        assume(False)
    same(kind, options, escaped, target)


def test_each_option_has_one_field_and_each_field_says_what_it_is():
    for kind in (TASK, VPS):
        names = [field.name for field in kind.fields]
        assert len(set(names)) == len(names)
        assert {option.name for option in options_of(kind.workload)} <= set(names)
        assert all(field.label and field.hint and field.help and "--" not in field.help for field in kind.fields)
        assert {field.name: field.shape for field in kind.fields if field.shape == "secrets"} == (
            {"secret_env": "secrets"} if kind is TASK else {}
        )
        assert all(len(field.help) > 8 and len(field.label) < LABEL for field in kind.fields)
        assert list(kind.panels) == [panel for panel in PANELS if panel in kind.panels]
        assert not {field.name for fields in kind.panels.values() for field in fields} & {f.name for f in kind.shown}


def test_the_policies_of_the_options_are_those_of_the_queue():
    assert set(OPTIONS["policy"].choices) == set(POLICIES)


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"memory": "lots"}, "memory", "memory 'lots' is not a size"),
        ({"time_limit": "soon"}, "time_limit", "time limit 'soon' is not a duration"),
        ({"target": "node1::x"}, "target", "GPU 'x' is not a number"),
        ({"command": "echo 'a"}, "command", "no closing quotation"),
        ({"command": "echo span:x"}, "command", "not a span"),
        ({"priority": "5000"}, "priority", "use a number from -1000 to 1000"),
        ({"gpu_share": "x"}, "gpu_share", "GPU share 'x' is not a whole number"),
        ({"on_preempt": "end"}, "on_preempt", "need preemptible"),
        ({"signal": "USR1"}, "signal", "needs a time limit"),
        ({"each": "yes"}, "each", "needs after batch"),
        ({"launcher": "mpirun"}, "launcher", "needs node count"),
        ({"env": "A-B=1"}, "env", "use letters"),
        ({"secret_env": "1BAD=x"}, "secret_env", "line 1: use NAME=VALUE"),
        ({"secret_env": "AGENTLESS_X=x"}, "secret_env", "reserved for agentless"),
        ({"secret_env": "PATH=1"}, "secret_env", "cannot be a secret"),
        ({"name": "a b"}, "name", "letters"),
        ({"label": "x"}, "label", "use KEY=VALUE"),
        ({"mount": "/a"}, "mount", "path/in/container"),
        ({"at": "18:30", "after": "1h"}, "at", "start at and start in cannot be combined"),
        ({"target": ""}, "target", "No resources requested"),
    ],
)
def test_what_is_wrong_is_said_of_its_field(fields, field, words):
    asked, wrong = checked(TASK, {"target": "1x", "command": "true"} | fields)
    assert asked is None
    assert list(wrong) == [field], wrong
    assert words in wrong[field]
    assert "--" not in wrong[field]


def test_a_preview_has_no_secrets():
    asked = submission_of(TASK, {"target": "1x n1", "command": "true", "secret_env": "TOKEN=s3cret"})
    assert asked.request()["secrets"] == {"TOKEN": "s3cret"}
    previews = previews_of(asked)
    assert [each["targets"] for each in previews] == [["1x"], ["n1"]]
    assert "s3cret" not in json.dumps(previews)


def test_a_span_names_a_regular_file_of_limited_size(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * ((1 << 20) + 1))
    (tmp_path / "values").write_text("a\nb\n")
    for name, words in (("pipe", "not a regular file"), ("large", "more than 1 MiB"), ("none", "No such file")):
        _, wrong = checked(TASK, {"target": "1x", "command": f"echo 'span:[@{tmp_path / name}]'"})
        assert words in wrong["command"]
    asked = submission_of(TASK, {"target": "1x", "command": f"echo 'span:[@{tmp_path}/values]'"})
    assert [each.argv[1] for each in asked.sweep] == ["a", "b"]


@pytest.mark.parametrize(
    ("options", "targets"),
    [
        ({}, "node2::3 node3::0"),
        ({}, "1x node3"),
        ({}, "1x 2xA100:40G"),
        ({}, "node2 node3"),
        ({"gpus": 1, "memory": "8G"}, "node2 node3"),
        ({"node": ["node2", "node3"], "on": "rack=a"}, "1x 2x"),
        ({"gpu_type": "RTX 3090", "gpus": 2}, "node2 node3"),
    ],
)
def test_a_copy_of_a_gang_has_the_target_of_each_node(options, targets):
    outside = Outside(0.0, {}, lambda _: [])
    asked = task_request(("true",), targets.split(), Options(gang=2, **options), outside)
    specs = [json.loads(json.dumps(asdict(spec))) for spec in on_targets(asked.spec, asked.targets)]
    for spec in specs:
        assert mates({"gang": spec["gang"] | {"members": ["a", "b"]}}) == ("a", "b")
        again = submission_of(TASK, fields_of({}, spec, [each["needs"] for each in specs]))
        assert [json.loads(json.dumps(asdict(each))) for each in on_targets(again.spec, again.targets)] == specs


def test_what_the_form_cannot_say_of_a_gang_is_refused():
    asked = task_request(("true",), ["node3", "1x"], Options(gang=2), Outside(0.0, {}, lambda _: []))
    needs = [json.loads(json.dumps(asdict(spec)))["needs"] for spec in on_targets(asked.spec, asked.targets)]
    spec = json.loads(json.dumps(asdict(asked.spec)))
    with pytest.raises(UsageError, match="different requests"):
        fields_of({}, spec, needs)
    same = on_targets(replace(asked.spec, needs=replace(asked.spec.needs, gpus=1)), [])[0]
    assert not mates(json.loads(json.dumps(asdict(same))))
    assert fields_of({}, spec, [asdict(same.needs)] * 2)["target"] == "1x"


@pytest.mark.parametrize("code", ["\\U99999999", "\\U00110000", "\\ud800"])
def test_a_code_of_no_character_is_told_at_its_field(code):
    for name in ("command", *(name for name in names_of(TASK) if OPTIONS[name].many)):
        value = f"$'{code}'" if "env" not in name else f"A=$'{code}'"
        _, wrong = checked(TASK, {"target": "1x", "command": "true"} | {name: value})
        assert list(wrong) == [name]
        assert "without the code of a character" in wrong[name]
    spec = json.loads(json.dumps(asdict(wanted(TASK, {"env": {"A": f"$'{code}'"}}, ("true", f"$'{code}'"), "1x"))))
    asked = submission_of(TASK, fields_of({}, spec))
    assert (asked.spec.env["A"], asked.spec.command[1]) == (f"$'{code}'", f"$'{code}'")


@pytest.mark.parametrize(
    "lines",
    [
        "TOK=-----BEGIN KEY-----\nhunter2line\nhunter2pad==",
        "TOK=x\nhunter2pad==",
        "TOK=x\nhunter2=",
        "hunter2-y=x",
        "TOK=x\n  hunter2 z",
        "TOK=$'hunter2\\U99999999'",
    ],
)
def test_what_is_wrong_with_secrets_has_nothing_of_them(lines):
    asked, wrong = checked(TASK, {"target": "1x", "command": "true", "secret_env": lines})
    assert asked is None
    assert list(wrong) == ["secret_env"]
    assert "secrets, line" in wrong["secret_env"]
    assert "hunter2" not in wrong["secret_env"]


def test_files_of_a_copied_task_are_as_they_were():
    files = {"upload": ["/a:to", "/b:on"], "output": "x:/y"}
    spec = json.loads(json.dumps(asdict(wanted(TASK, files, ("true",), "1x"))))
    spec["uploads"][0]["snapshot"], spec["outputs"][0]["changed"] = "s1", True
    fields = fields_of({}, spec)
    assert (fields["upload"], fields["output"]) == ("/a:to /b:on", "x:/y")
    made = with_files_of(submission_of(TASK, fields | {"upload": "/a:to /b:off"}), spec).spec
    assert [each.snapshot for each in made.uploads] == ["s1", ""]
    assert made.outputs[0].changed


@pytest.mark.parametrize(
    ("options", "target", "fields"),
    [
        ({}, "node1::0,1", {"target": "node1::0,1"}),
        ({}, "2xA100:40G", {"target": "2xA100:40G"}),
        ({"node": "node1"}, "8x", {"target": "8x", "node": "node1"}),
        ({"on": "rack=a"}, "1x", {"target": "1x", "on": "rack=a"}),
        ({"gpu_type": "RTX 3090"}, "2x", {"gpus": "2", "gpu_type": "RTX 3090"}),
        ({"cores": 0.5, "memory": "1024MiB"}, "", {"gpus": "0", "cores": "0.5", "memory": "1GiB"}),
    ],
)
def test_a_copy_shows_its_place_as_it_would_be_typed(options, target, fields):
    spec = json.loads(json.dumps(asdict(wanted(TASK, options, ("sh", "-c", "echo $A"), target))))
    assert fields_of({}, spec) == {"command": "sh -c 'echo $A'"} | fields


def test_a_copy_waits_for_what_has_not_come_yet_and_starts_no_earlier_than_now():
    spec = json.loads(json.dumps(asdict(wanted(TASK, {"requires": "2mxf", "at": "2099-01-01"}, ("true",), "1x"))))
    spec["terms"]["start_at"] = 1.0
    assert fields_of({"waits_for": []}, spec) == {"target": "1x", "command": "true"}


def test_a_file_whose_file_system_hangs_is_told_at_its_field_and_stops_nothing(monkeypatch, tmp_path):
    answers, hanging = threading.Event(), str(tmp_path / "hung")
    values = {"target": "1x", "command": f"echo 'span:[@{hanging}]'"}

    def lines_of(path):
        assert path == hanging
        answers.wait(60)
        return ["a"]

    monkeypatch.setattr(local_files, "PATIENCE", 0.02)
    monkeypatch.setattr(form, "_lines_of", lines_of)
    try:
        began = time.monotonic()
        for _ in range(2 * local_files.MOST):
            _, wrong = checked(TASK, values)
            (words,) = wrong.values()
            assert "hung: its file system does not answer" in words
        assert time.monotonic() - began < 5
        assert len([each for each in threading.enumerate() if each.daemon]) <= local_files.MOST + 8
    finally:
        answers.set()
    for thread in [*local_files._hung]:
        thread.join()
    assert checked(TASK, values)[1] == {}


@pytest.mark.parametrize(
    ("target", "words"),
    [
        ("9x", "where 2x; or where 1x (any GPU)"),
        ("hpc 9xA100:40G", "where hpc 2xA100:40G; or where hpc 1xA100:40G (any GPU)"),
        ("node1::0,1", "where 2x; or where 1x (any GPU)"),
        ("node1", "GPUs 2; or GPUs 1 (any GPU)"),
    ],
)
def test_other_numbers_of_gpus_are_named_for_the_field_that_has_the_number(target, words):
    assert form.in_fields("--gpus 2; or --gpus 1 (any GPU)", target) == words
