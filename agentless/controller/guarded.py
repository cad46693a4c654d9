"""Guards one of several pieces of work: its failure does not stop the others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from agentless.errors import AgentlessError, StateError

_log = logging.getLogger(__name__)


def failed(what: str, error: Exception) -> None:
    """Log the failure of a piece of work under its name."""
    if isinstance(error, AgentlessError):
        _log.warning("%s: %s", what, error)
    else:
        _log.error("%s: unexpected error", what, exc_info=error)


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Log a failure under the name of the work, and continue."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the others have their turn
        failed(what, error)


@contextmanager
def guarded_item(what: str) -> Iterator[None]:
    """Likewise for one item of a loop, but raise StateError: a full disk concerns all items."""
    full = None
    with guarded(what):
        try:
            yield
        except StateError as error:
            full = error
    if full is not None:
        raise full
