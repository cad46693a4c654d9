"""What the launch scripts of all engines have in common: values, exit codes, and the errors that these mean."""

from __future__ import annotations

import base64
import gzip
import posixpath
import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from agentless.engines import beside
from agentless.engines.dialect import Dialect
from agentless.errors import AgentlessError, Held, NoAnswer, NodeBroken, NodeUnfit, Refused, RuntimeFailed, Unseen
from agentless.formats.tar_writing import END, file, header
from agentless.model.command import Result, escaped
from agentless.model.nodes.complaint import Blame
from agentless.model.nodes.device import GpuNumber
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.gang import HOSTFILE, Gang
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Placement, Task
from agentless.rules.nodes import container_limits
from agentless.rules.tasks.settings import folders

_MAX_LABELS = container_limits.SPEC + 16 * container_limits.WORDS
LOCK_WAIT = 20
"""Seconds a launch waits for other launches on the same node."""
WITHIN = LOCK_WAIT + 100.0
"""Seconds for a launch, with the wait for the lock."""
HELD, LOCKED, UNLISTED, UNCLEAR, OTHER_IMAGE = 75, 76, 77, 78, 79
"""Exit codes, as `docker-launch.sh.j2` and `systemd-launch.sh.j2` have them."""
_ANSWER = re.compile(rb"^([1-9][0-9]{0,3})([|=])(.*)$", re.MULTILINE)


def check_secrets_are_there(spec: TaskSpec, secrets: Mapping[str, str]) -> None:
    """Raise RuntimeFailed if the value of a secret of the task is gone."""
    if missing := sorted(set(spec.secret_env).difference(secrets)):
        raise RuntimeFailed(f"the value of secret {missing[0]} has been deleted; submit the task again")


def variables(
    task: Task, placement: Placement, node: NodeConfig, spec: TaskSpec, reserved: Sequence[str]
) -> dict[str, str]:
    """The variables of a task, with those that tell it who and where it is; `spec` has the settings of its node.

    No variable of the inventory replaces one by which GPUs are given; their names begin with the `reserved` ones.
    """
    return {
        "AGENTLESS_TASK_ID": task.id,
        "AGENTLESS_NODE": placement.node,
        "AGENTLESS_GPUS": ",".join(map(str, placement.gpus)),
        **folders(spec, node),
        **(spec.gang.variables(on_host=spec.network == "host") if spec.gang else {}),
        **{name: value for name, value in spec.env.items() if not name.startswith(tuple(reserved))},
    }


def packed(labels: Mapping[str, str]) -> str:
    """Labels as one word, where an engine has no place for them."""
    return base64.urlsafe_b64encode(zlib.compress(orjson.dumps(labels), 9)).decode()


def unpacked(word: str) -> dict[str, str]:
    """The labels in such a word, which anybody may have written; empty if they make no sense or are too long."""
    try:
        labels = orjson.loads(zlib.decompressobj().decompress(base64.urlsafe_b64decode(word), _MAX_LABELS))
        return {key: value for key, value in labels.items() if isinstance(value, str)}
    except (AttributeError, ValueError, zlib.error):
        return {}


def gang_files(gang: Gang | None) -> str:
    """The files of a gang's member as a tar archive, as a word for `printf %b`; empty if it has none."""
    if gang is None or not gang.peers:
        return ""
    folder = header(posixpath.dirname(HOSTFILE)[1:], "folder", mode=0o755)
    archive = folder + file(HOSTFILE[1:], gang.hostfile.encode()) + END
    return escaped(gzip.compress(archive, mtime=0)).decode()


def lock_values(dialect: Dialect, node: NodeConfig, gpus: Sequence[str], listed: Sequence[str] = ()) -> dict[str, Any]:
    """The template values for the lock, and for seeing who else claims these GPUs on the node.

    `dialect` is that of the node's container engine. If `listed` has lines, it is not asked for its containers.
    """
    return {
        "docker": [*dialect.under_lock, *node.docker],
        "lock_wait": LOCK_WAIT,
        "listed": listed,
        "live": dialect.template("docker-live.sh.j2"),
        "live_format": f"{dialect.signed}|{dialect.formats.live}",
        **beside.asking(node, dialect),
        "named_gpus": beside.group_names(gpus),
    }


def check_claims(task: Task, node: NodeConfig, result: Result) -> None:
    """Raise the error of a failed launch if it is about the lock or about other claims, as `parse_launch` does."""
    if result.exit_code == HELD:
        raise Held(_held(task, node, result.out))
    if result.exit_code == beside.UNSEEN and (unseen := beside.unseen(node, result.out)):
        raise Unseen(unseen)
    if result.exit_code == LOCKED:
        raise Refused(f"{node.name}: other launches locked this node for {LOCK_WAIT} s; retry")
    if result.exit_code == UNCLEAR or result.exit_code > 127:
        raise NoAnswer(f"{node.name} may have started task {task.id}: the launch was interrupted")


def answers(count: int, result: Result) -> list[Result]:
    """Split the answer to a script of `count` launches into one answer each."""
    found = answered(count, result.stdout)
    if not found:
        return [result] * count
    # If others have answered, one without an answer was interrupted.
    return [found.get(at, Result(UNCLEAR)) for at in range(count)]


def answered(count: int, out: bytes) -> dict[int, Result]:
    """The answers that are complete in the output so far, by the place of the launch in the script.

    Each is lines `3|text`, and `3=0` with its exit code at the end.
    """
    if count == 1:
        return {}
    words: list[list[bytes]] = [[] for _ in range(count)]
    found: dict[int, Result] = {}
    # What follows the last newline is a line that was cut off.
    for number, kind, rest in _ANSWER.findall(out[: out.rfind(b"\n") + 1]):
        at = int(number) - 1
        if at < count and kind == b"|":
            words[at].append(rest)
        elif at < count and rest.isdigit():
            text = b"\n".join(words[at])
            found[at] = Result(int(rest[:3]), text, text)
    return found


def launch_failure(sentence: str, reason: Blame) -> AgentlessError:
    """The error for a launch that has failed and left nothing on the node."""
    if reason == "task":
        return RuntimeFailed(sentence)
    return NodeUnfit(sentence) if reason == "fit" else NodeBroken(sentence, reason)


def _held(task: Task, node: NodeConfig, output: str) -> str:
    placement = task.placement or Placement(node.name)
    numbers = dict(zip(placement.tokens, placement.gpus, strict=False))
    held = [line.split("|", 3)[1:] for line in output.splitlines() if line.startswith("held|")]
    words = [
        f"{_called(gpu, numbers)} is held by {beside.holder(other)} of {owner}"
        if gpu
        else f"{node.name} cannot be shared with {beside.holder(other)} of {owner} (--exclusive)"
        for gpu, other, owner in held
    ]
    full = [line.split("|")[1:] for line in output.splitlines() if line.startswith("full|")]
    words += [f"{_called(gpu, numbers)} has no share left ({count} in use)" for gpu, count in full]
    return f"{task.spec.needs}: " + "; ".join(words)


def _called(token: str, numbers: Mapping[str, GpuNumber]) -> str:
    """A device in words, by its number: `GPU 0`, `GPU 0/1`; a part of a GPU that was wanted whole by its own id."""
    gpu, _, part = token.partition("_")
    if part and token not in numbers:
        return f"slice {part} of GPU {numbers.get(gpu, gpu)}"
    return f"GPU {numbers.get(token, token)}"
