"""What the forms say: their fields, made from the options, and the submission that they ask for."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from agentless.client.files.span_files import read_lines
from agentless.errors import UsageError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.scheduling.needs import is_counted, parse_target
from agentless.model.tasks.spec import check_variable
from agentless.model.tasks.workload import WorkloadName
from agentless.model.text import enumerated
from agentless.paths import current_dir
from agentless.rules.submit.cluster import is_place_alone, joined
from agentless.rules.submit.options import OPTIONS, PANELS, Option, Options, options_of
from agentless.rules.submit.task_request import Outside, TaskRequest, task_request
from agentless.tui.data.cluster import Row
from agentless.tui.data.local_files import in_time
from agentless.tui.data.quoted import as_written, words_of

Shape = Literal["line", "lines", "command", "secrets", "flag"]
"""How a field is typed: in a line, in lines of which each is a value, or as a yes or no."""


@dataclass(frozen=True, slots=True)
class FormField:
    """A field: its label, what it shows while it is empty, and the sentence about it."""

    name: str
    label: str
    hint: str
    help: str
    shape: Shape = "line"


@dataclass(frozen=True, slots=True)
class FormKind:
    """A kind of form. `own` are the fields that are no options; `first` names those that it begins with.

    `needed` are the fields to begin with. `verb` is what it does, in two forms, and `view` shows what it has made.
    """

    workload: WorkloadName
    view: str
    verb: str
    doing: str
    own: tuple[FormField, ...]
    first: tuple[str, ...]
    needed: tuple[str, str]

    @property
    def fields(self) -> tuple[FormField, ...]:
        """All fields: those that are always shown, then the others."""
        return (*self.shown, *(field for panel in self.panels.values() for field in panel))

    @property
    def shown(self) -> tuple[FormField, ...]:
        """The fields that are always shown: those that it begins with, then those of all common options."""
        known = {field.name: field for field in self.own} | {name: _field(OPTIONS[name]) for name in self._common()}
        return tuple(known[name] for name in dict.fromkeys((*self.first, *known)))

    @property
    def panels(self) -> Mapping[str, tuple[FormField, ...]]:
        """The other fields, by the heading of their panel."""
        others = [option for option in options_of(self.workload) if not option.common]
        found = {panel: tuple(_field(each) for each in others if each.panel == panel) for panel in PANELS}
        return {panel: fields for panel, fields in found.items() if fields}

    def _common(self) -> Iterator[str]:
        for panel in PANELS:
            yield from (each.name for each in options_of(self.workload) if each.common and each.panel == panel)


_LABELS_OF = {
    "container": "env", "env": "variables", "secret_env": "secrets", "at": "start at", "after": "start in",
    "on": "node labels", "gang": "node count",
}  # fmt: skip
"""The labels of options that are called otherwise than their flag."""
_HELP = {
    "launcher": "What starts the command on several nodes: torchrun, mpirun or none (default: none)",
    "no_queue": "Start now, or refuse it",
    "port": "A port of the task, like 8888 or 8888:9999; P in the dashboard forwards it to this machine",
    "public_key_string": "Let the owners of these public keys enter by ssh, over their controllers: one per line",
}
"""The sentences of options whose help is about the command line."""
_SHAPES: Mapping[str, Shape] = {"env": "lines", "secret_env": "secrets", "public_key_string": "lines"}


def _label(option: Option) -> str:
    return _LABELS_OF.get(option.name, option.flag[2:].replace("-", " ").replace("gpu", "GPU").replace("ssh", "SSH"))


_LABELS = {flag: _label(option) for option in OPTIONS.values() for flag in option.flags if flag.startswith("--")} | {
    "--target": "where",
    "--command": "command",
}


def in_fields(text: str, target: str = "") -> str:
    """The text with the labels of fields in place of options such as `--time-limit`.

    Where `target` says how many GPUs, so does its field in place of `--gpus 2`: `where 2xA100`.
    """
    place, blank, request = target.rpartition(" ")
    if is_counted(request) or "::" in request:
        rest = request[request.lower().index("x") + 1 :] if is_counted(request) else ""
        text = re.sub(r"(?<!\S)--gpus (\d+)", lambda found: f"--target {place}{blank}{found[1]}x{rest}", text)
    return re.sub(r"(?<!\S)--[a-z-]+", lambda found: _LABELS.get(found[0], found[0]), text)


def _field(option: Option) -> FormField:
    about = _HELP.get(option.name) or in_fields(option.help)
    shape: Shape = "flag" if option.argument_type is bool else _SHAPES.get(option.name, "line")
    label = _label(option)
    hint = option.hint or enumerated(option.choices, "or") or about
    return FormField(option.name, label[0].upper() + label[1:], hint, about, shape)


_WHERE = FormField(
    "target",
    "Where",
    "node1::0, 2xA100:40G or 1x; several: one task each",
    "GPUs of a node (node1::0,1), or any GPUs (2x, 2xA100:40G); node1 alone: none. Several become a task each",
)
_COMMAND = "The command, as you would type it in a shell"
TASK = FormKind(
    "task",
    "tasks",
    "Submit",
    "Submitting",
    (
        _WHERE,
        FormField(
            "command",
            "Command",
            "python train.py --lr 0.1; span:[0.1,0.01] makes a sweep",
            f"{_COMMAND}; span:[0.1,0.01] in it makes a sweep, a task for each value",
            "command",
        ),
    ),
    ("target", "command", "image", "container", "name"),
    ("target", "command"),
)
VPS = FormKind(
    "vps",
    "vps",
    "Create",
    "Creating",
    (
        FormField(
            "name", "Name", "its host name: ssh NAME.agentless", "Its name, also of its host: ssh NAME.agentless"
        ),
        FormField(
            "target", "Where", "node1::0, 2xA100:40G or 1x", _WHERE.help.removesuffix(". Several become a task each")
        ),
        FormField(
            "command",
            "Command",
            "optional; without one it waits for you to log in",
            f"{_COMMAND}; without one it waits for you to log in",
            "command",
        ),
    ),
    ("name", "target", "command", "image", "container"),
    ("name", "target"),
)

_FIRST_WORDS = {
    "target": "target", "command:": "command", "name": "name", "variable": "env", "label": "label",
    "secret": "secret_env", "mount": "mount", "volume": "volume", "port": "port",
}  # fmt: skip
"""The field that a sentence is about which names no option, by its first word."""
_BY_FLAG = {flag: option.name for option in OPTIONS.values() for flag in option.flags}
_LARGEST_FILE = 1 << 20
"""Bytes of a file with values, which is read at each check."""
_NO_PLACE = "No resources requested: enter GPUs in Where, like node1::0 or 2xA100"


def checked(
    kind: FormKind, values: Mapping[str, str], *, preview: bool = False
) -> tuple[TaskRequest | None, dict[str, str]]:
    """The submission that the fields ask for, or by field a sentence about what is wrong; "" is no field of the form.

    For a `preview`, something stands in for a command or a name that is not written yet.
    """
    options, wrong = Options(), dict[str, str]()
    for field in kind.fields:
        text = values.get(field.name, "").strip()
        if text and (field.name in OPTIONS and (kind is TASK or field.name != "name")):
            try:
                options[field.name] = _read(OPTIONS[field.name], text)  # type: ignore[literal-required]
            except UsageError as error:
                wrong[field.name] = in_fields(str(error))
    named = values.get("target", "").split()
    targets = joined(named, [*filter(is_place_alone, named)])  # in a form, `hpc 2x` is one place
    words: tuple[str, ...] = ()
    try:
        for target in targets:
            parse_target(target)
        if kind is VPS and len(targets) > 1:
            raise UsageError("Where: a VPS has one place; enter one, like node1::0 or 2xA100")
    except UsageError as error:
        wrong["target"] = in_fields(str(error))
    try:
        words = words_of(values.get("command", ""))
    except UsageError as error:
        wrong["command"] = f"command: {error}"
    if kind is VPS and not (name := values.get("name", "").strip()) and not preview:
        wrong["name"] = "Enter a name"
    elif kind is VPS:
        options["name"] = name or "x"
    if kind is TASK and not words and not preview:
        wrong.setdefault("command", "Enter a command")
    if wrong:
        return None, wrong
    outside = Outside(time.time(), os.environ, lambda path: in_time(path, lambda: _lines_of(path)), current_dir())
    workload = None if kind is TASK else kind.workload
    try:
        return task_request(words or (("true",) if kind is TASK else ()), targets, options, outside, workload), {}
    except UsageError as error:
        filled = [name for name, text in values.items() if text.strip()]
        return None, _placed(kind, str(error), filled)


def _lines_of(path: str) -> list[str]:
    """The lines of a file that a span names. A pipe would wait for its writer, at each key."""
    with contextlib.suppress(OSError, ValueError):  # told by `read_lines`
        about = os.stat(os.path.expanduser(path))
        if not stat.S_ISREG(about.st_mode):
            raise UsageError(f"{path} is not a regular file; the form reads no other")
        if about.st_size > _LARGEST_FILE:
            raise UsageError(f"{path} has more than 1 MiB; use agentless submit, which reads larger files")
    return read_lines(path)


def _placed(kind: FormKind, message: str, filled: list[str]) -> dict[str, str]:
    """The sentence, by the field that it is about: of several, one that is filled in."""
    if message.startswith("no resources requested"):
        return {"target": _NO_PLACE}
    names = {field.name for field in kind.fields}
    about = ["secret_env"] if "be a secret" in message else []
    about += [_BY_FLAG.get(flag, "") for flag in re.findall(r"--[a-z-]+", message)]
    about += [_FIRST_WORDS.get(message.split(maxsplit=1)[0], "command" if "span" in message else "")]
    meant = [name for name in about if name in names]
    field = next((name for name in meant if name in filled), next(iter(meant), ""))
    return {field: in_fields(message)}


def _read(option: Option, text: str) -> Any:
    """The value of an option as Python takes it; what its kind refuses is refused here."""
    if option.argument_type is bool:
        return True
    if option.name == "secret_env":
        return _secrets(text)
    if option.name in _SHAPES:
        return [as_written(line.strip()) for line in text.split("\n") if line.strip()]
    value: Any = text
    if option.many:
        try:
            value = words_of(text)
        except UsageError as error:
            raise UsageError(f"{option.flag}: {error}") from None
        if option.name == "upload":
            value = [os.path.expanduser(each) for each in value]
    elif option.argument_type in (int, float):
        try:
            value = option.argument_type(text)
        except ValueError:
            number = "a whole number" if option.argument_type is int else "a number"
            raise UsageError(f"{option.flag} {text!r} is not {number}") from None
    option.read(value)
    return value


def _secrets(text: str) -> list[str]:
    """The secrets; what is wrong is told by the line, for any part of it may be of a value."""
    found: list[str] = []
    for at, line in enumerate(text.split("\n"), 1):
        name, sign, value = line.strip().partition("=")
        if not (name or sign):
            continue
        where = f"secrets, line {at}"
        if not is_name(name):
            raise UsageError(f"{where}: use NAME=VALUE; a value of several lines is $'one\\ntwo'")
        check_variable(name)
        if not sign and name not in os.environ:
            raise UsageError(f"{where}: not set in your environment; use NAME=VALUE")
        if sign and found and not value.strip("="):
            raise UsageError(f"{where}: no value; if the line belongs to the one above, use $'one\\ntwo'")
        try:
            found.append(as_written(line.strip()))
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
    return found


def is_name(text: str) -> bool:
    """Whether a variable can have this name."""
    return re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", text) is not None


def with_files_of(asked: TaskRequest, like: Mapping[str, Any] | None) -> TaskRequest:
    """The submission with the files of the task that it is `like`, as they were."""
    if not like:
        return asked
    uploads = {(each["source"], each["target"]): Upload(**each) for each in like["uploads"]}
    outputs = {(each["path"], each["local"]): Output(**each) for each in like["outputs"]}
    spec = replace(
        asked.spec,
        uploads=tuple(uploads.get((each.source, each.target), each) for each in asked.spec.uploads),
        outputs=tuple(outputs.get((each.path, each.local), each) for each in asked.spec.outputs),
    )
    return replace(asked, spec=spec)


def previews_of(asked: TaskRequest) -> list[Row]:
    """The requests by which it is explained, one for each target; they have no values of secrets."""
    request = asked.request() | {"secrets": {}, "sweep": [], "each": False}
    if asked.spec.gang or len(asked.targets) < 2:
        return [request]
    return [request | {"targets": [target]} for target in asked.targets]
