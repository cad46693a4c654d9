"""An image on a compute node: what runs it there, with its mounts and its folder.

With pyxis (https://github.com/NVIDIA/pyxis/wiki/Usage), `srun` has options for it. Apptainer is a command before that
of the task (https://apptainer.org/docs/user/latest/cli/apptainer_exec.html).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from agentless.model.tasks.spec import Mount, TaskSpec

_FILE = re.compile(r"/.*|\./.*|.*\.(?:sif|sqsh|sqfs)|[a-z]+://.*")
"""An image that is a file on the shared disk, or says itself where it is from."""
_REGISTRY = re.compile(r"[^/]*[.:][^/]*|localhost")


def pyxis_options(spec: TaskSpec) -> list[str]:
    """The options of `srun` for the image; the folder of the job is mounted by the script."""
    given = {
        "image": _as_enroot(spec.image or ""),
        "workdir": spec.workdir,
    }
    return [f"--container-{name}={value}" for name, value in given.items() if value is not None]


def apptainer_command(spec: TaskSpec) -> list[str]:
    """The command of a task in the image."""
    image = spec.image or ""
    binds = [word for mount in spec.mounts for word in ("--bind", str(mount))]
    workdir = ["--pwd", spec.workdir] if spec.workdir else []
    gpus = ["--nv"] if spec.needs.gpus else []
    where = image if _FILE.fullmatch(image) else f"docker://{image}"
    return ["apptainer", "exec", *gpus, *binds, *workdir, where, *spec.command]


def apptainer_variables(variables: Mapping[str, str]) -> dict[str, str]:
    """The variables, also under the names that win against those of the image and of apptainer itself."""
    return {**variables, **{f"APPTAINERENV_{name}": value for name, value in variables.items()}}


def pyxis_mounts(mounts: Sequence[Mount]) -> str:
    """Mounts behind that of the folder, as `--container-mounts` has them."""
    return "".join(f",{mount}" for mount in mounts)


def _as_enroot(image: str) -> str:
    """The name of an image as enroot has it: a `#` behind the registry."""
    if _FILE.fullmatch(image):
        return image
    registry, slash, rest = image.partition("/")
    return f"{registry}#{rest}" if slash and _REGISTRY.fullmatch(registry) else image
