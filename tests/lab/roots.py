"""Root folders of other Debian releases, with the engines of that release: each is made once and kept.

They are in the folder $AGENTLESS_LAB_ROOTS. A node puts an overlay on one and never changes it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

ENGINES = {"trixie": "Docker 26, podman 5.4", "sid": "Docker 28, podman 5.8"}
"""The releases that a node may have, and their engines."""

_PACKAGES = (
    "openssh-server docker.io docker-cli iptables nftables zstd python3 podman crun runc netavark aardvark-dns uidmap "
    "slirp4netns passt fuse-overlayfs iproute2 procps dbus-user-session rootlesskit dropbear-bin tinysshd fish tcsh zsh"
)
MPI = "bookworm-mpi"
"""A root that is no node's: the programs of images for tasks on several nodes, with PyTorch."""
SLURMS = {"bullseye-slurm": "20.11", "trixie-slurm": "24.11", "sid-slurm": "26.05"}
"""Roots that are no node's either, and their versions of Slurm."""
_FOR = {
    "": _PACKAGES,
    "mpi": "openmpi-bin openssh-server openssh-client python3-mpi4py",
    "slurm": "slurm-wlm slurmdbd munge python3",
}

_INSTALL = """
printf '#!/bin/sh\\nexit 101\\n' > /usr/sbin/policy-rc.d
chmod +x /usr/sbin/policy-rc.d
touch /etc/hosts
apt-get update -qq -o Acquire::Check-Valid-Until=false
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends """
_TORCH = "torch==2.13.0+cpu"
"""A build without CUDA, which would have several GB."""


def root_of(suite: str) -> Path:
    """The root of this release, made if it is not there yet: a minute or two, and 1 GB."""
    root = _at(suite)
    if root.is_dir():
        return root
    root.parent.mkdir(parents=True, exist_ok=True)
    with _locked(root.with_suffix(".lock")):
        if not root.is_dir():
            _make(suite, root)
    return root


def is_made(suite: str) -> bool:
    """Whether the root is there already."""
    return _at(suite).is_dir()


def missing_for(suite: str) -> list[str]:
    """What a root of this release lacks on this machine, nothing when it is there or can be made."""
    if is_made(suite):
        return []
    if os.geteuid() != 0:
        return ["not root"]
    if not shutil.which("debootstrap", path="/usr/sbin:/usr/bin:/sbin:/bin"):
        return ["no debootstrap (Debian's package debootstrap)"]
    if not (mirror := _mirror()):
        return ["apt has no mirror of Debian on this machine"]
    try:
        with urllib.request.urlopen(f"{mirror}/dists/{suite.partition('-')[0]}/InRelease", timeout=10):
            return []
    except (urllib.error.URLError, OSError) as error:
        return [f"cannot reach the mirror that apt uses: {error}"]


def _at(suite: str) -> Path:
    return Path(os.environ.get("AGENTLESS_LAB_ROOTS") or "/var/tmp/agentless-lab-roots", suite)


def _mirror() -> str | None:
    """The address from which apt gets Debian's packages here."""
    argv = ["apt-get", "indextargets", "--format", "$(LABEL)|$(REPO_URI)", "Created-By: Packages"]
    with contextlib.suppress(OSError):
        said = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60).stdout
        for line in said.splitlines():
            label, _, address = line.partition("|")
            if label == "Debian":
                return address.rstrip("/")
    return None


def _make(suite: str, root: Path) -> None:
    """Under another name until it is whole."""
    new = root.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    release, _, purpose = suite.partition("-")
    steps = [
        ["debootstrap", "--variant=minbase", release, str(new), str(_mirror())],
        ["chroot", str(new), "sh", "-c", _INSTALL + _FOR[purpose]],
    ]
    if suite == MPI:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:", "--python-version=3.11"]
        steps.append([*pip, f"--target={new}/usr/local/lib/python3.11/dist-packages", _TORCH])
    for argv in steps:
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=1800)
        if done.returncode != 0:
            raise RuntimeError(f"no root of {suite}: {(done.stdout + done.stderr)[-2000:]}")
    new.rename(root)


@contextlib.contextmanager
def _locked(file: Path) -> Iterator[None]:
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
