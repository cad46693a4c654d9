"""Commands that mend an engine: Docker or podman, root's or a user's own."""

from __future__ import annotations

import re
from dataclasses import dataclass

from agentless.model.nodes.checkup import EngineCheckup, System
from agentless.model.nodes.cluster import Node
from agentless.model.text import printable, shell_word
from agentless.rules.nodes.checks import remedies

_PROXIES_IN_FILE = 23
"""The first version of Docker that reads proxies from its configuration file."""
_DELEGATE = "[Service]\\nDelegate=cpu cpuset io memory pids\\n"
_MEMORY = "cgroup_enable=memory swapaccount=1"
_UNIFIED = "systemd.unified_cgroup_hierarchy=1"


@dataclass(frozen=True, slots=True)
class Setup:
    """How an engine is administered. A `rootless` one is a user's own. `major` is its version, 0 if not known."""

    system: System
    has_podman: bool = False
    rootless: bool = False
    major: int = 0
    cgroup_version: int | None = None

    def start(self, user: str) -> str:
        """Start Docker, also after each boot. `user` is the login."""
        if not self.rootless:
            return remedies.start(self.system, "docker")
        name = printable(user) or "its user"
        if not self.system.has_systemd:
            return f"# Start it as {name}: dockerd-rootless.sh"
        login = shell_word(user) if user else '"$(id -un)"'
        return f"# As {name}:\nsystemctl --user enable --now docker\nsudo loginctl enable-linger {login}"

    def look(self) -> str:
        """What shows why Docker does not start."""
        if not self.system.has_systemd:
            return f"# {'dockerd-rootless.sh' if self.rootless else 'dockerd'} --debug"
        return f"journalctl {'--user ' if self.rootless else ''}-u docker -n 50  # shows why"

    def restart(self) -> str:
        """Restart Docker."""
        if not self.rootless:
            return remedies.restart_docker(self.system)
        return f"{remedies.ENDS_CONTAINERS}\nsystemctl --user restart docker"

    def proxies(self) -> str:
        """Tell the engine of a proxy, as comments: which one is known to its administrator only."""
        if self.has_podman:
            file = self._file("containers/containers.conf")
            return f'# Behind a proxy, in {file}, below [engine]:\n#   env = ["https_proxy=http://PROXY:3128"]'
        if self.major and self.major < _PROXIES_IN_FILE:
            lines = self._proxies_of_service()
        else:
            file = self._file("docker/daemon.json")
            lines = f'# Behind a proxy, in {file}:\n#   {{"proxies": {{"https-proxy": "http://PROXY:3128"}}}}'
        return "\n".join((lines, *(f"# {line.removeprefix('# ')}" for line in self.restart().splitlines())))

    def _proxies_of_service(self) -> str:
        if not self.system.has_systemd and not self.rootless:
            file = "/etc/conf.d/docker" if self.system.manager == "apk" else "/etc/default/docker"
            return f"# Behind a proxy, in {file}:\n#   export HTTPS_PROXY=http://PROXY:3128"
        unit = "docker.service.d/http-proxy.conf"
        file = f"~/.config/systemd/user/{unit}" if self.rootless else f"/etc/systemd/system/{unit}"
        reload = "systemctl --user" if self.rootless else f"{remedies.sudo(self.system)}systemctl"
        return (
            f'# Behind a proxy, in {file}:\n#   [Service]\n#   Environment="HTTPS_PROXY=http://PROXY:3128"\n'
            f"# {reload} daemon-reload"
        )

    def overlay(self) -> str:
        """Use the storage driver that shares layers, as comments: images and containers are lost."""
        if self.has_podman:
            return (
                f'# In {self._file("containers/storage.conf")}, below [storage]: driver = "overlay"\n'
                "# podman system reset  # removes all images and containers"
            )
        file = self._file("docker/daemon.json")
        return f'# In {file}: {{"storage-driver": "overlay2"}}; images have to be pulled again.'

    def control_groups(self, missing: frozenset[str]) -> str:
        """Give the engine the control groups by which it limits."""
        if self.rootless:
            folder = "/etc/systemd/system/user@.service.d"
            lines = [f"sudo mkdir -p {folder}", f"printf '{_DELEGATE}' | sudo tee {folder}/delegate.conf"]
            if self.cgroup_version == 1:
                lines += ["# An engine without root can limit with cgroup v2 only:"]
                lines += [remedies.kernel_argument(self.system, _UNIFIED), remedies.reboot(self.system)]
            else:
                lines += ["sudo systemctl daemon-reload  # then log out, and in again"]
            return "\n".join(lines)
        if "memory" in missing:
            return f"{remedies.kernel_argument(self.system, _MEMORY)}\n{remedies.reboot(self.system)}"
        return "grep -s . /proc/cgroups /sys/fs/cgroup/cgroup.controllers  # shows what the kernel has"

    def _file(self, name: str) -> str:
        return f"~/.config/{name}" if self.rootless else f"/etc/{name}"


def setup_of(node: Node, system: System, found: EngineCheckup | None = None) -> Setup:
    """The setup of a node's engine, as far as is known. One that does not answer is known by its socket."""
    engine = node.observation.engine
    socket = found.socket.path if found and found.socket else ""
    version = re.search(r"[0-9]+", (engine.version if engine else None) or "")
    return Setup(
        system,
        node.config.has_podman,
        (engine is not None and engine.rootless)
        or socket.startswith("/run/user/")
        or (found is not None and found.rootless),
        int(version[0]) if version else 0,
        engine.cgroup_version if engine else None,
    )
