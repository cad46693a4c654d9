"""`slurm.conf`: the daemons, how jobs are ordered, the nodes, and the partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from agentless.model.moment import format_moment
from agentless.model.scheduling.reservation import Reservation
from agentless.rules.slurm.lines import Names, comment, entry, word
from agentless.rules.slurm.machine import Machine
from agentless.rules.slurm.types import Types, gres_of

_USABLE = 0.98
"""The part of its memory that a node promises: a new kernel leaves a little less, and Slurm would drain the node."""
_SPREADS = ("spread", "least_loaded")
_OFTEN, _RARELY = 10, 1
"""Tiers of partitions: jobs in the higher one preempt those in the lower one."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the inventory and the queue say: `policy` and `half_life` (seconds), and whether tasks are `preemptible`.

    `host` is the machine of the controller.
    """

    host: str
    policy: str
    half_life: float
    preemptible: bool
    reservations: tuple[Reservation, ...] = ()


def memory_of(machine: Machine) -> int:
    """The MiB that a node promises to jobs."""
    return int(machine.memory_mib * _USABLE)


def slurm_conf(
    machines: Sequence[tuple[str, Machine]], types: Types, wanted: Wanted, silent: Iterable[str], *, fabric: bool
) -> Iterator[str]:
    """The lines for these nodes, by their names in Slurm. `silent` says which nodes are left out, and why."""
    yield from _daemons(wanted)
    yield from _choice(machines, wanted, fabric=fabric)
    yield from _priorities(wanted)
    yield from _nodes(machines, types, silent)
    yield from _partitions(machines, wanted)
    yield from _reservations(machines, wanted.reservations)


def _daemons(wanted: Wanted) -> Iterator[str]:
    yield entry(ClusterName="agentless")
    yield comment("This is the machine of agentless's controller. Change it if slurmctld runs on another one.")
    yield entry(SlurmctldHost=word(wanted.host.partition(".")[0], "A-Za-z0-9_-", "localhost"))
    yield entry(SlurmUser="slurm")
    yield entry(AuthType="auth/munge")
    yield comment("Create both folders: the first one belongs to SlurmUser, the second one to root.")
    yield entry(StateSaveLocation="/var/lib/slurm/slurmctld")
    yield entry(SlurmdSpoolDir="/var/lib/slurm/slurmd")
    yield entry(SlurmctldLogFile="/var/log/slurm/slurmctld.log")
    yield entry(SlurmdLogFile="/var/log/slurm/slurmd.log")
    yield comment("Jobs see only their own cores, memory and GPUs; see cgroup.conf.")
    yield entry(ProctrackType="proctrack/cgroup")
    yield entry(TaskPlugin="task/cgroup,task/affinity")
    yield comment("A node that comes back is used again, as in agentless.")
    yield entry(ReturnToService=2)
    yield ""
    yield comment("Accounting, for sacct, sreport and fair share. Set up slurmdbd first (see slurmdbd.conf.example):")
    yield comment("with these lines, slurmctld does not start without it.")
    yield comment("AccountingStorageType=accounting_storage/slurmdbd")
    yield comment("AccountingStorageHost=localhost")
    yield comment("AccountingStorageTRES=gres/gpu")
    yield comment("JobAcctGatherType=jobacct_gather/cgroup")


def _choice(machines: Sequence[tuple[str, Machine]], wanted: Wanted, *, fabric: bool) -> Iterator[str]:
    yield ""
    yield comment(
        f"Jobs get single cores, memory and GPUs. Placement: queue: policy: {wanted.policy} in the inventory."
    )
    yield entry(SchedulerType="sched/backfill")
    yield entry(SelectType="select/cons_tres")
    spread = ",CR_LLN" if wanted.policy in _SPREADS else ""
    yield entry(SelectTypeParameters=f"CR_Core_Memory{spread}")
    if machines:
        yield comment("MiB per CPU of a job that asks for no memory. Unset, it would get all memory of the node.")
        yield entry(DefMemPerCPU=max(1, min(memory_of(machine) // machine.cpus for _, machine in machines)))
    if fabric:
        yield comment("Switches: fabric: in the inventory, see topology.conf.")
        yield entry(TopologyPlugin="topology/tree")


def _priorities(wanted: Wanted) -> Iterator[str]:
    yield ""
    yield comment("Order: fair share, then waiting time. Without accounting, jobs start in the order of submission.")
    yield comment("Half-life of use: queue: half_life: in the inventory.")
    yield entry(PriorityType="priority/multifactor")
    yield entry(PriorityDecayHalfLife=_time(wanted.half_life))
    yield entry(PriorityWeightFairshare=100000)
    yield entry(PriorityWeightAge=1000)
    if wanted.preemptible:
        yield comment("Preemptible tasks are in use: jobs of the partition preemptible are requeued for other jobs.")
        yield entry(PreemptType="preempt/partition_prio")
        yield entry(PreemptMode="REQUEUE")


def _time(seconds: float) -> str:
    """Slurm's way to write a time: `7-00:00:00`."""
    minutes, rest = divmod(max(60, int(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours // 24}-{hours % 24:02}:{minutes:02}:{rest:02}"


def _nodes(machines: Sequence[tuple[str, Machine]], types: Types, silent: Iterable[str]) -> Iterator[str]:
    yield ""
    if any(machine.gpus for _, machine in machines):
        yield entry(GresTypes="gpu")
    yield comment("NodeAddr: the address that SSH used, or fabric_address: in the inventory. Feature: labels.")
    yield comment(f"RealMemory: {100 * _USABLE:g} % of the memory, since another kernel may leave less.")
    for name, machine in machines:
        if machine.layout is None:
            yield comment(f"{machine.name}: number of sockets and threads unknown, or not the same for all cores.")
        yield node_line(name, machine, types)
    for why in silent:
        yield comment(f"Not included: {why}")


def node_line(name: str, machine: Machine, types: Types) -> str:
    """The line of a node."""
    sockets, cores, threads = machine.layout or (None, None, None)
    return entry(
        NodeName=name,
        NodeHostname=machine.host if machine.host != name else None,
        NodeAddr=machine.address,
        CPUs=machine.cpus,
        Sockets=sockets,
        CoresPerSocket=cores,
        ThreadsPerCore=threads,
        RealMemory=memory_of(machine),
        Gres=gres_of(machine, types),
        Feature=",".join(dict.fromkeys(map(_feature, sorted(machine.labels.items())))),
        State="UNKNOWN",
    )


def _feature(label: tuple[str, str]) -> str:
    """`rack_a` for the label `rack=a`. A feature begins with a letter: Slurm takes `[` and numbers for counts."""
    key, value = label
    name = word(f"{key}_{value}" if value else key)
    return name if name[0].isalpha() else f"l_{name}"


def _partitions(machines: Sequence[tuple[str, Machine]], wanted: Wanted) -> Iterator[str]:
    if not machines:
        return
    names = Names()
    tier = {"PriorityTier": _OFTEN, "PreemptMode": "OFF"} if wanted.preemptible else {}
    kinds = {
        "gpu": [name for name, machine in machines if machine.gpus],
        "cpu": [name for name, machine in machines if not machine.gpus],
    }
    default: str | None = "YES"
    yield ""
    for kind, nodes in kinds.items():
        if nodes:
            name = names.give(kind)
            yield entry(PartitionName=name, Nodes=",".join(nodes), Default=default, State="UP", **tier)
            default = None
    if wanted.preemptible:
        low = {"PriorityTier": _RARELY, "PreemptMode": "REQUEUE"}
        yield entry(PartitionName=names.give("preemptible"), Nodes="ALL", State="UP", **low)
    some = {label: nodes for label, nodes in _labelled(machines).items() if len(nodes) < len(machines)}
    if some:
        yield comment("A partition for each label that only some nodes have. --constraint=LABEL does the same.")
    for label, nodes in some.items():
        yield entry(PartitionName=names.give(label), Nodes=",".join(nodes), State="UP", **tier)


def _labelled(machines: Sequence[tuple[str, Machine]]) -> dict[str, list[str]]:
    found = defaultdict[str, list[str]](list)
    for name, machine in machines:
        for feature in dict.fromkeys(map(_feature, sorted(machine.labels.items()))):
            found[feature].append(name)
    return dict(sorted(found.items()))


def _reservations(machines: Sequence[tuple[str, Machine]], reservations: Sequence[Reservation]) -> Iterator[str]:
    """Slurm keeps reservations in its state, not in a file: the commands that make them."""
    names = {machine.name: name for name, machine in machines}
    known = [each for each in reservations if each.node in names]
    if not known:
        return
    yield ""
    yield comment("Reservations are made by command, for users of the cluster. Slurm reserves whole nodes:")
    for each in known:
        user = word((each.owner or "").partition("@")[0], "A-Za-z0-9_.-", "root")
        yield comment(
            f"scontrol create reservation ReservationName={word(each.id)} Nodes={names[each.node]} "
            f"Users={user} StartTime={_start(each.begin)} EndTime={_start(each.end)}"
            + ("" if each.owner else " Flags=maint")
        )


def _start(seconds: float) -> str:
    return format_moment(seconds)[:16].replace(" ", "T")
