"""Checks of the way to a node: name, port, SSH server, host key, login, shell."""

from __future__ import annotations

from collections.abc import Iterator

from agentless.errors import AuthFailed, HostKeyRejected
from agentless.model.nodes.check import Check, ok
from agentless.model.nodes.checkup import Approach, Checkup, Contact
from agentless.model.nodes.node import NodeConfig
from agentless.model.text import shell_word
from agentless.rules.views.publish import address_of

NAMES = ("name", "tcp", "ssh", "host-key", "login", "shell")
_LEAST_SESSIONS = 3
"""Sessions with which samples and events need not share one with commands; see `controller/nodes/node_link.py`."""
_NOISE = 4096
_SLOW = 3.0
"""Seconds for a login shell, above which each new shell is slow."""


def checks(node: NodeConfig, error: str | None, checkup: Checkup) -> Iterator[Check]:
    """All of them, for a node or a login node. `error` is why it cannot be reached now."""
    contact, steps = checkup.contact, list[Check]()
    if checkup.approach is not None:
        steps = list(way(node, checkup.approach, contact))
        yield from steps
    if all(check.verdict != "failed" for check in steps) and (error is None or contact.logged_in):
        yield shell(node, contact, checkup.machine.shell if checkup.machine else "")
    if error is None and (limited := sessions(contact)):
        yield limited
    yield reach(node, error, contact.address)


def way(node: NodeConfig, approach: Approach, contact: Contact) -> Iterator[Check]:
    """The checks before the login. After one that failed, the others are missing."""
    failure = contact.failure
    # A route that cannot be looked at is no trouble if the node answers.
    stopped = approach.stopped if failure else ""
    if approach.proxied:
        yield from (ok(name, f"{approach.via} connects; not looked at") for name in NAMES[:3])
    else:
        if stopped in ("route", "name"):
            yield _name(node, approach)
            return
        yield ok("name", _named(approach))
        if stopped == "tcp":
            yield _tcp(node, approach)
            return
        yield ok("tcp", f"port {approach.port} is open{_behind(approach)}")
        if stopped == "ssh":
            yield _ssh(node, approach)
            return
        yield ok("ssh", (approach.banner or "answers") + _behind(approach))
    if isinstance(failure, HostKeyRejected):
        yield _host_key(node, failure)
        return
    yield ok("host-key", "is the recorded one")
    if failure and not contact.logged_in:
        yield _login(node, contact)
        return
    yield ok("login", contact.address or (address_of(node) if node.user else f"{approach.login}@{node.host}"))


def shell(node: NodeConfig, contact: Contact, login_shell: str = "") -> Check:
    """Whether the login gets a shell, and what that prints first."""
    name = "shell"
    if contact.failure is not None:
        root = contact.failure
        return Check(
            name,
            "failed",
            "the login works, but no shell starts",
            str(root),
            f"ssh {_target(node)} 'exec sh'  # shows what happens\n"
            "# On the node, as root, if the login shell is nologin or false:\n"
            f"# chsh -s /bin/sh {shell_word(node.user or 'USER')}",
            "agentless runs POSIX sh scripts through the login shell.",
            here=True,
            words=str(root),
        )
    began, noise = contact.began, contact.noise or 0
    seen = (login_shell or "starts") + (f", {began:.1f} s" if began is not None else "")
    files = {"bash": "~/.bashrc", "zsh": "~/.zshenv", "fish": "~/.config/fish/config.fish"}
    file = files.get(login_shell.rpartition("/")[2], "its startup file")
    guard = f"# Put this at the top of {file} on the node:\n# case $- in *i*) ;; *) return ;; esac"
    if noise > _NOISE:
        why = "Each new shell pays for it, and scp and rsync break on it."
        return Check(name, "warning", seen, f"the login shell prints {noise} bytes before a command", guard, why)
    if began is not None and began > _SLOW:
        why = "Each new shell waits for it."
        return Check(name, "warning", seen, f"the login shell takes {began:.1f} s to start", guard, why)
    return ok(name, seen + (f", prints {noise} bytes first" if noise else ""))


def sessions(contact: Contact) -> Check | None:
    """How many sessions the SSH server allows, None if no limit is known."""
    found = contact.sessions
    if found is None or found.each is None:
        return None
    seen = f"{found.each} on each connection"
    if found.each >= _LEAST_SESSIONS:
        return ok("sessions", seen)
    fix = "echo 'MaxSessions 10' | sudo tee /etc/ssh/sshd_config.d/agentless.conf\n"
    fix += "sudo systemctl reload ssh || sudo systemctl reload sshd"
    why = "Samples are polled and every request needs a connection of its own, so all is slower."
    return Check("sessions", "warning", seen, f"the SSH server allows only {seen} (MaxSessions)", fix, why)


