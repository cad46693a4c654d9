"""Envs by Docker: renders `templates/envs/`, parses the answers. No I/O."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from agentless.engines.answers import parser
from agentless.engines.docker.commands import Commands
from agentless.engines.times import seconds
from agentless.errors import Refused, RuntimeFailed
from agentless.gpus.vendors import GpuVendors
from agentless.model.command import Command, Result
from agentless.model.containers.signature import COVERED, SIGNATURE
from agentless.model.images.env import (
    AT,
    BUILD,
    BY,
    ENV,
    FRESH,
    IMPORT,
    MESSAGE,
    NAMESPACE,
    VERSION,
    BuildContainer,
    EnvImage,
    EnvRef,
    FileChanges,
    ImageFacts,
    Sight,
    container_of_env,
    ref_of,
)
from agentless.model.nodes.node import with_node
from agentless.rules.images.layers import PARTIAL

LOCK_WAIT = 20
LOOK_WITHIN = 15.0
"""Seconds for a list of what a node has. If it takes longer, the last known list counts."""
LONG = 600.0
"""Seconds to create a container: with a large image, an engine under load is slow."""
PATHS = 50
"""Changed paths of a build container that are listed."""

_CONTENT = (
    ',"entrypoint":{{json .Config.Entrypoint}},"command":{{json .Config.Cmd}},"env":{{json .Config.Env}}'
    ',"volumes":{{json .Config.Volumes}},"labels":{{json .Config.Labels}},"user":{{json .Config.User}}'
    ',"workdir":{{json .Config.WorkingDir}},"architecture":{{json .Architecture}},"os":{{json .Os}}'
    ',"rootfs":{{json .RootFS}},"config":{{json .Config}}}'
)
_IMAGE = '{"id":{{json .Id}},"tags":{{json .RepoTags}},"size":{{json .Size}},"created":{{json .Created}}' + _CONTENT
_FACTS = '{"id":{{json .Id}},"size":{{json .Size}}' + _CONTENT
_HASHED = ("entrypoint", "command", "env", "volumes", "labels", "user", "workdir", "architecture", "os")
_RUNS = ("Healthcheck", "StopSignal", "OnBuild", "Shell", "ExposedPorts")
"""What else of `.Config` changes what runs; an engine leaves out what an image does not have."""
_CONTAINER = (
    '{"container":{{json .Id}},"name":{{json .Name}},"image":{{json .Image}},"state":{{json .State.Status}}'
    ',"created":{{json .Created}},"labels":{{json .Config.Labels}}}'
)
_PASSING = re.compile(rf"{NAMESPACE}[^:]+:{FRESH}[0-9a-f]{{16}}(?:-2)?")
SECOND = "-2"
"""The end of a second temporary name, for an image that is made from one with a temporary name."""
_TAKEN = 75


class DockerEnvs:
    """Env commands for one node."""

    def __init__(self, commands: Commands, complaint: Callable[[str], str], vendors: GpuVendors) -> None:
        self.complaint = complaint
        self._commands = commands
        self._node = commands.node
        self._vendors = vendors

    # ------------------------------------------------------------------ asking

    def look(self) -> Command:
        """List all images and containers with names of envs."""
        return self._commands.script(
            "env-look.sh.j2",
            timeout=LOOK_WITHIN,
            image_format=_IMAGE,
            container_format=_CONTAINER,
            partial=PARTIAL,
        )

    @parser
    def parse_look(self, result: Result) -> Sight:
        """What the node has of envs; raises RuntimeFailed if it does not answer."""
        self._check(result)
        images, containers, foreign = dict[str, EnvImage](), list[BuildContainer](), set[str]()
        leftovers, partial = dict[str, float](), dict[str, str]()
        for found in _objects(result):
            labels: Mapping[str, str] = found.get("labels") or {}
            if "container" in found:
                name = str(found["name"]).removeprefix("/")
                env = labels.get(BUILD)
                if env and name == container_of_env(env):
                    containers.append(BuildContainer(env, found["container"], found["state"], found["image"]))
                elif env and name == container_of_env(env) + IMPORT:
                    leftovers[name] = seconds(found["created"]) or 0.0
                else:
                    foreign.add(name)
                continue
            if labels.get(PARTIAL) and not found["tags"]:
                partial[found["id"]] = labels[PARTIAL]
            for tag in found["tags"] or ():
                ref = ref_of(tag)
                if ref and (labels.get(ENV), labels.get(VERSION)) == (ref.name, str(ref.version)):
                    images[tag] = _image(ref, found, labels)
                elif _PASSING.fullmatch(tag):
                    leftovers[tag] = seconds(found["created"]) or 0.0
                elif tag.startswith(NAMESPACE):
                    foreign.add(tag)
        return Sight(tuple(images.values()), tuple(containers), frozenset(foreign), leftovers, partial)

    def facts(self, image: str) -> Command:
        """Ask for an image's entrypoint, command, variables and labels."""
        return self._commands.words("env-image.j2", image=image, format=_FACTS)

    def base(self, container: str) -> Command:
        """Likewise for the image of a container; `parse_facts` reads the answer."""
        return self._commands.script("env-base.sh.j2", container=container, id_format="{{.Image}}", format=_FACTS)

    @parser
    def parse_facts(self, result: Result) -> ImageFacts | None:
        """The facts, None if the image does not exist."""
        if not result.ok and "no such image" in result.err.lower():
            return None
        return self._facts_in(result, "the image")

    def diff(self, container: str) -> Command:
        """List the changes in a build container since its image."""
        return self._commands.script("env-diff.sh.j2", timeout=LONG, container=container, most=PATHS)

    @parser
    def parse_diff(self, result: Result) -> FileChanges:
        """The changes."""
        self._check(result)
        added, changed, deleted, *paths = [*result.out.splitlines(), "0", "0", "0"][: PATHS + 3]
        found = tuple(path for path in paths if re.match("[ACD] ", path))
        return FileChanges(int(added), int(changed), int(deleted), found)

    def programs(self, container: str) -> Command:
        """List the programs in a build container."""
        return self._commands.words("env-top.j2", container=container)

    @parser
    def parse_programs(self, result: Result) -> tuple[str, ...]:
        """The programs there, without the idle loop."""
        self._check(result)
        lines = [line.split(None, 1)[1] for line in result.out.splitlines()[1:] if len(line.split(None, 1)) > 1]
        return tuple(line for line in lines if "sleep 86400" not in line)

    # ---------------------------------------------------------------- changing

    def create(self, env: str, image: ImageFacts, old: str | None = None) -> Command:
        """Create and start the build container of an env; `old` is removed first."""
        return self._commands.script(
            "env-create.sh.j2",
            timeout=LONG,
            env=env,
            name=container_of_env(env),
            old=old,
            image=image.id,
            entrypoint=bool(image.entrypoint),
            blind=self._vendors.hiding(variable.partition("=")[0] for variable in image.env),
        )

    @parser
    def parse_create(self, result: Result) -> str:
        """The id of the build container."""
        if not result.ok and re.search(r'exec: "?sh"?:', result.err):
            raise RuntimeFailed(
                "the image has no sh, so it cannot be edited in a shell; build the env from a Dockerfile"
            )
        self._check(result)
        return result.out.split()[-1]

    def start(self, container: str) -> Command:
        """Start a build container that was stopped."""
        return self._commands.words("env-start.j2", container=container)

    def stop(self, container: str) -> Command:
        """Stop a build container, with all programs in it."""
        return self._commands.words("env-stop.j2", container=container)

    def remove_image(self, image: str) -> Command:
        """Remove a name from an image, and the image if that was its last one."""
        return self._commands.words("env-image-rm.j2", timeout=LONG, image=image)

    def passing(self, ref: EnvRef, mark: str) -> str:
        """The temporary name of an image while it is made; `mark` is 16 random hexadecimal digits."""
        return f"{NAMESPACE}{ref.name}:{FRESH}{mark}"

    def save(self, container: str, base: ImageFacts, ref: EnvRef, labels: Mapping[str, str], mark: str) -> Command:
        """Save a build container, whose image is `base`, as a version; `parse_named` reads the answer."""
        return self._save(container, [*self._as_before(base), *_labelled(labels)], ref, mark)

    def snapshot(self, container: str, base: ImageFacts, ref: EnvRef, labels: Mapping[str, str], mark: str) -> Command:
        """Likewise the container of a task, whose claim and GPUs the image must not have."""
        claim = dict.fromkeys((*COVERED, SIGNATURE), "")
        hidden = _set(self._vendors.injection("docker", ()).environment)
        # The entrypoint of a container that waits is not the image's. Docker takes one empty word for none.
        entrypoint = [] if base.entrypoint else ['ENTRYPOINT [""]']
        changes = [*hidden, *entrypoint, *self._as_before(base), *_labelled({**claim, **labels})]
        return self._save(container, changes, ref, mark)

    def build(self, ref: EnvRef, dockerfile: str, labels: Mapping[str, str], mark: str) -> Command:
        """Build a version of the context that is written to it once the mark has come; then its output comes.

        With a second mark the output ends, and `parse_named` reads what follows.
        """
        return self._commands.script(
            "env-build.sh.j2",
            env=ref.name,
            name=container_of_env(ref.name) + IMPORT,
            dockerfile=dockerfile,
            changes=_labelled(labels),
            unlabelled=self.passing(ref, mark),
            fresh=self.passing(ref, mark) + SECOND,
            image=ref.image,
            mark=mark,
            lock_wait=LOCK_WAIT,
            format=_FACTS,
        )

    @parser
    def parse_built(self, ref: EnvRef, result: Result) -> ImageFacts:
        """The version that was built. If the build failed, its output has the reason."""
        if not result.ok and not result.err.strip():
            raise RuntimeFailed(f"{self._node.name}: the build failed")
        return self.parse_named(ref, result)

    @parser
    def parse_named(self, ref: EnvRef, result: Result) -> ImageFacts:
        """The version that was saved; raises Refused if somebody else has just taken its number."""
        if result.exit_code == _TAKEN:
            raise Refused(f"{self._node.name}: another process just created {ref}; retry")
        return self._facts_in(result, "the new version")

    # ---------------------------------------------------------- to and from a file

    def export(self, image: str) -> Command:
        """The archive of an image, without its names."""
        return self._commands.words("env-export.j2", image=image)

    def load(self, passing: str, mark: str) -> Command:
        """Load the archive that is written to it once the mark has come; `parse_loaded` reads what follows."""
        return self._commands.script("env-load.sh.j2", fresh=passing, mark=mark, format=_FACTS)

    @parser
    def parse_loaded(self, result: Result) -> ImageFacts:
        """The image in the archive, which has a temporary name so far."""
        if result.exit_code == _TAKEN:
            raise RuntimeFailed("the archive must contain exactly one image; create it with: agentless env export")
        if not result.ok and re.search("unexpected EOF|invalid tar|archive/tar|no such file", result.err):
            raise RuntimeFailed("invalid or incomplete image archive; create it with: agentless env export")
        return self._facts_in(result, "the image in the archive")

    def adopt(self, ref: EnvRef, labels: Mapping[str, str] | None, passing: str) -> Command:
        """Make the loaded image a version, with other labels if given; `parse_named` reads the answer."""
        return self._commands.script(
            "env-adopt.sh.j2",
            timeout=LONG,
            env=ref.name,
            name=container_of_env(ref.name) + IMPORT,
            unlabelled=None if labels is None else passing,
            fresh=passing if labels is None else passing + SECOND,
            changes=_labelled(labels or {}),
            image=ref.image,
            lock_wait=LOCK_WAIT,
            format=_FACTS,
        )

    # ------------------------------------------------------------------ inside

    def _save(self, container: str, changes: list[str], ref: EnvRef, mark: str) -> Command:
        return self._commands.script(
            "env-save.sh.j2",
            container=container,
            unlabelled=None,
            changes=changes,
            fresh=self.passing(ref, mark),
            image=ref.image,
            lock_wait=LOCK_WAIT,
            format=_FACTS,
        )

    def _as_before(self, base: ImageFacts) -> list[str]:
        """`docker commit` changes with which the saved image runs like the image it was built from."""
        command = list(base.command) or ([] if base.entrypoint else ["sh"])
        changes = [f"CMD {json.dumps(command)}"]
        if base.entrypoint:
            changes.append(f"ENTRYPOINT {json.dumps(list(base.entrypoint))}")
        variables = dict(variable.partition("=")[::2] for variable in base.env)
        hidden = self._vendors.hiding(variables)
        return [*changes, *_set({name: value for name, value in variables.items() if name in hidden})]

    def _facts_in(self, result: Result, what: str) -> ImageFacts:
        self._check(result)
        found = next(_objects(result), None)
        if found is None:
            raise RuntimeFailed(f"{self._node.name} did not report {what}")
        return _facts(found)

    def _check(self, result: Result) -> None:
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self.complaint(result.err.strip() or result.out.strip())))


