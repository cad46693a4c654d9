"""Reads a workflow from its file. All mistakes are told at once, each with its line and column."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from agentless.errors import UsageError
from agentless.formats.marked_yaml import MAX_MISTAKES, BrokenYaml, Where, read_yaml, shown
from agentless.model.tasks.job import HOW_TO_NAME, JOB_NAME, OnFailure, check_artifacts
from agentless.model.text import enumerated
from agentless.model.units import format_size
from agentless.rules.files.file_options import brought_to
from agentless.rules.submit.spans import LIMIT, Combination, expand
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request, with_command
from agentless.rules.views.nearest import nearest
from agentless.rules.workflows.graph import MAX_EDGES, Node, Tasks, cycle, ordered, parse_reference
from agentless.rules.workflows.job import PAIRS, JobReader, in_file_words
from agentless.rules.workflows.keys import ALIKE, JOB_KEYS, REFUSED, WORKFLOW
from agentless.rules.workflows.reading import Reading, Value
from agentless.rules.workflows.templates import typed
from agentless.rules.workflows.workflow import ENDS, Edge, Workflow, WorkflowJob, job_title

MAX_TASKS = 32 << 20
"""The most characters of all tasks together: a small file can have many large ones."""
_PARAMETER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_SPAN = re.compile(r"span:[\[{].*[\]}]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Settings:
    """What is said beside the file: parameters (`--set`), envs for runtimes, and the node of all jobs."""

    params: Mapping[str, str] = field(default_factory=dict)
    runtimes: Mapping[str, str] = field(default_factory=dict)
    node: str | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """A job with its values by key, and those of its matrix by name; these are None without one."""

    name: str
    where: Where
    given: Mapping[str, list[Value]]
    matrix: Mapping[str, list[str]] | None

    @property
    def combinations(self) -> int:
        """How many there are of the values of its matrix, without counting them one by one."""
        return 1 if self.matrix is None else math.prod(map(len, self.matrix.values()))

    @property
    def has_usual_options(self) -> bool:
        """Whether its tasks have the same options: no value of them is filled in."""
        others = ("command", "args", "requires", "artifacts", "matrix")
        return not any(
            "{{" in str(each.data) for key, values in self.given.items() if key not in others for each in values
        )


@dataclass(slots=True)
class _Task:
    """A task of a job while the file is read; `job` is None if something is wrong with it."""

    node: Node
    job: WorkflowJob | None
    requires: Value
    edges: list[Edge] = field(default_factory=list)


def read_workflow(text: str, path: str, name: str, outside: Outside, settings: Settings) -> Workflow:
    """The workflow in a text; `name` is its name if the file has none. Raises UsageError with all mistakes."""
    reading = Reading(text, path)
    found = _File(reading, name, outside, settings).read()
    reading.check()
    return found


def parse_setting(text: str) -> tuple[str, str]:
    """`KEY=VALUE` as a pair. Raises UsageError."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise UsageError(f"--set {text[:60]!r}: use KEY=VALUE")
    return key, value


