"""Where agentless keeps its files: the XDG variables decide every folder, on every system alike.

Two environments with other XDG variables are two independent controllers. Every command imports this module first,
so the base directory specification's two rules are written out here instead of importing platformdirs for 4 ms.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from agentless.errors import InventoryError, StateError, UsageError

_PACKAGE = Path(__file__).parent
HTTP_SOCKET = "controller.sock"
"""In the state folder: where the controller answers requests."""
SSH_SOCKET = "ssh.sock"
"""In the state folder: where the controller speaks SSH to the user's own ssh."""
SSH_KNOWN_HOSTS = "ssh_known_hosts"
"""In the state folder: the host key of all containers."""
SSH_HOST = "agentless"
"""The host whose key that is."""


def config_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the inventory and of an admin's own templates; it need not exist."""
    return _base(environ, "XDG_CONFIG_HOME", ".config") / "agentless"


def state_dir(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder of the controller's state, one controller each; it need not exist.

    Raises StateError when somebody else may have put something there.
    """
    folder = _base(environ, "XDG_STATE_HOME", ".local/state") / "agentless"
    make_private(folder)
    return folder


def make_private(folder: Path) -> None:
    """Close a folder to others, as ssh wants it for its keys; raises StateError when it or its socket is not ours.

    Whoever may write there would be taken for the controller, and be told secrets.
    """
    for path in (folder, Path(os.path.realpath(folder)), folder / HTTP_SOCKET):
        try:
            found = os.lstat(path)
        except OSError:
            continue  # not there, and who needs it says what is wrong with it
        if found.st_uid != os.getuid() and not (stat.S_ISLNK(found.st_mode) and found.st_uid == 0):
            raise StateError(
                f"{path} belongs to user {found.st_uid}, not to you; move it away, or set XDG_STATE_HOME to your own "
                "folder"
            )
        if stat.S_ISDIR(found.st_mode) and found.st_mode & 0o077:
            try:
                path.chmod(0o700)
            except OSError as error:
                raise StateError(
                    f"others can read {path} and agentless cannot change that ({error.strerror}); run: chmod 700 {path}"
                ) from None


def template_dir() -> Path:
    """The folder of the remote commands: the wheel's own, or the checkout's, which an editable install runs from."""
    packaged = _PACKAGE / "templates"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "templates"


def ssh_config() -> Path:
    """The user's OpenSSH client configuration; it need not exist."""
    home = os.environ.get("HOME") or os.path.expanduser(f"~{user_name()}")
    return Path(home) / ".ssh/config"


def user_name() -> str:
    """Who the user is on this machine: the login name, or the number of one that has no name, as in a container."""
    import getpass  # noqa: PLC0415 - most commands do without

    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def new_inventory(explicit: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """Where `agentless init` writes: the file that is named, else the config folder's, which is always found."""
    named = _named_inventory(explicit, environ)
    return named[0] if named else config_dir(environ) / "inventory.yaml"


def find_inventory(explicit: Path | None, environ: Mapping[str, str] = os.environ) -> Path:
    """The inventory to use, absolute, since the controller that reads it runs in another folder.

    `explicit` is `--inventory`; without it `$AGENTLESS_INVENTORY`, `./inventory.yaml` and the config folder's file
    are tried in this order. One that is named must be there: another one in its place would be the wrong machines.
    """
    named = _named_inventory(explicit, environ)
    if named:
        path, by = named
        if not os.path.exists(path):
            raise InventoryError(
                f"{path} (from {by}) does not exist; correct the path, or create it with: agentless init"
            )
        return path
    here, configured = _absolute(Path("inventory.yaml")), config_dir(environ) / "inventory.yaml"
    for path in (here, configured):
        if os.path.exists(path):
            return path
    raise InventoryError(f"no inventory: neither {here} nor {configured} exists; create one with: agentless init")


def _named_inventory(explicit: Path | None, environ: Mapping[str, str]) -> tuple[Path, str] | None:
    if explicit is not None:
        return _absolute(explicit), "--inventory"
    if environ.get("AGENTLESS_INVENTORY"):
        return _absolute(Path(environ["AGENTLESS_INVENTORY"])), "$AGENTLESS_INVENTORY"
    return None


def current_dir() -> str:
    """The folder of whoever runs this; raises UsageError when it has been removed."""
    try:
        return os.getcwd()
    except OSError as error:
        raise UsageError("the current folder no longer exists; cd to another folder") from error


def _absolute(path: Path) -> Path:
    """Without `..`, for a controller knows its inventory by this path."""
    return Path(os.path.abspath(path if path.is_absolute() else current_dir() / path))


def _base(environ: Mapping[str, str], variable: str, below_home: str) -> Path:
    """The specification says that a relative path in the variable is to be ignored."""
    text = environ.get(variable, "")
    if os.path.isabs(text):
        return Path(text)
    home = environ.get("HOME") or os.path.expanduser("~")
    if not os.path.isabs(home):
        raise UsageError("unknown home directory; set HOME to an absolute path")
    return Path(home) / below_home
