"""The `Include` in the user's ~/.ssh/config, by which every ssh knows the containers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from agentless.errors import Refused
from agentless.paths import config_dir, ssh_config

_ABOVE = "# Containers of agentless, as NAME.agentless. To remove: agentless ssh-config --remove\n"


def file() -> Path:
    """The file that is included."""
    return config_dir() / "ssh_config"


def _line() -> str:
    return f'Include "{file()}"\n'


def is_installed() -> bool:
    """Whether the user's configuration includes ours."""
    return _line() in _read()


def install(text: str) -> None:
    """Write our file, and include it in front of everything else; raises Refused."""
    file().parent.mkdir(parents=True, exist_ok=True)
    _write(file(), text)
    if not is_installed():
        _write(_target(), f"{_ABOVE}{_line()}\n{_read()}")


def remove() -> bool:
    """Undo that; whether there was something to undo."""
    found = is_installed()
    if found:
        text = _read()
        for part in (f"{_ABOVE}{_line()}\n", f"{_ABOVE}{_line()}", _line()):
            text = text.replace(part, "")
        _write(_target(), text)
    file().unlink(missing_ok=True)
    return found


def preview() -> str:
    """What `install` adds to the user's configuration."""
    return "" if is_installed() else _ABOVE + _line()


def _target() -> Path:
    """The file itself: in a folder of dotfiles, ~/.ssh/config is a link."""
    return Path(os.path.realpath(ssh_config()))


def _read() -> str:
    try:
        return _target().read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise Refused(f"cannot read {ssh_config()}: {error.strerror}") from None


def _write(path: Path, text: str) -> None:
    """Replace a file, and keep its mode."""
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o600
        fresh = path.with_name(f"{path.name}.agentless")
        fresh.write_text(text, encoding="utf-8", errors="surrogateescape")
        fresh.chmod(mode)
        fresh.replace(path)
    except OSError as error:
        raise Refused(f"cannot write {path}: {error.strerror}") from None
