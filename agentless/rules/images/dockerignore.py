"""Files that `.dockerignore` excludes from a build context, by the rules of Docker."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass

from agentless.errors import UsageError

DOCKERIGNORE = ".dockerignore"


@dataclass(frozen=True, slots=True)
class Ignore:
    """The patterns of a file. The last one that matches decides."""

    patterns: tuple[tuple[re.Pattern[str], bool], ...]

    @classmethod
    def read(cls, lines: Iterable[str]) -> Ignore:
        """Parse the lines. A pattern after `!` includes paths again.

        Raises UsageError for a pattern that Docker rejects, too.
        """
        found = []
        for number, line in enumerate(lines):
            plain = line.removeprefix("\ufeff") if number == 0 else line
            if plain.startswith("#"):
                continue
            text = plain.strip()
            back = text.startswith("!")
            path = posixpath.normpath(text.removeprefix("!").strip().lstrip("/") or ".")
            if path != ".":
                try:
                    found.append((re.compile(_regex(path), re.DOTALL), back))
                except re.error:
                    raise UsageError(f"{DOCKERIGNORE}, line {number + 1}: {text!r} is not a valid pattern") from None
        return cls(tuple(found))

    @property
    def takes_back(self) -> bool:
        """Whether a pattern may include files of an excluded folder again."""
        return any(back for _, back in self.patterns)

    def leaves_out(self, path: str) -> bool:
        """Whether a path, relative to the context, is excluded."""
        parts = path.split("/")
        paths = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        out = False
        for pattern, back in self.patterns:
            if out is back and any(pattern.fullmatch(each) for each in paths):
                out = not back
        return out


def bases(dockerfile: str) -> tuple[str, ...]:
    """The env images that a Dockerfile names. They must be on the node and are never pulled."""
    found = []
    for line in re.sub(r"\\[ \t]*\n", " ", dockerfile).splitlines():
        if re.match(r"\s*(FROM|ARG|ENV)\s|.*--from=|.*--mount=\S*\bfrom=", line, re.IGNORECASE):
            found += re.findall(
                r"(?<![\w/.-])(?:(?:[a-z0-9-]+\.)?docker\.io/)?(agentless/[\w.:${}-]+)", line, re.IGNORECASE
            )
    return tuple(dict.fromkeys(found))


def _regex(pattern: str) -> str:
    """A regular expression for a pattern of Go's `filepath.Match`, with `**` for any number of folders."""
    out, at = "", 0
    while at < len(pattern):
        char = pattern[at]
        at += 1
        if char == "*" and pattern[at : at + 1] == "*":
            at += 1
            if pattern[at : at + 1] == "/":
                at += 1
                out += "(?:.*/)?"
            else:
                out += ".*"
        elif char == "*":
            out += "[^/]*"
        elif char == "?":
            out += "[^/]"
        elif char == "[" and (end := pattern.find("]", at + 1)) > 0:
            # Python gives these a meaning within brackets, or will.
            inside = re.sub(r"([\\\[&~|])", r"\\\1", pattern[at:end])
            out += f"[{inside}]"
            at = end + 1
        elif char == "\\" and at < len(pattern):
            out += re.escape(pattern[at])
            at += 1
        else:
            out += re.escape(char)
    return out
