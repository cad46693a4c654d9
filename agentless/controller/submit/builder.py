"""Builds tasks from the specs of a request: checked, with their env, image and folders resolved."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from agentless.controller.envs.envs import Envs
from agentless.controller.files.volumes import Volumes
from agentless.controller.nodes.registry import Nodes
from agentless.controller.scheduling.overflows import Overflows
from agentless.controller.scheduling.queue import POLICIES
from agentless.controller.submit.request import Submit
from agentless.controller.tasks.dependencies import Dependencies
from agentless.errors import AgentlessError, UsageError
from agentless.gpus.vendors import GpuVendors
from agentless.inventory.inventory import Inventory
from agentless.model.images.env import NULL
from agentless.model.owner import check_owner
from agentless.model.tasks.spec import (
    TaskSpec,
    check_devices_are_ours,
    check_no_device_mounts,
    check_spec,
)
from agentless.model.tasks.task import Task
from agentless.model.tasks.task_id import new_task_id
from agentless.ports import Clock
from agentless.rules.images.envs import assumed_words
from agentless.rules.submit.cluster import (
    check_excluded,
    check_for_cluster,
    check_for_nodes,
    check_there_are_nodes,
    jobs_of,
)
from agentless.rules.submit.cluster_gpus import with_type
from agentless.rules.tasks.gangs.gangs import named_members
from agentless.rules.tasks.settings import with_shared
from agentless.rules.views.nearest import nearest


class TaskBuilder:
    """Builds tasks; nothing is stored yet."""

    def __init__(
        self,
        nodes: Nodes,
        envs: Envs,
        volumes: Volumes,
        vendors: GpuVendors,
        dependencies: Dependencies,
        overflows: Overflows,
        clock: Clock,
    ) -> None:
        self._vendors = vendors
        self._nodes = nodes
        self._envs = envs
        self._volumes = volumes
        self._dependencies = dependencies
        self._overflows = overflows
        self._clock = clock
        self._shared_dir: str | None = None
        self._image: str | None = None
        self._container: str | None = None
        self._can_notify = False
        self._last_id = ""

    def on_inventory(self, inventory: Inventory) -> None:
        """Use its defaults."""
        self._shared_dir = inventory.shared_dir
        self._image = inventory.image
        self._container = inventory.container
        self._can_notify = bool(inventory.notify)

    def jobs_of(self, specs: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
        """The specs, of which each gang on a cluster is one task."""
        return jobs_of(specs, self._nodes.clusters)

    def check_request(self, request: Submit) -> None:
        """Check a request; raises UsageError if it is invalid, NotFound for an unknown node."""
        if not request.whole:  # else `problems` has checked them
            for spec in request.specs:
                self.check(spec)
        if unknown := sorted(set(request.secrets).difference(*(spec.secret_env for spec in request.specs))):
            raise UsageError(f"secret {unknown[0]!r} is not in secret_env of the task")

    async def problems(self, specs: Sequence[TaskSpec]) -> list[AgentlessError | None]:
        """For each spec what is wrong with it, or with its env; None if nothing is."""
        found = list[AgentlessError | None]()
        envs: dict[str | None, AgentlessError | None] = {None: None, NULL: None}
        for spec in specs:
            try:
                self.check(spec)
                text = self._env_of(spec)
                if text not in envs:
                    envs[text] = await self._env_problem(text or "")
                found.append(envs[text])
            except AgentlessError as error:
                found.append(error)
        return found

    def check(self, spec: TaskSpec) -> None:
        """Check one spec, likewise."""
        self._check_spec(spec)
        if spec.needs.policy is not None and spec.needs.policy not in POLICIES:
            hint = nearest(spec.needs.policy, POLICIES)
            raise UsageError(f"no policy {spec.needs.policy!r}{hint}; available: {', '.join(POLICIES)}")
        for name in spec.needs.nodes:
            self._nodes.place(name)
        if named := [name for name in spec.needs.nodes if name in self._nodes.clusters]:
            link = self._nodes.cluster_link(named[0])
            check_for_cluster(spec, named[0], link.node.cluster)
            with_type(spec, named[0], link.inside)
            check_excluded(spec.needs.exclude, named[0], link.inside)
        else:
            check_for_nodes(spec)
            for name in spec.needs.exclude:
                self._nodes.place(name)
        built = self._overflows.as_built(spec)
        self._overflows.check(built)
        if not self._overflows.may_go(built):
            check_there_are_nodes(spec, self._nodes.links, self._nodes.clusters)
        if spec.notify and not self._can_notify:
            raise UsageError("--notify: the inventory has no targets; add one below notify: in the inventory")

    def with_ids(self, specs: Sequence[TaskSpec], owner: str) -> list[TaskSpec]:
        """Specs of tasks that are only asked about, with the ids of what they wait for; raises NotFound."""
        tasks = [Task("", spec, "", owner, self._clock.now()) for spec in specs]
        return [task.spec for task in self._dependencies.resolved(tasks)]

    async def build(self, request: Submit) -> list[Task]:
        """Build the tasks; raises NotFound or Unreachable if an env or a volume is not available."""
        specs = await self._volumes.placed(await self._in_envs(request.specs))
        return self._built(replace(request, specs=specs))

    def notice(self, specs: Sequence[TaskSpec]) -> str:
        """What to tell about these specs although they are built, a line for each; empty if there is nothing."""
        return "\n".join((*self._assumed(specs), *self._unmounted(specs)))

    # ------------------------------------------------------------------ inside

    def _assumed(self, specs: Iterable[TaskSpec]) -> list[str]:
        """About envs without a given version whose current version is only assumed."""
        meant = set(map(self._env_of, specs))
        return [assumed_words(*each) for each in self._envs.assumed().items() if each[0] in meant]

    def _unmounted(self, specs: Iterable[TaskSpec]) -> list[str]:
        """About mounts of the inventory that a task without a container would look for at another path."""
        bare = [spec.needs.nodes or self._nodes.links for spec in specs if self._env_of(spec) == NULL]
        nodes = dict.fromkeys(name for names in bare for name in names)
        mounts = [mount for name in nodes for mount in self._nodes.link(name).node.mounts]
        moved = dict.fromkeys(f"{each.source} for {each.target}" for each in mounts if each.source != each.target)
        if not moved:
            return []
        return [f"without a container, mounts of the inventory do not apply; on the node, use {', '.join(moved)}"]

    def _check_spec(self, spec: TaskSpec) -> None:
        check_spec(spec)
        check_devices_are_ours(spec, self._vendors.reserved("docker"), self._vendors.reserved("systemd"))
        check_no_device_mounts(spec, self._vendors.device_mounts)

    async def _env_problem(self, text: str) -> AgentlessError | None:
        try:
            ref, version = await self._envs.resolve(text)
            self._envs.holder(ref, version.id)
        except AgentlessError as error:
            return error
        return None

    async def _in_envs(self, specs: Sequence[TaskSpec]) -> tuple[TaskSpec, ...]:
        """The specs with the current version of their env, and its image.

        Raises NotFound, or Unreachable when no node that has it answers.
        """
        wanted, found = [self._env_of(spec) for spec in specs], {}
        for text in dict.fromkeys(wanted):
            if text is not None and text != NULL:
                ref, version = await self._envs.resolve(text)
                self._envs.holder(ref, version.id)
                found[text] = (str(ref), ref.image, version.id)
        meant = tuple(
            replace(spec, container=found[text][0], image=found[text][1], image_id=found[text][2])
            if text in found
            else spec
            if spec.container == text
            else replace(spec, container=text)
            for spec, text in zip(specs, wanted, strict=True)
        )
        for before, spec in zip(specs, meant, strict=True):
            if spec is not before:
                self._check_spec(spec)  # once more: the usual env may be none at all
        return meant

    def _env_of(self, spec: TaskSpec) -> str | None:
        if self._nodes.cluster_of(spec.needs):
            return spec.container
        return spec.container or (self._container if spec.image is None else None)

    def _built(self, request: Submit) -> list[Task]:
        tasks = list[Task]()
        owner = request.by.name if request.owner is None else check_owner(request.owner, "--owner")
        for number, asked in enumerate(request.specs):
            cluster = self._nodes.cluster_of(asked.needs)
            is_job = cluster is not None
            spec = with_type(asked, cluster.node.name, cluster.inside) if cluster else asked
            node = self._nodes.place(spec.needs.node).node if spec.needs.node else None
            image = None if is_job else spec.image or (node.image if node else self._image)
            if image is None and not (spec.on_node_itself or is_job):
                raise UsageError(_no_image(spec))
            now = self._clock.now()
            if not request.ids:
                self._last_id = new_task_id(now, self._last_id)
            task_id = request.ids[number] if request.ids else self._last_id
            batch = request.batch or (tasks[0].id if tasks else task_id)
            whole = spec if spec.on_node_itself or is_job else with_shared(replace(spec, image=image), self._shared_dir)
            if whole.job is not None:
                count = whole.job.tasks if request.ids else len(request.specs)
                whole = replace(whole, job=replace(whole.job, workflow=batch, tasks=count))
            tasks.append(Task(task_id, whole, batch, owner, now, request=request.name))
        return self._dependencies.resolved(named_members(tasks), each=request.each)


def _no_image(spec: TaskSpec) -> str:
    default = "or set image: under defaults: in the inventory"
    if spec.job:
        return f"no image for job {spec.job.name}; add image: to the job in the file of the workflow, {default}"
    return f"no image for {spec.needs}; add --image, {default}"
