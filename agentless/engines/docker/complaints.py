"""Complaints of engines and shells, each as one sentence with the fix."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentless.engines.docker.info import IS_NERDCTL, IS_PODMAN
from agentless.model.nodes.complaint import Blame, Known
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.spec import TaskSpec
from agentless.model.text import printable
from agentless.rules.tasks.known_complaints import ENGINE_ITSELF, ends, find, without_end

_CALLING = (
    Known(
        r"permission denied.*(docker\.sock|docker daemon socket|docker API)",
        (
            "{user} has no permission to use Docker on {node}; on the node, run: sudo usermod -aG docker "
            "{user} (then run here: agentless doctor {node}), or set 'docker: sudo docker' in the inventory"
        ),
        "engine",
    ),
    Known(
        r"sudo: .*(password is required|terminal is required|must have a tty|no tty|authentication is required)",
        "sudo on {node} requires a password; add NOPASSWD: /usr/bin/docker to its sudoers rule",
        "engine",
    ),
    Known(
        r"sudo: (sorry, )?you are not allowed to (preserve|set)",
        "sudo on {node} does not pass secrets on; add SETENV to its sudoers rule (NOPASSWD:SETENV: /usr/bin/docker)",
        "task",
    ),
    Known(
        r"(sorry, user \S+ (is not allowed to|may not)|is not in the sudoers file|may not run sudo|sudo: I'm sorry)",
        "{user} has no sudo rights for docker on {node}; add a sudoers rule, or add {user} to the docker group",
        "engine",
    ),
    Known(
        r"sudo: (command )?not found|sudo: No such file",
        "no sudo command on {node}; set 'docker: docker' for it in the inventory",
        "engine",
    ),
    Known(
        r"docker'?: ((command )?not found|No such file|inaccessible or not found)",
        "no docker command on {node}; install Docker there, or set its path with 'docker:' in the inventory",
        "engine",
    ),
    Known(
        re.escape(IS_PODMAN),
        "docker on {node} is podman (package podman-docker); set 'docker: podman' for it in the inventory",
        "engine",
    ),
    Known(
        re.escape(IS_NERDCTL),
        (
            "docker on {node} is nerdctl, which agentless does not support; install Docker there, or podman and set "
            "'docker: podman' for it in the inventory"
        ),
        "engine",
    ),
    Known(
        r"client version (?P<what>[0-9.]+) is too (old|new)",
        (
            "the docker command on {node} does not fit its engine (API {what}); install both in the same version, or "
            "set the path of one that fits with 'docker:' in the inventory"
        ),
        "engine",
    ),
    Known(r"flock: ((command )?not found|inaccessible)", "no flock command on {node}; install util-linux there"),
    Known(
        r"sh: (.*: )?(?P<what>\S+): (command )?not found",
        "no {what} command on {node}; install it there, or correct 'docker:' in the inventory",
        "engine",
    ),
    Known(
        (
            r"(Cannot connect to the Docker daemon|failed to connect to the docker API|error during connect|"
            r"Is the docker daemon running|docker\.sock: connect: (no such file|connection refused))"
        ),
        (
            "the Docker daemon on {node} is not running or listens elsewhere{socket}; to see how to start it, run: "
            "agentless doctor {node}"
        ),
        "engine",
    ),
)
"""When the engine's command is called. They come before the complaints of the GPU vendors."""
_LAUNCHING = (
    Known(
        r"container name \"?/?(?P<what>agentless-[\w.-]+)\"? is already in use",
        (
            "container {what} on {node} has the name of a task but agentless did not create it; to remove "
            "it, run there: docker rm -f {what}"
        ),
        "fit",
    ),
    Known(
        (
            rf"({ENGINE_ITSELF}exec: \"?|fork/exec )(\S*/)?(?P<what>runc|crun|containerd-shim[\w-]*)\"?: "
            r"(executable file not found|(stat .*)?no such file)"
        ),
        "Docker on {node} cannot start containers: {what} is missing; reinstall Docker",
    ),
    Known(
        r"exec: \"?(?P<what>[^\"]* [^\"]*)\"?: (executable file not found|stat .*no such file)",
        "the image has no program {what!r}: the command was quoted as one word; write: -- {what}",
        "task",
    ),
    Known(
        r"exec: \"?(?P<what>[^\"]+)\"?: (executable file not found|stat .*no such file|permission denied)",
        "the image cannot run {what!r}: not found or not executable",
        "task",
    ),
    Known(
        r"bind source path does not exist: (?P<what>.+?)\.?\s*($|\n\n|See 'docker)",
        "cannot mount {what}: not found on {node}",
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
        "Docker on {node} cannot start containers ({what}); check /sys/fs/cgroup there and restart Docker",
    ),
    Known(
        (
            r"(container init was OOM-killed|the memory limit could be too low|unable to set memory limit|"
            r"/memory\.\S+: device or resource busy)"
        ),
        "the memory limit is too low to start a container; raise --memory",
        "task",
    ),
    Known(
        r"getting the final child's pid from pipe|can't get final child's PID from pipe",
        (
            "a container could not start: its memory limit is too low, or {node} is out of memory; raise --memory, "
            "or check dmesg there"
        ),
        "task",
    ),
    Known(
        (
            r"(?P<what>fork/exec \S+: resource temporarily unavailable|failed to create new OS thread|Cannot fork|"
            r"can't fork|fork: retry|pthread_create failed)"
        ),
        "{user} has reached the process limit on {node} ({what}); raise ulimit -u there, or end some processes",
    ),
    Known(
        r"(?P<what>[^\s:]*: cannot allocate memory|runtime: out of memory)",
        "{node} is out of memory and cannot start containers ({what}); free some memory there",
    ),
    Known(
        r"exec format error",
        (
            "{node} cannot run the program (exec format error): the image is for another processor, or the script "
            "lacks a #! line; use an image for the processor of {node}"
        ),
        "fit",
    ),
    Known(
        r"(no matching manifest for|does not match the specified platform: wanted) (?P<what>[^\s,]+)",
        "the image has no build for the processor of {node} ({what}); use another image",
        "fit",
    ),
    Known(
        (
            r'(Get|Head) "?https?://(?P<what>[^/"\s%]+)/v2/.*(dial tcp|no such host|i/o timeout|connection refused|'
            r"name resolution|handshake timeout|deadline exceeded|Client\.Timeout)"
        ),
        (
            "{node} cannot reach the registry {what}; check the network there, or use --image with an image "
            "that is already on the node"
        ),
    ),
    Known(
        (
            r"(?P<what>failed to create endpoint \S+ on network bridge|iptables failed|iptables: No chain|"
            r"no available IPv4 addresses on this network's address pools: bridge)"
        ),
        "Docker on {node} cannot connect containers to a network ({what}); on the node, run: {sudo}systemctl restart "
        "docker",
    ),
    Known(
        (
            r"(?P<what>failed to start shim|containerd\.sock: connect: [\w ]+|ttrpc: closed|"
            r"failed to create (shim )?task[\w ]*: context deadline exceeded)"
        ),
        (
            "Docker on {node} cannot start containers ({what}); on the node, run: {sudo}systemctl restart containerd "
            "docker"
        ),
    ),
    Known(
        r"(?P<what>Failed to connect to bus|Failed to start transient service unit: (Connection|Transport)[\w ]+)",
        "systemd on {node} does not answer ({what}); reboot the node",
    ),
)


