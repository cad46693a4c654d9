"""The spec of a task: what the user requested."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain

from agentless.errors import UsageError
from agentless.model.files.file_spec import Output, Upload
from agentless.model.files.posix_path import within
from agentless.model.images.env import NULL, parse_ref
from agentless.model.images.snapshot import check_vps_name
from agentless.model.nodes.device import PART_NUMBER
from agentless.model.notify import NONE, parse_events
from agentless.model.scheduling.needs import MAX_GPUS, NODE_NAME, Needs, joined, parse_target
from agentless.model.scheduling.sharing import MAX_SHARES
from agentless.model.tasks.gang import Gang, MultiNode, check_gang
from agentless.model.tasks.job import Job, check_job
from agentless.model.tasks.port import Port, check_ports
from agentless.model.tasks.public_key import parse_public_keys
from agentless.model.tasks.requirement import check_requirements
from agentless.model.tasks.terms import MAX_RETRIES, Terms, parse_on_preempt, parse_retry_on, parse_signal
from agentless.model.tasks.workload import WORKLOADS, Workload, WorkloadName
from agentless.model.text import enumerated
from agentless.model.units import GPU_MEMORY, MEMORY, SHM, Sizes, least_size

LOCAL_TEMP = "/local_temp"
"""The path in a task of the node's `local_temp`."""
SHARED = "/shared"
"""The path in a task of the inventory's `shared_dir`, the folder that all nodes share."""
PULL = ("missing", "always", "never")
"""When an image is pulled. None means the first of these."""
MAX_SPEC = 120_000
"""The limit of a spec as JSON, in bytes. It is one label, and Linux limits an argument to 128 KiB."""
MAX_VARIABLE = 128 * 1024 - 1
"""The limit of a variable as NAME=VALUE, in bytes (MAX_ARG_STRLEN in Linux)."""
MAX_SECRETS = 1024 * 1024
"""The limit of all secrets as NAME=VALUE, in bytes. Linux allows a quarter of the stack limit, usually 2 MiB."""
LEAST_LIFE = 60.0
"""The shortest time, in seconds, after which a VPS may stop by itself."""
MAX_SNAPSHOTS = 100
"""The limit of snapshots that are kept of those made when a VPS stops."""
_LONGEST_ESCAPE = 12
"""Bytes of a character in JSON, at most."""
_LONGEST_KEY = 64
"""Bytes of a number or constant in JSON with the name of its field, at most."""
MAX_NUMBER = 2**63 - 1
"""The largest number in state and labels: 64 bits, signed."""

_PLAIN = (str, int, float)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{1,62}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
LABEL_KEY = re.compile(r"[a-z0-9A-Z][a-z0-9A-Z._/-]*")
_OURS = "AGENTLESS_"
SHELL_VARIABLES = frozenset({
    "PATH", "IFS", "ENV", "LD_PRELOAD", "LD_LIBRARY_PATH", "OPTIND", "LINENO", "PPID", "PWD", "OLDPWD", "PS1", "PS4",
    "UID", "EUID", "GROUPS", "SHELLOPTS", "BASHOPTS", "BASH_VERSINFO", "BASHPID", "DIRSTACK", "FUNCNAME", "HISTCMD",
    "RANDOM", "SECONDS", "SHLVL", "TMOUT", "_",
})  # fmt: skip
"""Variables that change how a shell runs when they are exported in it, that end it, or that lose their value in it."""
_NEVER_SECRET = SHELL_VARIABLES - {"PS1", "OLDPWD"} | {
    "HOME", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "DOCKER_API_VERSION", "DOCKER_CERT_PATH", "DOCKER_TLS",
    "DOCKER_TLS_VERIFY", "DOCKER_DEFAULT_PLATFORM",
}  # fmt: skip
"""Secrets are exported on the node before docker runs. These would change how or where it runs."""


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the node, and its path in the container."""

    source: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.source}:{self.target}" + (":ro" if self.read_only else "")


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume of the node, by name, and its path in the container."""

    name: str
    target: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.name}:{self.target}" + (":ro" if self.read_only else "")


