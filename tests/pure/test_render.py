"""Templates and values into shell words: whatever a value is, it stays one word.

Every template in `templates/` has a case here; a new one without a case fails.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentless.errors import TemplateError
from agentless.model.nodes.engine import Injection, Toolkit
from agentless.model.scheduling.sharing import Sharing
from agentless.paths import template_dir
from agentless.render import Renderer, split
from tests.pure.shells import SHELLS

NASTY = [
    "", " ", "-", "--rm", "-e", "a b", "'", '"', "''", "\\", "\\n", "a\nb", "\n", "\t", "$HOME", "${IFS}", "$(exit 9)",
    "`exit 9`", ";exit 9", "&& exit 9", "|cat", "*", "?", "[a-z]", "~", "~root", "#x", "!", "!!", "{1..3}", "{{ x }}",
    "{% raw %}", "LIVE", "x\nLIVE\n", "é", "😀", "\u2028", "\x01\x7f", "%s", "\\000", "=", "a=b", "a,b", "|", "a|b|c|d",
]  # fmt: skip
values = st.sampled_from(NASTY) | st.text(
    st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20
)
lists = st.lists(values, max_size=3)
some = st.lists(values, min_size=1, max_size=3)
keys = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.]{0,8}", fullmatch=True)
maybe = st.none() | values
injections = st.builds(Injection, lists.map(tuple), st.dictionaries(keys, values, max_size=2))
toolkits = st.lists(st.builds(Toolkit, values, values, some.map(tuple), values), max_size=2)
filters = {
    "layers": values,
    "room": st.integers(0, 9),
    "small": st.integers(0, 9),
    "config": values,
    "files": st.lists(st.tuples(values, values), max_size=2),
}
ways = st.lists(st.lists(values, max_size=3).map(lambda words: ["ssh", *words]), min_size=1, max_size=3)

Case = tuple[dict[str, Any], Callable[[dict[str, Any]], list[str]]]


def _devices(v: dict[str, Any]) -> list[str]:
    environment = v["devices"].environment
    return [*v["devices"].arguments, *(w for key, value in environment.items() for w in ("--env", f"{key}={value}"))]


def _run(v: dict[str, Any]) -> list[str]:
    argv = [*v["docker"], "create", "--pull", "never", "--name", v["name"]]
    argv += [word for key, value in v["labels"].items() for word in ("--label", f"{key}={value}")]
    argv += _devices(v)
    argv += ["--cgroup-parent", v["cgroup_parent"]] if v["cgroup_parent"] else []
    argv += [word for key, value in v["env"].items() for word in ("--env", f"{key}={value}")]
    argv += [word for key in v["secret_env"] for word in ("--env", key)]
    argv += ["--cpus", str(v["cores"])] if v["cores"] else []
    argv += ["--cpuset-cpus", v["cpus"], "--cpuset-mems", str(v["numa"])] if v["cpus"] else []
    argv += ["--memory", str(v["memory"])] if v["memory"] else []
    argv += ["--shm-size", str(v["shm_size"])] if v["shm_size"] else []
    argv += [word for mount in v["mounts"] for word in ("--mount", mount)]
    for option in ("workdir", "user", "network"):
        argv += [f"--{option}", v[option]] if v[option] else []
    argv += ["--privileged"] if v["privileged"] else []
    for option in ("hostname", "entrypoint"):
        argv += [f"--{option}", v[option]] if v[option] else []
    return [*argv, "--stop-timeout", str(v["stop_grace"]), v["image"], *v["command"]]


def _create(v: dict[str, Any]) -> list[str]:
    """As `_run`, by podman."""
    run = _run({**v, "docker": [], "devices": Injection(), "labels": {}, "cgroup_parent": None})
    labels = [word for key, value in v["labels"].items() for word in ("--label", f"{key}={value}")]
    return [
        *v["docker"], "create", "--pull", "never", "--name", v["name"], *labels, *_devices(v),
        "--log-driver", "k8s-file", "--pids-limit", "-1", *run[5:],
    ]  # fmt: skip


def _logs(v: dict[str, Any]) -> list[str]:
    argv = [*v["docker"], "logs"] + ["--follow"] * v["follow"]
    argv += ["--tail", str(v["tail"])] if v["tail"] is not None else []
    argv += ["--since", v["since"]] if v["since"] is not None else []
    return argv + ["--timestamps"] * v["timestamps"] + [v["container"]]


WORDS: dict[str, Case] = {
    "docker-diff.j2": ({"docker": some, "container": values}, lambda v: [*v["docker"], "diff", v["container"]]),
    "docker-cp.j2": (
        {"docker": some, "container": values, "path": values, "into": st.booleans()},
        lambda v: [
            *v["docker"], "cp",
            *(["-", f"{v['container']}:{v['path']}"] if v["into"]
              else ["--follow-link", f"{v['container']}:{v['path']}", "-"]),
        ],
    ),
    "docker-events.j2": (
        {"docker": some, "since": values, "format": values},
        lambda v: [
            *v["docker"], "events", "--since", v["since"],
            "--filter", "type=container", "--filter", "label=agentless.task",
            *(w for e in ("start", "pause", "unpause", "die", "destroy") for w in ("--filter", f"event={e}")),
            "--format", v["format"],
        ],
    ),
    "docker-inspect.j2": (
        {"docker": some, "format": values, "containers": lists},
        lambda v: [*v["docker"], "inspect", "--format", v["format"], *v["containers"]],
    ),
    "docker-list.j2": (
        {"docker": some, "format": values},
        lambda v: [
            *v["docker"], "ps", "--all", "--no-trunc", "--filter", "label=agentless.task", "--format", v["format"]
        ],
    ),
    "docker-kill.j2": (
        {"docker": some, "signal": values, "container": values},
        lambda v: [*v["docker"], "kill", "--signal", v["signal"], v["container"]],
    ),
    "docker-logs.j2": (
        {
            "docker": some,
            "container": values,
            "follow": st.booleans(),
            "tail": st.none() | st.integers(0, 9),
            "since": maybe,
            "timestamps": st.booleans(),
        },
        _logs,
    ),
    "docker-pause.j2": ({"docker": some, "container": values}, lambda v: [*v["docker"], "pause", v["container"]]),
    "docker-unpause.j2": ({"docker": some, "container": values}, lambda v: [*v["docker"], "unpause", v["container"]]),
    "docker-update.j2": (
        {
            "docker": some,
            "container": values,
            "cores": st.sampled_from([None, 0.5]),
            "memory": st.none() | st.integers(1),
        },
        lambda v: [
            *v["docker"], "update",
            *(["--cpus", str(v["cores"])] if v["cores"] else []),
            *(["--memory", str(v["memory"]), "--memory-swap", str(v["memory"] * 2)] if v["memory"] else []),
            v["container"],
        ],
    ),
    "docker-pull.j2": ({"docker": some, "image": values}, lambda v: [*v["docker"], "pull", "--quiet", v["image"]]),
    "env-export.j2": ({"docker": some, "image": values}, lambda v: [*v["docker"], "save", v["image"]]),
    "env-image.j2": (
        {"docker": some, "image": values, "format": values},
        lambda v: [*v["docker"], "image", "inspect", "--format", v["format"], v["image"]],
    ),
    "env-image-rm.j2": ({"docker": some, "image": values}, lambda v: [*v["docker"], "image", "rm", v["image"]]),
    "env-stop.j2": (
        {"docker": some, "container": values},
        lambda v: [*v["docker"], "stop", "-t", "10", v["container"]],
    ),
    "env-start.j2": ({"docker": some, "container": values}, lambda v: [*v["docker"], "start", v["container"]]),
    "env-top.j2": (
        {"docker": some, "container": values},
        lambda v: [*v["docker"], "top", v["container"], "-eo", "pid,args"],
    ),
    "docker-rm.j2": (
        {"docker": some, "containers": some, "force": st.booleans()},
        lambda v: [*v["docker"], "rm", *["--force"] * v["force"], "--volumes", *v["containers"]],
    ),
    "docker-volume-sizes.j2": (
        {"docker": some, "format": values},
        lambda v: [*v["docker"], "system", "df", "--verbose", "--format", v["format"]],
    ),
    "docker-devices.j2": ({"devices": injections.filter(lambda each: each.arguments or each.environment)}, _devices),
    "docker-run.j2": (
        {
            "docker": some,
            "name": values,
            "labels": st.dictionaries(keys, values, max_size=2),
            "devices": injections,
            "env": st.dictionaries(keys, values, max_size=2),
            "secret_env": st.lists(keys, max_size=2),
            "cores": st.none() | st.floats(0.1, 64),
            "cpus": maybe,
            "numa": st.integers(0, 7),
            "memory": st.none() | st.integers(1),
            "shm_size": st.none() | st.integers(1),
            "mounts": lists,
            "workdir": maybe,
            "user": maybe,
            "network": maybe,
            "privileged": st.booleans(),
            "hostname": maybe,
            "entrypoint": maybe,
            "stop_grace": st.integers(1),
            "cgroup_parent": maybe,
            "image": values,
            "command": lists,
        },
        _run,
    ),
}  # fmt: skip
ASKING: dict[str, st.SearchStrategy[Any]] = {
    "asker": st.lists(values, max_size=2).map(lambda words: ["docker", *words]),
    "accepted": lists,
    "asked_format": values,
    "own": lists,
    "own_env": st.booleans(),
}
LIVE = {"named_gpus": st.lists(st.tuples(values.filter(bool), values.filter(bool)), max_size=3), **ASKING}
SIGNATURES = st.just("1:" + "0" * 64)
CLAIMS: dict[str, st.SearchStrategy[Any]] = {
    "gpu_uuids": st.lists(values.filter(bool), max_size=3),
    "exclusive": st.booleans(),
    "sharing": st.just(Sharing(3, 8 << 30)),
    "gpu_total": st.just(16 << 30),
}
FOLDER = {"folder": values, "name": values}
NODES = st.sampled_from(
    [
        None,
        {"size": 2, "slots": 8, "launcher": None, "on_member_failure": "stop"},
        {"size": 3, "slots": 1, "launcher": "torchrun", "on_member_failure": "continue"},
    ]
)
UNIT: dict[str, st.SearchStrategy[Any]] = {"unit": values.filter(bool), "missing": st.integers(0, 1)}
INSIDE_UNIT: dict[str, st.SearchStrategy[Any]] = {
    "mark": values,
    "input": st.sampled_from(["terminal", "lines", "pipe"]),
    "variables": st.lists(values.map(lambda text: f"A={text}"), max_size=2),
}
listed = st.just(())
SECRETS = st.sampled_from([[], ["TOKEN", "OTHER_TOKEN"]])
ENGINE: dict[str, st.SearchStrategy[Any]] = {
    "docker": lists,
    "format": values,
    "state_format": values,
    "many": st.booleans(),
    "clear": st.sampled_from(["docker-clear.sh.j2", "podman-clear.sh.j2"]),
}
LAUNCH: dict[str, st.SearchStrategy[Any]] = {
    **CLAIMS,
    "name": values.filter(bool),
    "signature": SIGNATURES,
    "claimed": values,
    "create": some,
    "lookup": st.just(""),
    "verb": st.just(0),
    "rootless": st.booleans(),
    "volumes": st.just(()),
    "owner": values,
    "image": values,
    "image_id": st.none(),
    "held": st.booleans(),
    "created": st.just("") | values,
    "files": st.just("") | values,
}
TRIALS_OVER = {
    **dict.fromkeys(("key", "mark_format", "name_format", "image_key"), values),
    "repository": st.just("agentless-doctor"),
    "over_after": st.just(3600),
}
SCRIPTS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "cp-packed.sh.j2": {"copy": some},
    "docker-carried.sh.j2": {"docker": lists, "label": values, "format": values, "most": st.just(1000)},
    "docker-containers.sh.j2": {"docker": lists, "filters": lists, "format": values},
    "docker-checkup.sh.j2": {
        "docker": lists,
        "programs": lists,
        "socket": maybe,
        "root_key": st.sampled_from(["DockerRootDir", "graphRoot"]),
        "registry": values,
        "network": maybe,
        "pull_within": st.just(5),
    },
    "docker-trial.sh.j2": {
        "docker": lists,
        "scripts": some,
        "label": values,
        "image": values,
        "is_sent": st.booleans(),
        "within": st.just(15),
        "times_format": values,
        **TRIALS_OVER,
    },
    "docker-trial-over.sh.j2": {"docker": lists, **TRIALS_OVER},
    "docker-trial-clear.sh.j2": {"docker": lists, "label": values, "image": values},
    "node-checkup.sh.j2": {"programs": lists, "folders": st.lists(st.tuples(values, st.booleans()), max_size=2)},
    "cdi-names.sh.j2": {"prefix": values, "most": st.just(1000)},
    "nvidia-checkup.sh.j2": {"cdi": values, "questions": some},
    "nvidia-look.sh.j2": {},
    "docker-facts.sh.j2": {"docker": lists, "format": values, "toolkits": toolkits},
    "docker-files-look.sh.j2": {"docker": lists, "format": values, "image": values, "listing": values, "name": values},
    "docker-files-make.sh.j2": {
        **dict.fromkeys(("helper", "base", "image", "mark", "source", "source_helper"), values),
        "docker": lists,
        "copies": st.lists(st.tuples(values, values), min_size=1, max_size=2),
    },
    "docker-files-tidy.sh.j2": {
        "docker": lists,
        "images": some,
        "helpers": some,
        "listing": values,
        "name": values,
        "helper_format": values,
        "helper_name": values,
    },
    "docker-log-ends.sh.j2": {"docker": lists, "container": values, "of_stdout": some, "of_stderr": some},
    "docker-launch.sh.j2": {
        **ENGINE,
        **LIVE,
        "lock_wait": st.just(60),
        "live": st.sampled_from(["docker-live.sh.j2", "podman-live.sh.j2"]),
        "live_format": values,
        "listed": listed,
        "volume_format": values,
        "image_format": values,
        "makes_volumes": st.booleans(),
        "start": values,
        "secrets": SECRETS,
        "launches": st.lists(st.fixed_dictionaries(LAUNCH), min_size=1, max_size=3),
    },
    "docker-start.sh.j2": {**ENGINE, "begin": st.sampled_from(["docker-begin.sh.j2", "podman-begin.sh.j2"])},
    "docker-answer.sh.j2": {"many": st.booleans()},
    "docker-clear.sh.j2": {"docker": lists, "format": values, "state_format": values},
    "docker-begin.sh.j2": {"docker": lists},
    "secrets.sh.j2": {"secrets": SECRETS},
    "claims.sh.j2": {},
    "docker-live.sh.j2": {"docker": lists, "live_format": values, "listed": listed, **LIVE},
    "podman-live.sh.j2": {"docker": lists, "live_format": values, "listed": listed, **LIVE},
    "others.sh.j2": LIVE,
    "groups.sh.j2": {"named_gpus": LIVE["named_gpus"]},
    "rootless.sh.j2": ASKING,
    "beside.sh.j2": ASKING,
    "programs.sh.j2": {},
    "conmons.sh.j2": {},
    "podman-facts.sh.j2": {"docker": lists, "format": values, "toolkits": toolkits},
    "podman-unlocked.sh.j2": {},
    "holders.sh.j2": {},
    "docker-lock.sh.j2": {"lock_wait": st.just(60)},
    "docker-reap.sh.j2": {
        "docker": lists,
        "lock_wait": st.just(60),
        "format": values,
        "container": values.filter(bool),
    },
    "docker-undo.sh.j2": {
        **{key: way for key, way in ENGINE.items() if key != "many"},
        "lock_wait": st.just(60),
        "name": values.filter(bool),
        "signature": SIGNATURES,
        "force": st.booleans(),
    },
    "between-listen.sh.j2": {"port": st.just(29500), "within": st.just(9)},
    "between-try.sh.j2": {
        "targets": st.lists(
            st.fixed_dictionaries({"number": st.just(1), "address": values, "port": st.just(29500)}), max_size=2
        ),
        "within": st.just(4),
        "at_once": st.just(32),
    },
    "gang-look.sh.j2": {"first": st.just(29500)},
    "slurm-look.sh.j2": {"daemons": values},
    "image-archive.sh.j2": {"docker": lists, "image": values, "skip": values, "pack": st.none() | some},
    "image-drop.sh.j2": {"file": values},
    "image-forget.sh.j2": {"docker": lists, "label": values},
    "image-load.sh.j2": {
        "docker": lists,
        "image": values,
        "unpack": st.none() | some,
        "id_format": values,
        "label": values,
    },
    "image-load-blobs.sh.j2": {"docker": lists, "unpack": st.none() | some, "id_format": values},
    "image-loaded.sh.j2": {"docker": lists, "id_format": values},
    "image-list.sh.j2": {"docker": lists, "list_format": values},
    "image-look.sh.j2": {
        "docker": lists,
        "images": lists,
        "tags": lists,
        "bottom": values,
        "id_format": values,
        "info_format": values,
        "layers_format": values,
    },
    "image-save.sh.j2": {"docker": lists, "image": values, "skip": values, "pack": st.none() | some},
    "image-reach.sh.j2": {"ways": ways},
    "image-share.sh.j2": {
        "docker": lists,
        "image": values,
        "skip": values,
        "pack": st.none() | some,
        "file": values,
    },
    "image-source.sh.j2": {
        "docker": lists,
        "image": values,
        "image_format": values,
        "info_format": values,
        "containerd": values,
    },
    "docker-volume.sh.j2": {"docker": lists, "name": values, "labels": lists, "format": values, "there": st.just(73)},
    "docker-volumes.sh.j2": {"docker": lists, "label": values, "listing": values, "users": values},
    "files-look.sh.j2": {"paths": lists},
    "files-receive.sh.j2": {"folder": values, "name": values, "mark": values},
    "files-rsync.sh.j2": {"folder": values, "make": maybe, "file": maybe, "arguments": some, "partial": values},
    "files-send.sh.j2": {"folder": values, "name": maybe},
    "image-straight.sh.j2": {
        "docker": lists,
        "image": values,
        "skip": values,
        "pack": st.none() | some,
        "ways": ways,
    },
    "image-filter.sh.j2": filters,
    "image-take.sh.j2": {
        **filters,
        "docker": lists,
        "unpack": st.none() | some,
        "file": st.none() | values,
        "id_format": values,
    },
    "image-walk.sh.j2": {},
    "docker-shell.sh.j2": {
        "docker": lists,
        "container": values,
        "mark": values,
        "command": some,
        "input": st.sampled_from(["terminal", "lines", "pipe"]),
        "variables": st.lists(values.map(lambda text: f"A={text}"), max_size=2),
    },
    "docker-revive.sh.j2": {
        "docker": lists,
        **CLAIMS,
        **LIVE,
        "lock_wait": st.just(60),
        "live": st.sampled_from(["docker-live.sh.j2", "podman-live.sh.j2"]),
        "live_format": values,
        "listed": listed,
        "state_format": values,
        "id_format": values,
        "start": values,
        "container": values.filter(bool),
        "devices_format": values,
        "lookups": lists,
        "claimed": values,
    },
    "docker-cpu.sh.j2": {"docker": lists, "containers": some},
    "env-base.sh.j2": {"docker": lists, "container": values, "id_format": values, "format": values},
    "docker-revived.sh.j2": {
        "docker": lists,
        "begin": st.sampled_from(["docker-begin.sh.j2", "podman-begin.sh.j2"]),
        "id_format": values,
    },
    "docker-hang-up.sh.j2": {
        "docker": lists,
        "container": values,
        "mark": values,
        "once": st.booleans(),
        "whole": st.booleans(),
    },
    "docker-tell.sh.j2": {"docker": lists, "container": values, "mark": values, "signal": st.just("USR1")},
    "program-end.sh.j2": {"once": st.booleans(), "whole": st.booleans()},
    "program-signal.sh.j2": {},
    "container-idle.sh.j2": {},
    "container-mpirun.sh.j2": {},
    "container-mpirun-first.sh.j2": {
        "port": st.just(29500),
        "others": lists,
        "interface": st.none() | values,
        "processes": st.just(2),
    },
    "container-mpirun-other.sh.j2": {"port": st.just(29500), "listen": st.sampled_from(["", "10.0.0.2", "fd00::2"])},
    "container-carrier.sh.j2": {},
    "container-command.sh.j2": {},
    "container-files.sh.j2": {},
    "container-listen.sh.j2": {},
    "container-notebook.sh.j2": {"word": st.sampled_from(["run", "start", "wait", "stop"])},
    "container-relay.sh.j2": {},
    "container-write.sh.j2": {},
    "systemd-enter.sh.j2": {**INSIDE_UNIT, "unit": values},
    "systemd-hang-up.sh.j2": {**UNIT, "mark": values, "once": st.booleans(), "whole": st.booleans()},
    "systemd-join.sh.j2": {"unit": values},
    "systemd-journal.sh.j2": {**UNIT, "identifier": values},
    "systemd-launch.sh.j2": {
        "docker": lists,
        "lock_wait": st.just(60),
        "live": st.sampled_from(["docker-live.sh.j2", "podman-live.sh.j2"]),
        "unit": values.filter(bool),
        **CLAIMS,
        "live_format": values,
        "listed": listed,
        **LIVE,
        "properties": some,
        "user": values,
        "controllers": st.lists(st.sampled_from(["cpu", "memory"])),
        "cuda": maybe,
        "secret_env": st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), max_size=2),
        "program": values,
        "lookup": values,
        "claim": values,
    },
    "systemd-log-ends.sh.j2": {**UNIT, "identifier": values, "of_stdout": some, "of_stderr": some},
    "systemd-logs.sh.j2": {
        **UNIT,
        "identifier": values,
        "follow": st.booleans(),
        "tail": st.none() | st.integers(0, 9),
        "since": maybe,
    },
    "systemd-pause.sh.j2": UNIT,
    "systemd-program.sh.j2": INSIDE_UNIT,
    "systemd-remove.sh.j2": {**UNIT, "force": st.booleans()},
    "systemd-resume.sh.j2": UNIT,
    "systemd-rights.sh.j2": UNIT,
    "systemd-shell.sh.j2": {**UNIT, **INSIDE_UNIT, "command": some},
    "slurm-checkup.sh.j2": {"folder": values, "programs": lists, "within": st.just(9)},
    "slurm-trial.sh.j2": {**FOLDER, "waits": st.just(9), "options": some},
    "slurm-jobs.sh.j2": {**FOLDER, "name": maybe, "mark": st.just("0af"), "format": values, "accounting": maybe},
    "slurm-job.sh.j2": {
        **FOLDER,
        "labels": st.just("eNo="),
        "workflow": st.sampled_from(["", "c$z`!<"]),
        "comment": values,
        "workdir": maybe,
        "files": st.sampled_from(["", "abc"]),
        "place": maybe,
        "binds": st.booleans(),
        "srun": some,
        "mounts": maybe,
        "command": some,
        "secret_env": st.sampled_from([[], ["TOKEN"]]),
        "nodes": NODES,
    },
    "slurm-launch.sh.j2": {
        "mark": st.just("0af"),
        "folder": values,
        "secrets": st.just([]),
        "lock_wait": st.just(60),
        "names": st.lists(values, min_size=2, max_size=2),
        "jobs": st.lists(some, min_size=2, max_size=2),
        "alone": st.lists(st.integers(1, 2), max_size=2),
        "looks": st.lists(st.integers(1, 2), max_size=2),
        "arrays": st.lists(
            st.fixed_dictionaries(
                {"numbers": st.just([1, 2]), "names": some, "options": some, "most": st.sampled_from(["", "4"])}
            ),
            min_size=1,
            max_size=1,
        ),
        "element": values,
        "refusals": lists,
        "unheard": lists,
    },
    "slurm-files.sh.j2": {"folder": values, "key": values, "mark": values},
    "slurm-files-changes.sh.j2": FOLDER,
    "slurm-files-send.sh.j2": {"path": values, "packed": st.booleans()},
    "slurm-files-start.sh.j2": FOLDER,
    "slurm-files-tidy.sh.j2": {},
    "slurm-log-ends.sh.j2": {**FOLDER, "of_stdout": some},
    "slurm-array.sh.j2": {"folder": values},
    "slurm-logs.sh.j2": {**FOLDER, "job": values, "follow": st.booleans(), "tail": st.none() | st.integers(0, 9)},
    "slurm-nodes.sh.j2": {"partition": maybe, "format": values},
    "slurm-scripts.sh.j2": {"folder": values, "names": some},
    "slurm-hear.sh.j2": {},
    "slurm-number.sh.j2": {},
    "slurm-own.sh.j2": {},
    "slurm-state.sh.j2": {},
    "slurm-secrets.sh.j2": {"folder": values, "files": some},
    "slurm-pause.sh.j2": {**FOLDER, "submitted": values, "job": values, "verb": st.sampled_from(["suspend", "resume"])},
    "slurm-remove.sh.j2": {**FOLDER, "submitted": values, "force": st.just(True)},
    "slurm-multinode.sh.j2": {"nodes": st.just({"size": 2, "slots": 8, "launcher": None})},
    "slurm-shell.sh.j2": {
        "folder": values,
        "submitted": values,
        "name": st.just("agentless-2mxf"),
        "job": values,
        "mark": values,
        "input": st.sampled_from(["terminal", "lines", "pipe"]),
        "variables": lists,
        "command": some,
    },
    "slurm-signal.sh.j2": {
        **FOLDER,
        "submitted": values,
        "job": values,
        "signal": st.sampled_from(["TERM", "USR1", "KILL"]),
    },
    "slurm-variables.sh.j2": {
        "nodes": NODES,
        "env": st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), values, max_size=2),
    },
    "systemd-signal.sh.j2": {**UNIT, "signal": st.sampled_from(["TERM", "USR1", "KILL"])},
    "systemd-tell.sh.j2": {**UNIT, "mark": values, "signal": st.just("USR1")},
    "systemd-task.sh.j2": {
        "env": st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True), values, max_size=2),
        "own": st.lists(st.sampled_from(["CUDA_HOME", "PATH", "LD_LIBRARY_PATH"]), unique=True),
        "given": st.just([]),
        "cuda": maybe,
        "signals": st.just(["TERM", "INT"]),
        "identifier": values,
        "command": some,
    },
    "systemd-unit.sh.j2": UNIT,
    "systemd-units.sh.j2": {"unit": values, "properties": values},
    "systemd-watch.sh.j2": {"beside": values},
}
_FRESH: dict[str, st.SearchStrategy[Any]] = {
    "docker": lists,
    "fresh": values,
    "unlabelled": values.filter(bool),
    "name": values,
}
_NAMED: dict[str, st.SearchStrategy[Any]] = {
    "docker": lists,
    "lock_wait": st.just(60),
    "image": values,
    "fresh": values,
    "format": values,
}
_LABELLED: dict[str, st.SearchStrategy[Any]] = {**_FRESH, "env": values, "changes": some}
SCRIPTS |= {
    "env-adopt.sh.j2": {**_LABELLED, **_NAMED},
    "env-build.sh.j2": {**_LABELLED, **_NAMED, "mark": values, "dockerfile": values},
    "env-create.sh.j2": {
        "docker": lists,
        "env": values,
        "name": values,
        "old": maybe,
        "image": values,
        "entrypoint": st.booleans(),
        "blind": st.dictionaries(keys, values, max_size=2),
    },
    "env-diff.sh.j2": {"docker": lists, "container": values, "most": st.integers(1, 99)},
    "env-fresh.sh.j2": _FRESH,
    "env-label.sh.j2": _LABELLED,
    "env-load.sh.j2": {"docker": lists, "mark": values, "fresh": values, "format": values},
    "env-look.sh.j2": {"docker": lists, "image_format": values, "container_format": values, "partial": values},
    "env-name.sh.j2": _NAMED,
    "env-save.sh.j2": {**_NAMED, "container": values, "changes": some, "unlabelled": st.none()},
}
WORDS |= {
    "podman-events.j2": (
        WORDS["docker-events.j2"][0],
        lambda v: [
            *v["docker"], "events", "--since", v["since"], "--filter", "type=container",
            *(w for e in ("start", "pause", "unpause", "died", "remove") for w in ("--filter", f"event={e}")),
            "--format", v["format"],
        ],
    ),
    "podman-cp.j2": (
        WORDS["docker-cp.j2"][0],
        lambda v: [
            *v["docker"], "cp",
            *(["-", f"{v['container']}:{v['path']}"] if v["into"] else [f"{v['container']}:{v['path']}", "-"]),
        ],
    ),
    "podman-rm.j2": (
        WORDS["docker-rm.j2"][0],
        lambda v: [*v["docker"], "rm", *["--force", "--time", "0"] * v["force"], "--volumes", *v["containers"]],
    ),
    "podman-run.j2": ({key: way for key, way in WORDS["docker-run.j2"][0].items() if key != "cgroup_parent"}, _create),
}  # fmt: skip
SCRIPTS |= {
    f"podman-{name}.sh.j2": SCRIPTS[f"docker-{name}.sh.j2"] for name in ("begin", "clear", "reap", "shell", "undo")
}
SCRIPTS |= {
    "host-facts.sh.j2": {"gpus": values, "cards": values},
    "host-load.sh.j2": {"root": values, "disk_every": st.integers(1, 99)},
    "nvidia-faults.sh.j2": {},
    "nvidia-probe.sh.j2": {
        "fields": values,
        "base_fields": values,
        "answer": st.integers(1),
        "processes": st.integers(1),
        "topology": st.booleans(),
    },
    "nvidia-topology.sh.j2": {},
    "nvidia-wsl.sh.j2": {},
    "process-owners.sh.j2": {},
    "amd-checkup.sh.j2": {},
    "amd-faults.sh.j2": {},
    "amd-give.sh.j2": {
        "devices": some,
        "engine": st.sampled_from(["docker", "podman", "systemd"]),
        "cdi": st.booleans(),
    },
    "amd-look.sh.j2": {},
    "amd-machine.sh.j2": {},
    "amd-probe.sh.j2": {"sysfs": values, "answer": st.integers(1), "processes": st.integers(1)},
    "amd-sysfs.sh.j2": {"links": st.booleans()},
}
SCRIPTS["podman-volume-sizes.sh.j2"] = {"docker": lists, "format": values}
ALL = {**{name: case[0] for name, case in WORDS.items()}, **SCRIPTS}
shells = pytest.mark.parametrize("shell", SHELLS, ids=" ".join)
renderer = Renderer([template_dir()])


def test_every_template_has_a_case_here() -> None:
    assert sorted(path.name for path in template_dir().rglob("*.j2")) == sorted(ALL)


def words_or_error(read: Callable[[str], list[str]], text: str) -> list[str] | str:
    try:
        return read(text)
    except ValueError as error:
        return str(error)


@given(st.text(st.sampled_from("ab#$é \t\n\r\v\u00a0'\"\\"), max_size=20))
def test_a_text_has_the_words_that_the_standard_library_reads(text: str) -> None:
    assert words_or_error(split, text) == words_or_error(shlex.split, text)


@pytest.mark.parametrize("name", WORDS)
@given(data=st.data())
@settings(max_examples=25)
def test_a_template_of_words_gives_every_value_back_as_it_was(name: str, data: st.DataObject) -> None:
    strategies, expected = WORDS[name]
    drawn = data.draw(st.fixed_dictionaries(strategies))
    assert renderer.words(name, **drawn) == expected(drawn)
    assert shlex.split(renderer.script(name, **drawn)) == expected(drawn)


@pytest.mark.parametrize("name", [name for name in ALL if ALL[name]])
@given(data=st.data())
@settings(max_examples=2)
def test_every_value_of_a_template_has_to_be_there(name: str, data: st.DataObject) -> None:
    drawn = data.draw(st.fixed_dictionaries(ALL[name]))
    # `numa` comes with `cpus`, which may be None, and the others with volumes and images that a launch may not have.
    optional = {"numa", "volume_format", "makes_volumes", "image_format", "devices_format"}
    for missing in sorted(set(drawn) - optional):
        with pytest.raises(TemplateError, match=f"'{missing}' is undefined"):
            renderer.script(name, **{key: value for key, value in drawn.items() if key != missing})


class FakeDocker:
    """Programs that record their words. `bad` is `docker run` that fails; `docker ps` prints what `shows` holds.

    `docker create` prints an id, `made1` for the first of a script.
    """

    def __init__(self, folder: Path) -> None:
        self.calls = folder / "calls"
        self.shows = folder / "shows"
        self.docker, self.bad = folder / "docker", folder / "bad"
        record = '#!/bin/sh\nprintf \'%s\\000\' "$#" "$@" >> ' + str(self.calls) + "\n"
        self.made = folder / "made"
        answers = f"ps) exec cat {self.shows} ;; create) echo >> {self.made}; echo made$(wc -l < {self.made}); exit ;;"
        self.docker.write_text(f"{record}for word; do case $word in {answers} esac; done\n")
        self.bad.write_text(f"{record}exit 3\n")
        for program in (self.docker, self.bad):
            program.chmod(0o755)
        (folder / "flock").symlink_to("/bin/true")
        self.env = {"PATH": f"{folder}:{os.environ['PATH']}", "LANG": "C.UTF-8"}

    def run(self, script: str, shell: list[str], shows: str = "") -> tuple[int, list[list[str]]]:
        self.calls.write_bytes(b"")
        self.shows.write_text(shows)
        self.made.write_bytes(b"")
        done = subprocess.run([*shell, "-c", script], input=b"\n", env=self.env, capture_output=True, check=False)
        words = self.calls.read_bytes().decode().split("\0")[:-1]
        calls = []
        while words:
            count = int(words.pop(0))
            calls.append([words.pop(0) for _ in range(count)])
        return done.returncode, calls


@pytest.fixture(scope="module")
def fake() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        yield FakeDocker(Path(folder))


@shells
@pytest.mark.parametrize("name", SCRIPTS)
@given(data=st.data())
@settings(max_examples=4)
def test_a_script_is_one_that_shells_can_read(shell: list[str], name: str, data: st.DataObject) -> None:
    is_read(shell, name, data)


@pytest.mark.slow
@shells
@pytest.mark.parametrize("name", SCRIPTS)
@given(data=st.data())
@settings(max_examples=25)
def test_every_script_is_one_that_shells_can_read(shell: list[str], name: str, data: st.DataObject) -> None:
    is_read(shell, name, data)


def is_read(shell: list[str], name: str, data: st.DataObject) -> None:
    """Have the shell read such a script, and run nothing."""
    drawn = data.draw(st.fixed_dictionaries(SCRIPTS[name]))
    # Each begins with a program: a list that begins with `fi` would be a word of the shell's.
    commands: dict[str, Any] = {
        key: ["docker", *(drawn.get(key) or [])]
        for key in ("docker", "run", "copy", "of_stdout", "of_stderr", "pack", "unpack")
    }
    if "launches" in drawn:
        commands["launches"] = [each | {"create": ["docker", *each["create"]]} for each in drawn["launches"]]
    script = renderer.script(name, **drawn | commands)
    checked = subprocess.run([*shell, "-n"], input=script.encode(), capture_output=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, b"")


@shells
@given(data=st.data())
@settings(max_examples=10)
def test_a_launch_gives_docker_every_value_as_it_was(fake: FakeDocker, shell: list[str], data: st.DataObject) -> None:
    engine = {"clear": "docker-clear.sh.j2", "live": "docker-live.sh.j2", "listed": []}
    v = data.draw(st.fixed_dictionaries(SCRIPTS["docker-launch.sh.j2"])) | engine
    # Who wants this machine alone would find what tests beside this one have claimed of it.
    one = v["launches"][0] | {"exclusive": False}
    one["create"] = [str(fake.bad), *one["create"]]
    v |= {"docker": [str(fake.docker), *v["docker"]], "many": False, "launches": [one]}
    code, calls = fake.run(renderer.script("docker-launch.sh.j2", **v), shell)
    assert code == 70
    v["docker"] = v["docker"][1:]
    looked, ran, looked_again = calls
    assert looked[: len(v["docker"]) + 1] == [*v["docker"], "ps"]
    assert looked[-2:] == ["--format", v["live_format"]]
    assert ran == one["create"][1:]
    assert looked_again[len(v["docker"]) + 1 :] == [
        "--all", "--no-trunc", "--filter", f"name=^/?{one['name']}$",
        "--filter", f"label=agentless.signature={one['signature']}", "--format", v["format"],
    ]  # fmt: skip


@shells
@given(data=st.data())
@settings(max_examples=8)
def test_looking_at_containers_gives_docker_every_value_as_it_was(
    fake: FakeDocker, shell: list[str], data: st.DataObject
) -> None:
    v = data.draw(st.fixed_dictionaries(SCRIPTS["docker-containers.sh.j2"]))
    script = renderer.script("docker-containers.sh.j2", **v | {"docker": [str(fake.docker), *v["docker"]]})
    code, (looked, inspected) = fake.run(script, shell, shows="id1\nid2\n")
    assert code == 0
    filters = [word for f in v["filters"] for word in ("--filter", f)]
    assert looked == [*v["docker"], "ps", "--all", "--quiet", "--no-trunc", *filters]
    assert inspected == [*v["docker"], "inspect", "--format", v["format"], "id1", "id2"]


@shells
@given(data=st.data())
@settings(max_examples=8)
def test_asking_for_facts_gives_docker_every_value_as_it_was(
    fake: FakeDocker, shell: list[str], data: st.DataObject
) -> None:
    v = data.draw(st.fixed_dictionaries(SCRIPTS["docker-facts.sh.j2"]))
    script = renderer.script("docker-facts.sh.j2", **v | {"docker": [str(fake.docker), *v["docker"]]})
    assert fake.run(script, shell) == (0, [[*v["docker"], "info", "--format", v["format"]]])


@shells
@given(data=st.data())
@settings(max_examples=8)
def test_making_an_image_with_files_gives_docker_every_value_as_it_was(
    fake: FakeDocker, shell: list[str], data: st.DataObject
) -> None:
    v = data.draw(st.fixed_dictionaries(SCRIPTS["docker-files-make.sh.j2"]))
    script = renderer.script("docker-files-make.sh.j2", **v | {"docker": [str(fake.docker), *v["docker"]]})
    docker, helper, other = v["docker"], v["helper"], v["source_helper"]
    remove = [*docker, "rm", "--force", "--volumes", helper, other]
    create = [*docker, "create", "--pull", "never", "--network", "none", "--name"]
    code, calls = fake.run(script, shell)
    assert code == 0
    assert calls[:4] == [
        remove, [*create, helper, v["base"], "true"], [*create, other, v["source"], "true"],
        [*docker, "cp", "-", "made1:/"],
    ]  # fmt: skip
    # The two ends of a pipe begin in any order.
    out = [[*docker, "cp", f"made2:{folder}", "-"] for folder, _ in v["copies"]]
    copies = out + [[*docker, "cp", "-", f"made1:{above}"] for _, above in v["copies"]]
    assert sorted(calls[4:-2]) == sorted(copies)
    assert calls[-2:] == [[*docker, "commit", "made1", v["image"]], [*remove[:-2], "made1", "made2"]]


@shells
@given(data=st.data())
@settings(max_examples=8)
def test_reading_the_ends_of_a_log_gives_docker_every_value_as_it_was(
    fake: FakeDocker, shell: list[str], data: st.DataObject
) -> None:
    v = data.draw(st.fixed_dictionaries(SCRIPTS["docker-log-ends.sh.j2"]))
    programs = {"of_stdout": ["cat"], "of_stderr": ["cat"]}
    script = renderer.script("docker-log-ends.sh.j2", **v | programs | {"docker": [str(fake.docker), *v["docker"]]})
    assert fake.run(script, shell)[1] == [[*v["docker"], "logs", v["container"]]]


@shells
@given(data=st.data())
@settings(max_examples=8)
def test_a_shell_gives_docker_every_value_as_it_was(fake: FakeDocker, shell: list[str], data: st.DataObject) -> None:
    v = data.draw(st.fixed_dictionaries(SCRIPTS["docker-shell.sh.j2"])) | {"input": "terminal"}
    script = renderer.script("docker-shell.sh.j2", **v | {"docker": [str(fake.docker), *v["docker"]]})
    code, [ran] = fake.run(script, shell)
    assert code == 0
    begin = [*v["docker"], "exec", "--interactive", "--tty", "--detach-keys", "ctrl-@,ctrl-^,ctrl-@,ctrl-^"]
    assert ran[: len(begin) + 3] == [*begin, v["container"], "sh", "-c"]
    assert ran[len(begin) + 4 :] == ["sh", v["mark"], *v["variables"], "--", *v["command"]]


@shells
@pytest.mark.parametrize("code", [0, 3])
def test_the_ends_of_a_log_come_on_their_streams_with_dockers_own_exit_code(
    shell: list[str], code: int, tmp_path: Path
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(f"#!/bin/sh\nseq 9999\nseq 5555 >&2\nexit {code}\n")
    docker.chmod(0o755)
    script = renderer.script(
        "docker-log-ends.sh.j2",
        docker=[docker],
        container="c",
        of_stdout=["tail", "-c", 5],
        of_stderr=["wc", "-c"],
    )
    done = subprocess.run(shell, input=script.encode(), capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (code, b"9999\n", b"26668")


@pytest.mark.parametrize("place", ["docker-pull.j2", "images/docker-pull.j2", "images/receive/docker-pull.j2"])
def test_an_admins_template_wins_over_the_packaged_one(tmp_path: Path, place: str) -> None:
    mine = tmp_path / place
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("{{ docker }} pull --platform linux/amd64 {{ image }}\n")
    own = Renderer([tmp_path, template_dir()])
    assert own.words("docker-pull.j2", docker=["docker"], image="a b") == [
        "docker", "pull", "--platform", "linux/amd64", "a b",
    ]  # fmt: skip
    assert own.words("docker-pause.j2", docker=["docker"], container="c") == ["docker", "pause", "c"]


def test_a_folder_of_templates_need_not_exist(tmp_path: Path) -> None:
    assert Renderer([tmp_path / "nowhere", template_dir()]).words("docker-pull.j2", docker=["d"], image="i")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"{% if %}", "t.j2:1:"),
        (b"a\n{{ image", "t.j2:2:"),
        (b"{{ nothing }}", "'nothing' is undefined"),
        (b"{{ image.nothing }}", "has no attribute 'nothing'"),
        (b"{{ none }}", "a value is None"),
        (b"{{ image }} 'open", "No closing quotation"),
        (b"", "empty command"),
        (b"{{ image|nothing }}", "No filter named 'nothing'"),
        (b"{{ 1 // 0 }}", "zero"),
        (b"{{ image() }}", "not callable"),
        (b"{{ image + 1 }}", "str"),
        (b"{% include 'nothing.j2' %}", "nothing.j2"),
        (b"\xff", "not UTF-8"),
    ],
)
def test_a_template_that_does_not_render_is_named(tmp_path: Path, text: bytes, words: str) -> None:
    (tmp_path / "t.j2").write_bytes(text)
    with pytest.raises(TemplateError) as caught:
        Renderer([tmp_path]).words("t.j2", image="busybox")
    assert "template " in str(caught.value)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"a\n{% if %}", "Expected an expression"),
        (b"a\n{{ nobody }}", "'nobody' is undefined"),
        (b"a\n{{ none }}", "a value is None"),
        (b"a\n{{ 1 // 0 }}", "zero"),
        (b"a\n{% include 'nothing.j2' %}", "nothing.j2 is missing"),
        (b"a\n\xff", "not UTF-8"),
    ],
)
def test_what_is_wrong_in_a_template_is_told_with_its_file_and_line_also_where_others_take_it_in(
    tmp_path: Path, text: bytes, words: str
) -> None:
    (tmp_path / "inner.j2").write_bytes(text)
    (tmp_path / "outer.j2").write_text("{% include 'inner.j2' %}")
    for name in ("inner.j2", "outer.j2"):
        with pytest.raises(TemplateError) as caught:
            Renderer([tmp_path]).script(name)
        assert str(caught.value).startswith(f"template {tmp_path / 'inner.j2'}:2: ")
        assert words in str(caught.value)


@pytest.mark.parametrize("text", ["{{ x }} mine", "{% include 'part.j2' %}"], ids=["itself", "a part of it"])
def test_a_template_of_ones_own_counts_from_the_next_rendering_on(tmp_path: Path, text: str) -> None:
    own, packaged = tmp_path / "own", tmp_path / "packaged"
    packaged.mkdir()
    (packaged / "t.j2").write_text(text.replace("mine", "theirs"))
    (packaged / "part.j2").write_text("{{ x }} theirs")
    renderer = Renderer([own, packaged])
    assert renderer.words("t.j2", x=1) == ["1", "theirs"]
    own.mkdir()
    file = own / ("t.j2" if "mine" in text else "part.j2")
    file.write_text("{{ x }} mine")
    assert renderer.words("t.j2", x=1) == ["1", "mine"]
    times = file.stat()
    file.write_text("{{ x }} edited")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert renderer.words("t.j2", x=1) == ["1", "edited"]
    file.unlink()
    assert renderer.words("t.j2", x=1) == ["1", "theirs"]


def test_a_template_that_is_not_there_is_named() -> None:
    with pytest.raises(TemplateError, match=r"nothing\.j2 is missing"):
        renderer.script("nothing.j2")
