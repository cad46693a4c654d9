"""SSH hosts: typed as `user@host:port`, or aliases of ~/.ssh/config, see ssh_config(5)."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

_NAME = r"(?!\d+(?::|$))\w[\w.-]*"
_V6 = r"(?=[^:]*:[^:]*:)[0-9A-Fa-f:.]+(?:%[\w.-]+)?"

HOST = re.compile(f"{_NAME}|{_V6}")
"""A valid host name or address. Digits alone are a typing error, although the resolver accepts them."""

_LOGIN = re.compile(
    rf"(?:(?P<user>[^@\s-][^@\s]*)@)?(?:(?P<name>{_NAME})|\[(?P<v6>{_V6})\]|(?P<bare>{_V6}))(?::(?P<port>\d{{1,5}}))?"
)
_GIT = re.compile(r"(.*\.)?(github\.com|gitlab\.com|bitbucket\.org|codeberg\.org|git\.sr\.ht|dev\.azure\.com)")
_LINE = re.compile(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)")
_WORD = re.compile(r'"([^"]*)"|(#.*)|(\S+)')


class SshHost(NamedTuple):
    """The parts of `[user@]host[:port]`. An IPv6 address before a port has brackets."""

    host: str
    user: str | None
    port: int | None


def parse_login(text: str) -> SshHost | None:
    """Parse a login. None if it is invalid."""
    match = _LOGIN.fullmatch(text)
    if not match or not text.isprintable() or not 0 < int(match["port"] or 22) < 65536:
        return None
    host = match["name"] or match["v6"] or match["bare"]
    return SshHost(host, match["user"], int(match["port"]) if match["port"] else None)


@dataclass(frozen=True, slots=True)
class SshHosts:
    """The aliases of a configuration in the order of the file: machines, and git servers."""

    machines: tuple[str, ...]
    git: tuple[str, ...]


def read_ssh_hosts(config: Path) -> SshHosts:
    """The aliases in `config`. An unreadable file counts as empty: only ssh has to understand it.

    Patterns (`gpu*`) and `Match` blocks name no host. A git server is recognized by its name or by `User git`.
    """
    settings: dict[str, dict[str, str]] = {}
    block: list[str] = []
    for keyword, words in _lines(config, config.parent, set()):
        if keyword == "host":
            block = [word for word in words if HOST.fullmatch(word)]
            for alias in block:
                settings.setdefault(alias, {})
        elif keyword == "match":
            block = []
        else:
            for alias in block:
                settings[alias].setdefault(keyword, words[0])
    git = tuple(alias for alias, found in settings.items() if _serves_git(alias, found))
    return SshHosts(tuple(alias for alias in settings if alias not in git), git)


def _serves_git(alias: str, found: dict[str, str]) -> bool:
    return found.get("user") == "git" or bool(_GIT.fullmatch(found.get("hostname", alias).lower()))


def _lines(config: Path, base: Path, seen: set[Path]) -> Iterator[tuple[str, list[str]]]:
    """Keyword and words of each line. Files included for all hosts are inserted, each once."""
    seen.add(config)
    for_all = True
    for line in _text(config).splitlines():
        match = _LINE.fullmatch(line)
        words = [quoted or plain for quoted, _, plain in _WORD.findall(match[2])] if match else []
        words = [word for word in words if word]
        if not match or not words:
            continue
        keyword = match[1].lower()
        if keyword == "host":
            for_all = "*" in words
        elif keyword == "match":
            for_all = words[0].lower() == "all"
        if keyword != "include":
            yield keyword, words
        elif for_all:
            patterns = [os.path.join(base, os.path.expanduser(word)) for word in words]
            for path in [Path(found) for pattern in patterns for found in sorted(glob.glob(pattern))]:
                if path not in seen:
                    yield from _lines(path, base, seen)
                    yield "match", ["all"]


def _text(config: Path) -> str:
    try:
        return config.read_text("utf-8", "replace") if config.is_file() else ""
    except OSError:
        return ""
