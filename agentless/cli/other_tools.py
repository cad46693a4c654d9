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
    "get": "ps, nodes or gpus",
    "history": "ps --all",
    "hosts": "nodes",
    "images": "env list",
    "info": "controller status",
    "inspect": "show",
    "jobs": "ps",
    "nvidia-smi": "gpus",
    "prune": "env prune",
    "pull": "submit --pull always",
    "push": "env push",
    "sacct": "ps --all",
    "salloc": "run or submit",
    "sbatch": "submit",
    "scancel": "stop",
    "scontrol": "show, nodes or queue",
    "sinfo": "nodes",
    "squeue": "queue",
    "srun": "run",
    "start": "run or submit",
    "stats": "top",
    "status": "ps or show",
    "uncordon": "nodes resume",
    "undrain": "nodes resume",
    "unpause": "resume",
    "up": "run or submit",
    "why": "explain",
}
"""What to suggest for a word that is no command of ours."""

_OPTIONS: Mapping[str, Sequence[str]] = {
    "-A": ["--all"],
    "-C": ["--on"],
    "-G": ["--gpus"],
    "-J": ["--name"],
    "-m": ["--memory"],
    "-p": ["--on"],
    "-t": ["--grace", "--timestamps"],
    "-u": ["--mine", "--user"],
    "-v": ["--mount", "--volume"],
    "-w": ["--node"],
    "-x": ["--exclude"],
    "--constraint": ["--on"],
    "--cpus": ["--cores"],
    "--cpus-per-task": ["--cores"],
    "--filter": ["--mine", "--batch"],
    "--format": ["--output"],
    "--gres": ["--gpus"],
    "--job-name": ["--name"],
    "--mem": ["--memory"],
    "--nodelist": ["--node"],
    "--partition": ["--on"],
    "--requests": ["--gpus", "--cores", "--memory"],
    "--selector": ["--on"],
    "--time": ["--time-limit", "--grace"],
}
_NEEDLESS: Mapping[str, str] = {
    "-d": "not needed: submit returns once the task runs or is queued",
    "--detach": "not needed: submit returns once the task runs or is queued",
    "-i": "to open a terminal in a task: agentless shell TASK",
    "--array": "write a span in the command, such as 'span:{1..3}'",
    "--rm": "not needed: ended containers are removed later",
}
"""Options of a command that starts something."""


def lead(option: str, flags: Collection[str], starts: bool) -> str:
    """What to do in place of another tool's option, in brackets; empty if unknown.

    `flags`: the options of the command. `starts`: it takes a command to start.
    """
    if starts and option in _NEEDLESS:
        return f" ({_NEEDLESS[option]})"
    ours = [flag for flag in _OPTIONS.get(option, ()) if flag in flags]
    return f" (did you mean {' or '.join(ours)}?)" if ours else ""
