"""The `Include` in the user's ~/.ssh/config, by which every ssh knows the containers."""

from __future__ import annotations

import os
import re
import stat
import tempfile
from pathlib import Path

from agentless.errors import Refused
from agentless.paths import config_dir, ssh_config

_ABOVE = b"# Containers of agentless, as NAME.agentless. To remove: agentless ssh-config --remove"
_UNSAFE = re.compile(r"[\"'*?\[\]%\\\n]")
"""What ssh would take for something else in the name of a file to be included."""


def file() -> Path:
    """The file that is included; raises Refused for a folder whose name ssh would misread."""
    path = config_dir() / "ssh_config"
    if _UNSAFE.search(str(path)):
        raise Refused(f"ssh cannot include a file in {path.parent}; set XDG_CONFIG_HOME to a folder with a plain name")
    return path


def is_installed() -> bool:
    """Whether the user's configuration includes ours, in front of every `Host`."""
    for line in _read().splitlines():
        if line.strip() == _line():
            return True
        if line.strip() and not line.lstrip().startswith(b"#"):
            return False
    return False


def install(text: str) -> None:
    """Write our file, and include it in front of everything else; raises Refused."""
    try:
        file().parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot write {file()}: {error.strerror}") from None
    _write(file(), text.encode("utf-8", "surrogateescape"))
    if not is_installed():
        _write(_target(), b"\n".join((_ABOVE, _line(), b"", _read())))


def remove() -> bool:
    """Undo that; whether there was something to undo."""
    before = _read()
    after = before.replace(b"\n".join((_ABOVE, _line(), b"", b"")), b"", 1) if is_installed() else before
    lines = after.splitlines(keepends=True)
    after = b"".join(line for line in lines if line.rstrip(b"\r\n") not in (_ABOVE, _line()))
    if after != before:
        _write(_target(), after)
    file().unlink(missing_ok=True)
    return after != before


def preview() -> str:
    """What `install` adds to the user's configuration."""
    return "" if is_installed() else b"\n".join((_ABOVE, _line())).decode("utf-8", "replace")


def _line() -> bytes:
    return f'Include "{file()}"'.encode("utf-8", "surrogateescape")


def _target() -> Path:
    """The file itself: in a folder of dotfiles, ~/.ssh/config is a link."""
    return Path(os.path.realpath(ssh_config()))


def _read() -> bytes:
    try:
        return _target().read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise Refused(f"cannot read {ssh_config()}: {error.strerror}") from None


def _write(path: Path, content: bytes) -> None:
    """Replace a file, and keep its mode and owner."""
    fresh = ""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        number, fresh = tempfile.mkstemp(dir=path.parent, prefix=".agentless-")
        with os.fdopen(number, "wb") as opened:
            opened.write(content)
            if path.exists():
                found = path.stat()
                os.fchmod(opened.fileno(), stat.S_IMODE(found.st_mode))
                if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
                    os.fchown(opened.fileno(), found.st_uid, found.st_gid)
        os.replace(fresh, path)
    except OSError as error:
        if fresh:
            Path(fresh).unlink(missing_ok=True)
        raise Refused(f"cannot write {path}: {error.strerror}") from None
