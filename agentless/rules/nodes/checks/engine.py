"""Checks of the container engine: its command, socket, daemon, disk, storage, limits, registry."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agentless.model.containers.claim import TASK
from agentless.model.nodes.check import Check, ok
from agentless.model.nodes.checkup import Disk, EngineCheckup, System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.node import EngineFacts
from agentless.model.text import shell_word
from agentless.model.units import format_size
from agentless.rules.nodes.cgroup_limits import what_it_lacks
from agentless.rules.nodes.checks import remedies
from agentless.rules.nodes.checks.engine_remedies import Setup, setup_of

NAMES = ("command", "socket", "docker", "storage", "disk")
_FULL, _NEARLY = 256 << 20, 2 << 30
"""Bytes that a disk must have left: to start a container at all, and to take an image."""
_NOT_OURS = f"label!={TASK}"
"""The filter that leaves our containers alone: a stopped one may be a VPS that somebody keeps."""
_PART = re.compile(r'could not find (?:a working )?"?(netavark|aardvark-dns|conmon)\b')
"""What podman says of a part that is missing: a package of the same name."""
_SLOW_DRIVERS = {"vfs": "copies every layer for each container", "devicemapper": "is slow and no longer maintained"}


def access(node: Node, found: EngineCheckup, system: System, user: str) -> Iterator[Check]:
    """Whether the login, which is `user`, may ask the engine. After a check that failed, the others are missing."""
    title = node.config.engine_title
    if found.program is None:
        yield _command(node, found, system)
        return
    yield ok("command", found.program)
    if found.fault in ("denied", "sudo"):
        yield _denied(node, found, user)
        return
    if found.socket and found.socket.exists:
        yield ok("socket", f"{found.socket.path} {found.socket.owner}")
    error = node.observation.engine.error if node.observation.engine else None
    if found.fault == "down" and not node.config.has_podman:
        yield _down(node, found, setup_of(node, system, found), user)
    elif error:
        yield Check("docker", "failed", error, error, _look(node, found, system), words=error)
    elif found.fault:
        wrong = f"{title} does not answer: {found.words}"
        yield Check("docker", "failed", found.words, wrong, _look(node, found, system))


def state(node: Node, found: EngineCheckup, system: System) -> Iterator[Check]:
    """How an engine that answers is set up."""
    setup = setup_of(node, system, found)
    yield _storage(node, found, setup)
    if found.disk:
        yield _disk(node, found.disk)
    if found.network and found.has_network is not None:
        yield _network(node, found)
    yield _registry(node, found, setup)


def limits(node: Node, system: System) -> Iterator[Check]:
    """Limits that the engine cannot keep."""
    engine = node.observation.engine
    if engine and engine.lacks:
        words = what_it_lacks(node.config, engine.lacks)
        fix = setup_of(node, system).control_groups(frozenset(engine.lacks))
        why = "Tasks with such a limit are started on other nodes only. Tasks without one run here."
        wrong = f"missing control groups: {', '.join(sorted(engine.lacks))}"
        yield Check("limits", "warning", wrong, wrong, fix, why, words=words)


def version(seen: EngineFacts | None) -> str:
    """The version of an engine that works, and what about it is not as usual."""
    if seen is None:
        return "version unknown"
    found = [f"version {seen.version}", "rootless" if seen.rootless else "", seen.note]
    return ", ".join(filter(None, found))


def _look(node: Node, found: EngineCheckup, system: System) -> str:
    """What mends an engine that complains, or shows more of its complaint."""
    if node.config.has_podman and (missing := _PART.search(found.words)):
        return remedies.install(system, missing[1])
    shows = f"{' '.join(map(shell_word, node.config.docker))} info  # shows what it says"
    return shows if node.config.has_podman else f"{shows}\n{setup_of(node, system, found).look()}"


def _command(node: Node, found: EngineCheckup, system: System) -> Check:
    words = node.config.docker
    program = "sudo" if words[0].rpartition("/")[2] == "sudo" and not found.elsewhere else words[-1]
    program = program if not program.startswith("-") and "://" not in program else words[0]
    engine = node.observation.engine
    error = (engine.error if engine else None) or ""
    if found.elsewhere:
        wrong = f"{program} is {found.elsewhere}, which is not on the PATH of a login without a terminal"
        fix = f"# In the inventory, for {node.config.name}:\n#   docker: {shell_word(found.elsewhere)}\n"
        fix += f"{remedies.sudo(system)}ln -s -- {shell_word(found.elsewhere)} /usr/local/bin/"
        why = "SSH gives commands another PATH than a terminal."
        return Check("command", "failed", "not on PATH", wrong, fix, why, words=error)
    if found.has_podman and not node.config.has_podman:
        sudo = "sudo " * (words[0].rpartition("/")[2] == "sudo")
        fix = f"# In the inventory, for {node.config.name}:\n#   docker: {sudo}podman"
        wrong = f"there is no {program} command, but podman is there"
        return Check("command", "failed", "not found", wrong, fix, "agentless works with podman, too.", True)
    install = remedies.install_docker(system)
    if node.config.has_podman:
        install = remedies.install(system, "podman")
    fix = install if program.rpartition("/")[2] in ("docker", "podman") else remedies.install(system, program)
    why = "Every task with a container is started by this command."
    return Check("command", "failed", "not found", f"there is no {program} command", fix, why, words=error)


def _down(node: Node, found: EngineCheckup, setup: Setup, user: str) -> Check:
    socket = found.socket
    where = f" at {socket.path}" + ("" if socket.exists else ", which does not exist") if socket else ""
    wrong = f"the Docker daemon on {node.config.name} does not answer{where}"
    fix = f"{setup.start(user)}\n# If it does not start: {setup.look().removeprefix('# ').partition('  #')[0]}"
    if setup.rootless and socket and socket.path not in found.words:
        fix += "\n# If docker asks another socket: docker context use rootless"
    why = "The docker command is there, but nobody answers it."
    return Check("docker", "failed", found.words, wrong, fix, why)


def _denied(node: Node, found: EngineCheckup, user: str) -> Check:
    engine = node.observation.engine
    error = (engine.error if engine else None) or ""
    login, name = shell_word(user) if user else '"$(id -un)"', user or "the login"
    program = "podman" if node.config.has_podman else "docker"
    if found.fault == "sudo":
        path = found.program if re.fullmatch(rf"/[\w./-]+/{program}", found.program or "") else f"/usr/bin/{program}"
        # sudo ignores files with a dot in their names.
        file = f"'/etc/sudoers.d/agentless-{re.sub('[^A-Za-z0-9_-]', '_', user)}'"
        fix = f"echo {login}' ALL=(root) NOPASSWD:SETENV: {path}' | sudo tee {file}\nsudo chmod 440 {file}"
        why = "sudo cannot ask for a password without a terminal."
        return Check("socket", "failed", found.words, f"sudo does not let {name} run {program}", fix, why, words=error)
    if node.config.has_podman:
        wrong = f"{name} may not use podman: {found.words}"
        fix = f"{' '.join(map(shell_word, node.config.docker))} info"
        return Check("socket", "failed", found.words, wrong, f"{fix}  # shows what it says", words=error)
    path = found.socket.path if found.socket else "the socket of Docker"
    owner = f" ({found.socket.owner})" if found.socket and found.socket.owner else ""
    wrong = f"{name} may not use {path}{owner}"
    if path.startswith("/run/user/"):
        fix = f"# Set 'user:' of {node.config.name} in the inventory to the user of this engine."
        why = "A rootless engine can be used by its own user only."
        return Check("socket", "failed", f"permission denied{owner}", wrong, fix, why, here=True, words=error)
    fix = f"sudo usermod -aG docker {login}\n# Then run, where agentless runs: agentless doctor {node.config.name}"
    if node.config.connection == "local":
        fix = f"sudo usermod -aG docker {login}\n# Then log in again, and run: agentless controller stop"
    why = "Only root and members of the group of the socket may use Docker. Members have root's rights on the node."
    return Check("socket", "failed", f"permission denied{owner}", wrong, fix, why, words=error)


def _storage(node: Node, found: EngineCheckup, setup: Setup) -> Check:
    engine = node.observation.engine
    store = " in containerd's store" if engine and engine.store == "containerd" else ""
    seen = f"{found.driver or 'not reported'}{store}"
    if problem := _SLOW_DRIVERS.get(found.driver):
        wrong = f"storage driver {found.driver} {problem}"
        return Check("storage", "warning", seen, wrong, setup.overlay(), "Containers start slowly.")
    return ok("storage", seen)


def _disk(node: Node, disk: Disk) -> Check:
    seen = f"{format_size(disk.free)} of {format_size(disk.total)} free in {disk.path}"
    if disk.free >= _NEARLY:
        return ok("disk", seen)
    is_full = disk.free < _FULL
    docker = " ".join(map(shell_word, node.config.docker))
    fix = (
        f"{docker} system df  # shows what could go\n"
        "# Stopped containers of others, with all that they wrote; not those of agentless:\n"
        f"# {docker} container prune --force --filter '{_NOT_OURS}'\n"
        "# Images without a name that no container uses:\n"
        f"# {docker} image prune --force"
    )
    wrong = f"the disk of {node.config.engine_title} is {'full' if is_full else 'nearly full'}: {seen}"
    why = "A container writes there, and images are kept there."
    return Check("disk", "failed" if is_full else "warning", seen, wrong, fix, why)


def _network(node: Node, found: EngineCheckup) -> Check:
    if found.has_network:
        return ok("network", found.network)
    wrong = f"there is no network {found.network} (network in the inventory)"
    fix = f"{' '.join(map(shell_word, node.config.docker))} network create {shell_word(found.network)}"
    why = "Every container on this node is attached to it, so none starts."
    return Check("network", "failed", "does not exist", wrong, fix, why)


def _registry(node: Node, found: EngineCheckup, setup: Setup) -> Check:
    name = found.registry
    if found.unreachable is None:
        return ok("registry", f"{name} answers")
    host = "registry-1.docker.io" if name == "docker.io" else name
    wrong = f"{node.config.engine_title} cannot reach {name}: {found.unreachable}"
    url = shell_word(f"https://{host}/v2/")
    fix = f"curl -sI {url}  # shows 401 or 200 if the machine reaches it\n"
    fix += setup.proxies()
    why = "Images that the node lacks cannot be pulled. Images that it has work" + (
        "." if setup.has_podman else ", and so do envs."
    )
    return Check("registry", "warning", f"{name} does not answer", wrong, fix, why)
