"""A request to run tasks: command, targets and options, parsed and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Any

from agentless.errors import UsageError
from agentless.model.moment import check_future, parse_future
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.gang import Gang, member_of
from agentless.model.tasks.spec import TaskSpec, check_secrets, check_spec, check_words, on_targets, without_zeros
from agentless.model.tasks.terms import Terms
from agentless.model.tasks.workload import WorkloadName
from agentless.model.units import parse_duration
from agentless.rules.files.file_options import brought_to, located
from agentless.rules.submit.kinds import parse_seconds, read_pairs, texts
from agentless.rules.submit.options import OPTIONS, OTHER_NAMES, Options
from agentless.rules.submit.public_keys import public_keys
from agentless.rules.submit.spans import Combination, expand
from agentless.rules.views.nearest import nearest


@dataclass(frozen=True, slots=True)
class Outside:
    """What a submit reads from its surroundings: time, environment variables, and files named in spans.

    `folder` is the current folder. Uploads and outputs are relative to it.
    """

    now: float
    environ: Mapping[str, str]
    read_lines: Callable[[str], Iterable[str]]
    folder: str = "/"


@dataclass(frozen=True, slots=True)
class TaskRequest:
    """The spec, the targets, which add to its needs, and the values of its secrets.

    `sweep` has the commands: all combinations of the spans, or only the command of the spec. If `owner` is None, the
    user who asks is the owner. `each`: each task waits for one task of a required batch.
    """

    spec: TaskSpec
    targets: tuple[str, ...]
    secrets: Mapping[str, str]
    sweep: tuple[Combination, ...]
    owner: str | None = None
    each: bool = False

    @property
    def count(self) -> int:
        """How many tasks each command becomes."""
        return self.spec.gang.size if self.spec.gang else max(1, len(self.targets))

    def request(self, *, dry_run: bool = False) -> dict[str, Any]:
        """The body of `POST /v1/tasks`."""
        varied = [each for each in self.sweep if each.parameters]
        return {
            "targets": list(self.targets),
            "sweep": [{"command": each.argv, "parameters": dict(each.parameters)} for each in varied],
            "spec": asdict(self.spec),
            "secrets": dict(self.secrets),
            "dry_run": dry_run,
            "owner": self.owner,
            **({"each": True} if self.each else {}),
        }


def task_request(
    command: Iterable[str],
    targets: Iterable[str],
    options: Options,
    outside: Outside,
    workload: WorkloadName | None = None,
) -> TaskRequest:
    """Parse the options and check everything that needs no cluster. Raises UsageError."""
    given: dict[str, Any] = {}
    for name, value in options.items():
        if value is not None and given.setdefault(meant := OTHER_NAMES.get(name, name), value) is not value:
            raise UsageError(f"{name} and {meant} are the same option; use one of them")
    for name in given.keys() - OPTIONS.keys():
        raise UsageError(f"unknown option {name!r}{nearest(name, OPTIONS)}")
    wanted = texts(targets, "--target")
    if "retry_on" in given and not given.get("retries"):
        raise UsageError("--retry-on needs --retries; for example: --retries 3")
    words = tuple(command)
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"a command is a list of words, like 'python', 'train.py'; not {words!r}")
    zipped = OPTIONS["zipped"].read(given.pop("zipped", False))
    sweep = expand(words, outside.read_lines, zipped=zipped)
    secrets = _variables(given.pop("secret_env", ()), "--secret-env", outside.environ)
    given["env"] = _variables(given.pop("env", ()), "--env", outside.environ)
    keys = public_keys(given.pop("public_key_file", ()), given.pop("public_key_string", ()), outside.read_lines)
    gang = _gang(given)
    start_at = _start_at(given.pop("at", None), given.pop("after", None), outside.now)
    if OPTIONS["no_queue"].read(given.pop("no_queue", False)):
        if "wait_for" in given:
            raise UsageError("--no-queue and --wait-for cannot be combined; use one of them")
        given["wait_for"] = 0.0
    batches, each = given.pop("after_batch", ()), OPTIONS["each"].read(given.pop("each", False))
    whose = OPTIONS["owner"].read(given.pop("owner")) if "owner" in given else None
    spec = replace(without_zeros(_spec(given)), command=sweep[0].argv, secret_env=tuple(sorted(secrets)))
    requires = (*spec.terms.requires, *OPTIONS["after_batch"].read(batches))
    spec = replace(spec, workload=workload, public_keys=keys, gang=gang, terms=replace(spec.terms, requires=requires))
    if not wanted and "gpus" not in given and (spec.needs.gpu_types or spec.needs.gpu_memory):
        spec = replace(spec, needs=replace(spec.needs, gpus=1))
    asked = given.keys() & {"gpus", "node", "on"}
    if not (wanted or asked or spec.needs.gpus or spec.needs.exclusive or spec.cores or spec.memory):
        raise UsageError(
            "no resources requested; specify GPUs, like node1::0, 2xA100 or --gpus 1, or none with --gpus 0 "
            "(list free GPUs with: agentless gpus)"
        )
    spec = replace(spec, terms=replace(spec.terms, start_at=start_at))
    several = max(len(wanted), spec.gang_size) * len(sweep) > 1
    spec = replace(
        spec,
        uploads=tuple(located(each, outside.folder) for each in spec.uploads),
        outputs=tuple(brought_to(each, outside.folder, several=several) for each in spec.outputs),
    )
    for one in on_targets(spec, wanted):
        check_spec(one)
    check_secrets(secrets)
    if zipped and not sweep[0].parameters:
        raise UsageError("--zip needs a span in the command, like 'span:{1..3}'")
    if spec.terms.max_parallel is not None and len(wanted) < 2 and not sweep[0].parameters:
        raise UsageError("--max-parallel needs more than one task; omit it, or add a span or a target")
    if each and not batches:
        raise UsageError("--each needs --after-batch, with the batch to pair the tasks with")
    return TaskRequest(spec, wanted, secrets, sweep, whose, each)


def with_command(asked: TaskRequest, command: Iterable[str]) -> TaskRequest:
    """The same request with another command, which has no spans. Raises UsageError."""
    spec = replace(asked.spec, command=tuple(command))
    check_words(spec)
    return replace(asked, spec=spec, sweep=(Combination(spec.command, {}),))


def _gang(given: dict[str, Any]) -> Gang | None:
    """The gang that is asked for; takes its options out of those that are given."""
    size, launcher, failure = (given.pop(name, None) for name in ("gang", "launcher", "on_member_failure"))
    if size is None:
        if other := "--launcher" if launcher else "--on-member-failure" if failure else "":
            raise UsageError(f"{other} needs --nodes; for example: --nodes 2")
        return None
    launcher, failure = (
        OPTIONS["launcher"].read(launcher or "none"),
        OPTIONS["on_member_failure"].read(failure or "stop"),
    )
    size = OPTIONS["gang"].read(size)
    return member_of(size, None if launcher == "none" else launcher, failure)


def _start_at(at: str | datetime | None, after: float | str | timedelta | None, now: float) -> float | None:
    if at is not None and after is not None:
        raise UsageError("--at and --in cannot be combined; use one of them")
    if after is not None:
        if isinstance(after, str) and _reads(lambda: parse_future(after, now)):
            raise UsageError(f"--in {after!r} is a date; use --at {after}")
        try:
            return now + parse_seconds(after, "--in")
        except UsageError as error:
            words = "to start after another task, use --after; in Python, requires="
            raise UsageError(f"{error}; {words}") from None
    if at is None:
        return None
    if isinstance(at, datetime):
        return check_future(at.timestamp(), now, f"{at}")
    if not isinstance(at, str):
        raise UsageError(f"--at must be a string or a datetime, not {at!r}")
    if _reads(lambda: parse_duration(at)):
        raise UsageError(f"--at {at!r} is a delay; use --in {at}")
    try:
        return parse_future(at, now)
    except UsageError as error:
        raise UsageError(f"--at {error}") from None


def _reads(read: Callable[[], object]) -> bool:
    try:
        read()
    except UsageError:
        return False
    return True


_FIELDS: Mapping[type, set[str]] = {part: {field.name for field in fields(part)} for part in (TaskSpec, Needs, Terms)}


def _spec(given: Mapping[str, Any]) -> TaskSpec:
    parts: dict[type, dict[str, Any]] = {TaskSpec: {}, Needs: {}, Terms: {}}
    for name, value in given.items():
        for part, values in parts.items():
            for field in {name, f"{name}s"} & _FIELDS[part]:
                values[field] = OPTIONS[name].read(value)
    return TaskSpec((), **parts[TaskSpec], needs=Needs(**parts[Needs]), terms=Terms(**parts[Terms]))


def _variables(
    value: Mapping[str, str] | str | Iterable[str], option: str, environ: Mapping[str, str]
) -> dict[str, str]:
    if isinstance(value, Mapping):
        return read_pairs(value, option)
    found = {}
    for text in texts(value, option):
        name, equals, word = text.partition("=")
        if not equals:
            if name not in environ:
                raise UsageError(f"{option} {name}: not set in your environment; use {name}=VALUE")
            word = environ[name]
        found[name] = word
    return found
