"""Every exception that agentless raises on purpose, and the exit code each one ends the command with.

    AgentlessError                 1
    ├── UsageError                 2   what was typed or written cannot be meant
    │   ├── InventoryError         2   the inventory file; names file, line, column, path
    │   ├── NotFound               2   no such task, node or template
    │   └── TemplateError          2   a template that does not render
    ├── Refused                    3   understood, but not now: no capacity, GPU taken, wrong state
    │   ├── IllegalMove            3   an event that a task in this state cannot have
    │   ├── Held                   3   another task holds one of the GPUs
    │   ├── Unseen                 3   an engine on the node does not say which GPUs it has given away
    │   ├── NoSession              3   the node's SSH server gives no further session now
    │   ├── NodeBroken             3   the node cannot start it, for a reason that is not the task's
    │   └── NodeUnfit              3   the node cannot start this task, and another node may
    ├── NoAnswer                   4   nothing is known of what happened on the node
    │   ├── Unreachable            4
    │   │   ├── AuthFailed         4
    │   │   ├── HostKeyRejected    4   unknown or changed; carries the fingerprints
    │   │   └── NobodyThere        4   a ProxyCommand waits, perhaps for a person who logs in
    │   ├── Timeout                4
    │   └── TooMuch                4
    ├── RuntimeFailed              1   the node answered: its container engine could not do it
    │   ├── ImageMissing           1   the image has to be fetched first
    │   ├── FilesMissing           1   the image with the task's files has to be made again
    │   ├── JobRefused             1   Slurm has refused the job of a task
    │   ├── ImageGone              1   the image is not on the node that was to send it
    │   └── LayerMissing           1   a layer that was left out has to be sent, too
    ├── CopyFailed                 1   a file that is not there, may not be read, or has no room
    ├── NotSent                    1   a notification that could not be sent
    ├── StateError                 1   the state folder: torn, newer, read-only, full
    └── ControllerError            1   no controller, a second one, a stale one

`NoAnswer` means just that: the command may have run. A non-zero exit of a remote command is a result, not an exception.
A message is one sentence in the user's words that says what to do next; it never carries a secret.
"""

from __future__ import annotations

from typing import Literal


class AgentlessError(Exception):
    """The root: `str(e)` is the sentence a user reads, `exit_code` what the command returns."""

    exit_code = 1

    @property
    def kind(self) -> str:
        """The class name, as the API names the error."""
        return type(self).__name__

    def published(self) -> dict[str, object]:
        """The error as the API has it in JSON."""
        return {"error": self.kind, "message": str(self), "exit_code": self.exit_code}


class UsageError(AgentlessError):
    """What was typed cannot be meant."""

    exit_code = 2


class InventoryError(UsageError):
    """The inventory cannot be read or says something impossible."""


class NotFound(UsageError):
    """A task, node or template that does not exist."""


class TemplateError(UsageError):
    """A remote command template that cannot be rendered."""


class Refused(AgentlessError):
    """Understood, but it cannot be served now."""

    exit_code = 3


class IllegalMove(Refused):
    """An event that a task in its present state cannot have."""


class Held(Refused):
    """Another task holds one of the GPUs, or wants the node alone, and no container of this task lives on the node."""


class Unseen(Refused):
    """Another engine on the node may have given away its GPUs, and does not say so."""


class NoSession(Refused):
    """The node's SSH server gives no further session now: nothing of what was asked for has begun there."""


class NodeBroken(Refused):
    """A node could not start a task for a reason of its own, and nothing of the task is left there.

    `fault` is what does not work there: the `engine`, which does not answer; the `gpus`, which it cannot hand out; or
    the `start` of any task.
    """

    def __init__(self, message: str, fault: Literal["engine", "gpus", "start"] = "start") -> None:
        super().__init__(message)
        self.fault = fault


class NodeUnfit(Refused):
    """A node cannot start this task, and nothing of it is left there; another node may be able to.

    `node` is its name, if the task is one of a gang, whose nodes were asked together.
    """

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node


