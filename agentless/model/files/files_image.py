"""Images with the files of tasks, `agentless-files/LINE:KEY-TIME` on a node, parsed from its lists."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = "agentless-files"
"""The repository of these images, and the name prefix of the containers from which they are made."""
_TAG = re.compile(r"([0-9a-f]{24})-([0-9a-f]{1,10})")
_HELPER = re.compile(rf"{NAME}-[0-9a-f]{{16}}-[0-9a-f]{{24}}-([0-9a-f]{{1,10}})(-from)?")


@dataclass(frozen=True, slots=True)
class FilesImage:
    """An image with files: its line, its key, and when it was made (Unix seconds)."""

    line: str
    key: str
    made: int

    def __str__(self) -> str:
        return f"{NAME}/{self.line}:{self.key}-{self.made:x}"

    @property
    def helper(self) -> str:
        """The name of the container from which it is made."""
        return f"{NAME}-{self.line}-{self.key}-{self.made:x}"


def parse_listing(words: str) -> tuple[FilesImage, ...]:
    """The images with files in a list of images, oldest first."""
    found = []
    for line in words.splitlines():
        repository, _, tag = line.removeprefix("localhost/").partition(" ")
        match = _TAG.fullmatch(tag)
        if match and repository.startswith(f"{NAME}/"):
            found.append(FilesImage(repository.removeprefix(f"{NAME}/"), match[1], int(match[2], 16)))
    return tuple(sorted(found, key=lambda image: image.made))


def parse_helpers(words: str) -> tuple[tuple[str, int], ...]:
    """The containers in a list from which such images are made, each with its begin (Unix seconds)."""
    found = [_HELPER.fullmatch(line) for line in words.splitlines()]
    return tuple((match[0], int(match[1], 16)) for match in found if match)
