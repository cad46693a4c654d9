"""Images with the files of tasks, `agentless-files/LINE:KEY-TIME` on a node, and how they are read off its lists."""

from __future__ import annotations

import re
from dataclasses import dataclass

NAME = "agentless-files"
"""The repository of images with files, and what the containers that they are made of are called."""
_TAG = re.compile(r"([0-9a-f]{24})-([0-9a-f]{1,10})")
_HELPER = re.compile(rf"{NAME}-[0-9a-f]{{16}}-[0-9a-f]{{24}}-([0-9a-f]{{1,10}})(-from)?")


@dataclass(frozen=True, slots=True)
class FilesImage:
    """An image with files: of which line, by which key, and when it was made (Unix seconds)."""

    line: str
    key: str
    made: int

    def __str__(self) -> str:
        return f"{NAME}/{self.line}:{self.key}-{self.made:x}"

    @property
    def helper(self) -> str:
        """The container that it is made of."""
        return f"{NAME}-{self.line}-{self.key}-{self.made:x}"


def parse_listing(words: str) -> tuple[FilesImage, ...]:
    """The images with files in a list of images, from old to new."""
    found = []
    for line in words.splitlines():
        repository, _, tag = line.removeprefix("localhost/").partition(" ")
        match = _TAG.fullmatch(tag)
        if match and repository.startswith(f"{NAME}/"):
            found.append(FilesImage(repository.removeprefix(f"{NAME}/"), match[1], int(match[2], 16)))
    return tuple(sorted(found, key=lambda image: image.made))


def parse_helpers(words: str) -> tuple[tuple[str, int], ...]:
    """The containers in a list that images with files are made of, each with when that was begun (Unix seconds)."""
    found = [_HELPER.fullmatch(line) for line in words.splitlines()]
    return tuple((match[0], int(match[1], 16)) for match in found if match)
