"""Settings of a node for its tasks (`mounts`, `env`, … in the inventory), joined with what a task requests.

They are joined at each launch and not stored: a task that is retried on another node gets the settings of that one.
"""

from __future__ import annotations

from dataclasses import replace

from agentless.model.files.posix_path import within
from agentless.model.nodes.node import NodeConfig
from agentless.model.tasks.spec import LOCAL_TEMP, SHARED, Mount, TaskSpec

TEMP = "/tmp"  # noqa: S108 - of the container
_LOCAL_TEMP, _SHARED = "AGENTLESS_LOCAL_TEMP", "AGENTLESS_SHARED"


def with_settings(spec: TaskSpec, node: NodeConfig) -> TaskSpec:
    """The spec as it runs on this node. What the task requests itself wins.

    Without a container, only variables mean anything.
    """
    env = {name: value for name, value in node.env.items() if name not in spec.secret_env}
    if spec.on_node_itself:
        return replace(spec, env={**env, **spec.env})
    folder = [Mount(node.local_temp, LOCAL_TEMP)] if node.local_temp else []
    taken = spec.mounted_at
    return replace(
        spec,
        env={**env, **spec.env},
        mounts=(*spec.mounts, *(each for each in (*node.mounts, *folder) if within("/", each.target) not in taken)),
        privileged=spec.privileged or node.privileged,
        # Members of a gang reach each other at the addresses of their nodes.
        network=spec.network or node.network or ("host" if spec.gang else None),
        shm_size=spec.shm_size or node.shm_size,
    )


def with_shared(spec: TaskSpec, shared_dir: str | None) -> TaskSpec:
    """The spec with the folder that all nodes share, unless it has something else in its place."""
    if shared_dir is None or SHARED in spec.mounted_at:
        return spec
    return replace(spec, mounts=(*spec.mounts, Mount(shared_dir, SHARED)))


def folders(spec: TaskSpec, node: NodeConfig) -> dict[str, str]:
    """The variables that say where a task has a folder for temporary files, and the shared one; `spec` with settings.

    Both are always set: an image that was made of a task's container has those of that task.
    """
    if spec.on_node_itself:
        return {_LOCAL_TEMP: node.local_temp or TEMP, _SHARED: node.shared_dir or ""}
    return {
        _LOCAL_TEMP: LOCAL_TEMP if LOCAL_TEMP in spec.mounted_at else TEMP,
        _SHARED: SHARED if SHARED in spec.mounted_at else "",
    }
