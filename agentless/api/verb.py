"""Methods that are written once and can also be awaited: `task.wait()` and `await task.wait.aio()`.

An awaited call runs in a thread of its own, so any number of them can wait at the same time. Cancelling breaks off its
request and ends the thread; what was asked for goes on, as after Ctrl-C.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import islice
from types import MethodType
from typing import Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

from agentless import errors
from agentless.api.arguments import check_arguments
from agentless.client.http import RequestFailed

S = TypeVar("S")
P = ParamSpec("P")
R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class _Bound(Generic[P, R_co]):
    """A method of one object, with the signature of the plain one."""

    def __init__(self, plain: Callable[P, R_co]) -> None:
        self.__wrapped__ = plain
        self.__doc__ = plain.__doc__


class BoundVerb(_Bound[P, R_co]):
    """A method that returns one answer."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        check_arguments(self.__wrapped__, args, kwargs)
        with _named_errors():
            return self.__wrapped__(*args, **kwargs)

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Ask without blocking the event loop."""
        from agentless.api.thread import Thread  # noqa: PLC0415 - plain calls need no asyncio

        with Thread() as thread:
            return await thread.run(lambda: self(*args, **kwargs))


class BoundStream(_Bound[P, Iterator[R]]):
    """A method that yields answers."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        check_arguments(self.__wrapped__, args, kwargs)
        return self._things(*args, **kwargs)

    def _things(self, *args: P.args, **kwargs: P.kwargs) -> Iterator[R]:
        with _named_errors():
            yield from self.__wrapped__(*args, **kwargs)

    async def aio(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[R]:
        """Yield each answer as it arrives, without blocking the event loop."""
        from agentless.api.thread import Thread  # noqa: PLC0415 - plain calls need no asyncio

        with Thread() as thread:
            things = self(*args, **kwargs)
            while found := await thread.run(lambda: list(islice(things, 1))):
                yield found[0]


class _Descriptor(Generic[S, P, R]):
    def __init__(self, method: Callable[Concatenate[S, P], R]) -> None:
        self.__wrapped__ = method
        self.__name__ = method.__name__
        self.__doc__ = method.__doc__


class Verb(_Descriptor[S, P, R]):
    """Decorates a method that returns one answer."""

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: S, owner: Any) -> BoundVerb[P, R]: ...
    def __get__(self, instance: S | None, owner: Any) -> Self | BoundVerb[P, R]:
        return self if instance is None else BoundVerb(MethodType(self.__wrapped__, instance))


class StreamVerb(_Descriptor[S, P, Iterator[R]]):
    """Decorates a method that yields answers."""

    @overload
    def __get__(self, instance: None, owner: Any) -> Self: ...
    @overload
    def __get__(self, instance: S, owner: Any) -> BoundStream[P, R]: ...
    def __get__(self, instance: S | None, owner: Any) -> Self | BoundStream[P, R]:
        return self if instance is None else BoundStream(MethodType(self.__wrapped__, instance))


@contextlib.contextmanager
def _named_errors() -> Iterator[None]:
    """Raise the controller's errors as their own classes."""
    try:
        yield
    except RequestFailed as error:
        raise errors.error_named(error.error, str(error), error.exit_code) from None
