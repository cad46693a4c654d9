"""The options of a submit, under the names that the command line and Python have for them, and how each is read.

An option is one line of `Options`. Its kind says what may be written there and how that is read; its name says where it
goes: to the field of that name of a TaskSpec, of its needs or of its terms, or to the plural of that name for what may
be given several times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, TypedDict, TypeVar, get_args, get_type_hints

from agentless.errors import UsageError
from agentless.model.files.task_files import Output, Upload
from agentless.model.moment import check_future, parse_future
from agentless.model.owner import check_owner
from agentless.model.scheduling.needs import Needs, parse_gpu_types
from agentless.model.tasks.spec import (
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
from agentless.model.tasks.terms import Terms, parse_retry_on, parse_signal
from agentless.model.units import GPU_MEMORY, MEMORY, SHM, Sizes, parse_duration, parse_size
from agentless.rules.files.task_files import brought_to, located, parse_output, parse_upload
from agentless.rules.submit.spans import Combination, expand
from agentless.rules.views.nearest import nearest

Number = TypeVar("Number", int, float)


def seconds(value: float | str | timedelta, option: str) -> float:
    """Seconds of a time: a number is seconds, a text is read as `parse_duration` does."""
    return value.total_seconds() if isinstance(value, timedelta) else _quantity(parse_duration, value, option)


def _size(of: Sizes) -> Callable[[float | str, str], int]:
    return lambda value, option: _quantity(lambda text: parse_size(text, of), value, option)


def _quantity(parse: Callable[[str], Number], value: float | str, option: str) -> Number:
    try:
        return parse(str(value))
    except UsageError as error:
        raise UsageError(f"{option} {error}") from None


def _gpu_types(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    return parse_gpu_types(",".join(texts(value, option)))


def _text(value: str, option: str) -> str:
    (found,) = texts((value,), option)
    return found


def _signal(value: str, option: str) -> str:
    return parse_signal(_text(value, option))


def _retry_on(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    return parse_retry_on(",".join(texts(value, option)))


def _owner(value: str, option: str) -> str:
    return check_owner(_text(value, option), option)


def _policy(value: str, option: str) -> str:
    return _text(value, option).replace("-", "_")


def _mounts(value: str | Iterable[str], option: str) -> tuple[Mount, ...]:
    return tuple(map(parse_mount, texts(value, option)))


def _uploads(value: str | Iterable[str], option: str) -> tuple[Upload, ...]:
    return tuple(map(parse_upload, texts(value, option)))


def _outputs(value: str | Iterable[str], option: str) -> tuple[Output, ...]:
    return tuple(map(parse_output, texts(value, option)))


def _volumes(value: str | Iterable[str], option: str) -> tuple[Volume, ...]:
    return tuple(map(parse_volume, texts(value, option)))


def texts(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    """One text, or several; raises UsageError for anything else."""
    found = (value,) if not isinstance(value, Iterable) or isinstance(value, str) else tuple(value)
    for text in found:
        if not isinstance(text, str):
            raise UsageError(f"{option} takes a text, not {text!r}")
    return found


def _nodes(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts(value, option)))


def _pairs(value: Mapping[str, str] | str | Iterable[str], option: str) -> dict[str, str]:
    if isinstance(value, Mapping):
        texts((*value.keys(), *value.values()), option)
        return dict(value)
    found = dict[str, str]()
    for text in texts(value, option):
        key, equals, word = text.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {text!r}: write KEY=VALUE")
        if found.setdefault(key, word) != word:
            raise UsageError(f"{option} {key} is given twice, as {found[key]} and as {word}")
    return found


Time = Annotated[float | str | timedelta | None, seconds]
"""Seconds, or a text like `8h`."""
Memory = Annotated[int | str | None, _size(MEMORY)]
"""A text like `16GiB`, or megabytes; so are the other sizes."""
ShmSize = Annotated[int | str | None, _size(SHM)]
GpuMemory = Annotated[int | str | None, _size(GPU_MEMORY)]
GpuTypes = Annotated[str | Iterable[str] | None, _gpu_types]
Signal = Annotated[str | None, _signal]
Endings = Annotated[str | Iterable[str] | None, _retry_on]
Policy = Annotated[str | None, _policy]
Owner = Annotated[str | None, _owner]
Nodes = Annotated[str | Iterable[str] | None, _nodes]
Mounts = Annotated[str | Iterable[str] | None, _mounts]
Uploads = Annotated[str | Iterable[str] | None, _uploads]
Outputs = Annotated[str | Iterable[str] | None, _outputs]
Volumes = Annotated[str | Iterable[str] | None, _volumes]
Pairs = Annotated[Mapping[str, str] | str | Iterable[str] | None, _pairs]
"""A mapping, or texts like `rack=a`."""


_WORDS = {str: "a text", int: "a whole number", float: "a number", bool: "True or False"}


class Options(TypedDict, total=False):
    """What may be asked for at a submit besides the targets; None is the same as not to ask."""

    gpus: int | None
    gpu_memory: GpuMemory
    gpu_share: int | None
    gpu_type: GpuTypes
    node: Nodes
    exclude: Nodes
    on: Pairs
    exclusive: bool
    policy: Policy
    priority: int | None
    time_limit: Time
    signal: Signal
    signal_before: Time
    at: str | datetime | None
    after: Time
    retries: int
    retry_on: Endings
    backoff: Time
    max_parallel: int | None
    zipped: bool
    owner: Owner
    image: str | None
    container: str | None
    pull: str | None
    name: str | None
    cores: float | None
    memory: Memory
    shm_size: ShmSize
    env: Pairs
    secret_env: Pairs
    mount: Mounts
    upload: Uploads
    output: Outputs
    volume: Volumes
    workdir: str | None
    user: str | None
    network: str | None
    privileged: bool
    share: bool
    stop_grace: Time
    label: Pairs
    wait_for: Time
    no_queue: bool


_KINDS: Mapping[str, Any] = get_type_hints(Options, include_extras=True)
"""What is written after the colon of each, with how it is read."""


@dataclass(frozen=True, slots=True)
class Outside:
    """What a submit needs of the world: Unix seconds, the user's variables, and the lines of files that spans name.

    `folder` is the user's current one, from which uploads and outputs are named.
    """

    now: float
    environ: Mapping[str, str]
    read_lines: Callable[[str], Iterable[str]]
    folder: str = "/"


@dataclass(frozen=True, slots=True)
class Submission:
    """What is sent: the spec, the targets that add to its needs, the values of its secrets.

    `sweep` are the commands: one, which is that of the spec, or with spans in it all combinations. `owner` is whose
    the tasks are, None: of the one who asks.
    """

    spec: TaskSpec
    targets: tuple[str, ...]
    secrets: Mapping[str, str]
    sweep: tuple[Combination, ...]
    owner: str | None = None

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
        }


def submission(command: Iterable[str], targets: Iterable[str], options: Options, outside: Outside) -> Submission:
    """Read the options, and check all that can be checked without a cluster; raises UsageError."""
    given: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    for name in given.keys() - _KINDS.keys():
        raise UsageError(f"there is no option {name!r}{nearest(name, _KINDS)}")
    wanted = texts(targets, "--target")
    if "retry_on" in given and not given.get("retries"):
        raise UsageError("--retry-on says when to try again; say how often, too: --retries 3")
    words = tuple(command)
    if not all(isinstance(word, str) for word in words):
        raise UsageError(f"a command is words, one by one, like 'python', 'train.py', and not {words!r}")
    zipped = _read(bool, given.pop("zipped", False), "--zip")
    sweep = expand(words, outside.read_lines, zipped=zipped)
    secrets = _variables(given.pop("secret_env", ()), "--secret-env", outside.environ)
    given["env"] = _variables(given.pop("env", ()), "--env", outside.environ)
    start_at = _start_at(given.pop("at", None), given.pop("after", None), outside.now)
    if _read(bool, given.pop("no_queue", False), "--no-queue"):
        if "wait_for" in given:
            raise UsageError("--no-queue is not to wait, and --wait-for to wait; leave one of them out")
        given["wait_for"] = 0.0
    whose = _owner(given.pop("owner"), "--owner") if "owner" in given else None
    spec = replace(without_zeros(_spec(given)), command=sweep[0].argv, secret_env=tuple(sorted(secrets)))
    if not (wanted or given.keys() & {"gpus", "node", "on"} or spec.cores or spec.memory or spec.needs.exclusive):
        raise UsageError(
            "what does it need? Name GPUs, like node1::0 or 2xA100, or say --gpus 1, or --gpus 0 for none; "
            "agentless gpus shows what is free"
        )
    spec = replace(spec, terms=replace(spec.terms, start_at=start_at))
    several = max(1, len(wanted)) * len(sweep) > 1
    spec = replace(
        spec,
        uploads=tuple(located(each, outside.folder) for each in spec.uploads),
        outputs=tuple(brought_to(each, outside.folder, several=several) for each in spec.outputs),
    )
    for each in on_targets(spec, wanted):
        check_spec(each)
    check_secrets(secrets)
    if zipped and not sweep[0].parameters:
        raise UsageError("--zip is about spans, and there is none in the command; write one, like 'span:{1..3}'")
    if spec.terms.max_parallel is not None and len(wanted) < 2 and not sweep[0].parameters:
        raise UsageError("--max-parallel is about several tasks, and this is one; leave it out, or write a span")
    return Submission(spec, wanted, secrets, sweep, whose)


def _start_at(at: str | datetime | None, after: float | str | timedelta | None, now: float) -> float | None:
    if at is not None and after is not None:
        raise UsageError("--at and --in say the same in two ways; leave one of them out")
    if after is not None:
        if isinstance(after, str) and _reads(lambda: parse_future(after, now)):
            raise UsageError(f"--in {after!r} is a date; write --at {after}")
        return now + seconds(after, "--in")
    if at is None:
        return None
    if isinstance(at, datetime):
        return check_future(at.timestamp(), now, f"{at}")
    if not isinstance(at, str):
        raise UsageError(f"--at takes a text or a datetime, not {at!r}")
    if _reads(lambda: parse_duration(at)):
        raise UsageError(f"--at {at!r} is a time from now; write --in {at}")
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


def _spec(given: Mapping[str, Any]) -> TaskSpec:
    parts: dict[type, dict[str, Any]] = {TaskSpec: {}, Needs: {}, Terms: {}}
    for name, value in given.items():
        kind, option = _KINDS[name], f"--{name.replace('_', '-')}"
        for part, values in parts.items():
            known = {field.name for field in fields(part)}
            for field in {name, f"{name}s"} & known:
                values[field] = _read(kind, value, option)
    return TaskSpec((), **parts[TaskSpec], needs=Needs(**parts[Needs]), terms=Terms(**parts[Terms]))


def _read(kind: Any, value: Any, option: str) -> Any:
    if hasattr(kind, "__metadata__"):
        return kind.__metadata__[0](value, option)
    types = get_args(kind) or (kind,)
    is_flag = isinstance(value, bool) and bool not in types  # to Python, True is a number
    if is_flag or not isinstance(value, (*types, int) if float in types else types):
        raise UsageError(f"{option} takes {_WORDS[types[0]]}, not {value!r}")
    return value


def _variables(
    value: Mapping[str, str] | str | Iterable[str], option: str, environ: Mapping[str, str]
) -> dict[str, str]:
    if isinstance(value, Mapping):
        return _pairs(value, option)
    found = {}
    for text in texts(value, option):
        name, equals, word = text.partition("=")
        if not equals:
            if name not in environ:
                raise UsageError(f"{option} {name}: there is no such variable in your environment; write {name}=VALUE")
            word = environ[name]
        found[name] = word
    return found