@dataclass(frozen=True, slots=True)
class TaskSpec:
    """The command, its container, its needs and its terms.

    Sizes are in bytes, times in seconds; None means the default of the engine, the image or the node. `cores` and
    `memory` limit the task, and are set aside on its node. With `share`, foreign processes may use its GPUs.
    `parameters` are the values, by name, in which its command differs from others of its batch. `container` is its env,
    as a version (`NAME:3`) once that is known; then `image` is the name of that version and `image_id` its id. NULL: it
    runs on the node itself, by systemd. `pull` says when an image is pulled. `workload` is its kind; None, as in specs
    of early versions, is a task. `replaces` is the task whose VPS it continues, in another container. `secret_env` only
    has names: values of secrets are never shown, stored or published.
    `public_keys` are those of others who may enter a VPS over controllers of their own, as lines of .pub files; with
    `no_ssh`, nobody enters it by ssh.
    `ports` are those that a client forwards while it shows the task. `gang` says which member of a gang it is.
    With `multinode`, it is one task on several nodes of a cluster.
    `notify` are the events that messages are sent about; None: those that the inventory chooses.
    `job` is its place in a workflow.
    """

    command: tuple[str, ...]
    image: str | None = None
    container: str | None = None
    image_id: str | None = None
    pull: str | None = None
    name: str | None = None
    cores: float | None = None
    memory: int | None = None
    shm_size: int | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    secret_env: tuple[str, ...] = ()
    mounts: tuple[Mount, ...] = ()
    uploads: tuple[Upload, ...] = ()
    outputs: tuple[Output, ...] = ()
    volumes: tuple[Volume, ...] = ()
    workdir: str | None = None
    user: str | None = None
    network: str | None = None
    privileged: bool = False
    stop_grace: float = 10.0
    share: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)
    needs: Needs = field(default_factory=Needs)
    terms: Terms = field(default_factory=Terms)
    workload: WorkloadName | None = None
    replaces: str | None = None
    ports: tuple[Port, ...] = ()
    public_keys: tuple[str, ...] = ()
    no_ssh: bool = False
    gang: Gang | None = None
    multinode: MultiNode | None = None
    notify: tuple[str, ...] | None = None
    job: Job | None = None

    @property
    def traits(self) -> Workload:
        """The traits of its kind of workload."""
        return WORKLOADS[self.workload or "task"]

    @property
    def on_node_itself(self) -> bool:
        """Whether it runs without a container."""
        return self.container == NULL

    @property
    def ends_within(self) -> float | None:
        """Seconds after its start within which it certainly ends, or None."""
        limit = self.terms.time_limit
        return limit if limit is None or self.terms.signal_before is not None else limit + self.stop_grace

    def without(self, node: str) -> TaskSpec:
        """The same spec, without this node."""
        needs = self.needs
        others = tuple(name for name in needs.nodes if name != node)
        if others != needs.nodes and others:
            return replace(self, needs=replace(needs, nodes=others))
        return replace(self, needs=replace(needs, exclude=tuple(dict.fromkeys((*needs.exclude, node)))))

    def on_cluster(self, cluster: str, gpu_types: tuple[str, ...] = ()) -> TaskSpec:
        """The same spec as a job of this cluster. What only chooses among nodes is left out, and so is NULL.

        `gpu_types` are those there that it means.
        """
        needs = replace(self.needs, nodes=(cluster,), exclude=(), policy=None)
        if gpu_types:
            needs = replace(needs, gpu_types=gpu_types, gpu_memory=None)
        return replace(self, needs=needs, container=None if self.on_node_itself else self.container)

    @property
    def gang_size(self) -> int:
        """How many tasks start with it, itself included."""
        return self.gang.size if self.gang else 1

    @property
    def gpus_of_job(self) -> int:
        """How many GPUs its job has on all of its nodes; those of `needs` are per node."""
        return self.needs.gpus * (self.multinode.size if self.multinode else 1)

    def unmet(self) -> TaskSpec:
        """The same spec; of a gang's member, without how its members reach each other."""
        return replace(self, gang=replace(self.gang, peers=(), port=None)) if self.gang and self.gang.peers else self

    @property
    def mounted_at(self) -> frozenset[str]:
        """The paths of mounts and volumes in the container."""
        targets = (*(mount.target for mount in self.mounts), *(volume.target for volume in self.volumes))
        return frozenset(within("/", target) for target in targets)

    @property
    def env_names(self) -> tuple[str, ...]:
        """The names of all variables that the user sets, secret or not."""
        return tuple(sorted({*self.env, *self.secret_env}))


