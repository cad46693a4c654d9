"""What docker, kubectl and Slurm call it: commands and options that hands type, with ours."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

COMMANDS: Mapping[str, str] = {
    "apply": "submit",
    "build": "env build",
    "commit": "env save",
    "cordon": "nodes drain",
    "create": "run or submit",
    "down": "stop",
    "drain": "nodes drain",
    "get": "ps, nodes, gpus or events",
    "history": "ps --all",
    "hosts": "nodes",
    "images": "env list",
    "info": "controller status",
    "inspect": "show",
    "jobs": "ps",
    "nvidia-smi": "gpus",
    "po": "ps",
    "pod": "show",
    "pods": "ps",
    "prune": "env prune",
    "pull": "submit --pull always",
    "push": "env push",
    "requeue": "retry",
    "sacct": "ps --all or show",
    "salloc": "submit or shell",
    "sbatch": "submit",
    "scale": "submit",
    "scancel": "stop",
    "scontrol": "show, nodes or queue",
    "seff": "usage",
    "sinfo": "nodes",
    "sprio": "queue",
    "squeue": "ps or queue",
    "sreport": "usage",
    "srun": "run",
    "sstat": "top",
    "start": "run or submit",
    "stats": "top",
    "status": "ps or show",
    "tail": "logs",
    "taint": "nodes drain",
    "tasks": "ps",
    "uncordon": "nodes resume",
    "undrain": "nodes resume",
    "unpause": "resume",
    "up": "run or submit",
    "why": "explain",
}
"""What to suggest for a word that is no command of ours."""

_OPTIONS: Mapping[str, Sequence[str]] = {
    "--begin": ["--at", "--in"],
    "--constraint": ["--on"],
    "--cpus": ["--cores"],
    "--cpus-per-task": ["--cores"],
    "--deadline": ["--wait-for"],
    "--failed": ["--state"],
    "--field-selector": ["--state"],
    "--filter": ["--mine", "--batch"],
    "--format": ["--output"],
    "--gpus-per-node": ["--gpus"],
    "--gpus-per-task": ["--gpus"],
    "--gres": ["--gpus"],
    "--job-name": ["--name"],
    "--mem": ["--memory"],
    "--nodelist": ["--node"],
    "--partition": ["--on"],
    "--requests": ["--gpus", "--cores", "--memory"],
    "--requeue": ["--retries"],
    "--restart": ["--retries"],
    "--selector": ["--on"],
    "--time": ["--time-limit", "--grace"],
    "--volumes": ["--mount"],
    "-A": ["--all"],
    "-C": ["--on"],
    "-G": ["--gpus"],
    "-J": ["--name"],
    "-m": ["--memory"],
    "-p": ["--on"],
    "-t": ["--grace", "--timestamps"],
    "-u": ["--mine", "--user"],
    "-v": ["--mount"],
    "-w": ["--node"],
    "-x": ["--exclude"],
}
_OF_A_START: Mapping[str, str] = {
    "-d": "not needed: submit returns once the task runs or is queued",
    "--detach": "not needed: submit returns once the task runs or is queued",
    "-i": "to open a terminal in a task: agentless shell TASK",
    "--array": "write a span in the command, such as 'span:{1..3}'",
    "--dependency": "use --after TASK, or TASK:failed and TASK:ended; for many tasks: agentless workflow run FILE",
    "--mail-type": "use --notify end,fail; to wait for the end: agentless wait TASK",
    "--ntasks": "one task per target; repeat the target, or use a span",
    "-N": "use --nodes N: one task on N nodes, with the resources on each of them",
    "-n": "one task per target; repeat the target, or use a span",
    "-o": "the output is kept; to read it: agentless logs TASK",
    "--wrap": "write the command after '--'",
    "--rm": "not needed: ended containers are removed later",
}
"""Options of a command that starts something."""


def lead(option: str, flags: Collection[str], starts: bool) -> str:
    """What to do in place of another tool's option, in brackets; empty if unknown.

    `flags`: the options of the command. `starts`: it takes a command to start.
    """
    if starts and option in _OF_A_START:
        return f" ({_OF_A_START[option]})"
    ours = [flag for flag in _OPTIONS.get(option, ()) if flag in flags]
    return f" (did you mean {' or '.join(ours)}?)" if ours else ""
