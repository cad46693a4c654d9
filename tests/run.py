"""`make test`: every check there is, and at the end, in words, what could not run here and why.

The real ring needs a few Debian packages; as root on Debian they are installed. Elsewhere it is left out, in words.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "openssh-server",
    "docker.io",
    "busybox-static",
    "iproute2",
    "iptables",
    "sudo",
    "tmux",
    "rsync",
    "zstd",
    "podman",
    "systemd",
    "dbus",
    "libpam-systemd",
    "zsh",
    "fish",
    "tcsh",
    "dropbear-bin",
    "tinysshd",
    "slurm-wlm",
    "munge",
)
PROGRAMS = (
    "sshd",
    "dockerd",
    "busybox",
    "ip",
    "iptables",
    "sudo",
    "tmux",
    "rsync",
    "zstd",
    "systemctl",
    "dbus-daemon",
    "podman",
    "dropbear",
    "tinysshd",
    "tcsh",
    "slurmctld",
    "slurmd",
)
PYTHON = ("agentless", "tests", "docs")
BROWSER = "chromium"
BROWSER_TESTS = "tests/real/test_browser.py"
PROSE = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs", "tests/sentences/sentences.txt")
"""What people read."""
QUICK = ("-m", "not slow")
BY_FILE = ("--dist", "loadfile")
TWO = ("-n", "2", *BY_FILE)
THREE = ("-n", "3", *BY_FILE, "--no-loadscope-reorder")
"""Processes, each with nodes of its own, for which a test often waits: on two processors three keep them busy."""


@dataclass(frozen=True)
class Step:
    """One check: its name, its command, and why it cannot run here (None: it can).

    One that runs `beside` the others is begun before them, lets them have the processor first, and is shown at the end.
    """

    name: str
    command: tuple[str, ...]
    missing: str | None = None
    beside: bool = False


def static() -> list[Step]:
    """Style, types, import contracts, and the spelling and style of what people read."""
    return [
        Step("style", ("ruff", "check", *PYTHON)),
        Step("format", ("ruff", "format", "--check", *PYTHON)),
        Step("types", ("mypy",)),
        Step("imports", ("lint-imports",)),
        Step("spelling", ("codespell", *PROSE, "templates", "inventory.example.yaml")),
        Step("prose", ("proselint", "check", "--config", "tests/sentences/proselint.json", *PROSE)),
    ]


def rings(real: str | None, browser: str | None) -> list[Step]:
    """The three rings of tests; of the real one, what wants a browser and no nodes is a step of its own."""
    return [
        Step("fleet ring", ("nice", "pytest", "-q", *TWO, *QUICK, "tests/fleet"), beside=True),
        Step("pure ring", ("nice", "pytest", "-q", "-n", "2", *QUICK, "tests/pure"), beside=True),
        Step("browser", ("pytest", "-q", BROWSER_TESTS), browser),
        Step(
            "real ring", ("pytest", "-q", *THREE, *QUICK, "tests/real", "tests/lab", f"--ignore={BROWSER_TESTS}"), real
        ),
    ]


def prepare_real() -> str | None:
    """Install what the real ring needs where that is possible; why it cannot run, None when it can."""
    path = os.environ["PATH"] + ":/usr/sbin:/sbin"
    os.environ["PATH"] = path
    absent = _absent(PROGRAMS, PACKAGES)
    if os.geteuid() != 0:
        return "it makes network namespaces and engines, which only root may"
    if absent:
        return f"{', '.join(absent)} missing (Debian: apt-get install {' '.join(PACKAGES)})"
    from tests.lab.requirements import requirements

    return "; ".join(requirements()) or None


def prepare_browser() -> str | None:
    """Likewise for a browser, which not every Debian-like system has as a package."""
    return f"no {BROWSER} (Debian: apt-get install {BROWSER})" if _absent((BROWSER,), (BROWSER,)) else None


def _absent(programs: tuple[str, ...], packages: tuple[str, ...]) -> list[str]:
    """The programs that are not there, even after an attempt to install them."""
    absent = [program for program in programs if shutil.which(program) is None]
    if not absent or os.geteuid() != 0 or not shutil.which("apt-get"):
        return absent
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("update",), ("install", "-y", "--no-install-recommends", *packages)):
        subprocess.run(("apt-get", "-qq", *command), env=environment, stdout=subprocess.DEVNULL, check=False)
    return [program for program in programs if shutil.which(program) is None]


class Rings:
    """What has been started; it ends when this process is told to."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[bytes]] = []
        self.ended_by = 0
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, self._end)

    def start(self, step: Step, output: IO[bytes] | None) -> subprocess.Popen[bytes]:
        """Begin one."""
        process = subprocess.Popen(step.command, cwd=ROOT, stdout=output, stderr=output)
        self._started.append(process)
        if self.ended_by:
            process.send_signal(signal.SIGINT)
        return process

    def _end(self, number: int, _: object) -> None:
        """As Ctrl-C, which reaches them by itself: they tidy up."""
        self.ended_by = number
        for process in self._started:
            process.send_signal(signal.SIGINT)


def main() -> int:
    """Run all steps, also after one has failed."""
    sys.path.insert(0, str(ROOT))
    import tests  # noqa: F401 - what they need of their surroundings holds for all that is started here

    only_static = "--static" in sys.argv[1:]
    steps = static() if only_static else [*static(), *rings(prepare_real(), prepare_browser())]
    steps.sort(key=lambda step: not step.beside)
    lines, failed, beside, begun = [], False, [], Rings()
    for step in steps:
        if step.missing is not None:
            lines.append(f"  NOT RUN  {step.name}: {step.missing}")
            continue
        if begun.ended_by:
            break
        if step.beside:
            output = tempfile.TemporaryFile()  # noqa: SIM115 - read and closed below
            beside.append((step, time.monotonic(), output, begun.start(step, output)))
            continue
        print(f"--- {step.name}: {' '.join(step.command)}", flush=True)
        began = time.monotonic()
        code = begun.start(step, None).wait()
        failed = failed or code != 0
        lines.append(_line(step, began, code))
    for step, began, output, process in beside:
        code = process.wait()
        failed = failed or code != 0
        lines.append(_line(step, began, code))
        print(f"--- {step.name}: {' '.join(step.command)}", flush=True)
        with output:
            output.seek(0)
            print(output.read().decode(errors="replace"), flush=True)
    if begun.ended_by:
        return 128 + begun.ended_by
    print("\n--- all checks\n" + "\n".join(lines))
    return int(failed)


def _line(step: Step, began: float, code: int) -> str:
    return f"  {'ok      ' if code == 0 else 'FAILED  '} {step.name} ({time.monotonic() - began:.0f} s)"


if __name__ == "__main__":
    sys.exit(main())
