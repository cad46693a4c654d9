"""One real node, and what can go wrong with it."""

from __future__ import annotations

import pwd
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .engine import GO, IMAGE, Engine
from .gpus import Gpus
from .namespaces import Namespaces
from .network import Network, set_link
from .podman import Podman
from .processes import MARK, SESSION_MARK, marked, processes
from .rootless import Rootless
from .servers import Servers
from .sshd import Sshd


class Node:
    """A node of a `Lab`. Made by `Lab.add_node`; each fault has its cure beside it, and `reset` cures all.

    The nodes share the machine's files: `/` is one folder for all of them, and so is a lock on it.
    """

    standin_image = IMAGE
    user = "root"
    """Who its sessions are, where nobody else is asked for."""

    def __init__(
        self,
        name: str,
        folder: Path,
        lab: Path,
        netns: Path | None,
        address: str,
        port: int,
        gpus: int,
        bashrc: str,
        space: Namespaces | None = None,
    ) -> None:
        self.name, self.dir, self.host, self.port = name, folder, address, port
        self.docker_socket = folder / "docker.sock"
        self._lab, self._netns = lab, netns
        self._gpus = Gpus(name, folder / "gpus", gpus)
        folder.joinpath("home").mkdir()
        folder.joinpath("home", ".bashrc").write_text(bashrc)
        self._space = space or Namespaces(netns, lab)
        self._sshd = Sshd(folder, lab, address, port, self._space, {**self.env(), SESSION_MARK: str(folder)})
        self._engine: Engine | None = None
        self._beside: list[Engine | Rootless] = []
        self._podman: Podman | None = None
        self._other: Podman | None = None
        self._servers: Servers | None = None
        self._cut = False
        self._processes: list[subprocess.Popen[bytes]] = []

    def add_engine(self, network: Network, image: Path) -> None:
        """Give it a Docker engine that has the image in `image`."""
        assert self._netns, f"{self.name} has no network of its own, which an engine needs"
        self._engine = Engine(self.dir, self._lab, self._space, f"/{network.name}")
        self._engine.start()
        self._engine.load(image)

    def add_podman(self, network: Network, image: Path) -> None:
        """Give it a podman command that has the image in `image`, and GPUs whose UUIDs no other lab's have."""
        assert self._netns, f"{self.name} has no network of its own, which containers need"
        self._gpus.call(f"{self.name}-{network.name}")
        self._podman = Podman(self.dir, self._space, network.name, self.name)
        self._podman.offer(self.gpu_uuids)
        self._podman.load(image, self.env())

    def second_engine(self, network: Network) -> str:
        """Start another Docker engine of root's; gives the command that means it."""
        folder = self.dir / "second"
        folder.mkdir()
        engine = Engine(folder, self._lab, self._space, f"/{network.name}/second", alone=False)
        return self._add_beside(engine)

    def rootless_engine(self, login: str) -> str:
        """Start a user's own Docker engine, that nobody else may ask; gives the command that means it."""
        user = pwd.getpwnam(login)
        return self._add_beside(
            Rootless(self.dir / f"rootless-{login}", self._lab, self._space, user.pw_uid, user.pw_gid)
        )

    def stop_beside(self) -> None:
        """End the engines that were started beside the node's own."""
        for engine in self._beside:
            engine.stop()
        self._beside.clear()

    def _add_beside(self, engine: Engine | Rootless) -> str:
        engine.start()
        self._beside.append(engine)
        engine.load(self._lab / "image.tar")
        return f"docker --host unix://{engine.socket}"

    @property
    def gpu_uuids(self) -> list[str]:
        """In the order of the GPUs' indices."""
        return self._gpus.uuids

    @property
    def host_public_key(self) -> str:
        """`ssh-ed25519 AAAA…`, the key that its sshd shows at present."""
        return self._sshd.public_key

    def env(self) -> dict[str, str]:
        """The environment that makes `docker` and `nvidia-smi` mean this node.

        DOCKER_HOST is set without an engine too: a command must never reach an engine of the machine itself.
        """
        return {
            "PATH": f"{self.dir}/bin:/usr/bin:/bin",
            "HOME": f"{self.dir}/home",
            "DOCKER_HOST": f"unix://{self.docker_socket}",
            "AGENTLESS_STANDIN_DIR": str(self._gpus.folder),
            MARK: str(self._lab),
            **GO,
        }

    def sh(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script on the node, not over SSH. A non-zero exit is a result; one minute is the limit."""
        return self._space.run(["sh", "-c", script], self.env(), timeout=60)

    def ask_docker(self, method: str, path: str) -> Any:
        """What its Docker engine answers to a request of its API, see `Engine.ask`."""
        assert self._engine, f"{self.name} has no engine"
        return self._engine.ask(method, path)

    def leftovers(self) -> list[tuple[int, str]]:
        """What lives on this node of all that came in over SSH, as (PID, command line), without sshd itself.

        That is the sessions that are open and whatever outlived one.
        """
        everyone = processes()
        inside = self._sshd.descendants(everyone) | marked(SESSION_MARK, self.dir, everyone)
        ours = [everyone[pid] for pid in inside if not everyone[pid].name.startswith("sshd")]
        return sorted((process.pid, process.command) for process in ours)

    def start_sshd(self) -> None:
        """Listen again."""
        self._sshd.start()

    def allow_sessions(self, number: int | None) -> None:
        """Its sshd comes back, and allows so many sessions on a connection; None: the usual 10."""
        self._sshd.allow_sessions(number)

    def logins(self) -> int:
        """How often its sshd has let somebody in."""
        return self._sshd.logins()

    def other_servers(self) -> Servers:
        """SSH servers beside its sshd, none of which runs yet."""
        if not self._servers:
            self._servers = Servers(self.dir / "servers", self._lab, self.host, self._space, self.env())
        return self._servers

    def stop_sshd(self) -> None:
        """Connections are refused, and those that were open end."""
        self._sshd.stop()

    def kill_connections(self) -> None:
        """SIGKILL the sshd process of each open connection of this node; new ones are taken."""
        self._sshd.kill_connections()

    def new_host_key(self) -> None:
        """Come back with another host key. The lab's known_hosts keeps the first one."""
        self._sshd.new_host_key()

    def cut(self) -> None:
        """Pull the network cable: open connections fall silent, a new one gets "no route" after some 3 s."""
        self._plug(False)

    def restore(self) -> None:
        """Plug the cable in again; connections that were open go on."""
        self._plug(True)

    def start_docker(self, without: Sequence[str] = ()) -> None:
        """Start the engine again, `without` these control groups; its stopped containers are still there."""
        assert self._engine, f"{self.name} has no engine"
        self._engine.start(without)

    def stop_docker(self) -> None:
        """End the engine and, as a service manager does, its containers."""
        assert self._engine, f"{self.name} has no engine"
        self._engine.stop()

    def kill_docker(self) -> None:
        """A crash, or a power cut: after `start_docker` the containers that ran have exited with 255."""
        assert self._engine, f"{self.name} has no engine"
        self._engine.kill()

    def other_podman(self) -> str:
        """The command of a podman that knows nothing of the first one's containers, as another user's does not."""
        assert self._podman, f"{self.name} has no podman"
        if not self._other:
            self._other = self._podman.other()
            self._other.load(self._lab / "image.tar", self.env())
        return str(self._other.program)

    def reboot_podman(self) -> None:
        """What podman finds after a power cut: its containers are there, and none of them runs."""
        assert self._podman, f"{self.name} has no podman"
        self._podman.reboot()

    def set_gpus(self, rows: int | Sequence[Mapping[str, str]]) -> None:
        """A number of idle GPUs, or per GPU the readings that differ from an idle one's, by field name."""
        self._gpus.set(rows)

    def say_slices(self, listed: str, table: str) -> None:
        """What nvidia-smi says of slices, as a real driver does: with -L, and without arguments."""
        self._gpus.say(listed, table)

    def offer_devices(self, uuids: Sequence[str]) -> None:
        """What podman's CDI file lists, each as `LAB_GPU_<n>` in the container that gets it."""
        assert self._podman, f"{self.name} has no podman"
        self._podman.offer(uuids)

    def fault(self, text: str | None) -> None:
        """What nvidia-smi does: "hang", or "exit N" or "text" and lines to print. None: it works again."""
        self._gpus.set_fault(text)

    def add_process(self, gpu: int, argv: Sequence[str], memory_mib: int = 1024) -> subprocess.Popen[bytes]:
        """Start a process on the node, outside any container, that uses a GPU."""
        process = self.start(argv)
        self.use_gpu(gpu, self.pid(process), argv[0], memory_mib)
        return process

    def start(self, argv: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start a process on the node, outside any container; `reset` ends it."""
        process = self._space.popen(
            argv,
            env=self.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        return process

    def pid(self, process: subprocess.Popen[bytes]) -> int:
        """The PID by which the node knows what `add_process` has started."""
        return self._space.pid(process)

    def use_gpu(self, gpu: int, pid: int, name: str = "python", memory_mib: int = 1024) -> None:
        """Show a process that exists, as one in a container, as a user of a GPU."""
        self._gpus.use(gpu, pid, name, memory_mib)

    def reset(self) -> None:
        """As new: no fault, no container, no process of `add_process`, the first host key, idle GPUs."""
        self._plug(True)
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()
        self._gpus.reset()
        self._sshd.first_host_key()
        self._sshd.allow_sessions(None)
        self._sshd.start()
        if self._engine:
            self._engine.start()
            self._engine.remove_containers()
        for engine in self._beside:
            engine.remove_containers()
        for podman in filter(None, (self._podman, self._other)):
            podman.remove_containers(self.env())

    def retire(self) -> None:
        """End what runs there; the rest goes with the lab."""
        self.reset()
        self._sshd.stop()
        self.stop_beside()
        if self._servers:
            self._servers.stop()
        if self._engine:
            self._engine.stop()

    def reap(self) -> None:
        """Collect the node's processes after the lab's teardown has ended them."""
        for process in self._processes:
            process.wait(30)
        self._sshd.reap()
        if self._engine:
            self._engine.reap()
        for engine in self._beside:
            engine.reap()
        self._space.reap()

    def _plug(self, into: bool) -> None:
        if self._cut == into:
            assert self._netns, f"{self.name} has no network of its own"
            set_link(self._netns, into)
            self._cut = not into