class NoAnswer(AgentlessError):
    """It is not known what happened on the node."""

    exit_code = 4


class Unreachable(NoAnswer):
    """No connection, or it broke before the answer came."""


class AuthFailed(Unreachable):
    """The node's SSH server took none of our keys. The message is `problem` with the command `fix`."""

    def __init__(self, message: str, problem: str = "", fix: str = "") -> None:
        super().__init__(message)
        self.problem = problem or message
        self.fix = fix


class HostKeyRejected(Unreachable):
    """The node showed a host key that is not recorded, or another one than recorded.

    `host` is the host field of a `known_hosts` line for it (`10.0.0.11`, `[gpu2.lab]:2222`), `key` the rest of that
    line (`ssh-ed25519 AAAA…`), `fingerprint` the presented key's `SHA256:…`; `recorded` are the fingerprints on
    record, empty for an unknown host; the first is in `file`. A `revoked` key is on record as one that nobody may show.
    `address` is where it was shown, empty if that is `host`.
    """

    def __init__(
        self,
        message: str,
        *,
        host: str,
        key: str,
        fingerprint: str,
        recorded: tuple[str, ...] = (),
        revoked: bool = False,
        file: str = "",
        address: str = "",
    ) -> None:
        super().__init__(message)
        self.address = address
        self.revoked = revoked
        self.file = file
        self.host = host
        self.key = key
        self.fingerprint = fingerprint
        self.recorded = recorded


class NobodyThere(Unreachable):
    """The ProxyCommand of a node waits for something: some open a browser, each time that they are started."""


class Timeout(NoAnswer):
    """The command did not end in its time; what it started on the node was ended."""


class TooMuch(NoAnswer):
    """The node said more than any answer may have; what went on saying it was ended."""


class RuntimeFailed(AgentlessError):
    """The node's container engine answered that it cannot do it."""


class ImageMissing(RuntimeFailed):
    """The image is not on the node; it has to be pulled before the launch is tried again."""


class FilesMissing(RuntimeFailed):
    """The image with the task's files is not on the node any more; it has to be made again."""


class JobRefused(RuntimeFailed):
    """Slurm has refused the job of a task, and there is none. `reason` has no name of the cluster in front.

    `lasts`: Slurm will refuse it as long as neither the job nor the cluster is another one.
    """

    def __init__(self, message: str, reason: str = "", *, lasts: bool = True) -> None:
        super().__init__(message)
        self.reason = reason or message
        self.lasts = lasts


class ImageGone(RuntimeFailed):
    """The image is not on the node it was to come from."""


class LayerMissing(RuntimeFailed):
    """The engine wants a layer that was left out; it may have lost it meanwhile."""


class CopyFailed(AgentlessError):
    """A file or folder that cannot be copied, here or on the node: it is not there, is in the way, has no room."""


class NotSent(AgentlessError):
    """A notification could not be sent. `put_off`: seconds for which the server wants to be left alone."""

    def __init__(self, message: str, put_off: float = 0.0) -> None:
        super().__init__(message)
        self.put_off = put_off


class StateError(AgentlessError):
    """The state folder cannot be read or written."""


class ControllerError(AgentlessError):
    """The controller is not there, is there twice, or is of another version."""


_BY_EXIT_CODE: dict[int, type[AgentlessError]] = {2: UsageError, 3: Refused, 4: NoAnswer}


def error_named(kind: str, message: str, exit_code: int) -> AgentlessError:
    """The error of the class `kind`, else of the one that ends a command with `exit_code`: a controller may be newer.

    `HostKeyRejected` comes as `Unreachable`, for its fingerprints are not known here; the message has them.
    """
    found = globals().get(kind)
    if not (isinstance(found, type) and issubclass(found, AgentlessError)):
        found = _BY_EXIT_CODE.get(exit_code, AgentlessError)
    error: AgentlessError = (Unreachable if found is HostKeyRejected else found)(message)
    return error
