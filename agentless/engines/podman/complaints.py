"""Complaints of podman, each as one sentence with the fix."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentless.engines.docker import complaints
from agentless.model.nodes.complaint import Blame, Known
from agentless.model.nodes.node import NodeConfig
from agentless.rules.tasks.known_complaints import find

HIDDEN = (
    "/proc on {node} hides which containers hold GPUs (hidepid); log in as root there, or mount /proc without hidepid"
)
HYBRID = (
    "crun on {node} cannot start containers: control groups of version 1 and 2 are mounted there at once; install runc "
    'there and set runtime = "runc" under [engine] in /etc/containers/containers.conf'
)
_KNOWN = (
    Known(
        r"sudo: .*(password is required|terminal is required|must have a tty|no tty|authentication is required)",
        "sudo on {node} requires a password; add NOPASSWD: /usr/bin/podman to its sudoers rule",
        "engine",
    ),
    Known(
        r"sudo: (sorry, )?you are not allowed to (preserve|set)",
        "sudo on {node} does not pass secrets on; add SETENV to its sudoers rule (NOPASSWD:SETENV: /usr/bin/podman)",
        "task",
    ),
    Known(
        r"(sorry, user \S+ (is not allowed to|may not)|is not in the sudoers file|may not run sudo|sudo: I'm sorry)",
        "{user} has no sudo rights for podman on {node}; add a sudoers rule, or set 'docker: podman' in the inventory",
        "engine",
    ),
    Known(
        r"podman'?: ((command )?not found|No such file|inaccessible or not found)",
        "no podman command on {node}; install podman there, or correct 'docker:' in the inventory",
        "engine",
    ),
    Known(
        r"short-name \"?(?P<what>[^\s\"]+)\"? did not resolve",
        (
            "podman on {node} does not know the registry of {what}; add it to the name, such as "
            'docker.io/library/{what}, or set unqualified-search-registries = ["docker.io"] in '
            "/etc/containers/registries.conf there"
        ),
        "task",
    ),
    Known(
        r"^Error: statfs (?P<what>.+?): no such file or directory", ("cannot mount {what}: not found on {node}"), "task"
    ),
    Known(
        r"workdir \"(?P<what>.+?)\" does not exist on container",
        "the image has no folder {what}, and podman does not create it; choose another --workdir",
        "task",
    ),
    Known(
        r"controller [`'\"]?(?P<what>\w+)[`'\"]? is not available",
        (
            "{user}'s podman on {node} has no permission to limit {what}; delegate it with systemd "
            "(Delegate=cpu cpuset io memory pids for user@.service), or set 'docker: sudo podman' in the inventory"
        ),
        "task",
    ),
    Known(
        r"(no subuid ranges found|cannot find UID/GID for user|newuidmap|insufficient UIDs or GIDs)",
        (
            "{user}'s podman on {node} has no subordinate user IDs; install uidmap there and run: sudo usermod "
            "--add-subuids 100000-165535 --add-subgids 100000-165535 {user}"
        ),
        "engine",
    ),
    Known(
        r"default OCI runtime \"(?P<what>[^\"]+)\" not found",
        "podman on {node} cannot start containers: {what} is missing; install it there",
    ),
    Known(r"cgroups in hybrid mode not supported", HYBRID),
    Known(
        r"could not find \"?(?P<what>netavark|aardvark-dns|catatonit|pasta|slirp4netns)\"? in one of",
        "podman on {node} cannot start containers: {what} is missing; install it there",
    ),
    Known(
        r"netavark: (?P<what>[^\n]{1,200})",
        (
            "podman on {node} cannot set up a network for containers ({what}); check netavark and nftables there, or "
            "use --network host"
        ),
    ),
    Known(
        r"could not find a working (?P<what>conmon) binary",
        "podman on {node} cannot start containers: {what} is missing; install it there",
    ),
    Known(
        r"Runtime path (?P<what>\S+) is not valid",
        "podman on {node} cannot start containers: its runtime {what} does not run; reinstall it there",
    ),
    Known(r"hidepid: processes of others cannot be seen", HIDDEN, "engine"),
)
_LOG_LINE = re.compile(r'^time="[^"]*" level=\w+ msg=.*\n?', re.MULTILINE)


def blame(complaint: str, devices: Sequence[Known] = ()) -> Blame:
    """The reason of a failed launch."""
    found = find(_said(complaint), _KNOWN)
    return found[0].blame if found else complaints.blame(complaint, devices)


def explain(complaint: str, node: NodeConfig, devices: Sequence[Known] = ()) -> str:
    """The sentence for a complaint, or else what Docker's would be."""
    complaint = _said(complaint)
    if found := find(complaint, _KNOWN):
        return found[0].sentence.format(node=node.name, user=node.user or "the user", what=found[1])
    words = re.sub(r"^(Error: )?((runc|crun|OCI runtime error): )*", "", complaint)
    return complaints.explain(words, node, devices)


def _said(complaint: str) -> str:
    return _LOG_LINE.sub("", complaint).strip() or complaint
