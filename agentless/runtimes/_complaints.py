"""What engines and shells complain of, as one sentence with the fix."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal, NamedTuple

from agentless.model.node import NodeConfig
from agentless.model.spec import TaskSpec
from agentless.model.text import printable

Blame = Literal["task", "fit", "engine", "gpus", "start"]
"""The reason of a failed launch: the task, that it does not fit this node (`errors.NodeUnfit`), or what does not work
on the node, as in `errors.NodeBroken`.

What is not known for certain to be the node's is the task's: else one bad task would keep all others off node by node.
"""


class Known(NamedTuple):
    """A complaint that is known by a pattern, the sentence for it, and the reason of a launch that fails with it."""

    pattern: str
    sentence: str
    blame: Blame = "start"


_PROCESS = r"(?<!process: )(?<!caused: )(?<!caused \\\")"
"""Not what follows is what a task wanted to run: runc says so right before it."""
_KNOWN = (
    Known(
        r"permission denied.*(docker\.sock|docker daemon socket|docker API)",
        (
            "{user} may not use Docker on {node}; on the node run: sudo usermod -aG docker {user} (then log in again), "
            "or write 'docker: sudo docker' for it in the inventory"
        ),
        "engine",
    ),
    Known(
        r"sudo: .*(password is required|terminal is required|must have a tty|no tty|authentication is required)",
        "sudo on {node} wants a password; allow docker without one in sudoers (NOPASSWD: /usr/bin/docker)",
        "engine",
    ),
    Known(
        r"sudo: (sorry, )?you are not allowed to (preserve|set)",
        (
            "sudo on {node} does not let secrets through; add SETENV to its sudoers rule "
            "(NOPASSWD:SETENV: /usr/bin/docker)"
        ),
        "task",
    ),
    Known(
        r"(sorry, user \S+ (is not allowed to|may not)|is not in the sudoers file|may not run sudo|sudo: I'm sorry)",
        "{user} may not use sudo for docker on {node}; add a sudoers rule or put {user} into the docker group",
        "engine",
    ),
    Known(
        r"sudo: (command )?not found|sudo: No such file",
        "there is no sudo on {node}; write 'docker: docker' for it in the inventory",
        "engine",
    ),
    Known(
        r"docker'?: ((command )?not found|No such file|inaccessible or not found)",
        "there is no docker command on {node}; install Docker there, or name it with 'docker:' in the inventory",
        "engine",
    ),
    Known(
        r"flock: ((command )?not found|inaccessible)", "there is no flock command on {node}; install util-linux there"
    ),
    Known(
        r"sh: (.*: )?(?P<what>\S+): (command )?not found",
        "there is no {what} command on {node}; install it there, or correct 'docker:' in the inventory",
        "engine",
    ),
    Known(
        (
            r"(Cannot connect to the Docker daemon|failed to connect to the docker API|error during connect|"
            r"Is the docker daemon running|docker\.sock: connect: (no such file|connection refused))"
        ),
        (
            "the Docker daemon on {node} does not run or listens elsewhere{socket}; on the node run: "
            "sudo systemctl start docker"
        ),
        "engine",
    ),
    Known(
        (
            r"(could not select device driver.*(gpu|nvidia)|discover GPU vendor from CDI|"
            r"(unknown or invalid runtime name:|Unknown runtime specified) nvidia)"
        ),
        (
            "Docker on {node} cannot hand out NVIDIA GPUs; install nvidia-container-toolkit there and run: "
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        ),
        "gpus",
    ),
    Known(
        r"nvidia-container-cli(\.real)?: (?P<what>(initialization|detection) error: [^\n]*)",
        "the NVIDIA driver on {node} fails for containers ({what}); look at nvidia-smi there, and reboot the node",
        "gpus",
    ),
    Known(
        r"nvidia-container-cli(\.real)?: device error: (?P<what>[^\n]*)",
        "Docker on {node} does not find the GPU ({what}); look at nvidia-smi there, and reboot the node",
        "gpus",
    ),
    Known(
        r"nvidia-container-cli(\.real)?: requirement error: (?P<what>unsatisfied condition: [^\n]*)",
        "the NVIDIA driver of {node} does not do for the image ({what})",
        "fit",
    ),
    Known(
        r"container name \"?/?(?P<what>agentless-[\w.-]+)\"? is already in use",
        "there is a container {what} on {node} that agentless did not start; remove it there: docker rm -f {what}",
        "fit",
    ),
    Known(
        r"unresolvable CDI devices (?P<what>[^\n]*)",
        (
            "Docker on {node} knows no such GPU ({what}); run there: "
            "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml"
        ),
        "gpus",
    ),
    Known(
        (
            rf"({_PROCESS}exec: \"?|fork/exec )(\S*/)?"
            r"(?P<what>nvidia-container-(runtime|cli|toolkit)[\w.-]*|nvidia-ctk)\"?: "
            r"(executable file not found|(stat .*)?no such file)"
        ),
        "Docker on {node} cannot hand out GPUs: there is no {what} there; install nvidia-container-toolkit again",
        "gpus",
    ),
    Known(
        (
            rf"({_PROCESS}exec: \"?|fork/exec )(\S*/)?(?P<what>runc|crun|containerd-shim[\w-]*)\"?: "
            r"(executable file not found|(stat .*)?no such file)"
        ),
        "Docker on {node} cannot start containers: there is no {what} there; install Docker again",
    ),
    Known(
        r"exec: \"?(?P<what>[^\"]* [^\"]*)\"?: (executable file not found|stat .*no such file)",
        "{what!r} cannot be run in the image: it is a single word; write the words one by one, like -- {what}",
        "task",
    ),
    Known(
        r"exec: \"?(?P<what>[^\"]+)\"?: (executable file not found|stat .*no such file|permission denied)",
        "{what!r} cannot be run in the image: it is not there, or not executable",
        "task",
    ),
    Known(
        r"bind source path does not exist: (?P<what>.+?)\.?\s*($|\n\n|See 'docker)",
        "there is no {what} on {node} to mount",
        "task",
    ),
    Known(
        (
            r"(cannot toggle freezer|freezer not supported|no such directory for freezer|"
            r"cannot pause the container without a cgroup)"
        ),
        "Docker on {node} cannot pause: containers have no freezer control group there; stop the task instead",
        "task",
    ),
    Known(  # A volume may be a disk of its own.
        r"(/volumes/|populate volume|mount source).*no space left on device", "the disk of {node} is full", "task"
    ),
    Known(r"no space left on device", "the disk of {node} is full"),
    Known(
        (
            r"(?P<what>unable to apply cgroup configuration|cgroup mountpoint does not exist|"
            r"Devices cgroup isn't mounted|cannot find cgroup mount)"
        ),
        "Docker on {node} cannot start containers ({what}); look at /sys/fs/cgroup there, and restart Docker",
    ),
    Known(
        (
            r"(?P<what>failed to create endpoint \S+ on network bridge|iptables failed|iptables: No chain|"
            r"no available IPv4 addresses on this network's address pools: bridge)"
        ),
        "Docker on {node} cannot give containers a network ({what}); on the node run: sudo systemctl restart docker",
    ),
    Known(
        (
            r"(?P<what>failed to start shim|containerd\.sock: connect: [\w ]+|ttrpc: closed|"
            r"failed to create (shim )?task[\w ]*: context deadline exceeded)"
        ),
        "Docker on {node} cannot start containers ({what}); on the node run: sudo systemctl restart containerd docker",
    ),
    Known(
        r"(?P<what>Failed to connect to bus|Failed to start transient service unit: (Connection|Transport)[\w ]+)",
        "systemd on {node} does not answer ({what}); reboot the node",
    ),
)

END = 1000
"""Characters of either end of a complaint that are looked at."""


def find(complaint: str, among: Iterable[Known]) -> tuple[Known, str] | None:
    """The first that is meant, with what the complaint says of it on one line of bounded length."""
    complaint = _ends(complaint)
    for known in among:
        if match := re.search(known.pattern, complaint, re.IGNORECASE | re.DOTALL):
            what = printable(re.sub(r"\s+", " ", match.groupdict().get("what") or "").strip())
            return known, re.sub(r"(: unknown)?\.?$", "", what)[:200]
    return None


def _ends(complaint: str) -> str:
    """Of a long one the two ends: patterns are searched for in a time that grows faster than it does."""
    return complaint if len(complaint) <= 2 * END else f"{complaint[:END]} … {complaint[-END:]}"


def blame(complaint: str) -> Blame:
    """The reason of a failed launch; an unknown one is the task."""
    found = find(complaint, _KNOWN)
    return found[0].blame if found else "task"


def without_words_of(spec: TaskSpec, complaint: str) -> str:
    """The complaint without what a task, or its image, wanted to run: its words may be those of a broken engine."""
    complaint = re.sub(r'exec: (\\*)".*?\1"', "exec:", complaint, flags=re.DOTALL)
    paths = [mount.source for mount in spec.mounts] + [mount.target for mount in spec.mounts]
    for word in filter(None, (*spec.command, *paths, spec.image, spec.workdir, spec.user, spec.network)):
        if " " in word:
            complaint = complaint.replace(word, "")
    return complaint


def explain(complaint: str, node: NodeConfig) -> str:
    """The sentence for a complaint; one that is not known is repeated, on one line, without its preamble."""
    if found := find(complaint, _KNOWN):
        socket = next((w for w in node.docker if w.startswith("unix://")), None)
        return found[0].sentence.format(
            node=node.name,
            user=node.user or "the user",
            socket=f" than {socket}" if socket else "",
            what=found[1],
        )
    line = printable(re.sub(r"\s+", " ", _ends(complaint))).strip()
    line = re.sub(r"^(docker: )?(Error response from daemon: )?", "", line)
    line = re.sub(r"\.? ?(See|Run) 'docker [a-z ]*--help'.*", "", line)
    return line[:300].rstrip(".") or "Docker failed without a word"
