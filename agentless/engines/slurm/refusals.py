"""What `sbatch` says when it fails, in Slurm's own words (slurm_errno.c): whether there may be a job all the same."""

REFUSALS = (
    "sbatch: unrecognized option",
    "sbatch: error: Invalid ",
    "Invalid account",
    "Invalid cluster feature",
    "Invalid feature",
    "Invalid generic resource",
    "Invalid GRES",
    "Invalid job array",
    "Invalid partition",
    "Invalid qos",
    "Invalid Trackable RESource",
    "Invalid wckey",
    "No partition specified",
    "User's group not permitted to use this partition",
    "More processors requested than permitted",
    "Requested more tasks than available processors",
    "Requested node configuration is not available",
    "Requested nodes not in this partition",
    "Requested partition configuration not available",
    "Requested reservation",
    "Requested time limit is invalid",
    "Requested account has breached",
    "Requested operation",
    "Requested GRES option unsupported",
    "Required node not available",
    "Required partition not available",
    "Memory required by task is not available",
    "Memory specification can not be satisfied",
    "Node count specification invalid",
    "CPU count specification invalid",
    "Task count specification invalid",
    "Job violates accounting/QOS policy",
    "Job size specification needs to be provided",
    "Job dependency problem",
    "Time limit specification required",
    "Pathname of a file, directory or other parameter too long",
    "Access/permission denied",
    "Access denied to requested reservation",
    "cli_filter plugin terminated with error",
    "Unspecified error",
)
"""slurmctld has answered, or was not asked: there is no job. `Unspecified error` is that of a plugin of the site."""

PASSING = (
    "Job violates accounting/QOS policy",
    "Requested account has breached",
    "Required node not available",
    "Required partition not available",
    "Unspecified error",
)
"""Refusals that may pass by themselves: a limit is full, nodes are down, or a plugin did not say what is wrong."""

UNHEARD = (
    "timed out",
    "Unable to contact",
    "onnection",
    "Zero Bytes",
    "uthentication",
    "temporarily un",
    "try again",
    "in standby mode",
)
"""Nobody has decided: it is worth another try."""


def lasts(said: str) -> bool:
    """Whether these words of `sbatch` refuse a job for good."""
    return any(words in said for words in REFUSALS) and not any(words in said for words in PASSING)
