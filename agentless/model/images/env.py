"""Environments: a name with versions, each a container image, and a build container in which the next one is made.

The nodes are the truth: a version is an image `agentless/NAME:N` whose labels say the same name and number, what it is
for, by whom and when it was saved. An image that is called so and has other labels, or none, is a stranger's. A build
container is called `agentless-env-NAME` and has the label `agentless.build`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.errors import UsageError
from agentless.model.text import printable

NULL = "NULL"
"""What stands in the place of an env and never is one: no container at all."""

ENV = "agentless.env"
VERSION = "agentless.version"
MESSAGE = "agentless.message"
BY = "agentless.by"
AT = "agentless.at"
BUILD = "agentless.build"
"""On a container: whose build container it is. In a saved image it is empty."""

NAMESPACE = "agentless/"
FRESH = "fresh-"
"""Begins the tag of an image that is just being made; it has its number a moment later."""
IMPORT = "-IMPORT"
"""Ends the name of a container that exists for the moment of an import; no name of an env has capitals."""

_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*")  # as Docker wants names of images
_NUMBER = re.compile(r"[1-9][0-9]{0,8}")
_HUB = re.compile(r"(?:(?:index\.|registry-1\.)?docker\.io/)?agentless/", re.IGNORECASE)
MAX_NAME = 63
MAX_MESSAGE = 500


@dataclass(frozen=True, slots=True)
class EnvRef:
    """An env, or one version of it."""

    name: str
    version: int | None = None

    def __str__(self) -> str:
        return self.name if self.version is None else f"{self.name}:{self.version}"

    @property
    def image(self) -> str:
        """What the image is called on every node."""
        return f"{NAMESPACE}{self}"


@dataclass(frozen=True, slots=True)
class EnvImage:
    """A version as a node has it. `id` is the image's, `size` in bytes, `at` Unix seconds."""

    ref: EnvRef
    id: str
    size: int
    message: str = ""
    by: str = ""
    at: float = 0.0


@dataclass(frozen=True, slots=True)
class BuildContainer:
    """The build container of an env: `image` is the id of the image that it was made from."""

    env: str
    id: str
    state: str
    image: str


@dataclass(frozen=True, slots=True)
class Sight:
    """What a node has of envs. `foreign` are images and containers of others that are called like ours.

    `leftovers` are what was left of something that broke off: tags of images, and names of containers, with the Unix
    seconds of their making by the node's clock. `partial` are images without a name that hold layers of one that did
    not arrive, by their ids, each with the id of that one.
    """

    images: tuple[EnvImage, ...] = ()
    containers: tuple[BuildContainer, ...] = ()
    foreign: frozenset[str] = frozenset()
    leftovers: Mapping[str, float] = field(default_factory=dict)
    partial: Mapping[str, str] = field(default_factory=dict)

    def container(self, env: str) -> BuildContainer | None:
        """The build container of an env, if it is here."""
        return next((each for each in self.containers if each.env == env), None)


@dataclass(frozen=True, slots=True)
class Version:
    """A version: the image that bears its number, and the nodes where it was seen last."""

    id: str
    size: int
    message: str = ""
    by: str = ""
    at: float = 0.0
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EnvRecord:
    """What is known of an env. `highest` is the highest number that was ever given.

    `back` is the version that somebody went back to, and the highest number at that time: with a higher one it has
    no meaning any more. `home` is the node that has the build container.
    `since` is when it was taken down (Unix seconds; 0: by a version that did not keep it), `unsettled` that there was a
    newer version already then: somebody may have gone back from it, which only the state that was lost would know.
    """

    highest: int = 0
    back: tuple[int, int] | None = None
    home: str | None = None
    versions: Mapping[int, Version] = field(default_factory=dict)
    since: float = 0.0
    unsettled: bool = False

    @property
    def assumed(self) -> bool:
        """Whether the current version is only taken for it, as the newest of several."""
        return self.unsettled and len(self.versions) > 1

    @property
    def current(self) -> int | None:
        """The version that is meant when none is named."""
        if self.back and self.back[1] >= self.highest and self.back[0] in self.versions:
            return self.back[0]
        return max(self.versions, default=None)

    @property
    def there(self) -> bool:
        """Whether there is more of it than its numbers."""
        return bool(self.versions) or self.home is not None


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What a build container has that its image has not: how many paths, and some of them."""

    added: int = 0
    changed: int = 0
    deleted: int = 0
    paths: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.changed or self.deleted)

    def __str__(self) -> str:
        counts = ((self.added, "added"), (self.changed, "changed"), (self.deleted, "deleted"))
        return ", ".join(f"{count} {word}" for count, word in counts if count) or "nothing"


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What an image says of how it is to be run, and of its own labels."""

    id: str
    size: int
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


def check_name(name: str) -> str:
    """The name of an env; raises UsageError for what cannot be one."""
    if name == NULL:
        raise UsageError("NULL is no env: as --container NULL it means no container at all")
    if name.upper() == NULL:
        raise UsageError(f"{name!r} is the name of no env; in capitals, --container NULL means no container at all")
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        raise UsageError(
            f"env {name[:80]!r}: use up to {MAX_NAME} lowercase letters and digits, with single '.', '_' or '-' "
            "between them"
        )
    return name


def parse_ref(text: str) -> EnvRef:
    """`NAME` or `NAME:N`; raises UsageError."""
    name, colon, number = text.partition(":")
    check_name(name)
    if not colon:
        return EnvRef(name)
    if not _NUMBER.fullmatch(number):
        raise UsageError(f"{text[:80]!r}: the version of an env is a number from 1 on, like {name}:3")
    return EnvRef(name, int(number))


def ref_of(image: str) -> EnvRef | None:
    """The version that an image is by its name, None for any other name."""
    if not image.startswith(NAMESPACE):
        return None
    try:
        ref = parse_ref(image.removeprefix(NAMESPACE))
    except UsageError:
        return None
    return ref if ref.version is not None else None


def is_ours(image: str) -> bool:
    """Whether the name of an image is one that only we give, however a registry would spell it."""
    return bool(_HUB.match(image))


def container_of_env(name: str) -> str:
    """What the build container of an env is called."""
    return f"agentless-env-{name}"


def check_message(text: str) -> str:
    """The message in one line, as a label holds it; raises UsageError when it is too long."""
    line = " ".join(printable(text).split())
    if len(line) > MAX_MESSAGE:
        raise UsageError(f"the message has {len(line)} characters; {MAX_MESSAGE} are the most")
    return line


def labels_of_version(ref: EnvRef, message: str, by: str, at: float) -> dict[str, str]:
    """What the image of a version says of itself."""
    return {ENV: ref.name, VERSION: str(ref.version), MESSAGE: message, BY: by, AT: f"{at:.3f}", BUILD: ""}
