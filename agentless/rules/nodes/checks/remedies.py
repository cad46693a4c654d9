"""Commands that mend a node, as its distribution has them."""

from __future__ import annotations

from collections.abc import Mapping

from agentless.model.nodes.checkup import Manager, System
from agentless.model.text import shell_word

_INSTALL: Mapping[Manager, str] = {
    "apt": "apt-get update && {sudo}apt-get install -y",
    "dnf": "dnf install -y",
    "zypper": "zypper --non-interactive install",
    "pacman": "pacman -S --noconfirm",
    "apk": "apk add",
}
_DOCKER: Mapping[Manager, str] = {"apt": "docker.io", "dnf": "moby-engine"}
_RHEL = ("rhel", "centos", "rocky", "almalinux", "ol")
_TOOLKIT = "nvidia-container-toolkit"
"""The name of NVIDIA's package in all distributions that have it."""


def sudo(system: System) -> str:
    """What stands before a command for an administrator."""
    return "" if system.is_root else "sudo "


def install(system: System, *packages: str) -> str:
    """Install packages."""
    words = _INSTALL.get(system.manager)
    names = " ".join(map(shell_word, packages))
    if words is None:
        return f"# Install these with the package manager of the node: {names}"
    return f"{sudo(system)}{words.format(sudo=sudo(system))} {names}"


def install_docker(system: System) -> str:
    """Install Docker and start it."""
    if system.manager == "dnf" and {system.id, *system.like}.intersection(_RHEL) and system.id != "fedora":
        root = sudo(system)
        return "\n".join((
            f"{root}dnf install -y dnf-plugins-core",
            f"{root}dnf config-manager --add-repo https://download.docker.com/linux/centos/docker-ce.repo",
            f"{root}dnf install -y docker-ce docker-ce-cli containerd.io",
            start(system, "docker"),
        ))  # fmt: skip
    return f"{install(system, _DOCKER.get(system.manager, 'docker'))}\n{start(system, 'docker')}"


def start(system: System, service: str) -> str:
    """Start a service, also after each boot."""
    if system.manager == "apk" and not system.has_systemd:
        return f"{sudo(system)}rc-update add {service} default\n{sudo(system)}rc-service {service} start"
    return f"{sudo(system)}systemctl enable --now {service}"


def restart_docker(system: System) -> str:
    """Restart Docker."""
    words = (
        "rc-service docker restart"
        if system.manager == "apk" and not system.has_systemd
        else ("systemctl restart docker")
    )
    return f"# This ends running containers, unless Docker has live-restore:\n{sudo(system)}{words}"


def rebuild_initramfs(system: System) -> str:
    """Make the kernel's first file system anew, so that it does not load a module that is forbidden now."""
    words = {
        "apt": "update-initramfs -u",
        "dnf": "dracut --force",
        "zypper": "dracut --force",
        "pacman": "mkinitcpio -P",
        "apk": "mkinitfs",
    }
    return f"{sudo(system)}{words.get(system.manager, 'dracut --force')}"
