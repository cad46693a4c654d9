"""Slurm: a cluster with a queue of its own, asked by its commands on a login node. No I/O, like `engines/docker`.

A job takes the place of a container: `4711:agentless-2mxf`, its number and its name, which no other job has. Its
comment is a signed claim. Script, output and end are in a folder of that name, on a disk that the nodes share.
"""

from __future__ import annotations

import posixpath
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from secrets import token_hex
from typing import Any

from agentless.engines import launch_script
from agentless.engines.client_warnings import AsItIs
from agentless.engines.slurm.checkup import PROGRAMS, WAITS, WITHIN, parse_checkup, parse_trial, trial_options
from agentless.engines.slurm.container import apptainer_command, apptainer_variables, pyxis_mounts
from agentless.engines.slurm.files import SlurmFiles
from agentless.engines.slurm.job_reader import JobReader
from agentless.engines.slurm.jobs import ACCOUNTING, MAX_JOBS, squeue_format
from agentless.engines.slurm.known_jobs import KnownJobs
from agentless.engines.slurm.nodes import NODE_FORMAT, parse_nodes
from agentless.engines.slurm.options import dependency_options, sbatch_options, srun_options
from agentless.engines.slurm.refusals import REFUSALS, UNHEARD, lasts
from agentless.engines.slurm.terminal import SlurmTerminal
from agentless.errors import FilesMissing, JobRefused, NoAnswer, Refused, RuntimeFailed, TooMuch
from agentless.model.command import Command, Result, Section
from agentless.model.containers.claim import CONTROLLER, TASK, labels_of
from agentless.model.containers.container import Container
from agentless.model.containers.launch import Launch
from agentless.model.containers.log_query import LogQuery
from agentless.model.containers.signature import SIGNATURE, Signer
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import EngineFacts, NodeConfig, with_node
from agentless.model.nodes.slurm import SlurmCheckup, SlurmCluster, SlurmTrial
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.text import printable_lines
from agentless.model.units import counted
from agentless.ports import Reading
from agentless.render import Renderer
from agentless.rules.files.job_tree import FOLDER, place_in_job
from agentless.rules.scheduling.batches import ARRAY
from agentless.rules.tasks.gangs.launchers import command_on_cluster
from agentless.rules.tasks.settings import with_settings
from agentless.rules.workflows.carried import JOBS

_SECTION = "slurm.jobs"
_LISTED = 8 << 20
"""Bytes of the answer about our jobs: one has some 250."""
_SCRIPT = re.compile(r"agentless-([0-9a-z-]{4,40}) ([A-Za-z0-9_=-]+)")
_LEFT = re.compile(r"^secrets agentless-([0-9a-z-]{4,40})$", re.MULTILINE)
_CLUSTER = re.compile(r"^cluster ([^\s|]{1,64} at [^\s|]{1,64})$", re.MULTILINE)
_JOBS_LINE = re.compile(r"(agentless-[0-9a-z-]{4,40}) '?([^ ']+)'?")
_SUBMITTED = re.compile(r"job ([0-9]{1,10}(?:_[0-9]{1,10})?)")
_NO_FILES, _FULL = 73, 74
"""The exit codes of a launch that found no job of its task, and no files for it, or may submit none, as in
`slurm-launch.sh.j2`."""