def _objects(result: Result) -> Iterator[dict[str, Any]]:
    for line in result.out.splitlines():
        if line.startswith("{"):
            yield orjson.loads(line)


def _image(ref: EnvRef, found: Mapping[str, Any], labels: Mapping[str, str]) -> EnvImage:
    try:
        at = float(labels.get(AT, ""))
    except ValueError:
        at = seconds(found["created"]) or 0.0
    message, by = labels.get(MESSAGE, ""), labels.get(BY, "")
    return EnvImage(ref, found["id"], int(found["size"]), message, by, at, _content(found))


def _facts(found: Mapping[str, Any]) -> ImageFacts:
    return ImageFacts(
        found["id"],
        int(found["size"]),
        tuple(found["entrypoint"] or ()),
        tuple(found["command"] or ()),
        tuple(found["env"] or ()),
        tuple(found["volumes"] or ()),
        found["labels"] or {},
        _content(found),
    )


def _content(found: Mapping[str, Any]) -> str:
    """A hash of the layers and of the configuration; empty without layers. Nothing and none are alike to engines."""
    layers = (found.get("rootfs") or {}).get("Layers")
    if not layers:
        return ""
    config = found.get("config") or {}
    fields = [layers, *(found.get(name) or None for name in _HASHED), *(config.get(name) or None for name in _RUNS)]
    return hashlib.sha256(orjson.dumps(fields, option=orjson.OPT_SORT_KEYS)).hexdigest()


def _set(variables: Mapping[str, str]) -> list[str]:
    return [f"ENV {name}={_quoted(value)}" for name, value in variables.items()]


def _labelled(labels: Mapping[str, str]) -> list[str]:
    return [f"LABEL {key}={_quoted(value)}" for key, value in labels.items()]


def _quoted(text: str) -> str:
    """A quoted word for a Dockerfile, on one line."""
    return '"' + re.sub(r'(["\\$])', r"\\\1", " ".join(text.splitlines())) + '"'