def reach(node: NodeConfig, error: str | None, address: str) -> Check:
    """All of it in one check, by the name under which it was published first. `address` is the one that answers."""
    if error is None:
        return ok("reach", f"{address or address_of(node)} via {node.connection}")
    return Check("reach", "failed", "cannot be reached", error, words=error)


def _named(approach: Approach) -> str:
    if not approach.addresses:
        return approach.host
    found = ", ".join(approach.addresses)
    return (found if found == approach.host else f"{approach.host} is {found}") + _behind(approach)


def _behind(approach: Approach) -> str:
    return f" ({approach.via}; what is behind it was not looked at)" if approach.via else ""


def _name(node: NodeConfig, approach: Approach) -> Check:
    if approach.stopped == "route":
        why = "The SSH configuration does not lead to the node."
        return Check("name", "failed", node.host, approach.error, "", why, here=True)
    return Check(
        "name",
        "failed",
        f"no address for {approach.host}",
        f"{approach.host} is not a known host name ({approach.error})",
        f"# Correct 'host:' of {node.name} in the inventory, or add the address of the host:\n"
        f"# echo {shell_word(f'ADDRESS {approach.host}')} | sudo tee -a /etc/hosts",
        "The name in the inventory has to resolve where the controller runs.",
        here=True,
    )


def _tcp(node: NodeConfig, approach: Approach) -> Check:
    place = f"port {approach.port} of {approach.host}"
    seen, wrong = f"{place}: {approach.error}", f"{place} cannot be reached ({approach.error})"
    if approach.usual:
        wrong += f", but an SSH server answers at port 22 ({approach.usual})"
        file = "the inventory" if node.port else "~/.ssh/config (Port), or in the inventory"
        fix = f"# Set 'port: 22' for {node.name} in {file}."
        why = "The port is probably a wrong one."
        return Check("tcp", "failed", seen, wrong, fix, why, here=True)
    return Check(
        "tcp",
        "failed",
        seen,
        wrong,
        "# By the console of the node; the service is ssh on Debian and Ubuntu:\n"
        "sudo systemctl enable --now ssh || sudo systemctl enable --now sshd\n"
        f"# If its port is another one, set 'port:' of {node.name} in the inventory.\n"
        "# Or a firewall blocks it.",
        "Nothing answers at that address and port, so SSH cannot begin.",
    )


def _ssh(node: NodeConfig, approach: Approach) -> Check:
    return Check(
        "ssh",
        "failed",
        approach.error,
        f"port {approach.port} of {approach.host} does not answer like an SSH server: {approach.error}",
        f"# Set 'port:' of {node.name} in the inventory to the port of its SSH server; on the node, this shows it:\n"
        "sudo ss -ltnp | grep -E 'sshd|dropbear'  # shows it",
        "Another program listens there, or the server drops the connection (MaxStartups, fail2ban).",
    )


def _host_key(node: NodeConfig, failure: HostKeyRejected) -> Check:
    trust = f"agentless nodes trust {node.name}"
    place = failure.host + (f" at {failure.address}" if failure.address else "")
    if failure.revoked:
        why = "Whoever has this key can impersonate the node."
        return Check("host-key", "failed", failure.fingerprint, "the host key is revoked", "", why, words=str(failure))
    if not failure.recorded:
        wrong = f"the host key {failure.fingerprint} of {place} is not known"
        why = "Without a recorded key, another machine could pretend to be the node. Compare it first."
        return Check("host-key", "failed", failure.fingerprint, wrong, trust, why, here=True, words=str(failure))
    wrong = f"the host key of {place} has changed from {', '.join(failure.recorded)} to {failure.fingerprint}"
    forget = f"ssh-keygen -R {shell_word(failure.host)}"
    forget += f" -f {shell_word(failure.file)}" if failure.file else ""
    why = "The node was reinstalled, or another machine pretends to be it. Compare the key first."
    fix = f"# Another machine may pretend to be it: compare the key first. Then:\n# {forget}\n# {trust}"
    return Check("host-key", "failed", failure.fingerprint, wrong, fix, why, here=True, words=str(failure))


def _login(node: NodeConfig, contact: Contact) -> Check:
    failure = contact.failure
    words = str(failure)
    if not isinstance(failure, AuthFailed):
        fix = f"ssh -v {_target(node)} true  # shows what happens"
        why = "The server ended the connection before it let the user in."
        return Check("login", "failed", "the connection ended during the login", words, fix, why, True, words)
    why = "The public key has to be in ~/.ssh/authorized_keys of that user, and the server has to allow keys."
    return Check("login", "failed", "no key was accepted", failure.problem, failure.fix, why, True, words)


def _target(node: NodeConfig) -> str:
    port = f"-p {node.port} " if node.port and node.port != 22 else ""
    return port + shell_word(f"{node.user}@{node.host}" if node.user else node.host)
