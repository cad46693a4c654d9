"""What becomes of an answer that makes no sense: nothing that a node says may be more than its own failure."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from agentless.errors import RuntimeFailed
from agentless.model.nodes.node import NodeConfig


class _OfNode(Protocol):
    _node: NodeConfig


_S = TypeVar("_S", bound=_OfNode)
_P = ParamSpec("_P")
_R = TypeVar("_R")
_UNREADABLE = (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError, StopIteration)


def parser(method: Callable[Concatenate[_S, _P], _R]) -> Callable[Concatenate[_S, _P], _R]:
    """A method that parses a node's answer; one that it stumbles over is RuntimeFailed."""

    @functools.wraps(method)
    def parse(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(self, *args, **kwargs)
        except _UNREADABLE:
            raise RuntimeFailed(f"{self._node.name} gave an answer that cannot be read") from None

    return parse
