"""Checks of the container engine: its command, socket, daemon, disk, storage, limits, registry."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.model.nodes.check import Check, ok
from agentless.model.nodes.checkup import Disk, EngineCheckup, System
from agentless.model.nodes.cluster import Node
from agentless.model.nodes.node import EngineFacts
from agentless.model.text import shell_word
from agentless.model.units import format_size
from agentless.rules.nodes.cgroup_limits import what_it_lacks
from agentless.rules.nodes.checks import remedies

NAMES = ("command", "socket", "docker", "storage", "disk")
_FULL, _NEARLY = 256 << 20, 2 << 30
"""Bytes that a disk must have left: to start a container at all, and to take an image."""
_SLOW_DRIVERS = {"vfs": "copies every layer for each container", "devicemapper": "is slow and no longer maintained"}


def access(node: Node, found: EngineCheckup, system: System, user: str) -> Iterator[Check]:
    """Whether the login, which is `user`, may ask the engine. After a check that failed, the others are missing."""
    title, name = node.config.engine_title, node.config.name
    if found.program is None:
        yield _command(node, found, system)
        return
    yield ok("command", found.program)
    if found.fault in ("denied", "sudo"):
        yield _denied(node, found, user)
        return
    if found.socket:
        owner = found.socket.owner if found.socket.exists else "does not exist"
        yield ok("socket", f"{found.socket.path} {owner}")
    error = node.observation.engine.error if node.observation.engine else None
    if found.fault == "down" and not node.config.has_podman:
        where = f" at {found.socket.path}" if found.socket else ""
        why = "The docker command is there, but nobody answers it."
        wrong = f"the Docker daemon on {name} does not answer{where}"
        fix = remedies.start(system, "docker")
        if found.socket and found.socket.path.startswith("/run/user/"):
            fix = "systemctl --user enable --now docker"
        look = "journalctl -u docker -n 50" if system.has_systemd else "dockerd --debug"
        fix += f"\n# If it does not start: {look}"
        yield Check("docker", "failed", found.words, wrong, fix, why, words=error or "")
    elif error:
        yield Check("docker", "failed", error, error, words=error)
    elif found.fault:
        yield Check("docker", "failed", found.words, f"{title} does not answer: {found.words}")


def state(node: Node, found: EngineCheckup, system: System) -> Iterator[Check]:
    """How an engine that answers is set up."""
    yield _storage(node, found)
    if found.disk:
        yield _disk(node, found.disk)
    yield _registry(node, found, system)


def limits(node: Node, system: System) -> Iterator[Check]:
    """Limits that the engine cannot keep."""
    engine = node.observation.engine
    if engine and engine.lacks:
        words = what_it_lacks(node.config, engine.lacks)
        fix = "# In /etc/default/grub, add to GRUB_CMDLINE_LINUX: cgroup_enable=memory swapaccount=1\n"
        fix += f"{remedies.sudo(system)}update-grub && {remedies.sudo(system)}reboot"
        if engine.rootless:
            fix = (
                "sudo mkdir -p /etc/systemd/system/user@.service.d\n"
                "printf '[Service]\\nDelegate=cpu cpuset io memory pids\\n' | "
                "sudo tee /etc/systemd/system/user@.service.d/delegate.conf\n"
                "sudo systemctl daemon-reload  # then log in again"
            )
        why = "Tasks with such a limit are started on other nodes only."
        wrong = f"missing control groups: {', '.join(sorted(engine.lacks))}"
        yield Check("limits", "failed", wrong, wrong, fix, why, words=words)


def version(seen: EngineFacts | None) -> str:
    """The version of an engine that works, and what about it is not as usual."""
    if seen is None:
        return "version unknown"
    found = [f"version {seen.version}", "rootless" if seen.rootless else "", seen.note]
    return ", ".join(filter(None, found))


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
    install = remedies.install_docker(system)
    if node.config.has_podman:
        install = remedies.install(system, "podman")
    fix = install if program.rpartition("/")[2] in ("docker", "podman") else remedies.install(system, program)
    why = "Every task with a container is started by this command."
    return Check("command", "failed", "not found", f"there is no {program} command", fix, why, words=error)


def _denied(node: Node, found: EngineCheckup, user: str) -> Check:
    engine = node.observation.engine
    error = (engine.error if engine else None) or ""
    login, user = shell_word(user) if user else '"$(id -un)"', user or "the login"
    if found.fault == "sudo":
        fix = (
            f"echo {login}' ALL=(root) NOPASSWD:SETENV: /usr/bin/docker' | sudo tee /etc/sudoers.d/agentless\n"
            "sudo chmod 440 /etc/sudoers.d/agentless"
        )
        why = "sudo cannot ask for a password without a terminal."
        return Check("socket", "failed", found.words, f"sudo does not let {user} run docker", fix, why, words=error)
    path = found.socket.path if found.socket else "the socket of Docker"
    owner = f" ({found.socket.owner})" if found.socket and found.socket.owner else ""
    fix = f"sudo usermod -aG docker {login}"
    why = "Only root and members of the group of the socket may use Docker. Members have root's rights on the node."
    wrong = f"{user} may not use {path}{owner}"
    return Check("socket", "failed", f"permission denied{owner}", wrong, fix, why, words=error)


def _storage(node: Node, found: EngineCheckup) -> Check:
    engine = node.observation.engine
    store = " in containerd's store" if engine and engine.store == "containerd" else ""
    seen = f"{found.driver or 'not reported'}{store}"
    if problem := _SLOW_DRIVERS.get(found.driver):
        fix = '# In /etc/docker/daemon.json: {"storage-driver": "overlay2"}; images have to be pulled again.'
        wrong = f"storage driver {found.driver} {problem}"
        return Check("storage", "warning", seen, wrong, fix, "Containers start slowly.")
    return ok("storage", seen)


def _disk(node: Node, disk: Disk) -> Check:
    seen = f"{format_size(disk.free)} of {format_size(disk.total)} free in {disk.path}"
    if disk.free >= _NEARLY:
        return ok("disk", seen)
    is_full = disk.free < _FULL
    docker = " ".join(map(shell_word, node.config.docker))
    fix = f"{docker} system df  # what could go\n{docker} container prune\n{docker} image prune"
    wrong = f"the disk of {node.config.engine_title} is {'full' if is_full else 'nearly full'}: {seen}"
    why = "A container writes there, and images are kept there."
    return Check("disk", "failed" if is_full else "warning", seen, wrong, fix, why)


def _registry(node: Node, found: EngineCheckup, system: System) -> Check:
    name = found.registry
    if found.unreachable is None:
        return ok("registry", f"{name} answers")
    host = "registry-1.docker.io" if name == "docker.io" else name
    wrong = f"{node.config.engine_title} cannot reach {name}: {found.unreachable}"
    url = shell_word(f"https://{host}/v2/")
    fix = f"curl -sI {url}  # 401 or 200: the machine reaches it, only the engine does not\n"
    fix += "# Behind a proxy, in /etc/docker/daemon.json:\n"
    fix += '#   {"proxies": {"https-proxy": "http://PROXY:3128"}}\n'
    fix += "\n".join(f"# {line.removeprefix('# ')}" for line in remedies.restart_docker(system).splitlines())
    why = "Images that the node lacks cannot be pulled. Images that it has, and envs, work."
    return Check("registry", "warning", f"{name} does not answer", wrong, fix, why)
