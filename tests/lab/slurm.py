"""A real Slurm on this machine: `munged`, `slurmctld`, and a `slurmd` for each node, in one folder. As root.

GPUs are plain files, which Slurm takes for devices. Nothing is confined but the memory of jobs, if that is wanted.
`speed` other than 1 makes time pass so much faster for the daemons, through Debian's libfaketime, which counts their
sleeps and timeouts in the same time: all of Slurm's intervals, limits and delays keep their proportions. What runs in a
job has the machine's time. Then nobody is authenticated: a client of munge waits two seconds for its answer, which are
a millisecond there.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.ports import reserve

from .accounting import Accounting
from .engine import SBIN
from .lab import Lab
from .node import Node
from .processes import MARK, descendants, kill, marked, processes
from .roots import root_of

_PROGRAMS = {
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "munged": "munge",
    "faketime": "faketime",
}
COMMANDS = ("sbatch", "squeue", "scancel", "scontrol", "srun", "sacct", "sinfo", "sacctmgr")
CORES_PER_GPU = 8
MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")
"""Where the control groups for memory are; only those of version 1 can be used without a systemd."""
_START = 60.0
_LONG = "60000"
"""Seconds, as many as Slurm allows, for what must not happen since time passes faster."""

_SETTINGS = {
    "ClusterName": "lab",
    "SlurmUser": "root",
    "SlurmdUser": "root",
    "CommunicationParameters": "NoInAddrAny,NoCtldInAddrAny",
    "ProctrackType": "proctrack/linuxproc",
    "TaskPlugin": "task/none",
    "JobAcctGatherType": "jobacct_gather/none",
    "MpiDefault": "none",
    "JobCompType": "jobcomp/filetxt",
    "SelectType": "select/cons_tres",
    "SelectTypeParameters": "CR_Core",
    "SchedulerType": "sched/backfill",
    "PriorityType": "priority/basic",
    "GresTypes": "gpu",
    "ReturnToService": "2",
    "SlurmdParameters": "config_overrides",  # more cores than the machine has
}

# A command in the root of another release. There, where a job may call it once more, it is a plain command.
_ENTER = """#!/bin/sh
[ -d {root} ] || exec "$@"
exec unshare --mount sh -c '
  for at in proc sys dev tmp root etc/hosts; do mount --rbind "/$at" {root}/"$at" || exit; done
  exec unshare --root={root} --wd="$PWD" "$@"' sh "$@"
