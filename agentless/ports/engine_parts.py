"""Optional parts of an engine: methods return commands, or parse the answers to them. No I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from agentless.errors import AgentlessError
from agentless.model.command import Command, Result
from agentless.model.files.files_image import FilesImage
from agentless.model.images.env import Changes, EnvRef, ImageFacts, Sight
from agentless.model.images.image import Image, ImageDefaults, ImagePresence
from agentless.model.tasks.log_query import Place


class Reading(Protocol):
    """Reads what a script prints on its stream 1 or 2: gives the task's own output on its two streams."""

    def __call__(self, fd: int, data: bytes, /) -> Iterable[tuple[int, bytes]]:
        """What comes next."""

    @property
    def place(self) -> Place | None:
        """How far it has come by the engine's times; None where only bytes can be counted."""


class TerminalCommands(Protocol):
    """Interactive programs in containers."""

    def shell(self, container: str, command: Sequence[str], mark: str, *, terminal: bool) -> Command:
        """A program in the container, with the input and the terminal of the script; when those break off, it ends.

        Its output begins with the mark and a semicolon. Without a terminal the script wants its input in lines, each of
        `escaped` bytes, or a dot for the end. Without a command it is bash, or sh where there is none.
        """

    def reading(self, *, terminal: bool) -> Reading:
        """Reads the program's own output from what `shell` prints."""


class VolumeCommands(Protocol):
    """Volumes of ours on a node."""

    def all(self) -> Command:
        """Ask for our volumes, and which tasks have a container that is part of them."""

    def parse(self, result: Result) -> list[tuple[str, str, tuple[str, ...]]]:
        """Of each volume its name, its owner, and the tasks with a container that is part of it."""

    def sizes(self) -> Command:
        """Ask how large all volumes are."""

    def parse_sizes(self, result: Result) -> dict[str, int]:
        """Bytes of each volume that the engine has counted."""

    def create(self, name: str, owner: str) -> Command:
        """Make a volume; `check` reads the answer."""

    def remove(self, name: str) -> Command:
        """Remove a volume, if it is one of ours; likewise."""

    def check(self, name: str, result: Result) -> None:
        """Raise Refused for a volume that is there already, or is none of ours, and RuntimeFailed for the rest."""


class FileCommands(Protocol):
    """Files into containers, by images with files, and out of them."""

    def look(self, image: str) -> Command:
        """Ask what an image is like, and which images with files there are."""

    def parse_look(self, result: Result) -> tuple[ImageDefaults, tuple[FilesImage, ...]]:
        """What `look` was answered; raises RuntimeFailed for an answer that is none."""

    def make(self, base: str, image: FilesImage, mark: str, source: str = "", copies: Sequence[str] = ()) -> Command:
        """Make an image with files over another one; the files come by stdin once it has said the mark.

        `copies` are folders that `source` has, and that are copied from there.
        """

    def tidy(self, images: Sequence[str] = (), helpers: Sequence[str] = ()) -> Command:
        """Remove these images, and these containers, and ask which there are."""

    def changes(self, container: str) -> Command:
        """What has changed in the container since it was made."""

    def folder(self, container: str) -> Command:
        """In which folder it works."""

    def copy(self, container: str, path: str, *, into: bool) -> Command:
        """A tar stream of what is at a path in the container, or one that goes `into` a folder there."""

    def copy_packed(self, container: str, path: str) -> Command:
        """A tar stream of what is at a path in the container, compressed by gzip if the node has that."""

    def says_missing(self, words: str) -> bool:
        """Whether what came in place of a tar stream says that the container, or the path in it, is not there."""


