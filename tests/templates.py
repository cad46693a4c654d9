"""Templates are compiled once in a process: a test makes parts anew that a controller makes once."""

from __future__ import annotations

import functools
from types import CodeType

import jinja2
from jinja2.bccache import Bucket

from agentless.paths import template_dir
from agentless.render import Renderer


class Compiled(jinja2.BytecodeCache):
    """By what stands in them, so that one that was changed is compiled anew."""

    def __init__(self) -> None:
        self._codes: dict[tuple[str, str], CodeType] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        bucket.code = self._codes.get((bucket.key, bucket.checksum))

    def dump_bytecode(self, bucket: Bucket) -> None:
        if bucket.code:
            self._codes[bucket.key, bucket.checksum] = bucket.code


def compile_once() -> None:
    """From now on, in this process and in those that it forks."""
    made = functools.partialmethod(jinja2.Environment.__init__, bytecode_cache=Compiled())
    jinja2.Environment.__init__ = made  # type: ignore[method-assign, assignment]


def compile_all() -> None:
    """Likewise, and now."""
    compile_once()
    environment = Renderer([template_dir()])._environment
    for file in template_dir().rglob("*.j2"):
        environment.get_template(file.name)
