"""Reads the keys of one job: its command, and the options of `submit`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from typing import Any

from agentless.errors import UsageError
from agentless.formats.marked_yaml import Where, shown
from agentless.rules.submit.options import OPTIONS, Option
from agentless.rules.submit.task_request import Outside
from agentless.rules.workflows.keys import JOB_OPTIONS
from agentless.rules.workflows.others import Found, resources_of, volume_of
from agentless.rules.workflows.reading import Reading, Value

Given = Mapping[str, list[Value]]
"""The values of a job by key, from the most general one (of all jobs) to its own. Pairs are joined."""

PAIRS = ("env", "secret_env", "on", "label")
"""Keys with KEY=VALUE pairs."""
_OPERATOR = re.compile(r"(&&|\|\|?|;|[0-9]?>{1,2}.*|<.*)|.*;")
_ELSEWHERE = "write its name only, and set it in your environment; or use {NAME: {env: OTHER}} or {NAME: {file: PATH}}"


class JobReader:
    """Reads jobs. `runtimes` are envs by the names that jobs have for them; `notes` collect what was asked in vain."""

    def __init__(self, reading: Reading, outside: Outside, runtimes: Mapping[str, str]) -> None:
        self._reading = reading
        self._outside = outside
        self._runtimes = runtimes
        self.notes: dict[str, None] = {}

    def command(self, given: Given, names: Mapping[str, Any]) -> list[str]:
        """The words of the command; empty if there is none."""
        words: list[str] = []
        for key in ("command", "args"):
            for value in given.get(key, ())[-1:]:
                found = Value(self._reading.rendered(value, names), value.where)
                if key == "command" and isinstance(found.data, str):
                    words += self._split(found)
                else:
                    words += self._reading.words(found, "[python, train.py]")
        return words

    def options(self, given: Given, names: Mapping[str, Any]) -> dict[str, Any]:
        """The options of `submit` by their names in Python, each read once to tell what is wrong with it."""
        values: dict[str, Value] = {}
        for key, sources in given.items():
            if key in PAIRS:
                values[key] = Value(self._pairs(key, sources, names), sources[-1].where)
            elif key in JOB_OPTIONS or key in ("runtime", "resources", "uploads", "volumes", "target"):
                values[key] = Value(self._reading.rendered(sources[-1], names), sources[-1].where)
        self._translate(values)
        found: dict[str, Any] = {}
        for key, value in values.items():
            if key in JOB_OPTIONS and value.data is not None:
                option = JOB_OPTIONS[key]
                self._read(option, value, found)
        return found

    # ------------------------------------------------------------------ inside

    def _split(self, value: Value) -> list[str]:
        """The words of a command that is one text."""
        text = value.data.strip()
        if "\n" in text:
            self._reading.wrong(value.where, "has several lines; for a script, use [sh, -c, '…']")
            return []
        try:
            words = shlex.split(text)
        except ValueError:
            self._reading.wrong(value.where, "has no closing quote")
            return []
        if operator := next(filter(_OPERATOR.fullmatch, words), None):
            self._reading.wrong(value.where, f"no shell runs this, so {operator!r} has no meaning; use [sh, -c, '…']")
        return words

    def _translate(self, values: dict[str, Value]) -> None:
        """Replace keys of other systems by options."""
        if runtime := values.pop("runtime", None):
            name = runtime.data
            if isinstance(name, str):
                self._put(values, "container", Value(self._runtimes.get(name, name), runtime.where))
            elif name is not None:
                self._reading.wrong(runtime.where, f"is {shown(name)}; must be the name of a runtime")
        if resources := values.pop("resources", None):
            for each in resources_of(self._reading.mapping(resources, "{max_memory: 4096}")):
                if isinstance(each, Found):
                    self._take(values, each, resources.where)
                else:
                    self._reading.wrong((*resources.where, each[0]), each[1])
        if uploads := values.pop("uploads", None):
            data: Any = uploads.data
            if isinstance(data, dict):
                for key in data.keys() - {"files"}:
                    self._reading.unknown((*uploads.where, key), key, ["files"])
                data = data.get("files")
            words = self._reading.words(Value(data, uploads.where), "{files: [train.py]}")
            self._put(values, "upload", Value(words, uploads.where))
        if volumes := values.pop("volumes", None):
            words = [volume_of(each) for each in self._reading.words(volumes, "[data]")]
            self._put(values, "volume", Value(words, volumes.where))

    def _take(self, values: dict[str, Value], found: Found, where: Where) -> None:
        if found.note:
            self.notes[found.note] = None
        else:
            self._put(values, found.option, Value(found.value, (*where, found.key)))

    def _put(self, values: dict[str, Value], key: str, value: Value) -> None:
        if key in values and values[key].where[0] != "defaults":
            self._reading.wrong(value.where, f"{key} is set twice; keep one")
        values[key] = value

    def _pairs(self, key: str, sources: list[Value], names: Mapping[str, Any]) -> list[str] | dict[str, str]:
        joined: dict[str, str | None] = {}
        for value in sources:
            data = self._reading.rendered(value, names)
            if isinstance(data, dict):
                joined |= {name: self._pair(key, name, each, (*value.where, name)) for name, each in data.items()}
                continue
            for at, word in enumerate(self._reading.words(Value(data, value.where), "{KEY: VALUE}")):
                name, equals, text = word.partition("=")
                where = (*value.where, at) if isinstance(data, list) else value.where
                joined[name] = self._pair(key, name, text if equals else None, where)
        return [name if text is None else f"{name}={text}" for name, text in joined.items()]

    def _pair(self, key: str, name: str, value: Any, where: Where) -> str | None:
        """The value of a pair, None if the environment has it."""
        if key == "secret_env" and value is not None:
            return self._secret(value, where)
        if value is None and key not in ("env", "secret_env"):
            self._reading.wrong(where, f"{name[:60]} has no value")
        if value is not None and not isinstance(value, str):
            self._reading.wrong(where, f"is {shown(value)}; must be a text")
            return None
        return value

    def _secret(self, value: Any, where: Where) -> str:
        """The value of a secret that is somewhere else, empty if that is wrong."""
        if isinstance(value, dict) and len(value) == 1:
            ((kind, place),) = value.items()
            if kind == "env" and isinstance(place, str):
                if place in self._outside.environ:
                    return self._outside.environ[place]
                self._reading.wrong(where, f"{place[:60]} is not set in your environment")
                return ""
            if kind == "file" and isinstance(place, str):
                try:
                    return "\n".join(self._outside.read_lines(place)).strip("\n")
                except UsageError as error:
                    self._reading.wrong(where, str(error))
                    return ""
        self._reading.wrong(where, f"a secret has no value in a file: {_ELSEWHERE}")
        return ""

    def _read(self, option: Option, value: Value, found: dict[str, Any]) -> None:
        try:
            typed = _typed(option, value.data)
            if option.name in ("env", "secret_env"):
                for name in value.data:
                    if "=" not in name and name not in self._outside.environ:
                        self._reading.wrong(value.where, f"{name[:60]} is not set in your environment")
                        return
            elif option.name not in ("at", "after"):
                option.read(typed)
            found[option.name] = typed
        except UsageError as error:
            self._reading.wrong(value.where, in_file_words(str(error)))


def _typed(option: Option, data: Any) -> Any:
    """The value as its option takes it. Raises UsageError."""
    if option.many:
        if isinstance(data, str) or (isinstance(data, list) and all(isinstance(each, str) for each in data)):
            return data
        raise UsageError(f"is {shown(data)}; must be a text, or a list of texts")
    if isinstance(data, list) and all(isinstance(each, str) for each in data) and option.metavar == "TYPE,...":
        return data
    if not isinstance(data, str):
        raise UsageError(f"is {shown(data)}; must be a single value")
    if option.reader is not None or str in option.types:
        return data
    if bool in option.types:
        if data not in ("true", "false"):
            raise UsageError(f"is {data[:60]!r}; must be true or false")
        return data == "true"
    kind = float if float in option.types else int
    try:
        return kind(data) if re.fullmatch(r"-?[0-9]{1,15}(\.[0-9]{1,15})?", data) else kind("")
    except ValueError:
        words = "number" if kind is float else "whole number"
        raise UsageError(f"is {data[:60]!r}; must be a {words}") from None


_FLAG = re.compile(r"--[a-z][a-z-]*")
_KEYS = {option.flag: option.flag[2:].replace("-", "_") for option in OPTIONS.values()}


def in_file_words(message: str) -> str:
    """A message about options, with the names that they have in files."""
    return _FLAG.sub(lambda found: _KEYS.get(found[0], found[0]), message)
