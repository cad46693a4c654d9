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
ENDS_CONTAINERS = "# This ends running containers, unless Docker has live-restore:"


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
    root = sudo(system)
    if system.has_systemd:
        return f"{root}systemctl enable --now {service}"
    if system.manager == "apk":
        return f"{root}rc-update add {service} default\n{root}rc-service {service} start"
    return f"{root}service {service} start"


def reboot(system: System) -> str:
    """Reboot the node, as a comment: the person chooses when."""
    return f"# Reboot the node: {sudo(system)}reboot"


def restart_docker(system: System) -> str:
    """Restart Docker."""
    words = "rc-service docker restart" if system.manager == "apk" else "service docker restart"
    words = "systemctl restart docker" if system.has_systemd else words
    return f"{ENDS_CONTAINERS}\n{sudo(system)}{words}"


def kernel_argument(system: System, words: str) -> str:
    """Add words to the command line of the kernel; a reboot has to follow."""
    root = sudo(system)
    boot = {
        "apt": (
            f"printf 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {words}\"\\n' | "
            f"{root}tee /etc/default/grub.d/agentless.cfg\n{root}update-grub"
        ),
        "dnf": f"{root}grubby --update-kernel=ALL --args='{words}'",
        "zypper": (
            f"# In /etc/default/grub, add to GRUB_CMDLINE_LINUX_DEFAULT: {words}\n"
            f"{root}grub2-mkconfig -o /boot/grub2/grub.cfg"
        ),
        "pacman": (
            f"# In /etc/default/grub, add to GRUB_CMDLINE_LINUX_DEFAULT: {words}\n"
            f"{root}grub-mkconfig -o /boot/grub/grub.cfg"
        ),
        "apk": f"# In /etc/update-extlinux.conf, add to default_kernel_opts: {words}\n{root}update-extlinux",
    }
    return boot.get(system.manager, f"# Add to the command line of the kernel: {words}")


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