def parse_mount(text: str) -> Mount:
    """`HOST:CONT[:ro]` as a mount; both paths absolute."""
    if (parts := _mount_parts(text)) and parts[0].startswith("/"):
        return Mount(*parts)
    raise UsageError(f"mount {text!r}: use /path/on/node:/path/in/container, or …:ro for read-only")


def parse_volume(text: str) -> Volume:
    """`NAME:/path[:ro]` as a volume."""
    if parts := _mount_parts(text):
        return Volume(check_volume(parts[0]), *parts[1:])
    raise UsageError(f"--volume {text[:80]!r}: use NAME:/path/in/container, or …:ro for read-only")


def _mount_parts(text: str) -> tuple[str, str, bool] | None:
    """`SOURCE:/path[:ro]` as source, path and whether it is read-only; None for anything else."""
    source, *parts = text.split(":")
    if not parts or not parts[0].startswith("/") or parts[1:] not in ([], ["ro"], ["rw"]):
        return None
    return source, parts[0], parts[1:] == ["ro"]


def check_volume(name: str) -> str:
    """Check and return the name of a volume. Raises UsageError."""
    if not _VOLUME.fullmatch(name):
        raise UsageError(
            f"volume {name[:80]!r}: use 2 to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit; "
            "for a folder of the node, use --mount"
        )
    return name


def on_targets(spec: TaskSpec, targets: Sequence[str]) -> tuple[TaskSpec, ...]:
    """The spec for each target, with the needs of the target added; the spec itself if there is no target.

    Of a gang, it is the spec of each member. Raises UsageError if a target contradicts the spec.
    """
    found: tuple[TaskSpec, ...] = (spec,)
    if targets:
        found = tuple(replace(spec, needs=joined(spec.needs, parse_target(text), text)) for text in targets)
    return found if spec.gang is None else _members(found, spec.gang)


