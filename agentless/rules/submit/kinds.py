"""The kinds of values of options, and how each is parsed.

A kind is `Annotated[TYPE, READER]`: the type in Python, and a function that parses a value. Its second argument is the
flag, with which its errors begin.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Annotated, TypeVar

from agentless.errors import UsageError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.notify import parse_events
from agentless.model.owner import check_owner
from agentless.model.scheduling.needs import parse_gpu_types
from agentless.model.scheduling.overflow import parse_overflow
from agentless.model.tasks.port import Port, parse_port
from agentless.model.tasks.requirement import Requirement, parse_requirements
from agentless.model.tasks.spec import Mount, Volume, parse_mount, parse_volume
from agentless.model.tasks.terms import OnPreempt, parse_on_preempt, parse_retry_on, parse_signal
from agentless.model.units import GPU_MEMORY, MEMORY, SHM, Sizes, parse_duration, parse_size
from agentless.rules.files.file_options import parse_output, parse_upload

Number = TypeVar("Number", int, float)


def parse_seconds(value: float | str | timedelta, option: str) -> float:
    """Seconds: a number is seconds, a text is read by `parse_duration`."""
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


def _events(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    return parse_events(",".join(texts(value, option)))


def _overflow(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    return parse_overflow(",".join(texts(value, option)))


def _on_preempt(value: str, option: str) -> OnPreempt:
    return parse_on_preempt(_text(value, option))


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


def _ports(value: int | str | Iterable[int | str], option: str) -> tuple[Port, ...]:
    found = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    words = texts([str(each) if type(each) is int else each for each in found], option)  # type: ignore[misc]
    try:
        return tuple(map(parse_port, words))
    except UsageError as error:
        raise UsageError(f"{option} {error}") from None


def _requires(value: str | Iterable[str], option: str) -> tuple[Requirement, ...]:
    return parse_requirements(texts(value, option), option)


def _requires_batches(value: str | Iterable[str], option: str) -> tuple[Requirement, ...]:
    return parse_requirements(texts(value, option), option, batch=True)


def texts(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    """One text, or several; raises UsageError for anything else."""
    found = (value,) if not isinstance(value, Iterable) or isinstance(value, str) else tuple(value)
    for text in found:
        if not isinstance(text, str):
            raise UsageError(f"{option} must be a string, not {text!r}")
    return found


def _nodes(value: str | Iterable[str], option: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(texts(value, option)))


def read_pairs(value: Mapping[str, str] | str | Iterable[str], option: str) -> dict[str, str]:
    """The pairs of a mapping, or of texts like `KEY=VALUE`."""
    if isinstance(value, Mapping):
        texts((*value.keys(), *value.values()), option)
        return dict(value)
    found = dict[str, str]()
    for text in texts(value, option):
        key, equals, word = text.partition("=")
        if not equals or not key:
            hint = f"; for a node or a cluster, use --node {text}" if option == "--on" and not equals else ""
            raise UsageError(f"{option} {text!r}: use KEY=VALUE{hint}")
        if found.setdefault(key, word) != word:
            raise UsageError(f"{option} {key} has two values, {found[key]} and {word}; keep one")
    return found


Time = Annotated[float | str | timedelta | None, parse_seconds]
"""Seconds, or a text like `8h`."""
Memory = Annotated[int | str | None, _size(MEMORY)]
"""A text like `16GiB`, or megabytes; so are the other sizes."""
ShmSize = Annotated[int | str | None, _size(SHM)]
GpuMemory = Annotated[int | str | None, _size(GPU_MEMORY)]
GpuTypes = Annotated[str | Iterable[str] | None, _gpu_types]
Signal = Annotated[str | None, _signal]
Endings = Annotated[str | Iterable[str] | None, _retry_on]
Events = Annotated[str | Iterable[str] | None, _events]
Overflows = Annotated[str | Iterable[str] | None, _overflow]
Policy = Annotated[str | None, _policy]
OnPreempts = Annotated[str | None, _on_preempt]
Owner = Annotated[str | None, _owner]
Texts = Annotated[str | Iterable[str] | None, texts]
Nodes = Annotated[str | Iterable[str] | None, _nodes]
Mounts = Annotated[str | Iterable[str] | None, _mounts]
Uploads = Annotated[str | Iterable[str] | None, _uploads]
Outputs = Annotated[str | Iterable[str] | None, _outputs]
Ports = Annotated[int | str | Iterable[int | str] | None, _ports]
Requires = Annotated[str | Iterable[str] | None, _requires]
"""Texts like `2mxf`, `2mxf:failed`, or several with commas."""
RequiresBatches = Annotated[str | Iterable[str] | None, _requires_batches]
Volumes = Annotated[str | Iterable[str] | None, _volumes]
Pairs = Annotated[Mapping[str, str] | str | Iterable[str] | None, read_pairs]
"""A mapping, or texts like `rack=a`."""
