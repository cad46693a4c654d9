"""What engines and shells complain of, as one sentence with the fix."""

from __future__ import annotations

import re

from agentless.model.node import NodeConfig

_KNOWN: tuple[tuple[str, str], ...] = (
    (
        r"permission denied.*(docker\.sock|docker daemon socket|docker API)",
        (
            "{user} may not use Docker on {node}; on the node run: sudo usermod -aG docker {user} (then log in again), "
            "or write 'docker: sudo docker' for it in the inventory"
        ),
    ),
    (
        r"sudo: .*(password is required|terminal is required|must have a tty|no tty|authentication is required)",
        "sudo on {node} wants a password; allow docker without one in sudoers (NOPASSWD: /usr/bin/docker)",
    ),
    (
        r"sudo: (sorry, )?you are not allowed to (preserve|set)",
        (
            "sudo on {node} does not let secrets through; add SETENV to its sudoers rule "
            "(NOPASSWD:SETENV: /usr/bin/docker)"
        ),
    ),
    (
        r"(sorry, user \S+ (is not allowed to|may not)|is not in the sudoers file|may not run sudo|sudo: I'm sorry)",
        "{user} may not use sudo for docker on {node}; add a sudoers rule or put {user} into the docker group",
    ),
    (
        r"sudo: (command )?not found|sudo: No such file",
        "there is no sudo on {node}; write 'docker: docker' for it in the inventory",
    ),
    (
        r"docker'?: ((command )?not found|No such file|inaccessible or not found)",
        "there is no docker command on {node}; install Docker there, or name it with 'docker:' in the inventory",
    ),
    (r"flock: ((command )?not found|inaccessible)", "there is no flock command on {node}; install util-linux there"),
    (
        r"sh: (.*: )?(?P<what>\S+): (command )?not found",
        "there is no {what} command on {node}; install it there, or correct 'docker:' in the inventory",
    ),
    (
        (
            r"(Cannot connect to the Docker daemon|failed to connect to the docker API|error during connect|"
            r"Is the docker daemon running|docker\.sock: connect: (no such file|connection refused))"
        ),
        (
            "the Docker daemon on {node} does not run or listens elsewhere{socket}; on the node run: "
            "sudo systemctl start docker"
        ),
    ),
    (
        (
            r"(could not select device driver.*(gpu|nvidia)|discover GPU vendor from CDI|"
            r"(unknown or invalid runtime name:|Unknown runtime specified) nvidia)"
        ),
        (
            "Docker on {node} cannot hand out NVIDIA GPUs; install nvidia-container-toolkit there and run: "
            "sudo nvidia-ctk runtime configure --runtime=docker && sudo systemctl restart docker"
        ),
    ),
    (
        r"exec: \"?(?P<what>[^\"]* [^\"]*)\"?: (executable file not found|stat .*no such file)",
        "{what!r} cannot be run in the image: it is a single word; write the words one by one, like -- {what}",
    ),
    (
        r"exec: \"?(?P<what>[^\"]+)\"?: (executable file not found|stat .*no such file|permission denied)",
        "{what!r} cannot be run in the image: it is not there, or not executable",
    ),
    (
        r"bind source path does not exist: (?P<what>.+?)\.?\s*($|\n\n|See 'docker)",
        "there is no {what} on {node} to mount",
    ),
    (r"no space left on device", "the disk of {node} is full"),
)


def explain(complaint: str, node: NodeConfig) -> str:
    """The sentence for a complaint; one that is not known is repeated, on one line, without its preamble."""
    for pattern, sentence in _KNOWN:
        if match := re.search(pattern, complaint, re.IGNORECASE | re.DOTALL):
            socket = next((w for w in node.docker if w.startswith("unix://")), None)
            return sentence.format(
                node=node.name,
                user=node.user or "the user",
                socket=f" than {socket}" if socket else "",
                what=match.groupdict().get("what"),
            )
    line = re.sub(r"\s+", " ", complaint).strip()
    line = re.sub(r"^(docker: )?(Error response from daemon: )?", "", line)
    line = re.sub(r"\.? ?(See|Run) 'docker [a-z ]*--help'.*", "", line)
    return line[:300].rstrip(".") or "Docker failed without a word"
