"""A lab: nodes on one network, the keys to them, and a home folder from which `ssh NODE` works."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pwd
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Self

from tests.ports import reserve

from .engine import write_image
from .network import Network
from .node import Node
from .processes import MARK
from .sshd import make_key
from .suite import Kind, SuiteNode
from .systemd import SystemdNode
from .teardown import STATE, SUDOERS, remove


class Lab:
    """Nodes in the folder `root`, which is made, belongs to the lab and is removed with it.

    When nodes have Docker, choose a short one that every user may enter, not pytest's tmp_path: a Unix
    socket's path has at most 107 characters. `close` ends the lab; when this process dies before that, in
    whatever way, a guard process does it, unless `guarded` is false.
    """

    def __init__(self, root: Path, guarded: bool = True) -> None:
        self.root = root.resolve()
        self.home = self.root / "home"
        self.identity = self.home / ".ssh" / "id_ed25519"
        self.inventory = self.root / "inventory.yaml"
        self.nodes: dict[str, Node] = {}
        self._network: Network | None = None
        self._numbers = itertools.count(2)
        self._sockets: list[socket.socket] = []
        self._retired: list[Node] = []
        self.root.mkdir(parents=True, exist_ok=True)
        if any(self.root.iterdir()):
            raise FileExistsError(f"{self.root} is not empty: a lab removes its folder and all in it")
        self.root.chmod(0o755)
        self._write_state()
        # What a test mounts in it is there on the nodes, which have mounts of their own.
        subprocess.run(["mount", "--bind", "--make-shared", str(self.root), str(self.root)], check=True)
        self._guard = _start_guard(self.root) if guarded else None
        self.identity.parent.mkdir(parents=True, mode=0o700)
        make_key(self.identity)
        self.root.joinpath("authorized_keys").write_text(self.identity.with_suffix(".pub").read_text())
        self._write_ssh_files()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add_node(self, name: str, gpus: int = 2, docker: bool = True, namespace: bool = True, bashrc: str = "") -> Node:
        """A node that is ready for use. `bashrc` is the text of its sessions' ~/.bashrc.

        Without a namespace it is an sshd on a free port of 127.0.0.1, without a cable to pull or an engine.
        """
        return self.add_nodes({name: gpus}, docker, namespace, bashrc)[0]

    def add_nodes(
        self, gpus: Mapping[str, int], docker: bool = True, namespace: bool = True, bashrc: str = ""
    ) -> list[Node]:
        """Several, `gpus` says how many each name has. Their engines start together."""
        nodes = [self._add_host(name, count, namespace, bashrc) for name, count in gpus.items()]
        self._write_ssh_files()
        if docker:
            network, image = self._shared_network(), self._image()
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(lambda node: node.add_engine(network, image), nodes))
        return nodes

    def add_systemd_node(self, name: str, gpus: int = 2) -> SystemdNode:
        """A node with an engine and a systemd, in whose namespaces its sessions are; see there."""
        network, image = self._shared_network(), self._image()
        folder = self._make_folder(name)
        host = network.add_namespace(folder / "net", next(self._numbers))
        node = SystemdNode(name, folder, self.root, folder / "net", host, 22, gpus, "")
        self.nodes[name] = node
        node.add_engine(network, image)
        node.boot(network.name)
        node.start_sshd()
        self._write_ssh_files()
        return node

    def add_podman(self, name: str, gpus: int = 2) -> Node:
        """A node with podman in Docker's place."""
        node = self._add_host(name, gpus, True, "")
        self._write_ssh_files()
        node.add_podman(self._shared_network(), self._image())
        return node

    def add_suite_node(self, name: str, kind: Kind, gpus: int = 2) -> SuiteNode:
        """A node of another Debian release, with the engine of that release; see there."""
        network, image = self._shared_network(), self._image()
        folder = self._make_folder(name)
        host = network.add_namespace(folder / "net", next(self._numbers))
        node = SuiteNode(name, folder, self.root, host, gpus, kind)
        self.nodes[name] = node
        node.start_sshd()
        node.install(network, image)
        self._write_ssh_files()
        return node

    def retire(self, name: str) -> None:
        """A node that only some tests want is none of the lab's any more, and nothing runs there."""
        node = self.nodes.pop(name)
        self._retired.append(node)
        node.retire()
        self._write_ssh_files()

    def add_user(
        self, name: str, docker_group: bool = False, sudo: bool = False, shell: str | Path = "/bin/bash"
    ) -> str:
        """A user of this machine, and so of each node, that the lab's key opens; gives its login name.

        That is not `name` alone, since two labs may want the same. `sudo`, a Debian package of its own, asks no
        password and keeps DOCKER_HOST, or `sudo docker` would mean an engine of the machine.
        """
        login = f"{self._shared_network().name}{name}"
        home = self.root / f"home-{name}"
        home.mkdir()
        options = ["--no-create-home", "--no-user-group", f"--home-dir={home}", f"--shell={shell}"]
        options += ["--password=*"]  # the default, "!", locks an account for sshd
        options += ["--groups=docker"] if docker_group else []
        subprocess.run(["/usr/sbin/useradd", *options, login], check=True, capture_output=True)
        os.chown(home, pwd.getpwnam(login).pw_uid, -1)
        if sudo:
            rule = f"Defaults:{login} env_keep += DOCKER_HOST\n{login} ALL=(root) NOPASSWD: ALL\n"
            SUDOERS.joinpath(login).write_text(rule)
        return login

    def add_silent_server(self) -> tuple[str, int]:
        """A host and port that takes connections and never says a word: the kernel takes them."""
        server = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._sockets.append(server)
        return "127.0.0.1", server.getsockname()[1]

    def add_closing_server(self) -> tuple[str, int]:
        """A host and port that takes connections and hangs up at once."""
        server = socket.create_server(("127.0.0.1", 0), backlog=100)

        def hang_up() -> None:
            with contextlib.suppress(OSError):  # the lab is being closed
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        self._sockets.append(server)
        return "127.0.0.1", server.getsockname()[1]

    def env(self, name: str = "main") -> dict[str, str]:
        """The environment for running `agentless`.

        Another name has other XDG folders, and so another controller that knows nothing of the first.
        """
        folders = {
            "XDG_CONFIG_HOME": "config",
            "XDG_STATE_HOME": "state",
            "XDG_DATA_HOME": "data",
            "XDG_CACHE_HOME": "cache",
            "XDG_RUNTIME_DIR": "run",
        }
        paths = {variable: self.root / "xdg" / name / folder for variable, folder in folders.items()}
        for path in paths.values():
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
        return {
            "HOME": str(self.home),
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
            "LANG": "C.UTF-8",
            MARK: str(self.root),
            **{variable: str(path) for variable, path in paths.items()},
        }

    def reset(self) -> None:
        """Every node as new."""
        for node in self.nodes.values():
            node.reset()

    def close(self) -> None:
        """End everything and leave nothing behind; a second time does nothing."""
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # close alone does not wake a thread that accepts
            each.close()
        try:
            remove(self.root)
        finally:
            for node in (*self.nodes.values(), *self._retired):
                node.reap()
            if self._guard:
                self._guard.communicate()

    def _add_host(self, name: str, gpus: int, namespace: bool, bashrc: str) -> Node:
        """A node without an engine."""
        folder = self._make_folder(name)
        if namespace:
            netns, port = folder / "net", 22
            host = self._shared_network().add_namespace(netns, next(self._numbers))
        else:
            netns, port, host = None, self._reserve_port(), "127.0.0.1"
        node = Node(name, folder, self.root, netns, host, port, gpus, bashrc)
        self.nodes[name] = node
        node.start_sshd()
        return node

    def _make_folder(self, name: str) -> Path:
        if not re.fullmatch(r"[a-z][a-z0-9-]{0,20}", name):
            raise ValueError(f"{name!r} is no name for a node")
        folder = self.root / name
        folder.mkdir()
        return folder

    def _reserve_port(self) -> int:
        """A port of 127.0.0.1 that stays the lab's own, also while its sshd is stopped."""
        holder = reserve()
        self._sockets.append(holder)
        return int(holder.getsockname()[1])

    @property
    def network(self) -> str | None:
        """The bridge's name, with which the names of all links and cgroups of the lab begin."""
        return self._network.name if self._network else None

    def _shared_network(self) -> Network:
        if not self._network:
            self._network = Network.create()
            self._write_state()  # before anything else, so that an interrupted lab is removed with it
            self._network.up()
        return self._network

    def _image(self) -> Path:
        archive = self.root / "image.tar"
        if not archive.exists():
            write_image(archive)
        return archive

    def _write_state(self) -> None:
        """What `remove` needs to know and cannot see."""
        new = self.root / f".{STATE}"
        new.write_text(json.dumps({"network": self.network}))
        new.replace(self.root / STATE)

    def _write_ssh_files(self) -> None:
        """OpenSSH takes the home folder from the password database, not $HOME, so each path is in full."""
        known, config, inventory = "", "", "version: 1\nnodes:\n" if self.nodes else "version: 1\nnodes: {}\n"
        for node in self.nodes.values():
            at = node.host if node.port == 22 else f"[{node.host}]:{node.port}"
            known += f"{at} {node.host_public_key}\n"
            config += f"Host {node.name}\n  HostName {node.host}\n  Port {node.port}\n  User {node.user}\n"
            inventory += f"  {node.name}: {{host: {node.host}, port: {node.port}, user: {node.user}"
            inventory += f", identity_file: {self.identity}}}\n"
        config += f"Host *\n  User root\n  IdentityFile {self.identity}\n  IdentitiesOnly yes\n"
        config += f"  UserKnownHostsFile {self.home}/.ssh/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
        config += "  StrictHostKeyChecking yes\n  BatchMode yes\n"
        self.home.joinpath(".ssh", "known_hosts").write_text(known)
        self.home.joinpath(".ssh", "config").write_text(config)
        self.inventory.write_text(inventory)


def _start_guard(root: Path) -> subprocess.Popen[bytes]:
    """A process that removes the lab when this one is gone, however it went: then its standard input ends.

    It has a session of its own, so that a Ctrl-C does not reach it.
    """
    script = "import pathlib, sys; from tests.lab.teardown import remove; sys.stdin.read(); "
    argv = [sys.executable, "-c", script + "remove(pathlib.Path(sys.argv[1]))", str(root)]
    where = Path(__file__).parents[2]
    return subprocess.Popen(argv, cwd=where, stdin=subprocess.PIPE, start_new_session=True)
