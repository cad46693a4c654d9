"""What `doctor` asks a cluster, and what it reads of the answer.

Output of `slurm-checkup.sh.j2`, line by line:

    user ann                      the login
    lacks srun                    a program that is not on the PATH
    version slurm-wlm 22.05.8     sbatch --version
    ping Slurmctld(primary) at head is UP
    partition gpu* up             each, the default one with a star
    accounting accounting_storage/slurmdbd
    association lab|normal,high   an account of the login, and its QOS; without `|`: why sacctmgr does not say
    folder nfs                    the file system of the folder, or of the folder that it would be made in
    closed /data                  that is none in which the login may write
    whole                         the last line

Output of `slurm-trial.sh.j2`: what `srun` says, and of the job `node c1`, `shared` if it has the folder of the login
node, and `nvidia-smi -L`; then `code 0`, the exit code of `srun`.
"""

from __future__ import annotations

import re

from agentless.model.command import Result
from agentless.model.nodes.slurm import SlurmCheckup, SlurmCluster, SlurmTrial
from agentless.model.text import cut, printable

PROGRAMS = ("sbatch", "squeue", "scancel", "scontrol", "sinfo", "srun")
WITHIN = 10
"""Seconds for each of Slurm's programs."""
WAITS = 30
"""Seconds that the job of a trial may wait."""
_LINES = 3000
_LINE = 2000
_NAMED = re.compile(r"[^\s|*]{1,64}")
_KNOWN = re.compile(r"node |shared$|GPU [0-9]+: |code |srun: job [0-9]+ (queued|has been allocated)")
"""Lines of a trial that are read, and those of `srun` that say nothing."""
_CODE = re.compile(r"code ([0-9]{1,3})")


def parse_checkup(answer: Result | None) -> SlurmCheckup | None:
    """What a cluster says of itself; None if the answer was cut off."""
    said: dict[str, list[str]] = {}
    for line in answer.out.split("\n")[:_LINES] if answer else ():
        key, _, value = printable(line[:_LINE]).partition(" ")
        said.setdefault(key, []).append(value.strip())
    if "whole" not in said:
        return None
    partitions = [line.split() for line in said.get("partition", ())]
    known = [each for each in partitions if len(each) == 2 and _NAMED.match(each[0])]
    accounts = [line.partition("|") for line in said.get("association", ())]
    return SlurmCheckup(
        user=_first(said, "user"),
        lacks=tuple(name for name in said.get("lacks", ()) if name in PROGRAMS),
        version=_first(said, "version"),
        ping=tuple(cut(line, 200) for line in said.get("ping", ())),
        partitions={name.rstrip("*"): state for name, state in known},
        default=next((name[:-1] for name, _ in known if name.endswith("*")), ""),
        accounting=_first(said, "accounting").endswith("slurmdbd"),
        accounts=tuple((account, tuple(filter(None, qos.split(",")))) for account, mark, qos in accounts if mark),
        unsaid=next((cut(words, 200) for words, mark, _ in accounts if not mark), ""),
        file_system=_first(said, "folder"),
        closed=_first(said, "closed"),
    )


def trial_options(cluster: SlurmCluster, *, gpus: bool) -> list[str]:
    """The options of `srun` that say what a job of a trial asks for."""
    given = {"partition": cluster.partition, "account": cluster.account, "qos": cluster.qos}
    return [*(f"--{name}={value}" for name, value in given.items() if value), *["--gres=gpu:1"] * gpus]


def parse_trial(result: Result) -> SlurmTrial:
    """What became of the job."""
    lines = [cut(printable(line[:_LINE]), 300) for line in result.out.split("\n")[:_LINES]]
    code = next((match[1] for line in reversed(lines) if (match := _CODE.fullmatch(line))), None)
    return SlurmTrial(
        code=None if code is None else int(code),
        node=next((line[5:] for line in lines if line.startswith("node ") and len(line) > 5), ""),
        is_shared="shared" in lines,
        gpus=tuple(line for line in lines if re.match(r"GPU [0-9]+: ", line)),
        said=tuple(line for line in lines if line.strip() and not _KNOWN.match(line)),
        error=result.err,
    )


def _first(said: dict[str, list[str]], key: str) -> str:
    return cut(next(iter(said.get(key, ())), ""), 200)