def _members(specs: tuple[TaskSpec, ...], gang: Gang) -> tuple[TaskSpec, ...]:
    """The specs of the members of a gang, of one spec for all of them or of one for each."""
    check_gang(gang)
    if len(specs) not in (1, gang.size):
        raise UsageError(
            f"--nodes {gang.size} with {len(specs)} targets; give one target for each node, one for all, or none"
        )
    every = specs * (gang.size // len(specs))
    named = [each.needs.node for each in every if each.needs.node]
    if len(set(named)) < len(named) and not _may_be_cluster(specs):
        raise UsageError(on_one_node(gang.size, max(named, key=named.count)))
    needs = [each.needs for each in every]
    return tuple(
        replace(
            each,
            gang=Gang(gang.size, rank, (), gang.launcher, gang.on_member_failure, alike=needs.count(each.needs)),
        )
        for rank, each in enumerate(every)
    )


def on_one_node(size: int, node: str) -> str:
    """Why a gang cannot be on one node, in words."""
    return f"--nodes {size}: each member needs its own node, but several targets are {node}"


def _may_be_cluster(specs: Sequence[TaskSpec]) -> bool:
    """Whether one name stands for all nodes of a gang: a cluster has several, and who builds the tasks knows it."""
    return len(specs) == 1 and not specs[0].needs.indices and specs[0].needs.numa is None


def without_zeros(spec: TaskSpec) -> TaskSpec:
    """The spec without zeros: a limit of 0 is no limit, and 0 bytes of GPU memory are no requirement."""
    needs, terms = spec.needs, spec.terms
    return replace(
        spec,
        cores=spec.cores or None,
        memory=spec.memory or None,
        shm_size=spec.shm_size or None,
        needs=replace(needs, gpu_memory=needs.gpu_memory or None),
        terms=replace(
            terms,
            time_limit=terms.time_limit or None,
            signal_before=terms.signal_before or None,
            max_parallel=terms.max_parallel or None,
            min_run=terms.min_run or None,
            expires=terms.expires or None,
            idle_stop=terms.idle_stop or None,
        ),
    )


def check_spec(spec: TaskSpec) -> None:
    """Raise UsageError for a spec that no engine can run, or would run in an unexpected way."""
    if spec.traits.needs_command and not spec.command:
        raise UsageError("no command; add it after '--', for example: agentless submit node1::0 -- python train.py")
    if spec.workload == "vps":
        _check_vps(spec)
    elif spec.public_keys or spec.no_ssh:
        raise UsageError("only a VPS has public keys or --no-ssh; see: agentless vps create --help-all")
    elif spec.terms.expires or spec.terms.idle_stop or spec.terms.snapshot_on_stop:
        raise UsageError("--expires, --idle-stop and --snapshot-on-stop are for a VPS; for a task, use --time-limit")
    _check_container(spec)
    _check_uploads(spec)
    check_words(spec)
    _check_names(spec)
    _check_single_words(spec)
    for volume in spec.volumes:
        check_volume(volume.name)
    check_ports(spec.ports)
    parse_events(",".join(spec.notify or (NONE,)))
    if spec.job is not None:
        check_job(spec.job)
    _check_limits(spec)
    if spec.on_node_itself:
        _check_without_container(spec)
    if spec.gang is not None:
        _check_gang(spec, spec.gang)
    _check_needs(spec.needs)
    if spec.share and spec.needs.gpu_share > 1:
        raise UsageError(
            "--share (with foreign processes) and --gpu-share (with tasks) cannot be combined; use one of them"
        )
    _check_terms(spec.terms)
    check_numbers(spec)


def check_words(spec: TaskSpec) -> None:
    """Raise UsageError for texts that no command can have, or for too many of them."""
    _check_texts(spec)
    _check_length(spec)


def _check_vps(spec: TaskSpec) -> None:
    """Raise UsageError for what only a task can have."""
    if spec.name is None:
        raise UsageError("a VPS needs a name; for example: agentless vps create dev 1x")
    check_vps_name(spec.name)
    if spec.on_node_itself:
        raise UsageError("a VPS needs a container; omit --container NULL")
    if spec.secret_env:
        raise UsageError("a VPS cannot have secrets, because it is started again and again; use --env or a file")
    if spec.uploads:
        raise UsageError("a VPS takes no --upload; copy files into it with: agentless cp")
    if spec.outputs or spec.terms.time_limit or spec.terms.max_parallel:
        raise UsageError("a VPS has no end, so it cannot have --output, --time-limit or --max-parallel")
    if spec.terms.requires:
        raise UsageError("a VPS starts at once, so it cannot have --after or --after-batch")
    if spec.terms.preemptible or spec.terms.min_run or spec.terms.on_preempt != "requeue":
        raise UsageError("a VPS stays until it is stopped, so it cannot be preemptible; submit a task instead")
    if spec.public_keys and spec.no_ssh:
        raise UsageError("--no-ssh admits nobody, so it cannot be combined with public keys; use one of them")
    parse_public_keys(spec.public_keys)
    for option, seconds in (("--expires", spec.terms.expires), ("--idle-stop", spec.terms.idle_stop)):
        if seconds is not None and not LEAST_LIFE <= seconds < math.inf:
            raise UsageError(f"{option} {seconds:g}s: use a duration of a minute or more")
    if not 0 <= spec.terms.snapshot_on_stop <= MAX_SNAPSHOTS:
        raise UsageError(f"--snapshot-on-stop {spec.terms.snapshot_on_stop}: use a number up to {MAX_SNAPSHOTS}")


def _check_gang(spec: TaskSpec, gang: Gang) -> None:
    check_gang(gang)
    if spec.traits.comes_back:
        raise UsageError("a VPS has one node; omit --nodes")
    if spec.on_node_itself:
        raise UsageError("--nodes needs a container, which is created on all nodes before any starts; omit --container")
    if spec.terms.retries and gang.on_member_failure == "continue":
        raise UsageError("--retries and --on-member-failure continue cannot be combined; use one of them")
    if spec.terms.max_parallel is not None:
        raise UsageError("--nodes and --max-parallel cannot be combined; use one of them")


def _single_words(spec: TaskSpec) -> dict[str, str | None]:
    """The values that are one word each, by option."""
    return {"image": spec.image, "workdir": spec.workdir, "user": spec.user, "network": spec.network}


def _check_texts(spec: TaskSpec) -> None:
    values = (each.values() for each in (spec.env, spec.labels, spec.parameters))
    words = (*spec.command, *chain(*values, spec.parameters), *map(str, (*spec.mounts, *spec.volumes)))
    files = (*map(str, spec.uploads), *map(str, spec.outputs))
    _check_text((*words, *files, *spec.public_keys, *filter(None, _single_words(spec).values())))


def _check_length(spec: TaskSpec) -> None:
    leaves = _leaves(spec)
    texts = sum(len(leaf) for leaf in leaves if isinstance(leaf, str))
    if texts * _LONGEST_ESCAPE + len(leaves) * _LONGEST_KEY < MAX_SPEC:
        return  # certainly: to write it out takes most of the time of a large sweep
    length = len(json.dumps(asdict(spec)))
    if length > MAX_SPEC:
        raise UsageError(
            f"the command and its variables have {length:,} bytes; the limit is {MAX_SPEC:,}; "
            "move them into a file on the node and --mount it"
        )


def _check_names(spec: TaskSpec) -> None:
    if spec.name is not None and not _NAME.fullmatch(spec.name):
        raise UsageError(
            f"name {spec.name[:80]!r}: use up to 63 letters, digits, '.', '_' and '-', beginning with a letter or digit"
        )
    for name in spec.env_names:
        check_variable(name)
    if reserved := sorted(_NEVER_SECRET.intersection(spec.secret_env)):
        raise UsageError(f"{reserved[0]} cannot be a secret, because it changes how docker or a shell runs; use --env")
    for key in spec.labels:
        if not LABEL_KEY.fullmatch(key):
            raise UsageError(f"label {key[:80]!r}: use letters, digits, '.', '_', '/' and '-'")
        if key.startswith("agentless."):
            raise UsageError(f"label {key[:80]!r}: the prefix 'agentless.' is reserved; choose another name")


def _check_single_words(spec: TaskSpec) -> None:
    for option, value in _single_words(spec).items():
        if value is not None and (not value or value.startswith("-") or re.search(r"\s", value)):
            raise UsageError(f"--{option} {value[:80]!r} must be one word that does not begin with '-'")


def _check_limits(spec: TaskSpec) -> None:
    if spec.cores is not None and not 0 < spec.cores < math.inf:
        raise UsageError(f"--cores {spec.cores:g}: use a number above 0, or omit it for no limit")
    _check_size("--memory", spec.memory, MEMORY)
    _check_size("--shm-size", spec.shm_size, SHM)
    if not 0 <= spec.stop_grace < math.inf:
        raise UsageError(f"--stop-grace {spec.stop_grace:g}: use a duration of 0 or more")


def check_devices_are_ours(spec: TaskSpec, in_containers: Sequence[str], on_nodes: Sequence[str]) -> None:
    """Refuse variables by which GPUs are given to a task, in containers or on the node itself; raises UsageError."""
    for name in spec.env_names:
        if name.startswith(tuple(in_containers)):
            raise _is_ours(name)
        if spec.on_node_itself and name in on_nodes:
            raise UsageError(f"{name} is reserved for agentless with --container NULL; request GPUs with --gpus")


def check_no_device_mounts(spec: TaskSpec, forbidden: Sequence[str]) -> None:
    """Refuse mounts that a GPU's software takes for the request of a GPU: paths that begin so; raises UsageError."""
    seen: tuple[Mount | Volume, ...] = (*spec.mounts, *spec.volumes)
    for mount in seen:
        if within("/", mount.target).startswith(tuple(forbidden)):
            raise UsageError(f"mount {mount}: a mount there requests GPUs, and agentless gives them; use --gpus")


def check_secrets(secrets: Mapping[str, str]) -> None:
    """Raise UsageError for invalid values of secrets. The message has none of the values."""
    for name, value in secrets.items():
        if re.search(r"[\0\ud800-\udfff]", value):
            raise UsageError(f"secret {name} contains NUL or is not UTF-8; variables cannot hold such values")
    lengths = {name: len(f"{name}={value}".encode()) for name, value in secrets.items()}
    for name, length in lengths.items():
        if length > MAX_VARIABLE:
            raise UsageError(
                f"secret {name} has {length:,} bytes; the limit of Linux is {MAX_VARIABLE:,}; "
                "move the value into a file on the node and --mount it"
            )
    if (total := sum(lengths.values())) > MAX_SECRETS:
        raise UsageError(
            f"the secrets have {total:,} bytes; the limit per task is {MAX_SECRETS:,}; "
            "move large values into a file on the node and --mount it"
        )


def check_variable(name: str) -> None:
    """Raise UsageError for the name of a variable that a task cannot have, or that agentless sets."""
    if not _ENV_NAME.fullmatch(name):
        raise UsageError(f"variable {name[:80]!r}: use letters, digits and '_'")
    if name.startswith(_OURS):
        raise _is_ours(name)


def check_numbers(spec: TaskSpec) -> None:
    """Raise UsageError for numbers that cannot be stored or shown. A label may have any number."""
    if any(isinstance(leaf, int) and abs(leaf) > MAX_NUMBER for leaf in _leaves(spec)):
        raise UsageError(f"a number of the task is greater than the limit of {MAX_NUMBER:,}")
    for number in spec.needs.indices:
        if isinstance(number, str) and not PART_NUMBER.fullmatch(number):
            raise UsageError(f"{number[:80]!r} is not a slice of a GPU; use node1::0/1 for slice 1 of GPU 0")


def _is_ours(variable: str) -> UsageError:
    return UsageError(f"variable {variable} is reserved for agentless; choose another name")


def _check_without_container(spec: TaskSpec) -> None:
    asked = {
        "image": spec.image,
        "mount": spec.mounts,
        "volume": spec.volumes,
        "network": spec.network,
        "privileged": spec.privileged,
        "shm-size": spec.shm_size,
    }
    for option, value in asked.items():
        if value:
            raise UsageError(f"--{option} needs a container; omit it, or omit --container NULL")
    if spec.workdir is not None and not spec.workdir.startswith("/"):
        raise UsageError(
            f"--workdir {spec.workdir[:80]!r}: with --container NULL, use an absolute path on the node, like /data"
        )


def _check_container(spec: TaskSpec) -> None:
    if spec.container is None:
        if spec.image_id is not None:
            raise UsageError("image_id needs an env; omit it")
        if spec.pull not in (None, *PULL):
            raise UsageError(f"--pull {str(spec.pull)[:80]!r}: use {enumerated(PULL, 'or')}")
        return
    if spec.pull is not None:
        raise UsageError("--pull applies to --image, not to an env; omit one of them")
    if spec.container == NULL:
        return
    if spec.image not in (None, parse_ref(spec.container).image):
        raise UsageError("--container and --image cannot be combined; use one of them")


def _check_uploads(spec: TaskSpec) -> None:
    if spec.on_node_itself and (spec.uploads or spec.outputs):
        raise UsageError("--upload and --output need a container; omit them, or omit --container NULL")
    seen: tuple[Mount | Volume, ...] = (*spec.mounts, *spec.volumes)
    for upload in spec.uploads:
        goes = within(spec.workdir or "/", upload.target)
        for mount in seen:
            if goes == mount.target or goes.startswith(mount.target.rstrip("/") + "/"):
                raise UsageError(
                    f"--upload {upload.source}: {goes} is inside the mount {mount}; choose another PATH:DEST"
                )


def _check_size(option: str, size: int | None, of: Sizes) -> None:
    if size is None:
        return
    if not 0 < size < 2**63:
        raise UsageError(f"{option} {size}: use a size above 0 and below 8 EiB")
    if wrong := least_size(size, of):
        raise UsageError(f"{option} {wrong}")


def _check_needs(needs: Needs) -> None:
    if not 0 <= needs.gpus <= MAX_GPUS:
        raise UsageError(f"--gpus {needs.gpus}: use a number from 0 to {MAX_GPUS:,}")
    if not needs.gpus and (needs.gpu_memory is not None or needs.gpu_types):
        raise UsageError("--gpu-memory and --gpu-type need GPUs; set the number with --gpus")
    _check_size("--gpu-memory", needs.gpu_memory, GPU_MEMORY)
    if not 1 <= needs.gpu_share <= MAX_SHARES:
        raise UsageError(f"--gpu-share {needs.gpu_share}: use a number of tasks per GPU from 1 to {MAX_SHARES}")
    if needs.gpu_share > 1 and not needs.gpus:
        raise UsageError(f"--gpu-share {needs.gpu_share}: no GPUs requested; set the number with --gpus")
    if needs.gpu_share > 1 and needs.gpu_memory is None:
        raise UsageError(
            f"--gpu-share {needs.gpu_share} needs --gpu-memory, the memory that the task uses of each GPU, like 8G"
        )
    if needs.indices and (needs.node is None or needs.gpus != len(needs.indices)):
        raise UsageError("GPU indices need exactly one node and a matching number of GPUs; use node1::0,1")
    if needs.numa is not None and needs.node is None:
        raise UsageError("a NUMA node needs a node; use node1:0")
    for name in (*needs.nodes, *needs.exclude):
        if not NODE_NAME.fullmatch(name):
            raise UsageError(f"{name[:80]!r} is not a node name; list nodes with: agentless nodes")


def _check_terms(terms: Terms) -> None:
    if not -1000 <= terms.priority <= 1000:
        raise UsageError(f"--priority {terms.priority}: use a number from -1000 to 1000; higher ones start first")
    if terms.time_limit is not None and not 0 < terms.time_limit < math.inf:
        raise UsageError(f"--time-limit {terms.time_limit:g}: use a duration above 0")
    if terms.wait_for is not None and not 0 <= terms.wait_for < math.inf:
        raise UsageError(f"--wait-for {terms.wait_for:g}: use a duration of 0 or more")
    if terms.start_at is not None and not 0 <= terms.start_at < 1e11:
        raise UsageError(f"--at {terms.start_at:g}: use Unix seconds")
    if terms.start_at is not None and terms.wait_for == 0:
        raise UsageError("--no-queue cannot be combined with --at or --in; use one of them")
    parse_signal(terms.signal)
    if terms.time_limit is None and parse_signal(terms.signal) != "TERM":
        raise UsageError(f"--signal {terms.signal} needs a --time-limit")
    if terms.signal_before is not None:
        if terms.time_limit is None:
            raise UsageError("--signal-before needs a --time-limit")
        if not 0 < terms.signal_before < terms.time_limit:
            raise UsageError(
                f"--signal-before {terms.signal_before:g}s: use a duration above 0 and below the --time-limit of "
                f"{terms.time_limit:g}s"
            )
    if not 0 <= terms.retries <= MAX_RETRIES:
        raise UsageError(f"--retries {terms.retries}: use a number from 0 to {MAX_RETRIES}")
    if terms.max_parallel is not None and terms.max_parallel < 1:
        raise UsageError(f"--max-parallel {terms.max_parallel}: use at least 1")
    if terms.max_parallel is not None and terms.wait_for == 0:
        raise UsageError("--max-parallel and --no-queue cannot be combined; use one of them")
    check_requirements(terms.requires, terms.if_impossible)
    if terms.requires and terms.wait_for == 0:
        raise UsageError("--no-queue cannot be combined with --after or --after-batch; use one of them")
    _check_preemptible(terms)
    parse_retry_on(",".join(terms.retry_on))
    if not 0 <= terms.backoff < math.inf:
        raise UsageError(f"--backoff {terms.backoff:g}: use a duration of 0 or more")


def _check_preemptible(terms: Terms) -> None:
    parse_on_preempt(terms.on_preempt)
    if not terms.preemptible:
        if terms.min_run is not None or terms.on_preempt != "requeue":
            raise UsageError("--min-run and --on-preempt need --preemptible")
        return
    if terms.min_run is not None and not 0 < terms.min_run < math.inf:
        raise UsageError(f"--min-run {terms.min_run:g}: use a duration of 0 or more")
    if terms.wait_for == 0 and terms.on_preempt == "requeue":
        raise UsageError("--no-queue with --preemptible needs --on-preempt end, because a preempted task waits again")


def _leaves(value: object) -> list[object]:
    """Texts, numbers and the like in a spec, with keys, and None for each thing that has others in it."""
    found, left = list[object](), [value]
    while left:
        each = left.pop()
        if each is None or isinstance(each, _PLAIN):
            found.append(each)
            continue
        found.append(None)
        if isinstance(each, list | tuple):
            left += each
        elif isinstance(each, Mapping):
            left += each
            left += each.values()
        else:
            left += [getattr(each, name) for name in getattr(each, "__dataclass_fields__", ())]
    return found


def _check_text(words: Iterable[str]) -> None:
    for word in words:
        if "\0" in word:
            raise UsageError("a command, value or path cannot contain NUL")
        if re.search(r"[\ud800-\udfff]", word):
            raise UsageError(f"{word[:80]!r} is not UTF-8; encode it, or move it into a file on the node")
