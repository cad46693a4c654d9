"""The options of a submit as parameters of a verb, for typer to read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar

import typer

from agentless.cli import complete
from agentless.rules.submit.options import Option

Verb = TypeVar("Verb", bound=Callable[..., Any])


def with_options(**places: Iterable[Option]) -> Callable[[Verb], Verb]:
    """Give a verb that takes `**options` a parameter for each of these, in front of its parameter of that name."""

    def decorate(verb: Verb) -> Verb:
        found: list[Parameter] = []
        for own in signature(verb, eval_str=True).parameters.values():
            found += map(_parameter, places.get(own.name, ()))
            if own.kind is not Parameter.VAR_KEYWORD:
                found.append(own)
        verb.__signature__ = Signature(found)  # type: ignore[attr-defined]
        verb.__annotations__ = {each.name: each.annotation for each in found}
        return verb

    return decorate


def _parameter(option: Option) -> Parameter:
    kind: Any = list[option.argument_type] if option.many else option.argument_type  # type: ignore[name-defined]
    info = typer.Option(
        *option.flags,
        metavar=option.metavar,
        help=option.help,
        rich_help_panel=option.panel,
        autocompletion=getattr(complete, option.completes) if option.completes else None,
    )
    optional = kind if option.default is not None else kind | None
    return Parameter(option.name, Parameter.KEYWORD_ONLY, default=option.default, annotation=Annotated[optional, info])