def blame(complaint: str, devices: Sequence[Known] = ()) -> Blame:
    """The reason of a failed launch; an unknown one is the task."""
    found = find(complaint, (*_CALLING, *devices, *_LAUNCHING))
    return found[0].blame if found else "task"


def without_words_of(spec: TaskSpec, complaint: str) -> str:
    """The complaint without the task's own words, which may look like the complaint of a broken engine."""
    complaint = re.sub(r'exec: (\\*)".*?\1"', "exec:", complaint, flags=re.DOTALL)
    paths = [mount.source for mount in spec.mounts] + [mount.target for mount in spec.mounts]
    for word in filter(None, (*spec.command, *paths, spec.image, spec.workdir, spec.user, spec.network)):
        if " " in word:
            complaint = complaint.replace(word, "")
    return complaint


_PREAMBLE = re.compile(
    r"""[\\" ]*(?:
    (?:docker|podman|runc|crun|Error|Error[ ]response[ ]from[ ]daemon):[ ]
    | failed[ ]to[ ]create[ ](?:task[ ]for[ ]container|shim[ ]task|shim|task):[ ]
    | OCI[ ]runtime[ ](?:error|\w+[ ]failed):[ ]
    | (?:runc[ ]|crun[ ])?(?:create|start|exec)[ ]failed:[ ]
    | unable[ ]to[ ]start[ ]container(?:[ ]process|[ ]\\*"[0-9a-f]+\\*"):[ ]?
    | (?:container|process|standard_init)_linux\.go:\d+:[ ]
    | (?:starting[ ]container[ ]process|container[ ]init|running[ ]\w+[ ]hook[ ]\d+)[ ]caused:?[ ]
    | error[ ]during[ ]container[ ]init:[ ]
    | (?:error[ ])?running[ ](?:\w+[ ])?hook(?:[ ]\#\d+)?:+[ ]
    | exit[ ]status[ ]\d+,[ ]stdout:[ ].*?,[ ]stderr:[ ]
    | exec[ ]command:[ ]\[[^\]]*\](?:\\+n)?
    | Auto-detected[ ]mode[ ]as[ ]'[\w-]+'[ ]
    | could[ ]not[ ]apply[ ]required[ ]modification[ ]to[ ]OCI[ ]specification:[ ]
    | error[ ]modifying[ ]OCI[ ]spec:[ ]
    )""",
    re.VERBOSE | re.IGNORECASE,
)
"""What comes before the cause: each layer, from the engine down to a hook, reports that the one below failed."""
_LINE = 300
"""Characters of a complaint that is repeated."""


def explain(complaint: str, node: NodeConfig, devices: Sequence[Known] = ()) -> str:
    """The sentence for a complaint. An unknown complaint is repeated on one line, without its preamble."""
    if found := find(complaint, (*_CALLING, *devices, *_LAUNCHING)):
        socket = next((w for w in node.docker if w.startswith("unix://")), None)
        return found[0].sentence.format(
            node=node.name,
            engine=node.engine_title,
            user=node.user or "the user",
            sudo="" if node.user == "root" else "sudo ",
            socket=f" than {socket}" if socket else "",
            what=found[1],
        )
    return _cause(printable(re.sub(r"\s+", " ", ends(complaint))).strip()) or "Docker failed without an error message"


def _cause(line: str) -> str:
    """The cause at the end of a chain of complaints. If it is too long, its beginning and its end."""
    line = re.sub(r"^.*?docker: (?=Error response from daemon: )", "", line)
    line = re.sub(r"\.? ?((See|Run) 'docker [a-z ]*--help'|ERRO\[\d+\] error waiting for container).*", "", line)
    cause = line
    while match := _PREAMBLE.match(cause):
        cause = cause[match.end() :]
    cause = without_end(cause) or without_end(line)
    return cause if len(cause) <= _LINE else f"{cause[: _LINE // 3]} … {cause[-(_LINE * 2 // 3 - 3) :]}"