class Slurm:
    """One cluster, for which `node` stands; a `ports.Engine`."""

    at_once = 32
    of_a_batch = ARRAY
    program = "sbatch"
    images = volumes = envs = None

    def __init__(self, node: NodeConfig, cluster: SlurmCluster, renderer: Renderer, signer: Signer) -> None:
        self._node = node
        self._cluster = cluster
        self._renderer = renderer
        self._signer = signer
        self._known = KnownJobs()
        self._jobs = JobReader(node.name, cluster.partition, signer)
        self.files = SlurmFiles(self._of)
        self.terminal = SlurmTerminal(self._of, renderer.script)

    # ------------------------------------------------------------------ asking

    def facts(self, *, accounting: bool = False) -> tuple[Section, ...]:
        """Ask for all our jobs, with `accounting` also for those that Slurm has forgotten without an end."""
        return (Section(_SECTION, self._look(None, ACCOUNTING if accounting else None), _LISTED),)

    def parse_facts(self, sections: Mapping[str, Result], asked: float, answered: float) -> EngineFacts:
        """The jobs in the answer, as `containers`; `error` if Slurm does not answer."""
        del asked, answered  # Slurm's times are seconds since 1970, and a cluster keeps its clocks
        answer = sections.get(_SECTION)
        if answer is None:
            return EngineFacts()
        if not answer.ok:
            return EngineFacts(error=self.complaint(answer.out.strip()))
        try:
            jobs = self._known.recognized(self._jobs.read(answer), whole=True)
            left = tuple(_LEFT.findall(answer.out)[:MAX_JOBS])
            which = _CLUSTER.search(answer.out)
            return EngineFacts(containers=jobs, secrets=left, keeps=which and which[1])
        except TooMuch as error:
            return EngineFacts(error=str(error).removeprefix(f"{self._node.name}: "))

    def know(self, job: Container) -> None:
        """Take it from now on for what its labels say, whatever is changed of it."""
        self._known.know(job)

    def containers(self, task: str) -> Command:
        """Ask for the job of one task."""
        return Command(self._look(f"agentless-{task}", ACCOUNTING) + "\n")

    def parse_containers(self, result: Result, clock: float) -> tuple[Container, ...]:
        """The jobs in an answer."""
        del clock
        return self._known.recognized(self._jobs.read(result), whole=False)

    def nodes(self) -> Command:
        """List the compute nodes of the partition, or all of them."""
        return self._command("slurm-nodes.sh.j2", partition=self._cluster.partition, format=NODE_FORMAT)

    def parse_nodes(self, result: Result) -> tuple[ClusterNode, ...]:
        """The nodes in the answer; raises RuntimeFailed."""
        self.check(result)
        return tuple(parse_nodes(result.out))

    def scripts(self) -> Command:
        """Read what the scripts of all our jobs carry."""
        return self._command("slurm-scripts.sh.j2", names=[])

    def carried_jobs(self, containers: Sequence[str]) -> Command:
        """Read the workflows that the scripts of these jobs carry, too: with them, all answers would be too long."""
        return self._command("slurm-scripts.sh.j2", names=[f"./{each.rpartition(':')[2]}" for each in containers])

    def parse_carried(self, result: Result) -> dict[str, str]:
        """The label of the jobs of a workflow, by the name of the job that carries it."""
        return {match[1]: match[2] for line in result.out.splitlines() if (match := _JOBS_LINE.fullmatch(line))}

    def parse_scripts(self, result: Result) -> dict[str, dict[str, str]]:
        """The labels of tasks in the answer, by task; raises RuntimeFailed. None of a script in another's folder."""
        self.check(result)
        found = dict[str, dict[str, str]]()
        for line in result.out.splitlines()[:MAX_JOBS]:
            if match := _SCRIPT.fullmatch(line):
                labels = launch_script.unpacked(match[2])
                if labels.get(TASK) == match[1]:
                    found[match[1]] = labels
        return found

    def with_labels(self, job: Container, labels: Mapping[str, str]) -> Container:
        """A job with the labels that its script carries, signed if their signature is."""
        return replace(job, labels=dict(labels), signed=self._signer.has_signed(labels, self._node.name))

    def starts_in(self, task: Task) -> str | None:
        """The folder in which the command of a task starts, seen from the home folder; None: one in its image."""
        spec = task.spec
        place = place_in_job(spec.workdir) if spec.uploads else None
        if place is not None:
            return posixpath.join(self._cluster.folder, task.container_name, FOLDER, place)
        return None if spec.image else spec.workdir or ""

    def keep_files(self, key: str, mark: str) -> Command:
        """Keep an archive with files for jobs, unless it is there; it comes by stdin once this has said the mark."""
        return self._command("slurm-files.sh.j2", key=key, mark=mark)

    def checkup(self) -> Command:
        """Ask for what `doctor` wants to know."""
        script = self._script("slurm-checkup.sh.j2", programs=list(PROGRAMS), within=WITHIN)
        return Command(script + "\n", timeout=5.0 * WITHIN)

    def parse_checkup(self, result: Result) -> SlurmCheckup | None:
        """The answer to that; None if it was cut off."""
        return parse_checkup(result)

    def trial(self, mark: str, *, gpus: bool) -> Command:
        """Run a job that shows that one can, with one of the `gpus` if there are any."""
        options = trial_options(self._cluster, gpus=gpus)
        script = self._script("slurm-trial.sh.j2", name=f"doctor-{mark}", waits=WAITS, options=options)
        return Command(script + "\n", timeout=WAITS + 90.0)

    def parse_trial(self, result: Result) -> SlurmTrial:
        """What became of it."""
        return parse_trial(result)

    def logs(self, container: str, query: LogQuery) -> Command:
        """Print what the job has written."""
        return self._of(container, "slurm-logs.sh.j2", follow=query.follow, tail=query.tail)

    def filtered_logs(self, container: str, of_stdout: Sequence[str], of_stderr: Sequence[str]) -> Command:
        """Print what there is, through a program on the login node."""
        del of_stderr
        return self._of(container, "slurm-log-ends.sh.j2", of_stdout=of_stdout)

    def reading(self, query: LogQuery) -> Reading:
        """All of it is the task's own."""
        del query
        return AsItIs()

    # ---------------------------------------------------------------- changing

    def launches(self, wanted: Sequence[Launch]) -> Command:
        """Look for their jobs, and lock, look and `sbatch` for each, as one script; `parse_launch` reads an answer.

        Tasks of one batch that need the same are one array. All have the same secrets; `answers` splits the answer.
        """
        secrets = wanted[0].secrets
        alike: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)
        for number, each in enumerate(wanted, 1):
            if each.limit != 0:
                alike[(each.task.batch, str(each.limit or ""), *self._options(each))].append(number)
        names = [each.task.container_name for each in wanted]
        script = self._script(
            "slurm-launch.sh.j2",
            lock_wait=launch_script.LOCK_WAIT,
            mark=token_hex(8),
            names=names,
            jobs=[self._launch(each) for each in wanted],
            alone=[numbers[0] for numbers in alike.values() if len(numbers) == 1],
            looks=[number for number, each in enumerate(wanted, 1) if each.limit == 0],
            arrays=[
                {"numbers": numbers, "names": [names[at - 1] for at in numbers], "options": options, "most": most}
                for (_, most, *options), numbers in alike.items()
                if len(numbers) > 1
            ],
            element=self._script("slurm-array.sh.j2"),
            secrets=sorted(secrets),
            refusals=REFUSALS,
            unheard=UNHEARD,
        )
        return Command(script + "\n", secrets=dict(secrets), timeout=launch_script.WITHIN)

    def answers(self, count: int, result: Result) -> list[Result]:
        """Split the answer to a script of `count` launches into one answer each."""
        return launch_script.answers(count, result)

    def answered(self, count: int, out: bytes) -> dict[int, Result]:
        """The answers that are complete in the output so far, by the place of the launch in the script."""
        return launch_script.answered(count, out)

    def parse_launch(self, task: Task, result: Result) -> str:
        """The number of the job. Raises Refused or RuntimeFailed if there is none, NoAnswer if that is not known."""
        if result.ok:
            if found := _SUBMITTED.findall(result.out):
                return f"{found[-1]}:{task.container_name}"
            raise NoAnswer(f"{self._node.name} did not report the job it submitted")
        if result.exit_code == launch_script.LOCKED:
            raise Refused(f"{self._node.name}: another launch of task {task.id} is under way; retry")
        if result.exit_code == _NO_FILES:
            raise FilesMissing(f"{self._node.name} no longer has the files of task {task.id}")
        if result.exit_code == _FULL:
            most = task.spec.terms.max_parallel or 0
            raise Refused(
                f"{counted(most, 'task')} of its batch {'is' if most == 1 else 'are'} running (--max-parallel)"
            )
        if result.exit_code in (launch_script.UNLISTED, launch_script.UNCLEAR) or result.exit_code > 127:
            said = f": {self.complaint(result.err)}" if result.err.strip() else ""
            raise NoAnswer(f"{self._node.name} may have submitted task {task.id}{said}")
        if result.exit_code == launch_script.OTHER_IMAGE:
            raise RuntimeFailed(with_node(self._node.name, self._unsuitable(result.out)))
        words = self.complaint(result.err)
        if "node configuration" in words:
            words += f"; to see what its nodes have, run: agentless gpus {self._node.name}"
        if "partition" in words.lower() and self._cluster.partition:
            words += f"; partition: of {self._node.name} in the inventory is {self._cluster.partition}"
        raise JobRefused(with_node(self._node.name, words), words, lasts=lasts(result.err))

    def signal(self, container: str, signal: str) -> Command:
        """Send its processes a signal, named without SIG. One that waits is cancelled."""
        return self._of(container, "slurm-signal.sh.j2", signal=signal)

    def pause(self, container: str) -> Command:
        """Suspend it, if the cluster permits that."""
        return self._of(container, "slurm-pause.sh.j2", verb="suspend")

    def resume(self, container: str) -> Command:
        """Let it go on."""
        return self._of(container, "slurm-pause.sh.j2", verb="resume")

    def remove(self, container: str, *, force: bool = False) -> Command:
        """Remove its folder; with `force` also cancel it."""
        return self._of(container, "slurm-remove.sh.j2", force=force)

    def remove_secrets(self, tasks: Sequence[str]) -> Command:
        """Remove what is left of the secrets of these tasks."""
        return self._command("slurm-secrets.sh.j2", files=[f"agentless-{task}/secrets" for task in tasks])

    def check(self, result: Result) -> None:
        """Raise RuntimeFailed with Slurm's complaint unless the command worked."""
        if not result.ok:
            raise RuntimeFailed(with_node(self._node.name, self.complaint(result.err.strip() or result.out.strip())))

    def complaint(self, words: str) -> str:
        """The complaint as a sentence: the last line of what Slurm said."""
        lines = [line for line in printable_lines(words[-2000:]).splitlines() if line.strip()]
        last = lines[-1].strip() if lines else "Slurm gave no reason"
        return re.sub(r"^\w+: (error|fatal): (Batch job submission failed: )?", "", last)[:300]

    # ------------------------------------------------------------------ inside

    def _look(self, name: str | None, accounting: str | None) -> str:
        mark = token_hex(8)
        form = squeue_format(mark)
        return self._script("slurm-jobs.sh.j2", name=name, mark=mark, format=form, accounting=accounting)

    def _script(self, template: str, **values: Any) -> str:
        return self._renderer.script(template, folder=self._cluster.folder, **values)

    def _command(self, template: str, **values: Any) -> Command:
        return Command(self._script(template, **values) + "\n")

    def _of(self, container: str, template: str, **values: Any) -> Command:
        job, _, name = container.rpartition(":")
        return self._command(template, job=job, name=name, submitted=self._known.submitted(container), **values)

    def _launch(self, one: Launch) -> list[str]:
        """The name of a job, its script, the variables of its task, its comment, its files, the options of `sbatch`."""
        task, placement, spec = one.task, one.placement, one.task.spec
        spec = replace(spec, command=command_on_cluster(spec))
        launch_script.check_secrets_are_there(spec, one.secrets)
        whole = with_settings(spec, self._node)
        claim = self._claim(task.id)
        variables = launch_script.variables(task, placement, self._node, whole, ())
        del variables["AGENTLESS_GPUS"]  # its script has them from Slurm
        boxed = self._cluster.container if spec.image else "none"
        nodes = _nodes_of(spec)
        comment = f"agentless {task.id} {claim[CONTROLLER]} {claim[SIGNATURE]}"
        labels = self._signer.sign(labels_of(task, placement, self._signer.controller), self._node.name)
        files = one.prepared.image if one.prepared else ""
        place = place_in_job(spec.workdir) if files else None
        inside = spec if place is None else replace(spec, workdir=None)
        others = {**one.labels}
        workflow = others.pop(JOBS, None)
        job = self._script(
            "slurm-job.sh.j2",
            name=task.container_name,
            comment=comment,
            labels=launch_script.packed({**labels, **others}),
            workflow=workflow,
            workdir=inside.workdir if boxed == "none" else None,
            files=files,
            place=place,
            binds=bool(files) and boxed == "apptainer",
            srun=srun_options(inside, self._cluster),
            mounts=pyxis_mounts(spec.mounts) if boxed == "pyxis" else None,
            command=apptainer_command(inside) if boxed == "apptainer" else spec.command,
            secret_env=spec.secret_env,
            nodes=nodes,
        )
        env = apptainer_variables(variables) if boxed == "apptainer" else variables
        exports = self._renderer.script("slurm-variables.sh.j2", env=env, nodes=nodes)
        return [task.container_name, job, exports, comment, files, *self._options(one)]

    def _options(self, one: Launch) -> list[str]:
        return [*sbatch_options(one.task.spec, self._cluster), *dependency_options(one.placement.after)]

    def _claim(self, task: str) -> dict[str, str]:
        return self._signer.sign({TASK: task, CONTROLLER: self._signer.controller}, self._node.name)

    def _unsuitable(self, said: str) -> str:
        folder = f"{self._cluster.folder} on the login node"
        said = said.strip().rpartition("\n")[2]
        if said == "unwritten":
            return f"cannot write to {folder}; check its disk space and your quota, or set folder: in the inventory"
        if said == "shared":
            return (
                f"others may write to {folder}, or it is not yours; run there: chmod go-w, or set folder: to your own"
            )
        if said == "lacks flock":
            return "the login node has no flock; install util-linux there"
        return "no Slurm on this machine: it has no sbatch; set host: to a login node of the cluster"


def _nodes_of(spec: TaskSpec) -> dict[str, Any] | None:
    """What its script tells the nodes of a job on several of them."""
    if spec.multinode is None:
        return None
    return {**asdict(spec.multinode), "slots": max(1, spec.needs.gpus)}