class _File:
    def __init__(self, reading: Reading, name: str, outside: Outside, settings: Settings) -> None:
        self._reading = reading
        self._name = name
        self._outside = outside
        self._settings = settings
        self._top = reading.mapping(Value(reading.marked.data, ()), "{jobs: {train: {command: python train.py}}}")
        self._tasks: list[_Task] = []
        self._last: tuple[object, TaskRequest] | None = None
        self._options_size = 0  # of the last request, without its command
        self._size = 0
        self._secrets: dict[str, str] = {}

    def read(self) -> Workflow:
        reading, top = self._reading, self._top
        for key in top.keys() - WORKFLOW.keys():
            reading.unknown((key,), key, WORKFLOW)
        if top.get("version") not in (None, "1"):
            reading.wrong(("version",), "this agentless reads version 1; use 'version: 1', or omit it")
        name = self._named()
        reader = JobReader(reading, self._outside, {**self._texts("runtimes"), **self._settings.runtimes})
        before = len(reading.mistakes)
        names = {"params": self._params()}
        if len(reading.mistakes) > before:
            reading.check()  # what is filled in would be wrong, too
        defaults = self._checked(Value(top.get("defaults"), ("defaults",)))
        jobs = reading.mapping(Value(top.get("jobs"), ("jobs",)), "{train: {command: python train.py}}")
        if not jobs:
            reading.wrong(("jobs",), "there are no jobs; add jobs: {train: {command: python train.py}}")
        found = [self._job(job, raw, defaults, names) for job, raw in jobs.items()]
        if self._is_within(sum(job.combinations * _spans(job.given, self._outside) for job in found)):
            for each in found:
                self._add(each, reader, names)
            if self._size > MAX_TASKS:
                words = f"the tasks have more than {format_size(MAX_TASKS)} in all; move long texts into files"
                self._reading.wrong(("jobs",), words)
            else:
                self._link()
        return self._workflow(name, reader)

    # ------------------------------------------------------------------ the keys of the workflow

    def _named(self) -> str:
        name = self._top.get("name")
        if name is None:
            return self._name
        if not isinstance(name, str) or not JOB_NAME.fullmatch(name):
            self._reading.wrong(("name",), f"is {shown(name)}; must be {HOW_TO_NAME}")
        return str(name)

    def _texts(self, key: str) -> dict[str, str]:
        found = self._reading.mapping(Value(self._top.get(key), (key,)), "{python-3.11-ml: torch}")
        for name, value in found.items():
            if not isinstance(value, str):
                self._reading.wrong((key, name), f"is {shown(value)}; must be the name of an env")
        return {name: value for name, value in found.items() if isinstance(value, str)}

    def _params(self) -> dict[str, Any]:
        reading = self._reading
        given = reading.mapping(Value(self._top.get("params"), ("params",)), "{epochs: 10}")
        for name in given:
            if not _PARAMETER.fullmatch(name):
                reading.wrong(("params", name), f"{name[:60]!r}: use letters, digits and '_'", key=True)
        found = {name: typed(value) for name, value in given.items()}
        for key, text in self._settings.params.items():
            if key not in given:
                words = nearest(key, given) or (f"; known: {', '.join(given)}" if given else "; it has none")
                reading.wrong(("params",), f"--set {key[:60]}: the file has no such parameter{words}")
            found[key] = typed(self._set(key, text))
        for key in (key for key, value in found.items() if value is None):
            reading.wrong(("params", key), f"has no value; use --set {key}=VALUE")
            found[key] = ""
        return found

    def _set(self, key: str, text: str) -> object:
        """The value after `--set`: a list or mapping as in YAML, or a text."""
        if not text.startswith(("[", "{")):
            return text
        try:
            return read_yaml(text).data
        except BrokenYaml as error:
            self._reading.wrong(("params", key), f"--set {key[:60]}: {error}")
            return text

    def _on_failure(self) -> OnFailure:
        match self._top.get("on_failure"):
            case "stop":
                return "stop"
            case None | "continue":
                return "continue"
            case other:
                self._reading.wrong(("on_failure",), f"is {shown(other)}; must be stop or continue")
                return "continue"

    # ------------------------------------------------------------------ jobs

    def _checked(self, value: Value) -> dict[str, Value]:
        """The keys of a job, or of the defaults, that there are."""
        found: dict[str, Value] = {}
        for key, each in self._reading.mapping(value, "{command: python train.py}").items():
            where = (*value.where, key)
            if key in REFUSED:
                self._reading.wrong(where, REFUSED[key], key=True)
            elif key not in JOB_KEYS:
                self._reading.unknown(where, key, JOB_KEYS)
            elif same := found.get(ALIKE.get(key, key)):
                self._reading.wrong(where, f"the same as {same.where[-1]}; keep one of them", key=True)
            else:
                found[ALIKE.get(key, key)] = Value(each, where)
        if value.where == ("defaults",):
            for key in found.keys() & {"requires", "matrix", "artifacts"}:
                self._reading.wrong(found.pop(key).where, "this is for single jobs; move it to them", key=True)
        return found

    def _given(self, defaults: Mapping[str, Value], own: Mapping[str, Value]) -> dict[str, list[Value]]:
        """The values of a job by key, its own after those of all jobs."""
        found: dict[str, list[Value]] = {}
        if self._top.get("environment") is not None:
            found["env"] = [Value(self._top["environment"], ("environment",))]
        for each in (defaults, own):
            for key, value in each.items():
                found[key] = [*found.get(key, ()), value] if key in PAIRS else [value]
        for key, others in (("container", ("image", "runtime")), ("image", ("container", "runtime"))):
            if key in own:
                for other in others:
                    if other in defaults and other not in own:
                        found.pop(other, None)
        return found

    def _job(self, job: str, raw: Any, defaults: Mapping[str, Value], names: Mapping[str, Any]) -> _Job:
        where: Where = ("jobs", job)
        if not JOB_NAME.fullmatch(job):
            self._reading.wrong(where, f"{job[:80]!r} is not the name of a job; use {HOW_TO_NAME}", key=True)
        given = self._given(defaults, self._checked(Value(raw, where)))
        if self._settings.node is not None:
            given["node"] = [Value(self._settings.node, where)]
        return _Job(job, where, given, self._matrix(given["matrix"][0], names) if "matrix" in given else None)

    def _is_within(self, count: int) -> bool:
        """Whether so many tasks are within the limit, which is told otherwise."""
        if count > LIMIT:
            self._reading.wrong(("jobs",), f"{count:,} tasks exceed the limit of {LIMIT:,}")
        return count <= LIMIT

    def _add(self, job: _Job, reader: JobReader, names: Mapping[str, Any]) -> None:
        """Add the tasks of a job: one for each combination of its matrix and of the spans in its command."""
        given, reading = job.given, self._reading
        usual: tuple[dict[str, Any], tuple[str, ...]] | None = None
        for values in _combinations(job.matrix):
            before = len(reading.mistakes)
            if before > MAX_MISTAKES or len(self._tasks) > LIMIT or self._size > MAX_TASKS:
                return
            known = {**names, "matrix": typed(values)}
            words = reader.command(given, known)
            options, target = usual or (reader.options(given, known), self._target(given, known))
            artifacts = self._artifacts(given, known)
            requires = given["requires"][0] if "requires" in given else Value(None, job.where)
            requires = Value(reading.rendered(requires, known), requires.where)
            found: list[WorkflowJob | None] = [None]  # what waits for what is checked all the same
            if len(reading.mistakes) == before:
                usual = usual or ((options, target) if job.has_usual_options else None)
                found[:] = self._requests(job, words, target, {**options}, values) or found
            for each in found:
                node = Node(job.name, each.parameters if each else values)
                self._tasks.append(_Task(node, each and replace(each, artifacts=artifacts), requires))

    def _requests(
        self,
        job: _Job,
        words: list[str],
        target: tuple[str, ...],
        options: dict[str, Any],
        values: Mapping[str, str],
    ) -> list[WorkflowJob]:
        """The tasks of a job with these values; none if something is wrong."""
        where = job.where
        if not words:
            self._reading.wrong(where, "has no command; add command: python train.py", key=True)
            return []
        if not target and not options.keys() & {"gpus", "gpu_type", "gpu_memory"}:
            options["gpus"] = 0
        try:
            asked = self._asked(words, target, options)
        except UsageError as error:
            self._reading.wrong(where, in_file_words(str(error)), key=True)
            return []
        for name, value in asked.secrets.items():
            if self._secrets.setdefault(name, value) != value:
                self._reading.wrong(where, f"secret {name} has another value in another job; use another name")
        several = bool(values) or len(asked.sweep) > 1
        outputs = tuple(brought_to(each, self._outside.folder, several=several) for each in asked.spec.outputs)
        place, found = self._reading.place(where, key=True), []
        for each in asked.sweep:
            parameters = {**values, **each.parameters}
            self._size += self._options_size + sum(map(len, (*each.argv, *parameters.values())))
            spec = replace(asked.spec, name=job.name, command=each.argv, parameters=parameters, outputs=outputs)
            one = replace(asked, spec=spec, sweep=(Combination(each.argv, parameters),))
            found.append(WorkflowJob(job.name, place, one))
        return found

    def _asked(self, words: list[str], target: tuple[str, ...], options: dict[str, Any]) -> TaskRequest:
        """The request of a task. Most tasks of a matrix differ from the last one only in the command."""
        about = target, options
        if self._last is None or about != self._last[0] or any("span:" in word for word in words):
            asked = task_request(words, target, options, self._outside)  # type: ignore[arg-type]
            self._last = about, asked
            self._options_size = len(json.dumps(asdict(replace(asked.spec, command=())), default=str))
            return asked
        return with_command(self._last[1], words)

    def _matrix(self, value: Value, names: Mapping[str, Any]) -> dict[str, list[str]]:
        """The values of a matrix, by name; none for the first of them if that are too many."""
        data = self._reading.rendered(value, names)
        found = self._reading.mapping(Value(data, value.where), "{lr: [0.1, 0.01]}")
        lists: dict[str, list[str]] = {}
        for key, each in found.items():
            where = (*value.where, key)
            if not _PARAMETER.fullmatch(key):
                self._reading.wrong(where, f"{key[:60]!r}: use letters, digits and '_'", key=True)
            lists[key] = self._values(Value(each, where))
        count = math.prod(map(len, lists.values()))
        if count > LIMIT:
            self._reading.wrong(value.where, f"{count:,} combinations exceed the limit of {LIMIT:,}")
            return {**lists, next(iter(lists)): []}
        if not count:
            self._reading.wrong(value.where, "has no values, so the job would never run")
        return lists

    def _values(self, value: Value) -> list[str]:
        if isinstance(value.data, str) and _SPAN.fullmatch(value.data.strip()):
            try:
                return [each.argv[0] for each in expand((value.data.strip(),), self._outside.read_lines)]
            except UsageError as error:
                self._reading.wrong(value.where, str(error).partition(": ")[2])
                return []
        return list(dict.fromkeys(self._reading.words(value, "[0.1, 0.01]")))

    def _target(self, given: Mapping[str, list[Value]], names: Mapping[str, Any]) -> tuple[str, ...]:
        if "target" not in given:
            return ()
        value = given["target"][-1]
        data = self._reading.rendered(value, names)
        if isinstance(data, str):
            return (data,)
        if data is not None:
            self._reading.wrong(value.where, f"is {shown(data)}; must be one target; use matrix for several tasks")
        return ()

    def _artifacts(self, given: Mapping[str, list[Value]], names: Mapping[str, Any]) -> tuple[str, ...]:
        if "artifacts" not in given:
            return ()
        value, found = given["artifacts"][0], list[str]()
        for at, path in enumerate(
            self._reading.words(Value(self._reading.rendered(value, names), value.where), "[model]")
        ):
            where = (*value.where, at) if isinstance(value.data, list) else value.where
            try:
                check_artifacts((*found, path))
            except UsageError as error:
                self._reading.wrong(where, str(error))
            else:
                found.append(posixpath.normpath(path))
        return tuple(found)

    # ------------------------------------------------------------------ what waits for what

    def _link(self) -> None:
        """Find the tasks that each one waits for."""
        if not self._is_within(len(self._tasks)):
            return
        tasks = Tasks([task.node for task in self._tasks], self._reading.mapping(Value(self._top.get("jobs"), ()), ""))
        edges = 0
        for number, task in enumerate(self._tasks):
            groups: dict[tuple[int, ...], int] = {}
            for text, state, where in self._required(task.requires):
                try:
                    reference = parse_reference(text, state)
                    meant = tasks.meant(reference)
                except UsageError as error:
                    self._reading.wrong(where, str(error))
                    continue
                if number in meant:
                    self._reading.wrong(where, f"{task.node.job} would wait for itself")
                    continue
                is_one_of = not reference.each and len(meant) > 1
                one_of = groups.setdefault(tuple(meant), len(groups) + 1) if is_one_of else 0
                task.edges += (Edge(each, reference.state, one_of) for each in meant)
            edges += len(task.edges)
            if edges > MAX_EDGES:
                self._reading.wrong(("jobs",), f"more than {MAX_EDGES:,} pairs of tasks that wait for each other")
                return
        self._check_cycles()

    def _required(self, value: Value) -> Iterator[tuple[str, str | None, Where]]:
        """Each required job, its state, and where that stands."""
        data = value.data
        for at, each in enumerate(data) if isinstance(data, list) else [(None, data)]:
            where = value.where if at is None else (*value.where, at)
            if isinstance(each, str):
                yield each, None, where
            elif isinstance(each, dict):
                for job, state in each.items():
                    if isinstance(state, str):
                        yield job, state, (*where, job)
                    else:
                        words = f"must be {enumerated(ENDS, 'or')}"
                        self._reading.wrong((*where, job), f"is {shown(state)}; {words}")
            elif each is not None:
                self._reading.wrong(where, f"is {shown(each)}; must be the name of a job, or {{JOB: STATE}}")

    def _check_cycles(self) -> None:
        found = cycle([[edge.job for edge in task.edges] for task in self._tasks])
        if found:
            titles = [job_title(*self._tasks[each].node) for each in found]
            words = " waits for ".join([*titles[:10], *["…"] * (len(titles) > 10), titles[0]])
            self._reading.wrong(self._tasks[found[0]].requires.where, f"a cycle: {words}")

    def _workflow(self, name: str, reader: JobReader) -> Workflow:
        on_failure = self._on_failure()
        most = self._top.get("max_parallel")
        parallel = None if most is None else self._reading.whole(Value(most, ("max_parallel",)), 1)
        for each in self._tasks:
            if parallel is not None and each.job and each.job.asked.spec.gang:
                words = f"cannot be combined with nodes, which job {each.node.job} has; omit one of them"
                self._reading.wrong(("max_parallel",), words)
                break
        if self._reading.mistakes:
            return Workflow(name, ())
        order = ordered([[edge.job for edge in task.edges] for task in self._tasks])
        numbers = {old: new for new, old in enumerate(order)}
        jobs = []
        for task in (self._tasks[old] for old in order):
            assert task.job is not None  # noqa: S101 - else there is a mistake
            requires = tuple(sorted({edge._replace(job=numbers[edge.job]) for edge in task.edges}))
            asked = task.job.asked
            terms = replace(asked.spec.terms, max_parallel=parallel)
            asked = replace(asked, spec=replace(asked.spec, terms=terms))
            jobs.append(replace(task.job, asked=asked, requires=requires))
        return Workflow(name, tuple(jobs), on_failure, tuple(reader.notes), self._secrets)


def _combinations(matrix: Mapping[str, list[str]] | None) -> Iterator[dict[str, str]]:
    """The combinations of the values of a matrix, by name."""
    if matrix is None:
        return iter([{}])
    return (dict(zip(matrix, row, strict=True)) for row in itertools.product(*matrix.values()))


def _spans(given: Mapping[str, list[Value]], outside: Outside) -> int:
    """How many combinations the spans of a command have, as far as nothing has to be filled in."""
    count = 1
    for key in ("command", "args"):
        data = given[key][-1].data if key in given else None
        words = [data] if isinstance(data, str) else data if isinstance(data, list) else []
        if any(isinstance(word, str) and "span:" in word and "{{" not in word for word in words):
            with contextlib.suppress(UsageError, ValueError):
                split = shlex.split(data) if key == "command" and isinstance(data, str) else map(str, words)
                count *= len(expand(tuple(split), outside.read_lines))
    return count
