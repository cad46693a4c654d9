"""The keys of files with tasks: those of the whole workflow, those of a job, and the options of `submit`.

An option has in a file the name of its flag, with `_` for `-`: `--time-limit` is `time_limit`.
"""

from __future__ import annotations

from collections.abc import Mapping

from agentless.rules.submit.options import Option, options_of

_NOT_IN_FILES = (
    "--owner",
    "--name",
    "--zip",
    "--max-parallel",
    "--after",
    "--after-batch",
    "--each",
    "--if-impossible",
)
"""Options that are about the whole request, or have keys of their own."""

WORKFLOW: Mapping[str, str] = {
    "version": "Version of the format: 1.",
    "name": "Name of the workflow. Default: the name of the file.",
    "description": "Text for people.",
    "params": "Parameters and their values. `--set KEY=VALUE` overrides one; one without a value must be set so. "
    "`{{ params.KEY }}` stands for it in any value of `defaults` and `jobs`.",
    "defaults": "Keys of a job that apply to all jobs. A job overrides them; variables and labels are joined.",
    "environment": "Variables of all jobs, like `env` in `defaults`.",
    "runtimes": "The env for each `runtime` that jobs name: `{python-3.11-ml: torch}`.",
    "max_parallel": "Run at most so many jobs at the same time.",
    "on_failure": "When a job has failed: `continue` runs all jobs that do not wait for it, `stop` stops them. "
    "Default: continue.",
    "jobs": "The jobs by name.",
}
"""The keys of a workflow, in the order of the reference, with their descriptions."""

JOB: Mapping[str, str] = {
    "command": "The command, as a list of words, or as one text that is split into words as a shell would, without "
    "running a shell.",
    "args": "More words of the command.",
    "target": "GPUs of a node (`node1::0,1`), or any GPUs (`2xA100:40G`), as in `agentless submit`.",
    "requires": "Jobs that have to end first: `[a, {b: failed}]`. States are `completed` (the default), `failed`, "
    "`all_failed` and `ended`. A job with a matrix means all of its tasks, `train[lr=0.1]` those with this value; "
    "`failed` means that all of them have ended, and at least one has failed.",
    "matrix": "Values by name, as lists or spans: `{lr: [0.1, 0.01], seed: 'span:{1..3}'}`. The job runs once for each "
    "combination. `{{ matrix.lr }}` stands for the value.",
    "artifacts": "Files or folders that the job leaves, for the jobs that require it: they find them in "
    "`/artifacts/JOB`.",
    "environment": "The same as `env`.",
    "gang": "The same as `nodes`.",
    "grace": "The same as `stop_grace`.",
    "runtime": "The env, by another name: see `runtimes`. As in Joblet.",
    "resources": "Resources with the keys of Joblet (`max_memory`, `max_cpu`, `gpu_count`, `gpu_memory_mb`) or dsHPC "
    "(`min_memory_mb`, `cpus`, `gpus`).",
    "uploads": "Files and folders to copy to the job: `{files: [train.py]}`, as in Joblet.",
    "volumes": "Volumes by name, mounted at `/volumes/NAME`, as in Joblet; or `NAME:/path`.",
}
"""The keys of a job that are no options of `submit`, likewise."""

JOB_OPTIONS: Mapping[str, Option] = {
    option.flag.removeprefix("--").replace("-", "_"): option
    for option in options_of("task")
    if option.flag not in _NOT_IN_FILES
}
"""The options of `submit` that a job can have, by their keys."""

JOB_KEYS = (*JOB, *JOB_OPTIONS)
ALIKE: Mapping[str, str] = {"environment": "env", "gang": "nodes", "grace": "stop_grace"}
"""Keys that are the same as others."""
_REQUIRES = "use requires for jobs that have to end first"
REFUSED: Mapping[str, str] = {
    "on_failure": "set on_failure at the top of the file, for all jobs",
    "max_parallel": "set max_parallel at the top of the file, for all jobs",
    "name": "the key of a job is its name; omit it",
    "owner": "a workflow belongs to who runs it; omit it",
    "needs": _REQUIRES,
    "depends_on": _REQUIRES,
    "after": _REQUIRES,
    "zip": "use matrix for values that vary",
}
"""Keys of a job that are refused, and why."""
