"""The words of a `docker` command taken apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from agentless.demo.engine.engine import Complaint


class Words(NamedTuple):
    """A command line taken apart: the values of each option (of a switch: empty ones), and what follows."""

    options: dict[str, list[str]]
    rest: list[str]

    def last(self, option: str, default: str = "") -> str:
        """The value that counts of an option that can be given once."""
        return self.options.get(option, [default])[-1]

    def pairs(self, option: str) -> dict[str, str]:
        """The values of an option that takes KEY=VALUE."""
        found = (value.partition("=") for value in self.options.get(option, ()))
        return {key: value for key, _, value in found}


def parse(verb: str, words: Sequence[str], options: frozenset[str], switches: frozenset[str]) -> Words:
    """The words of a verb that has these options with a value and these switches. What a container runs is not read."""
    found: dict[str, list[str]] = {}
    rest: list[str] = []
    left = iter(words)
    for word in left:
        if not word.startswith("-") or word == "-":
            rest.append(word)
            if verb in ("run", "create", "exec"):
                break
            continue
        option, equals, value = word.partition("=")
        if option in options:
            try:
                found.setdefault(option, []).append(value if equals else next(left))
            except StopIteration:
                raise Complaint(f"flag needs an argument: {option}\nSee 'docker {verb} --help'.", 125) from None
        elif option in switches:
            found.setdefault(option, []).append("")
        else:
            raise Complaint(f"unknown flag: {option}\nSee 'docker {verb} --help'.", 125)
    return Words(found, [*rest, *left])
