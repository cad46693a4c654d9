"""Files into containers and out of them: what is said to Docker for that, and what it answers. No I/O.

What goes into a container is put into an image of its own on the node, `agentless-files/LINE:KEY-TIME`, from which the
container is made: it is never there without its files, all tasks of a sweep share them, and the next version is a layer
with what has changed.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import orjson

from agentless.errors import RuntimeFailed
from agentless.model.command import Command, Result
from agentless.render import Renderer

NAME = "agentless-files"
"""The repository of images with files, and what the containers that they are made of are called."""
WITHIN = 300.0
"""Seconds that looking through a large container, or removing an image, may take."""
CHANGES = 32 << 20
"""Bytes of the list of what has changed in a container: 300,000 files, which is asked for by who brings them all."""
_IMAGE = (
    '{"id":{{json .Id}},"user":{{json .Config.User}},"workdir":{{json .Config.WorkingDir}}'
    ',"volumes":{{json .Config.Volumes}}}'
)
_LISTING = "{{.Repository}} {{.Tag}}"
_TAG = re.compile(r"([0-9a-f]{24})-([0-9a-f]{1,10})")
_HELPER = re.compile(rf"{NAME}-[0-9a-f]{{16}}-[0-9a-f]{{24}}-([0-9a-f]{{1,10}})(-from)?")


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """An image as the node has it: who runs in it and where, and which folders are volumes."""

    id: str
    user: str = ""
    workdir: str = ""
    volumes: tuple[str, ...] = ()


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


class Workspace:
    """The commands about files for one node; `podman`: they are said to that in Docker's place."""

    def __init__(self, docker: Sequence[str], renderer: Renderer, *, podman: bool = False) -> None:
        self._docker = list(docker)
        self._renderer = renderer
        self._image = _IMAGE.replace(".Id", ".ID") if podman else _IMAGE

    def look(self, image: str) -> Command:
        """Ask what an image is like, and which images with files there are."""
        return self._script("docker-files-look.sh.j2", image=image, format=self._image, listing=_LISTING, name=NAME)

    def parse_look(self, result: Result) -> tuple[ImageFacts, tuple[FilesImage, ...]]:
        """What `look` was answered; raises RuntimeFailed for an answer that is none."""
        for line in result.out.splitlines():
            if line.startswith("{"):
                try:
                    found = orjson.loads(line)
                    facts = ImageFacts(
                        found["id"], found["user"] or "", found["workdir"] or "", tuple(found["volumes"] or ())
                    )
                except (ValueError, KeyError, TypeError):
                    break
                return facts, parse_listing(result.out)
        raise RuntimeFailed("what its image is like is not known")

    def make(self, base: str, image: FilesImage, mark: str, source: str = "", copies: Sequence[str] = ()) -> Command:
        """Make an image with files over another one; the files come by stdin once it has said the mark.

        `copies` are folders that `source` has, and that are copied from there.
        """
        return self._script(
            "docker-files-make.sh.j2",
            base=base,
            helper=image.helper,
            image=str(image),
            mark=mark,
            source=source,
            source_helper=f"{image.helper}-from",
            copies=[(folder, posixpath.dirname(folder)) for folder in copies],
        )

    def tidy(self, images: Sequence[str] = (), helpers: Sequence[str] = ()) -> Command:
        """Remove these images, and these containers, and ask which there are."""
        return self._script(
            "docker-files-tidy.sh.j2",
            images=images,
            helpers=helpers,
            listing=_LISTING,
            name=NAME,
            helper_format="{{.Names}}",
            helper_name=f"^/?{NAME}-",
        )

    def changes(self, container: str) -> Command:
        """What has changed in the container since it was made."""
        return replace(self._words("docker-diff.j2", container=container), most=CHANGES)

    def folder(self, container: str) -> Command:
        """In which folder it works."""
        return self._words("docker-inspect.j2", containers=[container], format="{{.Config.WorkingDir}}")

    def says_missing(self, words: str) -> bool:
        """Whether what came in place of a tar stream says that the container, or the path in it, is not there."""
        said = words.lower()
        return "no such container" in said or "could not find the file" in said or "no such file or dir" in said

    def _words(self, template: str, **values: object) -> Command:
        words = self._renderer.words(template, docker=self._docker, **values)
        return Command(shlex.join(words) + "\n", timeout=WITHIN)

    def _script(self, template: str, **values: object) -> Command:
        return Command(self._renderer.script(template, docker=self._docker, **values) + "\n", timeout=WITHIN)


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
