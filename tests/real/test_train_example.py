"""The example that trains, typed as its page says, on real engines with an image that has a real Python."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pages import ROOT
from tests.reader import CTRL_C, ON_PYTHON, Help, Reader
from tests.real.cli import Cli, inventory_of

IMAGE = "python:3.12-slim"
LEFT_OUT = ("site-packages", "test", "idlelib", "tkinter", "ensurepip", "lib2to3", "__pycache__", "*.a")


@pytest.fixture
def reader(lab):
    """In a copy of the example's folder."""
    archive = lab.home / "python.tar"
    pack_python(archive)
    for node in lab.nodes.values():
        unpack = f"tar -x -C / && ln -s {Path(sys.executable).resolve()} /bin/python"
        node.sh(
            f"docker run --name python --interactive busybox sh -c '{unpack}' <{archive} && "
            f"docker commit python {IMAGE} && docker rm python"
        ).check_returncode()
    archive.unlink()
    cli = Cli(lab, "reader", inventory_of(lab, f"image: '{IMAGE}'")).settle()
    folder = lab.home / "train"
    shutil.copytree(ROOT / "docs" / "examples" / "train", folder)
    yield Reader(cli.env, folder, {"python collect.py": f"{sys.executable} collect.py"})
    shutil.rmtree(folder)
    lab.reset()
    for node in lab.nodes.values():
        node.sh(f"docker rmi --force {IMAGE}")
    cli.close()


def pack_python(archive):
    """This Python with its standard library and what it is linked with."""
    program, library = Path(sys.executable).resolve(), Path(shutil.__file__).parent
    named = [program, *library.glob("lib-dynload/*.so")]
    linked = subprocess.run(["ldd", *named], capture_output=True, text=True, check=False).stdout
    files = {program, library, *(Path(each) for each in re.findall(r"(?:=> |^\t)(/\S+)", linked, re.MULTILINE))}
    excluded = [f"--exclude={each}" for each in LEFT_OUT]
    subprocess.run(
        ["tar", "-c", "-h", "-f", archive, "-C", "/", *excluded, *(str(each)[1:] for each in files)], check=True
    )


@pytest.mark.slow
def test_the_example_trains_is_stopped_goes_on_and_is_swept(reader):
    helps = {"agentless logs -f long": Help(code=130, keys=[(": loss", CTRL_C)])}
    if wrong := reader.read((ROOT / ON_PYTHON).read_text(), helps, ()):
        pytest.fail(wrong, pytrace=False)
