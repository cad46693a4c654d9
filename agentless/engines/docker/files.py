"""Files into containers and out of them: Docker's commands and its answers. No I/O.

Files for a container are put into an image on the node, `agentless-files/LINE:KEY-TIME`, from which the container is
created. So a container never lacks its files, all tasks of a sweep share them, and the next version is a layer with
the changes.
"""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Sequence
from dataclasses import replace

import orjson

from agentless.engines.docker.commands import Commands
from agentless.errors import RuntimeFailed
from agentless.model.command import Command, Result
from agentless.model.files.files_image import NAME, FilesImage, parse_listing
from agentless.model.images.image import ImageDefaults

WITHIN = 300.0
"""Seconds that looking through a large container, or removing an image, may take."""
CHANGES = 32 << 20
"""Bytes of the list of changes in a container: enough for 300,000 files, when all of them are fetched."""
_LISTING = "{{.Repository}} {{.Tag}}"


class DockerFiles:
    """File commands for one node."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def look(self, image: str) -> Command:
        """Ask for an image's defaults, and list the images with files."""
        return self._commands.script(
            "docker-files-look.sh.j2",
            timeout=WITHIN,
            image=image,
            format=self._commands.dialect.formats.image_defaults,
            listing=_LISTING,
            name=NAME,
        )

    def parse_look(self, result: Result) -> tuple[ImageDefaults, tuple[FilesImage, ...]]:
        """Parse the answer to `look`; raises RuntimeFailed if it cannot be read."""
        for line in result.out.splitlines():
            if line.startswith("{"):
                try:
                    found = orjson.loads(line)
                    facts = ImageDefaults(
                        found["id"], found["user"] or "", found["workdir"] or "", tuple(found["volumes"] or ())
                    )
                except (ValueError, KeyError, TypeError):
                    break
                return facts, parse_listing(result.out)
        raise RuntimeFailed("cannot read the properties of the image")

    def make(self, base: str, image: FilesImage, mark: str, source: str = "", copies: Sequence[str] = ()) -> Command:
        """Make an image with files over another one; the files come by stdin once it has said the mark.

        `copies` are folders that `source` has, and that are copied from there.
        """
        return self._commands.script(
            "docker-files-make.sh.j2",
            timeout=WITHIN,
            base=base,
            helper=image.helper,
            image=str(image),
            mark=mark,
            source=source,
            source_helper=f"{image.helper}-from",
            copies=[(folder, posixpath.dirname(folder)) for folder in copies],
        )

    def tidy(self, images: Sequence[str] = (), helpers: Sequence[str] = ()) -> Command:
        """Remove these images and helper containers, and list those that are left."""
        return self._commands.script(
            "docker-files-tidy.sh.j2",
            timeout=WITHIN,
            images=images,
            helpers=helpers,
            listing=_LISTING,
            name=NAME,
            helper_format="{{.Names}}",
            helper_name=f"^/?{NAME}-",
        )

    def changes(self, container: str) -> Command:
        """List what has changed in the container since it was created."""
        return replace(self._commands.words("docker-diff.j2", timeout=WITHIN, container=container), most=CHANGES)

    def folder(self, container: str) -> Command:
        """Ask for the container's working folder."""
        values = {"containers": [container], "format": "{{.Config.WorkingDir}}"}
        return self._commands.words("docker-inspect.j2", timeout=WITHIN, **values)

    def copy(self, container: str, path: str, *, into: bool) -> Command:
        """A tar stream of what is at a path in the container, or one that goes `into` a folder there."""
        return Command(shlex.join(self._copying(container, path, into=into)) + "\n")

    def copy_packed(self, container: str, path: str) -> Command:
        """A tar stream of what is at a path in the container, compressed by gzip if the node has that."""
        copy = self._copying(container, path, into=False)
        return self._commands.script("cp-packed.sh.j2", copy=copy)

    def says_missing(self, words: str) -> bool:
        """Whether these words, printed in place of a tar stream, say that the container or the path does not exist."""
        said = words.lower()
        return "no such container" in said or "could not find the file" in said or "no such file or dir" in said

    def _copying(self, container: str, path: str, *, into: bool) -> list[str]:
        quiet = self._commands.quiet
        return self._commands.argv("docker-cp.j2", docker=quiet, container=container, path=path, into=into)
