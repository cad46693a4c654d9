"""A container image of 3 KB whose only program prints which devices and variables a container has.

For nodes that have no image with a shell. The program needs no library: it writes what the kernel says of `/dev` and
`/dev/dri` (names between zeros) and its environment to standard output. Its source is in `tests/pure/data/look/`, and a
test assembles it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from dataclasses import dataclass

from agentless.formats.tar_writing import END, file, header

REPOSITORY = "agentless-doctor"
LABEL = "agentless.doctor.image"
"""The label of such an image. A container inherits it, so it is not that of the containers of a trial."""
PROGRAM = "/look"
_BASE = 0x400000


@dataclass(frozen=True, slots=True)
class _Processor:
    """A processor: its name in images, its number in ELF files, and the program."""

    name: str
    number: int
    code: str


_PROCESSORS = {
    "x86_64": _Processor(
        "amd64",
        62,
        "SIHsABAAAEiNPYIAAADoNgAAAEiNPXsAAADoKgAAAEiNPXgAAADoPgAAAInvSInmugAQAAAxwA8F6DkAAAB/6zH/uDwAAAAPBegbAAAAie9IjXQk"
        "CLr4DwAAuNkAAAAPBegRAAAAf+bDMfYx0rgCAAAADwWJxcNBicSJwoXAfgy/AQAAALgBAAAADwVFheTDL2RldgAvZGV2L2RyaQAvcHJvYy9zZWxm"
        "L2Vudmlyb24A",
    ),
    "aarch64": _Processor(
        "arm64",
        183,
        "/wdA0WEFABAPAACUQQUAMA0AAJRBBQBQFgAAlOADEyrhAwCRAgCC0ugHgNIBAADUFwAAlEz//1QAAIDSqAuA0gEAANT1Ax6qCgAAlOADEyrhAwCR"
        "AgCC0qgHgNIBAADUCwAAlEz//1T+AxWqwANf1mAMgJICAIDSAwCA0ggHgNIBAADU8wMAKsADX9b0AwAqHwAAca0AAFQCfECTIACA0ggIgNIBAADU"
        "nwIAccADX9YvZGV2AC9kZXYvZHJpAC9wcm9jL3NlbGYvZW52aXJvbgA=",
    ),
}
"""By `uname -m`."""


def program(machine: str) -> bytes | None:
    """The program for a processor, as `uname -m` names it; None if there is none."""
    processor = _PROCESSORS.get(machine)
    if processor is None:
        return None
    code = base64.b64decode(processor.code)
    start = 64 + 56
    size = start + len(code)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    elf = struct.pack("<HHIQQQIHHHHHH", 2, processor.number, 1, _BASE + start, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    segment = struct.pack("<IIQQQQQQ", 1, 5, 0, _BASE, _BASE, size, size, 0x10000)
    return ident + elf + segment + code


def name(mark: str) -> str:
    """The name of the image of one trial."""
    return f"{REPOSITORY}:{mark}"


def archive(machine: str, mark: str) -> bytes | None:
    """The image of one trial as `docker load` takes it; None for a processor without a program.

    Two trials share neither name nor id, so that neither removes the image of the other.
    """
    code = program(machine)
    if code is None:
        return None
    layer = header(PROGRAM.lstrip("/"), size=len(code), mode=0o755) + code + bytes(-len(code) % 512) + END
    config = {
        "architecture": _PROCESSORS[machine].name,
        "os": "linux",
        "created": "2024-01-01T00:00:00Z",
        "config": {"Cmd": [PROGRAM], "Labels": {LABEL: mark}},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": "2024-01-01T00:00:00Z", "created_by": "agentless doctor"}],
    }
    manifest = [{"Config": "config.json", "RepoTags": [name(mark)], "Layers": ["layer.tar"]}]
    return b"".join((
        file("config.json", json.dumps(config).encode()),
        file("manifest.json", json.dumps(manifest).encode()),
        file("layer.tar", layer),
        END,
    ))  # fmt: skip