"""
# Timeouts would be milliseconds where time passes faster.
_FAST = {
    "AuthType": "auth/none",
    "CredType": "cred/none",
    "MessageTimeout": _LONG,
    "TCPTimeout": _LONG,
    "BatchStartTimeout": _LONG,
    "UnkillableStepTimeout": _LONG,
    "SlurmctldTimeout": _LONG,
    "SlurmdTimeout": "0",
}


def missing(faketime: bool = True) -> list[str]:
    """What this machine lacks, in words; `faketime` is for time that passes faster."""
    if os.geteuid() != 0:
        return ["not root"]
    return [
        f"no {program} (Debian's package {package})"
        for program, package in _PROGRAMS.items()
        if not shutil.which(program, path=SBIN) and (faketime or program != "faketime")
    ]


class Slurm:
    """`nodes` are the numbers of their GPUs by name; `partitions` and `settings` are words of slurm.conf.

    With `accounting` there is a slurmdbd, with a MariaDB of its own. With $AGENTLESS_LAB_SLURM, one of `roots.SLURMS`,
    the programs are those of another Debian release. With `memory` (MB of a node), jobs are confined to theirs. Then
    the names of the nodes are those of control groups, which no other test may have.

    A context manager: the daemons run inside, and nothing of them is left outside but the folder.
    """

    def __init__(
        self,
        folder: Path,
        nodes: Mapping[str, int],
        partitions: Mapping[str, str],
        settings: Mapping[str, str] | None = None,
        speed: float = 1,
        accounting: bool = False,
        memory: int | None = None,
    ) -> None:
        self.completed = folder / "completed"
        self._held = contextlib.ExitStack()
        self._folder = folder
        self._nodes = nodes
        self._partitions = partitions
        by_speed = {"AuthType": "auth/munge", "AuthInfo": f"socket={folder}/munge/socket"} if speed == 1 else _FAST
        self._settings = {**_SETTINGS, **by_speed, **(settings or {})}
        self._memory = memory
        if memory:
            self._settings |= {"TaskPlugin": "task/cgroup", "SelectTypeParameters": "CR_Core_Memory"}
        self._speed = speed
        self._accounting = Accounting(folder, self._port(), self._port()) if accounting else None
        if self._accounting:
            self._settings.update(self._accounting.settings)
        self._process: subprocess.Popen[bytes] | None = None
        self._enter: list[str] = []
        self._suite = os.environ.get("AGENTLESS_LAB_SLURM")
        if self._suite:
            file = folder / "enter"
            file.write_text(_ENTER.format(root=shlex.quote(str(root_of(self._suite)))))
            file.chmod(0o755)
            self._enter = [str(file)]

    @property
    def env(self) -> dict[str, str]:
        """The environment of Slurm's commands. `MARK` is inherited by jobs."""
        return {"SLURM_CONF": str(self._folder / "slurm.conf"), "PATH": SBIN, MARK: str(self._folder), "TZ": "UTC"}

    def run(self, *argv: str) -> str:
        """What a command of Slurm prints; raises RuntimeError with what it says if it fails."""
        # A job writes its output where it was submitted.
        ran = subprocess.run(
            [*self._enter, *argv],
            env=self.env,
            cwd=self._folder,
            check=False,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        if ran.returncode != 0:
            raise RuntimeError(f"{argv[0]}: {ran.stderr.strip()}")
        return ran.stdout

    def login_of(self, lab: Lab) -> tuple[Node, str]:
        """A login node with Slurm's commands, which mean this cluster, and the keys of an inventory that lead to it.

        A job has the PATH of the login.
        """
        login = lab.add_node("login", gpus=0, docker=False, namespace=False)
        for name in COMMANDS:
            file = login.dir / "bin" / name
            file.parent.mkdir(exist_ok=True)
            program = shlex.join([*self._enter, f"/usr/bin/{name}"])
            file.write_text(f'#!/bin/sh\nexport SLURM_CONF={self.env["SLURM_CONF"]}\nexec {program} "$@"\n')
            file.chmod(0o755)
        return login, f"host: {login.host}, port: {login.port}, user: root, identity_file: {lab.identity}"

    def wait_until_saved(self, job: str) -> None:
        """Wait until slurmctld has written what it knows of a job, which it does some seconds after a change."""
        file, began = self._folder / "state" / "job_state", time.time()
        self.run("scontrol", "update", f"jobid={job}", "nice=0")
        self._wait_until("its state is saved", lambda: file.stat().st_mtime > began)

    @contextlib.contextmanager
    def without_controller(self) -> Iterator[None]:
        """Inside, slurmctld is dead by SIGKILL; it comes back with the state that it has saved."""
        pid = int(self._folder.joinpath("slurmctld.pid").read_text())
        os.kill(pid, signal.SIGKILL)
        yield
        with self._folder.joinpath("logs", "daemons").open("ab") as log:
            again = subprocess.Popen(
                [*self._enter, "slurmctld", "-D"], env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._held.callback(again.wait)
        self._wait_until("slurmctld answers", lambda: "is UP" in self.run("scontrol", "ping"))

    def forget(self) -> None:
        """Let slurmctld, which is dead, have lost all of its state when it comes back: it counts from 1."""
        shutil.rmtree(self._folder / "state")
        (self._folder / "state").mkdir()

    @contextlib.contextmanager
    def frozen_controller(self) -> Iterator[None]:
        """Inside, slurmctld takes connections and answers nothing."""
        pid = int(self._folder.joinpath("slurmctld.pid").read_text())
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        try:
            self._write()
            self._start()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    # ------------------------------------------------------------------ inside

    def _write(self) -> None:
        at = self._folder
        for name in ("munge", "state", "spool", "gpus", "logs"):
            at.joinpath(name).mkdir()
        at.chmod(0o755)  # munge wants to be reached by everyone
        at.joinpath("munge", "key").write_bytes(os.urandom(128))
        at.joinpath("munge", "key").chmod(0o400)
        at.joinpath("munge").chmod(0o711)
        for index in range(max(self._nodes.values())):
            at.joinpath("gpus", f"gpu{index}").touch()
        # 20.11 has no such key, and would need none.
        groups = "" if self._suite == "bullseye-slurm" else "CgroupPlugin=cgroup/v1\n"
        at.joinpath("cgroup.conf").write_text(groups + ("ConstrainRAMSpace=yes\n" if self._memory else ""))
        at.joinpath("gres.conf").write_text(
            "".join(
                f"NodeName={name} Name=gpu File={at}/gpus/gpu[0-{count - 1}]\n" for name, count in self._nodes.items()
            )
        )
        at.joinpath("slurm.conf").write_text("\n".join([*self._lines(), ""]))

    def _lines(self) -> list[str]:
        at, host = self._folder, socket.gethostname().partition(".")[0]
        paths = {
            "StateSaveLocation": f"{at}/state",
            "SlurmdSpoolDir": f"{at}/spool/%n",
            "SlurmctldPidFile": f"{at}/slurmctld.pid",
            "SlurmdPidFile": f"{at}/%n.pid",
            "SlurmctldLogFile": f"{at}/logs/slurmctld",
            "SlurmdLogFile": f"{at}/logs/%n",
            "JobCompLoc": f"{self.completed}",
        }
        lines = [f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={self._port()}"]
        lines += [f"{name}={value}" for name, value in {**paths, **self._settings}.items()]
        for name, gpus in self._nodes.items():
            where = f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={self._port()}"
            cores = f"Sockets=1 CoresPerSocket={CORES_PER_GPU * gpus} ThreadsPerCore=1"
            memory = f" RealMemory={self._memory}" if self._memory else ""
            lines.append(f"{where} {cores}{memory} Gres=gpu:{gpus}")
        return lines + [f"PartitionName={name} Nodes=ALL {words}" for name, words in self._partitions.items()]

    def _port(self) -> int:
        holder = self._held.enter_context(reserve())
        port: int = holder.getsockname()[1]
        return port

    def _start(self) -> None:
        at, env = self._folder, self.env
        if self._speed == 1:
            files = [f"--{name}-file={at}/munge/{name}" for name in ("key", "pid", "log", "seed")]
            munged = [*self._enter, "munged", *files, f"--socket={at}/munge/socket"]
            subprocess.run(munged, env=env, check=True, capture_output=True)
        if self._accounting:
            self._accounting.start(self.env, self._enter)
            self._wait_until("slurmdbd answers", lambda: not self.run("sacctmgr", "--noheader", "show", "cluster"))
            with contextlib.suppress(RuntimeError):  # it tells of what it has done as of a failure
                self.run("sacctmgr", "--immediate", "add", "cluster", "lab")
        # The kernel has another name for them: a lab's node with the processes of the machine is not managed by them.
        at.joinpath("lab-slurmd").symlink_to("/usr/sbin/slurmd")
        daemons = ["slurmctld -D -i", *(f"exec -a slurmd {at}/lab-slurmd -D -N {name}" for name in self._nodes)]
        script = " & ".join(daemons) + " & wait"
        # One `faketime` above all of them: it keeps the moment from which they all count.
        fast = ["faketime", "-f", f"+0 x{self._speed:g}"] if self._speed != 1 else []
        with at.joinpath("logs", "daemons").open("ab") as log:
            self._process = subprocess.Popen(
                [*self._enter, *fast, "bash", "-c", script],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._wait_until("all nodes are idle", self._is_idle)

    def _is_idle(self) -> bool:
        seen = self.run("sinfo", "--noheader", "--Node", "--format=%N %t")
        return {line.split()[0] for line in seen.splitlines() if line.endswith(" idle")} == set(self._nodes)

    def _wait_until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _START
        while time.monotonic() < deadline:
            with contextlib.suppress(RuntimeError):
                if condition():
                    return
            time.sleep(0.1)
        logs = "".join(log.read_text(errors="replace")[-2000:] for log in self._folder.joinpath("logs").iterdir())
        raise RuntimeError(f"Slurm does not start: not so that {what}\n{logs}")

    def _end(self) -> None:
        for _ in range(1000):
            everyone = processes()
            ours = marked(MARK, self._folder, everyone) | {pid for pid in everyone if self._has_open(pid)}
            ours = (ours | descendants(ours, everyone)) - {os.getpid()}
            if not ours:
                break
            kill(ours)
            time.sleep(0.02)
        if self._process:
            self._process.wait()
        if self._memory:
            groups = [MEMORY_GROUPS / f"slurm_{name}" for name in self._nodes]
            subprocess.run(["find", *groups, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";"], check=False)
        self._held.close()

    def _has_open(self, pid: int) -> bool:
        """A slurmstepd writes its title over its environment, but it has its node's log open."""
        with contextlib.suppress(OSError):
            return any(
                f"{self._folder}/" in os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")
            )
        return False
