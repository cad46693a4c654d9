"""A node's own Docker engine, and the one image it has: there is no registry to pull from."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .namespaces import Namespaces
from .processes import MARK

IMAGE = "lab/busybox:latest"
TAGS = [IMAGE, "busybox:latest"]
SBIN = "/usr/sbin:/usr/bin:/sbin:/bin"
GO = {"GOGC": "400"}
"""Programs in Go collect garbage less often. That was a fifth of what a short `docker` command costs."""
# /run and /etc/docker are empty and its own: there the engine keeps a key and the sockets of its containers.
# With its mount namespace they vanish when its processes end, and so do the mounts of its containers.
_PRIVATE = 'mount -t tmpfs -o mode=755 tmpfs /run && mount -t tmpfs tmpfs /etc/docker && {more}exec "$@"'


class Engine:
    """`dockerd` with a containerd of its own, in the node's namespaces.

    It must not share a network with another one: one that is not `alone` has one more of its own.
    """

    def __init__(
        self, folder: Path, lab: Path, space: Namespaces, cgroup: str, *, alone: bool = True, hook: bool = True
    ) -> None:
        self.socket = folder / "docker.sock"
        self._folder, self._lab, self._space, self._cgroup = folder, lab, space, cgroup
        self._own = ["--mount"] if alone else ["--mount", "--net"]
        self._process: subprocess.Popen[bytes] | None = None
        self._mounts: int | None = None
        if len(str(self.socket)) > 60:
            raise ValueError(f"{folder}: too long for Unix sockets, take a shorter folder for the lab")
        # An engine offers `--gpus` once a program of this name is on its PATH when it starts.
        program = folder / "bin" / "nvidia-container-runtime-hook"
        program.parent.mkdir(exist_ok=True)
        if hook:
            program.write_text("#!/bin/sh\nexec cat >/dev/null\n")
            program.chmod(0o755)
        folder.joinpath("tmp").mkdir()
        self.configure({})  # or it would read the machine's

    def configure(self, settings: Mapping[str, Any]) -> None:
        """What its daemon.json says from its next start on."""
        self._folder.joinpath("daemon.json").write_text(json.dumps(settings))

    def start(self, without: Sequence[str] = ()) -> None:
        """Start and wait until it answers; does nothing when it runs. Raises RuntimeError with its log.

        It does not see control groups that it is to be `without`, like `memory`.
        """
        if self._process and self._process.poll() is None:
            return
        at = self._folder
        # What a killed engine left: it would wait for a containerd whose PID is still there, as a zombie's is.
        for stale in (self.socket, at / "docker.pid", at / "run" / "containerd" / "containerd.pid"):
            stale.unlink(missing_ok=True)
        argv = ["dockerd", "--config-file", f"{at}/daemon.json", "--host", f"unix://{self.socket}"]
        argv += ["--data-root", f"{at}/docker", "--exec-root", f"{at}/run", "--pidfile", f"{at}/docker.pid"]
        argv += ["--exec-opt", "native.cgroupdriver=cgroupfs", "--cgroup-parent", f"{self._cgroup}/docker"]
        # A network of their own is a third of what the start of its containers costs.
        argv += ["--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-masq=false"]
        private = _PRIVATE.format(more="".join(f"umount /sys/fs/cgroup/{control} && " for control in without))
        start = ["unshare", *self._own, "sh", "-c", private, "sh"]
        if self._mounts is not None:
            start = ["nsenter", f"--mount=/proc/self/fd/{self._mounts}"]
        with at.joinpath("dockerd.log").open("ab") as log:
            self._process = self._space.popen(
                [*start, *argv],
                # TMPDIR, since containerd leaves a file there when dockerd finds it too slow at the start
                env={MARK: str(self._lab), "PATH": f"{at}/bin:{SBIN}", "TMPDIR": f"{at}/tmp", **GO},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                pass_fds=() if self._mounts is None else (self._mounts,),
            )
        self._wait_until_ready()

    def leave(self) -> None:
        """End it alone. With live-restore its containers go on, and its next start finds them: it has their mounts."""
        assert self._process
        self._mounts = os.open(f"/proc/{self._process.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        self._process.terminate()
        self.reap()

    def come_back(self) -> None:
        """Start after `leave`."""
        assert self._mounts is not None
        try:
            self.start()
        finally:
            os.close(self._mounts)
            self._mounts = None

    def stop(self) -> None:
        """End it as a service manager does; its containers are killed after 1 s instead of Docker's 10 s."""
        if not self._process:
            return
        with contextlib.suppress(subprocess.CalledProcessError):  # one may have ended by itself meanwhile
            if running := self.docker("ps", "--quiet").split():
                self.docker("stop", "-t", "1", *running)
        self._process.terminate()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def kill(self) -> None:
        """SIGKILL it. What it had running ends too and is found dead by the next start."""
        if self._process:
            self._process.kill()
            self.reap()

    def reap(self) -> None:
        """Collect the engine after somebody else has ended it."""
        if self._process:
            self._process.wait(30)
            self._process = None

    def load(self, archive: Path) -> None:
        """Give it the images of `archive`."""
        self.docker("load", "--quiet", "--input", str(archive))

    def remove_containers(self) -> None:
        """All of them, whatever they do; one that somebody else removes meanwhile is no error."""
        while everyone := self.ask("GET", "/containers/json?all=1"):
            for container in everyone:
                self.ask("DELETE", f"/containers/{container['Id']}?force=1&v=1")

    def docker(self, *words: str) -> str:
        """Run the Docker command against this engine; gives what it prints."""
        argv = ["docker", "--host", f"unix://{self.socket}", *words]
        done = self._space.run(argv, {"PATH": SBIN}, timeout=60)
        done.check_returncode()
        return done.stdout

    def ask(self, method: str, path: str) -> Any:
        """What the engine answers, None when it has nothing to say. A command that tells the same takes 0.1 s."""
        connection = http.client.HTTPConnection("engine", timeout=60)
        with socket.socket(socket.AF_UNIX) as connection.sock, contextlib.closing(connection):
            connection.sock.settimeout(60)
            connection.sock.connect(str(self.socket))
            connection.request(method, path)
            answer = connection.getresponse().read()
        return json.loads(answer) if answer else None

    def _wait_until_ready(self) -> None:
        try:
            self._wait_for_answer()
        except OSError as error:
            said = self._folder.joinpath("dockerd.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"dockerd does not start ({error}): {said}") from error

    def _wait_for_answer(self) -> None:
        """Ask once somebody listens on the socket: the engine takes the question early and answers when ready."""
        assert self._process
        deadline = time.monotonic() + 60
        with socket.socket(socket.AF_UNIX) as connection:
            while connection.connect_ex(str(self.socket)) != 0:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise OSError("nobody listens")
                time.sleep(0.01)
            connection.settimeout(60)
            connection.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            if b"200" not in connection.recv(64):
                raise OSError("it does not answer")


def write_image(file: Path) -> None:
    """Write an archive for `docker load`: a static busybox and all its commands.

    Loaded and not imported, so that all nodes have the same image ID, as when they pull from one registry.
    """
    layer = _layer()
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": machine,
        "os": "linux",
        "created": "2024-01-01T00:00:00Z",
        "config": {"Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "Cmd": ["sh"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": "2024-01-01T00:00:00Z", "created_by": "lab"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": TAGS, "Layers": ["layer.tar"]}]
    with tarfile.open(file, "w") as archive:
        _add(archive, "config.json", json.dumps(config).encode())
        _add(archive, "manifest.json", json.dumps(manifest).encode())
        _add(archive, "layer.tar", layer)


def _layer() -> bytes:
    busybox = str(shutil.which("busybox"))
    commands = subprocess.run([busybox, "--list"], check=True, capture_output=True, text=True).stdout.split()
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as layer:
        for folder in ("bin", "etc", "usr", "root", "tmp"):
            _add(layer, folder, mode=0o1777 if folder == "tmp" else 0o755, kind=tarfile.DIRTYPE)
        _add(layer, "etc/passwd", b"root:x:0:0::/root:/bin/sh\nnobody:x:65534:65534::/:/bin/false\n")
        _add(layer, "etc/group", b"root:x:0:\nnogroup:x:65534:\n")
        _add(layer, "bin/busybox", Path(busybox).read_bytes(), mode=0o755)
        for command in commands:
            if command != "busybox":
                _add(layer, f"bin/{command}", kind=tarfile.SYMTYPE, target="busybox")
        _add(layer, "usr/bin", kind=tarfile.SYMTYPE, target="../bin")
    return out.getvalue()


def _add(
    tar: tarfile.TarFile,
    name: str,
    data: bytes = b"",
    mode: int = 0o644,
    kind: bytes = tarfile.REGTYPE,
    target: str = "",
) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.type, entry.linkname = len(data), mode, kind, target
    tar.addfile(entry, io.BytesIO(data))
