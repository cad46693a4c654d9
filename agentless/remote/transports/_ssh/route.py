"""The way to a node: the machines to log in to, in order, each with its user, keys and host key."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from agentless.errors import Unreachable
from agentless.inventory.ssh_hosts import parse_login
from agentless.model.nodes.node import NodeConfig
from agentless.paths import user_name
from agentless.remote.transports._ssh.config import HostConfig, expand_tokens
from agentless.remote.transports._ssh.known_hosts import KnownHosts, host_field, read

USER_KNOWN_HOSTS = ("~/.ssh/known_hosts", "~/.ssh/known_hosts2")
GLOBAL_KNOWN_HOSTS = ("/etc/ssh/ssh_known_hosts", "/etc/ssh/ssh_known_hosts2")
DEFAULT_KEYS = ("id_ed25519", "id_ecdsa", "id_rsa")
"""The newest kind first: a server counts the tries."""


@dataclass(frozen=True, slots=True)
class SshFiles:
    """The part of the user's SSH setup that is used.

    `home` is where `.ssh` is. `known_hosts` is agentless's own file beside the user's; it need not exist.
    `connect_timeout` are the seconds for the login to each machine on the way that has no ConnectTimeout.
    """

    home: Path
    known_hosts: Path
    connect_timeout: float = 10.0


@dataclass(frozen=True, slots=True)
class Hop:
    """One machine on the way: all that a login to its SSH server needs.

    `node` is the node that it was first needed for, `name` its name in messages, `alias` that for `ssh`, with `jump` as
    in the inventory. Keys: `identities` were named by the user, `defaults` are where `ssh-keygen` puts them,
    `certificates` are named ones, `agent` is the socket of an SSH agent; with `identities_only` only named keys are
    used. `gate` is the proxy command before anything in it is replaced: machines with the same one are behind the same
    jump host. `known_hosts` are the files with its host key, under `host_key_alias` if it has one, or as that of
    `first`, the node's first address.
    """

    node: str = field(compare=False)
    name: str
    alias: str
    host: str
    port: int
    user: str
    identities: tuple[Path, ...]
    defaults: tuple[Path, ...]
    certificates: tuple[Path, ...]
    identities_only: bool
    agent: str | None
    connect_timeout: float | None
    proxy_command: str | None
    gate: str | None
    known_hosts: tuple[Path, ...]
    host_key_alias: str | None
    jump: str | None
    first: Hop | None = None

    @property
    def where(self) -> str:
        """Its name in messages: `node1 (ubuntu@10.0.0.11)`."""
        return f"{self.name} ({self.user}@{self.host}{'' if self.port == 22 else f' port {self.port}'})"

    @property
    def address(self) -> str:
        """Its address, as a user writes it: `ubuntu@10.0.0.11`."""
        return f"{self.user}@{self.host}" + ("" if self.port == 22 else f":{self.port}")

    @property
    def by_hand(self) -> str:
        """The command that logs in there."""
        port = "" if self.port == 22 else f"-p {self.port} "
        return f"ssh {port}{f'-J {self.jump} ' if self.jump else ''}{self.user}@{self.alias}"

    def host_keys(self) -> KnownHosts:
        """The host keys on record now."""
        recorded = self.first or self
        found = read(self.known_hosts, recorded.host, recorded.port, recorded.host_key_alias)
        place = host_field(self.host, self.port)
        return replace(found, address="" if place == found.host else place)

    @property
    def field(self) -> str:
        """Its name in a `known_hosts` line."""
        return host_field(self.host, self.port)


class _Target(NamedTuple):
    """A machine as the user named it; None leaves a field to the SSH configuration."""

    name: str
    host: str
    user: str | None
    port: int | None
    identity: str | None
    jump: str | None


def routes(node: NodeConfig, files: SshFiles) -> list[tuple[Hop, ...]]:
    """A way to each address of the node: the machines to log in to, the node itself last.

    Raises Unreachable if that makes no sense. Reads the SSH configuration, and may run its `Match exec`.
    """
    target = _Target(node.name, node.host, node.user, node.port, node.identity_file, node.jump)
    found = [_hops(node, files, target, ())]
    first = found[0][-1]
    for text in node.addresses:
        if login := parse_login(text):
            way = _hops(node, files, target._replace(host=login.host, port=login.port or node.port), ())
            # One machine has one host key: what stands at such an address in another network is not it.
            same = replace(way[-1], first=first, host_key_alias=first.host_key_alias or first.host)
            found.append((*way[:-1], same))
    return found


def _hops(node: NodeConfig, files: SshFiles, target: _Target, behind: tuple[str, ...]) -> tuple[Hop, ...]:
    local_user = user_name()
    proxied = target.jump is not None
    config = HostConfig(target.host, home=files.home, local_user=local_user, user=target.user, proxied=proxied)
    user = target.user or config.get("User") or local_user
    port = target.port or _port(node, config.get("Port") or "22")
    tokens = config.tokens(r=user, p=str(port))
    address = f"{tokens['h']}:{port}"
    if address in behind:
        circle = " → ".join((*behind, address))
        raise Unreachable(f"{node.name}: the jump hosts form a loop ({circle}); correct jump or ProxyJump")
    proxy = None if target.jump else config.line("ProxyCommand")
    identities = [target.identity] if target.identity else []
    identities += [word for word in config.words("IdentityFile") if word != "none"]
    known = config.words("UserKnownHostsFile") or USER_KNOWN_HOSTS
    known = [*known, *(config.words("GlobalKnownHostsFile") or GLOBAL_KNOWN_HOSTS)]
    here = Hop(
        node=node.name,
        name=target.name,
        alias=target.host,
        host=tokens["h"],
        port=port,
        user=user,
        identities=tuple(dict.fromkeys(config.path(text, tokens) for text in identities)),
        defaults=() if identities else tuple(files.home / ".ssh" / key for key in DEFAULT_KEYS),
        certificates=tuple(config.path(text, tokens) for text in config.words("CertificateFile")),
        identities_only=config.get("IdentitiesOnly") == "yes",
        agent=_agent(config, tokens),
        connect_timeout=_connect_timeout(config),
        proxy_command=expand_tokens(proxy, tokens) if proxy and proxy != "none" else None,
        gate=proxy,
        known_hosts=(*(config.path(text, tokens) for text in known if text != "none"), files.known_hosts),
        host_key_alias=config.get("HostKeyAlias"),
        jump=target.jump,
    )
    jump = target.jump or config.get("ProxyJump")
    if not jump or jump == "none" or here.proxy_command:
        return (here,)
    before, _, last = jump.rpartition(",")
    login = parse_login(last.removeprefix("ssh://"))
    if login is None:
        raise Unreachable(f"{node.name}: invalid jump host {last!r}; use [USER@]HOST[:PORT] or a host of ~/.ssh/config")
    through = _Target(f"jump host {login.host}", login.host, login.user, login.port, None, before or None)
    return (*_hops(node, files, through, (*behind, address)), here)


def _port(node: NodeConfig, text: str) -> int:
    if text.isdecimal() and 0 < int(text) < 65536:
        return int(text)
    raise Unreachable(f"{node.name}: invalid Port {text!r}; correct it in ~/.ssh/config")


def _connect_timeout(config: HostConfig) -> float | None:
    """The seconds of ConnectTimeout, None without: some proxy commands take long."""
    seconds = config.get("ConnectTimeout") or ""
    return float(seconds) if re.fullmatch("[1-9][0-9]{0,3}", seconds) else None


def _agent(config: HostConfig, tokens: dict[str, str]) -> str | None:
    """The socket of the SSH agent, see IdentityAgent in ssh_config(5)."""
    named = config.get("IdentityAgent") or "SSH_AUTH_SOCK"
    if named == "none":
        return None
    if named == "SSH_AUTH_SOCK" or (named.startswith("$") and not named.startswith("${")):
        return os.environ.get(named.removeprefix("$")) or None
    return str(config.path(named, tokens))
