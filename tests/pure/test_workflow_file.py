"""A workflow is read from its file: as it was meant, or with all mistakes at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.tasks.spec import Volume
from agentless.rules.submit.options import options_of
from agentless.rules.submit.task_request import Outside
from agentless.rules.workflows.file import Settings, parse_setting, read_workflow
from agentless.rules.workflows.keys import JOB_KEYS, JOB_OPTIONS
from agentless.rules.workflows.schema import job_properties, schema
from agentless.rules.workflows.task_file import read_task_file
from agentless.rules.workflows.workflow import Workflow

DATA = Path(__file__).parent / "data" / "workflows"
NOW = 1_777_634_400.0


def outside(**environ: str) -> Outside:
    return Outside(NOW, environ, lambda _: ["a", "b"], "/home/ana")


def read(text: str, params: dict[str, str] | None = None, **environ: str) -> Workflow:
    return read_workflow(text, "f.yaml", "f", outside(**environ), Settings(params or {}))


def wrong(text: str, params: dict[str, str] | None = None, **environ: str) -> list[str]:
    with pytest.raises(UsageError) as error:
        read(text, params, **environ)
    return [line.removeprefix("f.yaml:") for line in str(error.value).splitlines()]


def edges(workflow: Workflow) -> dict[str, list[str]]:
    return {job.title: [f"{workflow.jobs[at].title} {state}" for at, state, _ in job.requires] for job in workflow.jobs}


def test_a_workflow_of_joblet_is_read_as_it_was_written():
    found = read((DATA / "joblet.yaml").read_text())
    prepare, train, evaluate = (job.asked.spec for job in found.jobs)
    assert prepare.command == ("python3", "preprocess.py")
    assert (prepare.cores, prepare.memory, prepare.needs.gpus) == (2.0, 4096 * 10**6, 0)
    assert (train.cores, train.needs.gpus, train.needs.gpu_memory) == (8.0, 2, 8192 * 10**6)
    assert (evaluate.needs.gpus, evaluate.container) == (1, "python-3.11-ml")
    assert edges(found) == {
        "data-preprocessing": [],
        "model-training": ["data-preprocessing completed"],
        "model-evaluation": ["model-training completed"],
    }


def test_a_runtime_is_mapped_to_an_env_beside_the_file_or_in_it():
    text = (DATA / "joblet.yaml").read_text()
    beside = read_workflow(text, "f", "f", outside(), Settings({}, {"python-3.11-ml": "torch"}))
    inside = read("runtimes: {python-3.11-ml: torch:3}\n" + text)
    assert [job.asked.spec.container for job in beside.jobs] == ["torch"] * 3
    assert [job.asked.spec.container for job in inside.jobs] == ["torch:3"] * 3


def test_other_keys_of_joblet_mean_what_they_mean_there():
    found = read(
        "jobs: {a: {command: ls, uploads: {files: [a.py]}, volumes: [data], environment: {A: b}, "
        "resources: {cpu_cores: 0-3, max_io_bps: 10, max_memory: 0, gpu_memory_mb: 99}, network: none}, "
        "b: {command: ls, requires: [{a: FINISHED}]}}"
    )
    spec = found.jobs[0].asked.spec
    assert spec.volumes == (Volume("data", "/volumes/data"),)
    assert spec.uploads[0].source == "/home/ana/a.py"
    assert (dict(spec.env), spec.cores, spec.memory, spec.needs.gpus) == ({"A": "b"}, 4.0, None, 0)
    assert found.notes == ("max_io_bps is ignored: agentless does not limit I/O",)
    assert found.jobs[1].requires == ((0, "ended", 0),)


def test_a_method_of_dshpc_is_one_task():
    found = read_task_file((DATA / "method.json").read_text(), "method.json", outside())
    assert found.options == {
        "name": "deep-learning-method", "memory": "8192MB", "cores": 4.0, "gpus": 1, "upload": [], "output": [],
    }  # fmt: skip


def test_a_task_file_has_the_keys_of_a_job():
    text = "command: python train.py\ntarget: node1::0\nenv: {A: b}\nupload: [., b.py]\noutput: out\nshare: true\n"
    found = read_task_file(text, "t.yaml", outside())
    assert (found.command, found.targets) == (("python", "train.py"), ("node1::0",))
    assert found.options["upload"] == ["/home/ana:.", "/home/ana/b.py:b.py"]
    assert found.options["output"] == ["out:/home/ana/out"]
    assert read_task_file("command: x\nnodes: 2\ngrace: 5s", "t.yaml", outside()).options["gang"] == 2
    with pytest.raises(UsageError, match=r"t.yaml:1:9: matrix: .*\n.*it with: agentless workflow run|spans"):
        read_task_file("matrix: {a: [1]}", "t.yaml", outside())
    with pytest.raises(UsageError, match=r"agentless workflow run t\.yaml"):
        read_task_file("jobs: {a: {command: b}}", "t.yaml", outside())


def test_a_matrix_fans_out_and_in():
    found = read(
        "params: {lrs: [0.1, 0.01]}\n"
        "jobs:\n"
        "  last: {command: cat, requires: [train]}\n"
        "  train:\n"
        "    command: train --lr {{ matrix.lr }} --seed {{ matrix.seed + 1 }}\n"
        "    matrix: {lr: '{{ params.lrs }}', seed: 'span:{1..2}'}\n"
        "    requires: first\n"
        "  some: {command: cat, requires: [{'train[lr=0.1]': failed}]}\n"
        "  first: {command: ls}\n"
    )
    commands = {job.title: " ".join(job.asked.spec.command) for job in found.jobs if job.name == "train"}
    assert commands == {
        f"train[lr={lr},seed={seed}]": f"train --lr {lr} --seed {seed + 1}" for lr in (0.1, 0.01) for seed in (1, 2)
    }
    assert edges(found)["last"] == [f"{title} completed" for title in commands]
    assert edges(found)["some"] == ["train[lr=0.1,seed=1] failed", "train[lr=0.1,seed=2] failed"]
    assert all(at < number for number, job in enumerate(found.jobs) for at, *_ in job.requires)


def test_a_span_in_a_command_fans_out_too():
    found = read("jobs: {a: {command: 'x --lr span:[1,2]'}, b: {command: y, requires: a}}")
    assert [job.title for job in found.jobs] == ["a[lr=1]", "a[lr=2]", "b"]
    assert len(found.jobs[2].requires) == 2


def test_defaults_are_of_all_jobs_and_variables_are_joined():
    found = read(
        "environment: {A: top, B: top, C: top}\n"
        "defaults: {image: one, env: {B: usual, C: usual}, time_limit: 1h}\n"
        "max_parallel: 2\non_failure: stop\n"
        "jobs: {a: {command: x, env: [C=own], time_limit: 2h}, b: {command: x, container: torch}}"
    )
    a, b = (job.asked.spec for job in found.jobs)
    assert dict(a.env) == {"A": "top", "B": "usual", "C": "own"}
    assert (a.image, a.terms.time_limit, a.terms.max_parallel) == ("one", 7200.0, 2)
    assert (b.image, b.container, found.on_failure) == (None, "torch", "stop")


def test_parameters_are_set_beside_the_file():
    text = (
        "params: {n: 1, who: , fast: false}\n"
        "jobs: {a: {command: 'x {{ params.n * 2 }} {{ params.who }}', exclusive: '{{ params.fast }}'}}"
    )
    found = read(text, dict(map(parse_setting, ["n=4", "who=me=you", "fast=true"])))
    assert found.jobs[0].asked.spec.command == ("x", "8", "me=you")
    assert found.jobs[0].asked.spec.needs.exclusive
    assert wrong(text) == ["1:20: params.who: has no value; use --set who=VALUE"]
    assert wrong(text, {"nn": "1", "who": "a"})[0].startswith("1:9: params: --set nn: the file has no such parameter")


def test_secrets_are_references():
    text = "jobs: {a: {command: x, secret_env: {TOKEN: , OTHER: {env: MINE}, FILE: {file: f}}, env: [HOME]}}"
    (job,) = read(text, None, TOKEN="t", MINE="m", HOME="/h").jobs
    assert job.asked.secrets == {"TOKEN": "t", "OTHER": "m", "FILE": "a\nb"}
    assert job.asked.spec.secret_env == ("FILE", "OTHER", "TOKEN")
    assert dict(job.asked.spec.env) == {"HOME": "/h"}
    (line,) = wrong("jobs: {a: {command: x, secret_env: {TOKEN: hunter2}}}")
    assert line.startswith("1:44: jobs.a.secret_env.TOKEN: a secret has no value in a file")
    assert "hunter2" not in line


def test_what_is_for_all_jobs_is_sent_to_the_top_of_the_file():
    assert wrong("jobs: {a: {command: x, on_failure: stop}}") == [
        "1:24: jobs.a.on_failure: set on_failure at the top of the file, for all jobs"
    ]


def test_all_mistakes_are_told_at_once_with_their_places():
    lines = wrong(
        "name: x y\n"
        "foo: 1\n"
        "jobs:\n"
        "  a: {command: a && b, requires: [b, zz, {b: done}], gpuss: 1}\n"
        "  b:\n"
        "    command: x\n"
        "    gpus: many\n"
        "    time_limit: 8x\n"
        "    requires: [c]\n"
        "  c: {command: 'x {{ nope }}', requires: b, resources: {max_mem: 1, gpu_count: x}}\n"
        "  d: {requires: d}\n"
    )
    assert [line.split(": ")[0:2] for line in lines] == [
        ["1:7", "name"], ["2:1", "foo"], ["4:16", "jobs.a.command"], ["4:38", "jobs.a.requires[1]"],
        ["4:46", "jobs.a.requires[2].b"], ["4:54", "jobs.a.gpuss"], ["7:11", "jobs.b.gpus"],
        ["8:17", "jobs.b.time_limit"], ["9:15", "jobs.b.requires"], ["10:16", "jobs.c.command"],
        ["10:66", "jobs.c.resources.max_mem"], ["10:80", "jobs.c.resources.gpu_count"], ["11:3", "jobs.d"],
        ["11:17", "jobs.d.requires"],
    ]  # fmt: skip
    assert "did you mean 'gpus'?" in "\n".join(lines)


@pytest.mark.parametrize("value", ["[sh, -c, '{{ params.x }}']", "'{{ params.x }}'"])
@pytest.mark.parametrize("key", ["command", "args", "env", "secret_env", "on", "upload", "gpus", "target", "matrix"])
def test_what_cannot_be_filled_in_is_told_once(key, value):
    more = "" if key == "command" else "command: ls, "
    lines = wrong(f"params: {{y: 1}}\njobs: {{a: {{{more}{key}: {value}}}}}")
    assert "'x' is not set" in lines[0]
    assert len(lines) == 1


def test_keys_of_other_systems_and_other_names_of_flags_are_known():
    for key in ("needs", "depends_on", "after"):
        assert "use requires for jobs that have to end first" in wrong(f"jobs: {{a: {{command: x, {key}: b}}}}")[0]
    found = read("jobs: {a: {command: x, grace: 90s, gang: 2}}").jobs[0].asked.spec
    assert (found.stop_grace, found.gang_size) == (90, 2)
    assert wrong("jobs: {a: {command: x, grace: 1, stop_grace: 2}}") == [
        "1:34: jobs.a.stop_grace: the same as grace; keep one of them"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "jobs: 3", "jobs: {}", "jobs: {a: }", "jobs: {a: {}}", "jobs: {'': {command: x}}", "jobs: [a]",
        "jobs: {a: {command: [[x]]}}", "jobs: {a: {command: {x: y}}}", "jobs: {a: {command: x, matrix: {a: {}}}}",
        "jobs: {a: {command: x, matrix: {a: []}}}", "jobs: {a: {command: x, matrix: {a: 'span:{1..99999}'}}}",
        "jobs: {a: {command: x, requires: [[a]]}}", "jobs: {a: {command: x, requires: {b: {}}}}",
        "jobs: {a: {command: x, requires: 'b[c'}, b: {command: x}}", 'jobs: {a: {command: "x\\ny"}}',
        "jobs: {a: {command: 'x \"'}}", "jobs: {a: {command: x, nodes: 1}}", "jobs: {a: {command: x, image: [y]}}",
        "jobs: {a: {command: x, gpus: 1.5}}", "params: 3\njobs: {a: {command: x}}", "max_parallel: 0\njobs: {a: {}}",
        "defaults: {requires: a}\njobs: {a: {command: x}}", "jobs: {a: &a {command: x, b: *a}}",
        "jobs: {a: !!python/x y}",
        "params: {a: }\njobs: {a: {command: x}}", "version: 2\njobs: {a: {command: x}}",
        "jobs: {a: {command: x, env: 3}}",
        "jobs: {a: {command: x, label: {b: }}}", "jobs: {a: {command: x, resources: 3, uploads: 4, volumes: {}}}",
        "a: " * 50 + "1", "jobs: {a: {command: '" + "{{ '" * 30 + "'}}", "\0", "jobs: {a: {command: x, at: [y]}}",
        "jobs: {a: {command: '" + "{{(" + "(" * 500 + "1" + ")" * 501 + "}}'}}", "jobs: {a: {command: x, target: [y]}}",
    ],
)  # fmt: skip
def test_what_is_no_workflow_is_told_in_lines_with_places(text):
    for line in wrong(text):
        assert line[0].isdigit(), line


def test_files_are_bounded():
    with pytest.raises(UsageError, match="larger than 512 KiB"):
        read("#" * 600_000)
    aliases = "params: {a: &a [1,1,1,1,1,1,1,1,1]" + "".join(
        f", {chr(98 + n)}: &{chr(98 + n)} [{','.join([f'*{chr(97 + n)}'] * 9)}]" for n in range(9)
    ) + "}\njobs: {a: {command: x}}"  # fmt: skip
    assert "too large" in wrong(aliases)[0]
    many = "jobs: {a: {command: x, matrix: {a: 'span:{1..200}', b: 'span:{1..200}'}}}"
    assert "40,000 combinations exceed the limit" in wrong(many)[0]
    large = "jobs: {a: {command: x, env: {A: %s}, matrix: {n: 'span:{1..400}'}}}"
    assert "the tasks have more than 32 MiB in all" in wrong(large % ("x" * 100_000))[0]
    assert len(read(large % ("x" * 75_000)).jobs) == 400
    wide = "jobs: {a: {command: x, matrix: {a: 'span:{1..2000}'}}, b: {command: x, requires: a}}"
    assert "let jobs in between gather them" in wrong(wide)[0]


def test_the_schema_has_every_option_of_submit_and_every_key_that_is_read():
    assert set(job_properties()) == set(JOB_KEYS)
    flags = {option.flag for option in options_of("task")}
    assert flags - {option.flag for option in JOB_OPTIONS.values()} <= {
        "--owner", "--name", "--zip", "--max-parallel", "--after", "--after-batch", "--each", "--if-impossible",
    }  # fmt: skip
    assert json.loads(json.dumps(schema()))["properties"]["jobs"]


GRAPHS = st.integers(1, 8).flatmap(
    lambda count: st.lists(st.sets(st.integers(0, count - 1)), min_size=count, max_size=count)
)


@given(GRAPHS)
def test_no_cycle_is_accepted_and_nothing_else_is_refused(graph):
    text = json.dumps(
        {"jobs": {f"j{at}": {"command": "x", "requires": [f"j{each}" for each in to]} for at, to in enumerate(graph)}}
    )
    left = dict(enumerate(graph))
    while free := [at for at, to in left.items() if not to & left.keys()]:
        for at in free:
            del left[at]
    if left:
        assert wrong(text)
        return
    found = read(text)
    assert all(at < number for number, job in enumerate(found.jobs) for at, *_ in job.requires)
    assert edges(found) == {
        job.title: [f"{each.title} completed" for each in found.jobs if int(each.name[1:]) in graph[int(job.name[1:])]]
        for job in found.jobs
    }


def test_one_failed_task_of_a_matrix_is_enough_unless_all_have_to_fail():
    found = read(
        "jobs: {t: {command: x, matrix: {n: [1, 2, 3]}}, any: {command: y, requires: [{t: failed}]}, "
        "all: {command: y, requires: [{t: ALL_FAILED}]}, one: {command: y, requires: [{'t[n=1]': failed}]}, "
        "both: {command: y, requires: [{t: failed, any: failed}, {'t[n=1]': failed}]}}"
    )
    requires = {job.name: [tuple(edge) for edge in job.requires] for job in found.jobs}
    assert requires["any"] == [(0, "failed", 1), (1, "failed", 1), (2, "failed", 1)]
    assert requires["all"] == [(0, "failed", 0), (1, "failed", 0), (2, "failed", 0)]
    assert requires["one"] == [(0, "failed", 0)]
    assert sorted(one_of for _, _, one_of in requires["both"]) == [0, 0, 1, 1, 1]


def test_too_many_tasks_are_counted_before_any_of_them_is_made(monkeypatch):
    monkeypatch.setattr("agentless.rules.workflows.file.task_request", None)
    wide = ", ".join(f"j{at}: {{command: 'x span:{{1..9}}', matrix: {{n: 'span:{{1..4000}}'}}}}" for at in range(3))
    assert wrong(f"jobs: {{{wide}}}") == ["1:7: jobs: 108,000 tasks exceed the limit of 10,000"]


def test_the_tasks_of_a_matrix_are_read_as_each_would_be_alone():
    text = "jobs: {a: {command: 'x {{ matrix.n }}', matrix: {n: [%s]}, gpus: 1, env: {N: '%s'}, output: o}}"
    for env in ("same", "{{ matrix.n }}"):
        every = read(text % ("a, 'b c', 'span:[1,2]', d", env))
        alone = [job for n in ("a", "'b c'", "'span:[1,2]'", "d") for job in read(text % (n, env)).jobs]
        assert [job.asked for job in every.jobs] == [job.asked for job in alone]
    long = (
        f"jobs: {{a: {{command: x, args: ['{{{{ matrix.n }}}}', {'y' * 60_000}], matrix: {{n: [1, {'z' * 60_000}]}}}}}}"
    )
    assert "the limit is 120,000" in wrong(long)[-1]
