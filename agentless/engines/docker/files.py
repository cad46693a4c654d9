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

from agentless.engines.dialect import Dialect
from agentless.errors import RuntimeFailed
from agentless.model.command import Command, Result
from agentless.model.files.files_image import NAME, FilesImage, parse_listing
from agentless.model.images.image import ImageDefaults
from agentless.model.nodes.node import NodeConfig
from agentless.render import Renderer

WITHIN = 300.0
"""Seconds that looking through a large container, or removing an image, may take."""
CHANGES = 32 << 20
"""Bytes of the list of changes in a container: enough for 300,000 files, when all of them are fetched."""
_LISTING = "{{.Repository}} {{.Tag}}"


class DockerFiles:
    """File commands for one node."""

    def __init__(self, node: NodeConfig, renderer: Renderer, dialect: Dialect) -> None:
        self._docker = list(node.docker)
        self._quiet = [*node.docker, *dialect.quiet]
        self._renderer = renderer
        self._dialect = dialect

    def look(self, image: str) -> Command:
        """Ask for an image's defaults, and list the images with files."""
        return self._script(
            "docker-files-look.sh.j2",
            image=image,
            format=self._dialect.formats.image_defaults,
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
        """Remove these images and helper containers, and list those that are left."""
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
        """List what has changed in the container since it was created."""
        return replace(self._words("docker-diff.j2", container=container), most=CHANGES)

    def folder(self, container: str) -> Command:
        """Ask for the container's working folder."""
        return self._words("docker-inspect.j2", containers=[container], format="{{.Config.WorkingDir}}")

    def copy(self, container: str, path: str, *, into: bool) -> Command:
        """A tar stream of what is at a path in the container, or one that goes `into` a folder there."""
        return Command(shlex.join(self._copying(container, path, into=into)) + "\n")

    def copy_packed(self, container: str, path: str) -> Command:
        """A tar stream of what is at a path in the container, compressed by gzip if the node has that."""
        copy = self._copying(container, path, into=False)
        return Command(self._renderer.script("cp-packed.sh.j2", docker=self._docker, copy=copy) + "\n")

    def says_missing(self, words: str) -> bool:
        """Whether these words, printed in place of a tar stream, say that the container or the path does not exist."""
        said = words.lower()
        return "no such container" in said or "could not find the file" in said or "no such file or dir" in said

    def _copying(self, container: str, path: str, *, into: bool) -> list[str]:
        template = self._dialect.template("docker-cp.j2")
        return self._renderer.words(template, docker=self._quiet, container=container, path=path, into=into)

    def _words(self, template: str, **values: object) -> Command:
        words = self._renderer.words(template, docker=self._docker, **values)
        return Command(shlex.join(words) + "\n", timeout=WITHIN)

    def _script(self, template: str, **values: object) -> Command:
        return Command(self._renderer.script(template, docker=self._docker, **values) + "\n", timeout=WITHIN)
