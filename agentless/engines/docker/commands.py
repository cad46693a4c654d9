"""Renders the commands of one node's engine. No I/O."""

from __future__ import annotations

import shlex

from agentless.engines.dialect import Dialect
from agentless.model.command import Command
from agentless.model.nodes.node import NodeConfig
from agentless.render import Renderer


class Commands:
    """Commands from templates, with the dialect's own template where it has one.

    `docker` are the words that call the engine, `quiet` those without its own warnings, and `locked` those in a script
    that holds the lock. A template gets the first ones, unless others are given.
    """

    def __init__(self, node: NodeConfig, renderer: Renderer, dialect: Dialect) -> None:
        self.node = node
        self.dialect = dialect
        self.docker = list(node.docker)
        self.quiet = [*node.docker, *dialect.quiet]
        self.locked = [*dialect.under_lock, *node.docker]
        self._renderer = renderer

    def argv(self, template: str, /, **values: object) -> list[str]:
        """The words of one command."""
        return self._renderer.words(self.dialect.template(template), **{"docker": self.docker, **values})

    def text(self, template: str, /, **values: object) -> str:
        """The text of a script."""
        return self._renderer.script(self.dialect.template(template), **{"docker": self.docker, **values})

    def words(self, template: str, /, *, timeout: float = 30.0, **values: object) -> Command:
        """One command as a script."""
        return Command(f"{self.dialect.prelude}{shlex.join(self.argv(template, **values))}\n", timeout=timeout)

    def script(self, template: str, /, *, timeout: float = 30.0, **values: object) -> Command:
        """A script."""
        return Command(f"{self.dialect.prelude}{self.text(template, **values)}\n", timeout=timeout)
