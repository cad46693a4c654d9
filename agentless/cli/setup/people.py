"""The people of `agentless demo`: owners who submit tasks, and what goes wrong on their nodes, for as long as it is up.

What they do at the start is always the same. Then a short task follows whenever few wait, and one node leaves for a
minute now and then.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence
from itertools import chain, count, cycle, islice
from types import TracebackType
from typing import NamedTuple, Self

from agentless import paths
from agentless.api.cluster import Cluster
from agentless.errors import AgentlessError
from agentless.model.owner import owner_of

SICK = "node1::7"
"""Not on a single node: somebody outside agentless has its last GPU."""
OWNERS = ("ann", "ben", "chloe", "dan", "emma")
_LOOKS = 5.0
"""Seconds between two looks at what waits."""
_WAITING = 4
"""So many tasks wait at most when another one is submitted."""
_LEAVES_EVERY, _AWAY = 360.0, 60.0
_FIRST_LEAVE = 100.0


class Wish(NamedTuple):
    """A task that somebody submits: `train` runs `command` for so many seconds."""

    owner: str
    name: str
    target: str
    command: str
    seconds: int


OPENING = {
    1: (
        Wish("ann", "pretrain-llama", "node1::2,3", "pretrain llama-8b", 9000),
        Wish("ben", "eval-mmlu", "node1::6", "eval mmlu", 150),
    ),
    2: (
        Wish("chloe", "serve-chat", "node2::0", "serve chat-13b", 40000),
        Wish("ben", "finetune-mistral", "node2::1,2", "finetune mistral-7b", 2400),
    ),
    3: (Wish("dan", "notebook-dan", "node3::0", "notebook explore", 7200),),
    4: (
        Wish("emma", "notebook-emma", "node4::0/0", "notebook protein", 5400),
        Wish("dan", "eval-small", "node4::0/2", "eval small", 1500),
    ),
}
"""What runs from the start on, by the number of the node."""
YOURS = "node1::0,1"
"""GPUs that are reserved for who watches."""
LATER = (
    Wish("emma", "finetune-vit", "node1::4,5", "finetune vit-large", 1500),
    Wish("ann", "pretrain-moe", "8x", "pretrain moe-16x7b", 14000),
    Wish("chloe", "train-unet", "2xA100", "train unet", 1800),
)
_SHORT = (("finetune", "bert", 240), ("eval", "gsm8k", 100), ("train", "resnet50", 300), ("eval", "humaneval", 140))


def sizes(nodes: int) -> list[str]:
    """How many GPUs each node has; `mig` is one GPU in slices."""
    return [*islice(chain(("8", "4", "1", "mig"), cycle(("4", "8", "2"))), nodes)]


def is_away(since: float) -> bool:
    """Whether node3 is away, so many seconds after the start."""
    return since >= _FIRST_LEAVE and (since - _FIRST_LEAVE) % _LEAVES_EVERY < _AWAY


def opening(nodes: int) -> list[Wish]:
    """What runs from the start on: on nodes after the fourth, more of the same."""
    found = [wish for number in range(1, min(nodes, 4) + 1) for wish in OPENING[number]]
    models = ("llama-8b", "mamba-3b", "diffusion-xl", "whisper", "gemma-9b")
    for number in range(5, nodes + 1):
        owner, model = OWNERS[number % len(OWNERS)], models[number % len(models)]
        what = ("train", "pretrain", "finetune")[number % 3]
        gpus = {"4": "0-1", "8": "0-5", "2": "0"}[sizes(number)[-1]]
        found.append(
            Wish(owner, f"{what}-{number}", f"node{number}::{gpus}", f"{what} {model}", 900 + 700 * (number % 7))
        )
    return found


class People:
    """They work on the nodes for the time of a `with`. `tell` takes the lines that unplug a node."""

    YOURS = "GPUs 0 and 1 of node1"
    TROUBLE = "GPU 7 of node1 is sick, and node3 leaves for a minute now and then."

    def __init__(self, nodes: int, tell: Callable[[str], None]) -> None:
        self._nodes = nodes
        self._tell = tell
        self._cluster = Cluster()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._thread:
            self._thread.join()

    def begin(self) -> None:
        """Submit what runs from the start on; a GPU is sick."""
        if self._nodes > 1:
            self._tell(f"sicken {SICK.replace('::', ' ')}")
        self._submit(opening(self._nodes))

    def foreign(self) -> str:
        """A GPU that somebody uses outside agentless, as a target."""
        return next(f"{gpu.node}::{gpu.index}" for gpu in self._cluster.gpus() if gpu.state == "foreign")

    def go_on(self) -> None:
        """Submit more from now on, in a thread, but leave some GPUs to who watches."""
        you = owner_of(os.environ) or paths.user_name()
        with contextlib.suppress(AgentlessError):  # the controller may have been stopped by a person
            self._cluster.reserve(YOURS, owner=you, begin="0s", end="12h", reason="kept free for you")
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        began, away = time.monotonic(), False
        self._submit(LATER)
        for number in count():
            if self._over.wait(_LOOKS):
                break
            if self._nodes >= 3 and away != (away := is_away(time.monotonic() - began)):
                self._tell("unplug node3" if away else "plug node3")
            if self._waiting() < _WAITING:
                what, model, seconds = _SHORT[number % len(_SHORT)]
                owner = OWNERS[number % len(OWNERS)]
                self._submit([Wish(owner, f"{what}-{model}", "1x", f"{what} {model}", seconds)])

    def _waiting(self) -> int:
        with contextlib.suppress(AgentlessError):
            return sum(task.state == "pending" for task in self._cluster.tasks())
        return _WAITING

    def _submit(self, wishes: Sequence[Wish]) -> None:
        for each in wishes:
            # A node may be away, and the controller may have been stopped by a person.
            with contextlib.suppress(AgentlessError):
                self._cluster.submit(
                    "train", *each.command.split(), "--steps", str(each.seconds),
                    target=each.target, name=each.name, owner=each.owner, time_limit=f"{each.seconds + 120}s",
                    cores=4, memory="16G",
                )  # fmt: skip
