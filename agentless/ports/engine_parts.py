"""Optional parts of an engine: methods return commands, or parse the answers to them. No I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from agentless.errors import AgentlessError
from agentless.model.command import Command, Result
from agentless.model.containers.log_query import LogPosition
from agentless.model.files.files_image import FilesImage
from agentless.model.images.env import EnvRef, FileChanges, ImageFacts, Sight
from agentless.model.images.image import Image, ImageDefaults, ImagePresence
from agentless.model.terminal import Attachment, InputKind
from agentless.model.view import ImageView


class Reading(Protocol):
    """Reads the two streams of a script, and returns the task's own output on its two streams."""

    def __call__(self, fd: int, data: bytes, /) -> Iterable[tuple[int, bytes]]:
        """The next output."""

    @property
    def place(self) -> LogPosition | None:
        """The position by the engine's times; None if only bytes can be counted."""


class TerminalCommands(Protocol):
    """Interactive programs in containers, or beside those of a task without one."""

    def shell(self, container: str, command: Sequence[str], mark: str, attached: Attachment) -> Command:
        """A program in the container, on the script's input and terminal; it ends when those break off.

        Its output begins with the mark and a semicolon. Input in lines is bytes as `escaped` writes them, or a dot for
        the end. Without a command it is bash, or sh if there is none.
        """

    def hang_up(self, container: str, mark: str, *, whole: bool) -> Command:
        """End the program that `shell` has begun with this mark, if it is still there.

        What it has started hears of that if `whole`. The command fails where nothing can be ended.
        """

    def tell(self, container: str, mark: str, signal: str) -> Command:
        """Send a signal, named without SIG, to the program that `shell` has begun with this mark, and to its group."""

    def inside(self, template: str) -> Sequence[str]:
        """The command that runs this template as a script of the container's own `sh`."""

    def reading(self, kind: InputKind) -> Reading:
        """Reads the program's own output from what `shell` prints."""


class VolumeCommands(Protocol):
    """Volumes of ours on a node."""

    def all(self) -> Command:
        """List our volumes, and the tasks whose containers use them."""

    def parse(self, result: Result) -> list[tuple[str, str, tuple[str, ...]]]:
        """Name, owner and tasks of each volume."""

    def sizes(self) -> Command:
        """Ask for the sizes of all volumes."""

    def parse_sizes(self, result: Result) -> dict[str, int]:
        """Bytes of each volume whose size is known."""

    def create(self, name: str, owner: str) -> Command:
        """Create a volume; `check` reads the answer."""

    def remove(self, name: str) -> Command:
        """Remove a volume if it is ours; `check` reads the answer."""

    def check(self, name: str, result: Result) -> None:
        """Raise Refused for a volume that exists or is not ours, RuntimeFailed for any other failure."""


class OutputCommands(Protocol):
    """Files out of containers and jobs."""

    def changes(self, container: str) -> Command:
        """List what has changed in the container since it was created."""

    def folder(self, container: str) -> Command:
        """Ask for the container's working folder."""

    def copy(self, container: str, path: str, *, into: bool) -> Command:
        """A tar stream of what is at a path in the container, or one that goes `into` a folder there."""

    def copy_packed(self, container: str, path: str) -> Command:
        """A tar stream of what is at a path in the container, compressed by gzip if the node has that."""

    def says_missing(self, words: str) -> bool:
        """Whether these words, printed in place of a tar stream, say that the container or the path does not exist."""


class FileCommands(OutputCommands, Protocol):
    """Files into containers, by images with files, and out of them."""

    def look(self, image: str) -> Command:
        """Ask for an image's defaults, and list the images with files."""

    def parse_look(self, result: Result) -> tuple[ImageDefaults, tuple[FilesImage, ...]]:
        """Parse the answer to `look`; raises RuntimeFailed if it cannot be read."""

    def make(self, base: str, image: FilesImage, mark: str, source: str = "", copies: Sequence[str] = ()) -> Command:
        """Make an image with files over another one; the files come by stdin once it has said the mark.

        `copies` are folders that `source` has, and that are copied from there.
        """

    def tidy(self, images: Sequence[str] = (), helpers: Sequence[str] = ()) -> Command:
        """Remove these images and helper containers, and list those that are left."""


