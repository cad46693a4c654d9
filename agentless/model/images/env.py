"""Environments: a name with versions, each a container image, and a build container for the next version.

The nodes are the truth: a version is an image `agentless/NAME:N` whose labels have the same name and number, its
message, its author and its time. An image with such a name and without these labels is foreign. A build container has
the name `agentless-env-NAME` and the label `agentless.build`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentless.errors import UsageError
from agentless.model.text import printable

NULL = "NULL"
"""In place of an env: the task runs without a container."""

ENV = "agentless.env"
VERSION = "agentless.version"
MESSAGE = "agentless.message"
BY = "agentless.by"
AT = "agentless.at"
BUILD = "agentless.build"
"""The label of a build container: the name of its env. It is empty in a saved image."""

NAMESPACE = "agentless/"
FRESH = "fresh-"
"""The prefix of the temporary tag of an image, until it gets its number."""
IMPORT = "-IMPORT"
"""The suffix of the name of a temporary container during an import. Names of envs have no capitals."""

_NAME = re.compile(r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*")  # the syntax of image names in Docker
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
        """The name of the image, on every node."""
        return f"{NAMESPACE}{self}"


@dataclass(frozen=True, slots=True)
class EnvImage:
    """A version on a node. `id` is the id of its image there, `size` is in bytes, `at` in Unix seconds.

    `content` is a hash of its layers and its configuration. Engines with different image stores have different ids for
    one image, and the same hash. It is empty if not all of the image is there.
    """

    ref: EnvRef
    id: str
    size: int
    message: str = ""
    by: str = ""
    at: float = 0.0
    content: str = ""


@dataclass(frozen=True, slots=True)
class BuildContainer:
    """The build container of an env. `image` is the id of its image."""

    env: str
    id: str
    state: str
    image: str


@dataclass(frozen=True, slots=True)
class Sight:
    """The envs of a node. `foreign` are images and containers of others whose names look like ours.

    `leftovers` remain from interrupted operations: tags of images and names of containers, with their creation time in
    Unix seconds by the node's clock. `partial` are unnamed images with layers of an image that did not arrive: their
    ids, each with the id of that image.
    """

    images: tuple[EnvImage, ...] = ()
    containers: tuple[BuildContainer, ...] = ()
    foreign: frozenset[str] = frozenset()
    leftovers: Mapping[str, float] = field(default_factory=dict)
    partial: Mapping[str, str] = field(default_factory=dict)

    def container(self, env: str) -> BuildContainer | None:
        """The build container of an env, if the node has it."""
        return next((each for each in self.containers if each.env == env), None)


@dataclass(frozen=True, slots=True)
class Version:
    """A version: its image, and the nodes where it was seen.

    `id` is the id of the image where it was seen first; `ids` are those of nodes with another one. `content` is as in
    `EnvImage`, empty in records of early versions.
    """

    id: str
    size: int
    message: str = ""
    by: str = ""
    at: float = 0.0
    nodes: tuple[str, ...] = ()
    content: str = ""
    ids: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_ids(self) -> frozenset[str]:
        """What nodes call the image."""
        return frozenset((self.id, *self.ids.values()))

    def id_on(self, node: str) -> str:
        """What a node calls the image, if it has it."""
        return self.ids.get(node, self.id)

    def is_image(self, id_: str, content: str) -> bool:
        """Whether an image is that of this version. Where both contents are known, another id proves nothing."""
        if id_ == self.id:
            return True
        return content == self.content if content and self.content else id_ in self.all_ids


@dataclass(frozen=True, slots=True)
class EnvRecord:
    """The record of an env. `highest` is the highest number that was ever used.

    `back` is the version that was restored by a rollback, and the highest number at that time. A newer version
    overrides it. `home` is the node with the build container. `since` is when the record was made (Unix seconds; 0 in
    records of early versions). `unsettled`: a newer version existed already at that time, so an earlier rollback may be
    unknown.
    """

    highest: int = 0
    back: tuple[int, int] | None = None
    home: str | None = None
    versions: Mapping[int, Version] = field(default_factory=dict)
    since: float = 0.0
    unsettled: bool = False

    @property
    def assumed(self) -> bool:
        """Whether the current version is only assumed, as the newest of several."""
        return self.unsettled and len(self.versions) > 1

    @property
    def current(self) -> int | None:
        """The current version, used if none is named."""
        if self.back and self.back[1] >= self.highest and self.back[0] in self.versions:
            return self.back[0]
        return max(self.versions, default=None)

    @property
    def there(self) -> bool:
        """Whether the env exists, beyond the numbers that it has used."""
        return bool(self.versions) or self.home is not None


@dataclass(frozen=True, slots=True)
class FileChanges:
    """The changes of a build container since its image: the numbers of paths, and some of them."""

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
    """The configuration of an image: how it runs, and its labels. `content` is as in `EnvImage`."""

    id: str
    size: int
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    content: str = ""


def is_env_name(name: str) -> bool:
    """Whether an env could have this name."""
    return len(name) <= MAX_NAME and _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Check and return the name of an env. Raises UsageError."""
    if name == NULL:
        raise UsageError("NULL is not an env: --container NULL means no container")
    if name.upper() == NULL:
        raise UsageError(f"{name!r} is not a valid env name; for no container, use --container NULL in capitals")
    if not is_env_name(name):
        raise UsageError(
            f"env {name[:80]!r}: use up to {MAX_NAME} lowercase letters and digits, with single '.', '_' or '-' "
            "between them"
        )
    return name


def parse_ref(text: str) -> EnvRef:
    """Parse `NAME` or `NAME:N`. Raises UsageError."""
    name, colon, number = text.partition(":")
    check_name(name)
    if not colon:
        return EnvRef(name)
    if not _NUMBER.fullmatch(number):
        raise UsageError(f"{text[:80]!r}: a version is a number from 1, like {name}:3")
    return EnvRef(name, int(number))


def ref_of(image: str) -> EnvRef | None:
    """The version that the name of an image stands for, or None."""
    if not image.startswith(NAMESPACE):
        return None
    try:
        ref = parse_ref(image.removeprefix(NAMESPACE))
    except UsageError:
        return None
    return ref if ref.version is not None else None


def is_ours(image: str) -> bool:
    """Whether the name of an image is reserved for envs, in any spelling of a registry."""
    return bool(_HUB.match(image))


def container_of_env(name: str) -> str:
    """The name of the build container of an env."""
    return f"agentless-env-{name}"


def check_message(text: str) -> str:
    """The message in one line. Raises UsageError if it is too long."""
    line = " ".join(printable(text).split())
    if len(line) > MAX_MESSAGE:
        raise UsageError(f"the message has {len(line)} characters; the limit is {MAX_MESSAGE}")
    return line


def labels_of_version(ref: EnvRef, message: str, by: str, at: float) -> dict[str, str]:
    """The labels of the image of a version."""
    return {ENV: ref.name, VERSION: str(ref.version), MESSAGE: message, BY: by, AT: f"{at:.3f}", BUILD: ""}
