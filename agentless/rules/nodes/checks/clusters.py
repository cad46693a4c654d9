"""Checks of a Slurm cluster: its programs, its daemon, what the inventory says of it, its folder and its GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from agentless.model.nodes.check import SKIPPED, Check, ok, skipped
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import NodeConfig, all_named
from agentless.model.nodes.slurm import SlurmCheckup, SlurmCluster, SlurmTrial
from agentless.model.text import shell_word
from agentless.model.units import counted

NAMES = ("commands", "slurmctld", "partition", "account", "folder", "gpus")
_OUT = ("down", "drain", "fail", "maint", "not_responding", "unknown", "power")
"""What the state of a node that takes no job has in it."""
_SHARED = ("nfs", "lustre", "gpfs", "ceph", "beegfs", "fhgfs", "smb", "cifs", "afs", "gfs", "ocfs", "panfs", "wekafs")
_FOLDER = "Script, output and exit code of a job are there. Where its node does not see them, every job fails."


def unasked() -> Iterator[Check]:
    """All of them, of a cluster whose login node was not reached."""
    return (skipped(name, SKIPPED) for name in NAMES)


def checks(
    node: NodeConfig, cluster: SlurmCluster, said: SlurmCheckup | None, nodes: Sequence[ClusterNode] | str
) -> Iterator[Check]:
    """What a cluster says; `nodes` are its compute nodes, or why it does not name them."""
    if said is None:
        wrong = f"{node.name} broke off its answer"
        yield Check("answer", "failed", "does not answer", wrong)
        return
    yield (commands := _commands(node, said))
    if commands.verdict == "failed":
        yield from (skipped(name, SKIPPED) for name in NAMES[1:])
        return
    yield _daemon(said)
    if said.is_up:
        yield _partition(node, cluster, said)
        yield _account(node, cluster, said)
        yield _gpus(cluster, nodes)
    else:
        yield from (skipped(name, SKIPPED) for name in ("partition", "account", "gpus"))
    yield _folder(node, cluster, said)


def tried(trial: SlurmTrial, *, gpus: bool) -> Iterator[Check]:
    """What became of a job; with `gpus` it had asked for one."""
    words = "; ".join(trial.said[-2:]).replace("srun: ", "").replace("error: ", "")
    asked = "1 GPU" if gpus else "1 core"
    if trial.node and trial.code == 0:
        seen = trial.gpus[0].partition(" (UUID")[0] if trial.gpus else "no nvidia-smi there" if gpus else ""
        if gpus and len(trial.gpus) > 1:
            wrong = f"a job with 1 GPU sees {len(trial.gpus)} GPUs on {trial.node}"
            fix = "grep -i ConstrainDevices /etc/slurm/cgroup.conf  # shows whether Slurm hides the other GPUs"
            yield Check("run", "warning", f"{len(trial.gpus)} GPUs", wrong, fix, "Jobs can use GPUs of others.")
        else:
            yield ok("run", f"a job with {asked} ran on {trial.node}" + (f": {seen}" if seen else ""))
        if trial.is_shared:
            yield ok("shared", f"{trial.node} sees the folder")
        else:
            wrong = f"{trial.node} does not see the folder of the login node"
            fix = "# In the inventory: set folder: of the cluster to a disk that the compute nodes share"
            yield Check("shared", "failed", "not shared", wrong, fix, _FOLDER, here=True)
    elif trial.code is None:
        wrong = trial.error.strip()[-200:] or "the job was not submitted"
        yield Check("run", "failed", "was not submitted", wrong)
    elif not trial.node and _has_waited(trial):
        yield skipped("run", f"a job with {asked} had to wait and was cancelled; nodes are busy, or others go first")
    else:
        wrong = f"a job with {asked} ended with code {trial.code}" + (f": {words}" if words else "")
        why = "Tasks on this cluster fail likewise."
        yield Check("run", "failed", "failed", wrong, "sinfo --long --Node  # shows the state of its nodes", why)


def _has_waited(trial: SlurmTrial) -> bool:
    words = " ".join(trial.said).lower()
    return trial.code == 124 or any(each in words for each in ("timed out", "busy", "immediate", "revoked"))


def _commands(node: NodeConfig, said: SlurmCheckup) -> Check:
    if said.lacks:
        wrong = f"not on the PATH of the login: {', '.join(said.lacks)}"
        fix = f"# In the inventory: {node.name}: {{host: a login node of the cluster, …}}"
        why = "agentless submits by Slurm's own commands."
        return Check("commands", "failed", "no Slurm", wrong, fix, why, here=True)
    return ok("commands", said.version or "there")


def _daemon(said: SlurmCheckup) -> Check:
    up = [line for line in said.ping if " is UP" in line]
    down = [line for line in said.ping if " is DOWN" in line] or (
        [] if up else [line for line in said.ping if line][-1:]
    )
    if not up:
        wrong = down[-1] if down else "scontrol ping gave no answer"
        why = "Nothing is submitted, and no job starts."
        return Check("slurmctld", "failed", "does not answer", wrong, "scontrol ping  # shows who answers", why)
    if down:
        why = "If the other one goes down, too, no job starts."
        return Check("slurmctld", "warning", up[0], down[0], "scontrol ping  # shows who answers", why)
    return ok("slurmctld", up[0])


def _partition(node: NodeConfig, cluster: SlurmCluster, said: SlurmCheckup) -> Check:
    wanted = cluster.partition or said.default
    fix = f"# In the inventory: {node.name}: {{…, partition: one of these}}"
    why = "Slurm refuses jobs for a partition that it does not have."
    there = all_named(list(said.partitions)) or "none"
    if not wanted:
        wrong = f"Slurm has no default partition, and the inventory names none (there: {there})"
        return Check("partition", "failed", there, wrong, fix, why, here=True)
    if missing := [each for each in wanted.split(",") if each not in said.partitions]:
        wrong = f"no partition {missing[0]} (there: {there})"
        return Check("partition", "failed", there, wrong, fix, why, here=True)
    if not any(said.partitions[each] == "up" for each in wanted.split(",")):
        wrong = f"partition {wanted} is {said.partitions[wanted.split(',')[0]]}"
        fix = f"scontrol show partition {shell_word(wanted.split(',')[0])}  # shows its state"
        return Check("partition", "warning", wrong, wrong, fix, "Jobs wait until an administrator opens it.")
    return ok("partition", wanted + (", the default" if not cluster.partition else ""))


def _account(node: NodeConfig, cluster: SlurmCluster, said: SlurmCheckup) -> Check:
    wanted = [word for word in (cluster.account, cluster.qos) if word]
    if not said.accounting:
        return skipped("account", "the cluster has no accounting, so accounts and QOS cannot be looked up")
    if said.unsaid:
        return skipped("account", f"sacctmgr does not say: {said.unsaid}")
    mine = [qos for account, qos in said.accounts if account.lower() == (cluster.account or account).lower()]
    why = "Slurm refuses jobs of an account or a QOS that the login may not use."
    if not mine:
        have = all_named(list(dict.fromkeys(account for account, _ in said.accounts))) or "none"
        wrong = f"{said.user} has no account {cluster.account or 'at all'} (there: {have})"
        fix = f"# An administrator: sacctmgr add user {said.user} account={cluster.account or '…'}"
        return Check("account", "failed", have, wrong, fix, why)
    allowed = list(dict.fromkeys(name for qos in mine for name in qos))
    if cluster.qos and cluster.qos.lower() not in map(str.lower, allowed):
        wrong = f"{said.user} may not use QOS {cluster.qos} (allowed: {all_named(allowed) or 'none'})"
        fix = f"# In the inventory: {node.name}: {{…, qos: one of these}}"
        return Check("account", "failed", all_named(allowed) or "none", wrong, fix, why, here=True)
    return ok("account", ", ".join(wanted) or all_named(list(dict.fromkeys(account for account, _ in said.accounts))))


def _folder(node: NodeConfig, cluster: SlurmCluster, said: SlurmCheckup) -> Check:
    if said.closed:
        wrong = f"{said.user} cannot write to {said.closed} on the login node, for {cluster.folder}"
        fix = f"# In the inventory: {node.name}: {{…, folder: a folder of yours on a shared disk}}"
        return Check("folder", "failed", "not writable", wrong, fix, _FOLDER, here=True)
    kind = said.file_system.lower()
    if any(name in kind for name in _SHARED):
        return ok("folder", f"{cluster.folder}, on a shared disk ({said.file_system})")
    return ok("folder", f"{cluster.folder} ({said.file_system or 'unknown file system'}); --run shows if nodes see it")


def _gpus(cluster: SlurmCluster, nodes: Sequence[ClusterNode] | str) -> Check:
    if isinstance(nodes, str):
        return Check("gpus", "failed", "not listed", nodes, "sinfo --long --Node  # shows its nodes")
    where = f"in partition {cluster.partition}" if cluster.partition else "there"
    if not nodes:
        return Check("gpus", "failed", "no nodes", f"no compute nodes {where}", "sinfo  # shows its partitions")
    out = [each.name for each in nodes if any(word in each.state.lower() for word in _OUT)]
    counts: Counter[str] = Counter()
    for each in nodes:
        counts.update(dict(each.gpus))
    kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items() if kind)
    seen = f"{counted(counts.total(), 'GPU')} on {counted(len(nodes), 'node')}" + (f" ({kinds})" if kinds else "")
    show = "sinfo --list-reasons  # shows why"
    if len(out) == len(nodes):
        return Check("gpus", "warning", seen, f"no node takes jobs: {all_named(out)}", show, "All jobs wait.")
    if not counts:
        fix = "sinfo -o '%N %G'  # shows the GPUs that Slurm knows"
        why = "Slurm refuses jobs with GPUs. `agentless slurm config` writes a gres.conf from what nodes have."
        return Check("gpus", "warning", seen, f"Slurm knows no GPUs {where}", fix, why)
    return ok("gpus", seen + (f"; not available: {all_named(out)}" if out else ""))