class ImageCommands(Protocol):
    """Images: from a registry, and from one node to another."""

    def pull(self, image: str) -> Command:
        """Have the node fetch an image from its registry."""

    def describe(self, image: str) -> Command:
        """Ask the source for an image."""

    def parse_description(self, image: str, result: Result) -> Image:
        """The image; raises ImageGone or RuntimeFailed."""

    def look(self, image: Image, tags: Sequence[str]) -> Command:
        """Ask another node what it has of the image; where that is all, the image has these tags afterwards."""

    def parse_look(self, image: Image, result: Result) -> ImagePresence:
        """What it has; raises RuntimeFailed."""

    def save(self, image: str, skip: Sequence[str], packer: str | None) -> Command:
        """Read the image once, without the layers to skip; the output is of parcels."""

    def whole(self, image: str, packer: str | None) -> Command:
        """Read the image once; the output is its archive, and `whole` on the other stream."""

    def load(self, image: str, packer: str | None) -> Command:
        """Take an archive of this image or of its lower layers."""

    def forget(self, image: str) -> Command:
        """Remove the images that held layers of this one on its way."""

    def check_load(self, image: str, result: Result) -> None:
        """Raise what went wrong, LayerMissing where more has to be sent, unless the image is there."""

    def save_failed(self, image: str, words: str) -> AgentlessError:
        """Why reading the image broke off, by what was said on standard error."""

    def way(self, script: str = "") -> list[str]:
        """How another node reaches this one by its own ssh."""

    def reach(self, ways: Sequence[Sequence[str]]) -> Command:
        """Try which of these ways lead somewhere; the answer is their numbers."""

    def straight(self, image: str, skip: Sequence[str], packer: str | None, ways: Sequence[Sequence[str]]) -> Command:
        """Read the image once, and send its archive by each of these ways."""

    def share(self, image: str, skip: Sequence[str], packer: str | None, file: str) -> Command:
        """Write its archive to a file; the answer is `whole`, its SHA-256 and its size."""

    def take(self, image: str, packer: str | None, file: str, digest: str) -> Command:
        """Load the archive in a file, if it has that SHA-256."""

    def drop(self, file: str) -> Command:
        """Remove such a file."""


class EnvCommands(Protocol):
    """Environments: build containers, and versions as images of ours."""

    def look(self) -> Command:
        """Ask for everything that is called like something of ours."""

    def parse_look(self, result: Result) -> Sight:
        """What it has of envs; raises RuntimeFailed when it does not say."""

    def facts(self, image: str) -> Command:
        """Ask how an image is to be run."""

    def parse_facts(self, result: Result) -> ImageFacts | None:
        """The facts, None when the image is not there."""

    def diff(self, container: str) -> Command:
        """Ask what a build container has that its image has not."""

    def parse_diff(self, result: Result) -> Changes:
        """The changes."""

    def programs(self, container: str) -> Command:
        """Ask what runs in a build container."""

    def parse_programs(self, result: Result) -> tuple[str, ...]:
        """What runs there besides the loop that does nothing."""

    def create(self, env: str, image: ImageFacts, old: str | None = None) -> Command:
        """Make and start the build container of an env, in the place of the container `old` if there is one."""

    def parse_create(self, result: Result) -> str:
        """The id of the build container."""

    def start(self, container: str) -> Command:
        """Start a build container that was stopped."""

    def remove_image(self, image: str) -> Command:
        """Take a name from an image, and the image away unless it has another one."""

    def passing(self, ref: EnvRef, mark: str) -> str:
        """What an image of an env is called while it is made; `mark` is 16 random hexadecimal digits."""

    def save(self, container: str, base: ImageFacts, ref: EnvRef, labels: Mapping[str, str], mark: str) -> Command:
        """Make a build container, whose image is `base`, a version; `parse_named` reads the answer."""

    def build(self, ref: EnvRef, dockerfile: str, labels: Mapping[str, str], mark: str) -> Command:
        """Build a version of the context that is written to it once the mark has come; then its output comes.

        With a second mark the output ends, and `parse_built` reads what follows.
        """

    def parse_built(self, ref: EnvRef, result: Result) -> ImageFacts:
        """The version that was built; of a build that failed the output has told why."""

    def parse_named(self, ref: EnvRef, result: Result) -> ImageFacts:
        """The version that was made; raises Refused when somebody else was faster with its number."""

    def export(self, image: str) -> Command:
        """The archive of an image, without its names."""

    def load(self, passing: str, mark: str) -> Command:
        """Load the archive that is written to it once the mark has come; `parse_loaded` reads what follows."""

    def parse_loaded(self, result: Result) -> ImageFacts:
        """The image that was in the archive, which has a passing name for now."""

    def adopt(self, ref: EnvRef, labels: Mapping[str, str] | None, passing: str) -> Command:
        """Make what was loaded a version: as it is, or with other labels. `parse_named` reads the answer."""

    def complaint(self, words: str) -> str:
        """What the engine complains of, as a sentence with the fix."""
