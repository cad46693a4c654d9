"""What the OpenSSH client configuration says about a host; see ssh_config(5).

It is read here and not by the SSH libraries, so that a node is the same machine with each of them. Each library ignores
keywords that the other one knows, and neither reads another home directory.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import shlex
import signal
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

SYSTEM_CONFIG = Path("/etc/ssh/ssh_config")
EXEC_WITHIN = 10.0
"""Seconds for a program of `Match exec`."""
_REPEATABLE = frozenset({"identityfile", "certificatefile"})
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*?)\s*")
_DEPTH = 16


class HostConfig:
    """The settings for one host, as `ssh HOST` would find them: the first value of a keyword counts.

    `Match` knows `all`, `host`, `originalhost`, `user`, `localuser`, `exec`, `canonical` and `final`; a block with any
    other criterion does not apply. `exec` runs a program, and `CanonicalizeHostname` resolves names: that takes
    time. `proxied`: a jump host was named elsewhere than in the configuration.
    """

    def __init__(
        self, host: str, *, home: Path, local_user: str, user: str | None = None, proxied: bool = False
    ) -> None:
        self.host = host
        self._home = home
        self._local_user = local_user
        self._user = user
        self._values: dict[str, list[str]] = {}
        self._canonical: str | None = None
        self._read_all()
        if name := self._canonical_name(proxied):
            # The same files again, with this name; values that were found before count.
            self._canonical = name
            self._values["hostname"] = [name]
            self._read_all()

    def line(self, keyword: str) -> str | None:
        """The value as it is written, None when there is none."""
        values = self._values.get(keyword.lower())
        return values[0] if values else None

    def get(self, keyword: str) -> str | None:
        """The value of a keyword that takes one word, None when there is none."""
        words = self.words(keyword)
        return words[0] if words else None

    def words(self, keyword: str) -> list[str]:
        """The value's words; those of all lines for the keywords that add up."""
        return [word for value in self._values.get(keyword.lower(), ()) for word in _words(value)]

    def tokens(self, **more: str) -> dict[str, str]:
        """What `%x` stands for, as far as it is known before connecting."""
        hostname = re.sub("%h", self.host, self.get("HostName") or self.host)
        name = socket.gethostname()
        known = {
            "%": "%",
            "d": str(self._home),
            "h": hostname,
            "i": str(os.getuid()),
            "L": name.split(".")[0],
            "l": name,
            "n": self.host,
            "p": self.get("Port") or "22",
            "r": self._user or self.get("User") or self._local_user,
            "u": self._local_user,
        } | more
        route = known["l"] + known["h"] + known["p"] + known["r"] + known.get("j", "")
        return known | {"C": hashlib.sha1(route.encode(), usedforsecurity=False).hexdigest()}

    def path(self, text: str, tokens: Mapping[str, str]) -> Path:
        """A file name with `~`, `%x` and `${VARIABLE}` replaced."""
        text = re.sub(r"\$\{(\w+)\}", lambda m: os.environ.get(m[1], ""), expand_tokens(text, tokens))
        if text == "~" or text.startswith("~/"):
            return self._home / text[2:]
        return Path(text).expanduser()

    def _read_all(self) -> None:
        for path in (self._home / ".ssh/config", SYSTEM_CONFIG):
            self._read(path, path.parent, depth=0)

    def _canonical_name(self, proxied: bool) -> str | None:
        """The full name of the host, where CanonicalizeHostname asks for one and one of the domains has it."""
        wanted = (self.get("CanonicalizeHostname") or "no").lower()
        proxied = proxied or any((self.get(key) or "none") != "none" for key in ("ProxyCommand", "ProxyJump"))
        name, most = self.tokens()["h"], self.get("CanonicalizeMaxDots") or "1"
        if wanted not in ("yes", "always") or (proxied and wanted == "yes") or not most.isdecimal():
            return None
        if name.count(".") > int(most) or _is_address(name) or name.endswith("."):
            return None
        return next((full for d in self.words("CanonicalDomains") if _has_address(full := f"{name}.{d}")), None)

    def _read(self, path: Path, base: Path, depth: int) -> None:
        try:
            lines = path.read_text("utf-8", "replace").splitlines()
        except OSError:
            return
        active = True
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is None:
                continue
            keyword, value = match[1].lower(), match[2]
            if keyword == "host":
                active = matches(self._canonical or self.host, _words(value))
            elif keyword == "match":
                active = self._matches(_words(value))
            elif active and keyword == "include" and depth < _DEPTH:
                for name in _words(value):
                    for found in sorted(glob.glob(str(base / self.path(name, {})))):
                        self._read(Path(found), base, depth + 1)
            elif active and (keyword in _REPEATABLE or keyword not in self._values):
                values = self._values.setdefault(keyword, [])
                if value not in values:
                    values.append(value)

    def _matches(self, words: list[str]) -> bool:
        tokens = self.tokens()
        subjects = {"host": "h", "originalhost": "n", "user": "r", "localuser": "u"}
        rest = iter(words)
        for word in rest:
            criterion = word.lstrip("!").lower()
            if criterion == "all":
                met = True
            elif criterion in ("canonical", "final"):
                met = self._canonical is not None
            elif criterion == "exec":
                command = expand_tokens(next(rest, "false"), tokens)
                met = _succeeds(command)
            elif criterion in subjects:
                met = matches(tokens[subjects[criterion]], next(rest, "").split(","))
            else:
                return False
            if met == word.startswith("!"):
                return False
        return True


def _succeeds(command: str) -> bool:
    """Whether a program of `Match exec` succeeds in time; one that hangs is killed with all it has started."""
    null = subprocess.DEVNULL
    with subprocess.Popen(["/bin/sh", "-c", command], stdin=null, stdout=null, stderr=null, process_group=0) as program:
        try:
            return program.wait(EXEC_WITHIN) == 0
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            return False


def _is_address(name: str) -> bool:
    return ":" in name or re.fullmatch(r"[0-9]+(\.[0-9]+){3}", name) is not None


def _has_address(name: str) -> bool:
    try:
        return bool(socket.getaddrinfo(f"{name}.", None))
    except (OSError, UnicodeError):
        return False


def matches(name: str, patterns: list[str]) -> bool:
    """Whether `name` matches one of the patterns (`*`, `?`) and none that begins with `!`."""
    found = False
    for pattern in patterns:
        if _glob(pattern.lstrip("!").lower(), name.lower()):
            if pattern.startswith("!"):
                return False
            found = True
    return found


def _glob(pattern: str, name: str) -> bool:
    if "*" not in pattern and "?" not in pattern:
        return pattern == name
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), name) is not None


def expand_tokens(text: str, tokens: Mapping[str, str]) -> str:
    """`%x` replaced; an unknown one stays as it is."""
    return re.sub("%(.)", lambda m: tokens.get(m[1], m[0]), text)


def _words(value: str) -> list[str]:
    try:
        return shlex.split(value, comments=True)
    except ValueError:
        return value.split()