class ImageCommands(Protocol):
    """Images: from a registry, and from one node to another."""

    def names(self) -> Command:
        """Ask for the names of the node's images."""

    def parse_names(self, result: Result) -> tuple[ImageView, ...]:
        """The named images, envs left out; raises RuntimeFailed."""

    def pull(self, image: str) -> Command:
        """Have the node fetch an image from its registry."""

    def describe(self, image: str) -> Command:
        """Describe an image on the node that is to send it."""

    def parse_description(self, image: str, result: Result) -> Image:
        """The image; raises ImageGone or RuntimeFailed."""

    def look(self, image: Image, tags: Sequence[str], loaded: str = "") -> Command:
        """Ask what a node has of the image, which is called `loaded` there, if given.

        A node that has all of it tags it with `tags`.
        """

    def parse_look(self, image: Image, result: Result) -> ImagePresence:
        """What the node has of the image; raises RuntimeFailed."""

    def save(self, image: str, skip: Sequence[str], packer: str | None) -> Command:
        """Read the image once, without the layers to skip; each file is a piece of the output, see the template."""

    def load(self, image: Image, packer: str | None, *, containerd: bool) -> Command:
        """Take an archive of this image or of its lower layers; the answer is what was loaded, if all of it is there.

        `containerd`: into that store.
        """

    def loaded_id(self, result: Result) -> str:
        """What the node calls the image that it has loaded; empty if it has loaded none."""

    def forget(self, image: str) -> Command:
        """Remove the images that held layers of this one on its way."""

    def check_load(self, image: str, result: Result, sent: Collection[str] = ()) -> None:
        """Raise the reason if the image was not loaded: LayerMissing if more layers have to be sent.

        `sent` are the hashes of the layers in the archive.
        """

    def save_failed(self, image: str, words: str) -> AgentlessError:
        """The reason why reading the image failed, from its standard error."""

    def way(self, script: str = "") -> list[str]:
        """How another node reaches this one by its own ssh."""

    def reach(self, ways: Sequence[Sequence[str]]) -> Command:
        """Try to reach nodes by these commands; the answer has the numbers of those that work."""

    def straight(self, image: str, skip: Sequence[str], packer: str | None, ways: Sequence[Sequence[str]]) -> Command:
        """Read the image once, and send its archive by each of these ways."""

    def share(self, image: str, skip: Sequence[str], packer: str | None, file: str) -> Command:
        """Write its archive to a file; the answer is `whole`, and its size."""

    def take(self, image: Image, packer: str | None, file: str | None, *, containerd: bool) -> Command:
        """Load this image, and nothing else, from an archive in a file or on standard input.

        The answer is what was loaded. `containerd`: into that store.
        """

    def drop(self, file: str) -> Command:
        """Remove the file that `share` wrote."""


class EnvCommands(Protocol):
    """Environments: build containers, and versions as images of ours."""

    def look(self) -> Command:
        """List all images and containers with names of envs."""

    def parse_look(self, result: Result) -> Sight:
        """What the node has of envs; raises RuntimeFailed if it does not answer."""

    def facts(self, image: str) -> Command:
        """Ask for an image's entrypoint, command, variables and labels."""

    def base(self, container: str) -> Command:
        """Likewise for the image of a container; `parse_facts` reads the answer."""

    def parse_facts(self, result: Result) -> ImageFacts | None:
        """The facts, None if the image does not exist."""

    def diff(self, container: str) -> Command:
        """List the changes in a build container since its image."""

    def parse_diff(self, result: Result) -> FileChanges:
        """The changes."""

    def programs(self, container: str) -> Command:
        """List the programs in a build container."""

    def parse_programs(self, result: Result) -> tuple[str, ...]:
        """The programs there, without the idle loop."""

    def create(self, env: str, image: ImageFacts, old: str | None = None) -> Command:
        """Create and start the build container of an env; `old` is removed first."""

    def parse_create(self, result: Result) -> str:
        """The id of the build container."""

    def start(self, container: str) -> Command:
        """Start a build container that was stopped."""

    def stop(self, container: str) -> Command:
        """Stop a build container, with all programs in it."""

    def remove_image(self, image: str) -> Command:
        """Remove a name from an image, and the image if that was its last one."""

    def passing(self, ref: EnvRef, mark: str) -> str:
        """The temporary name of an image while it is made; `mark` is 16 random hexadecimal digits."""

    def save(self, container: str, base: ImageFacts, ref: EnvRef, labels: Mapping[str, str], mark: str) -> Command:
        """Save a build container, whose image is `base`, as a version; `parse_named` reads the answer."""

    def snapshot(self, container: str, base: ImageFacts, ref: EnvRef, labels: Mapping[str, str], mark: str) -> Command:
        """Likewise the container of a task, whose claim and GPUs the image must not have."""

    def build(self, ref: EnvRef, dockerfile: str, labels: Mapping[str, str], mark: str) -> Command:
        """Build a version of the context that is written to it once the mark has come; then its output comes.

        With a second mark the output ends, and `parse_built` reads what follows.
        """

    def parse_built(self, ref: EnvRef, result: Result) -> ImageFacts:
        """The version that was built. If the build failed, its output has the reason."""

    def parse_named(self, ref: EnvRef, result: Result) -> ImageFacts:
        """The version that was saved; raises Refused if somebody else has just taken its number."""

    def export(self, image: str) -> Command:
        """The archive of an image, without its names."""

    def load(self, passing: str, mark: str) -> Command:
        """Load the archive that is written to it once the mark has come; `parse_loaded` reads what follows."""

    def parse_loaded(self, result: Result) -> ImageFacts:
        """The image in the archive, which has a temporary name so far."""

    def adopt(self, ref: EnvRef, labels: Mapping[str, str] | None, passing: str) -> Command:
        """Make the loaded image a version, with other labels if given; `parse_named` reads the answer."""

    def complaint(self, words: str) -> str:
        """The engine's complaint as a sentence with the fix."""
