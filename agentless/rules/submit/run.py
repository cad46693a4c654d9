"""`agentless run`: uploads the current folder, and fetches what the task changes in it."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentless.model.files.file_spec import Output, Upload
from agentless.rules.files.file_options import WORKDIR, brought_to
from agentless.rules.submit.task_request import TaskRequest


def needs_nothing(options: Mapping[str, Any], targets: object) -> bool:
    """Whether no resources are requested. The task then gets one GPU, if the cluster has any."""
    return not targets and options.get("gpus") is None


def in_folder(asked: TaskRequest, folder: str) -> TaskRequest:
    """The request with the user's current folder as upload, working directory and output.

    The task works in a folder of that name below `WORKDIR`, unless a working directory is given.
    """
    spec = asked.spec
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", posixpath.basename(folder)).strip(".-") or "folder"
    workdir = spec.workdir or posixpath.join(WORKDIR, name)
    back = brought_to(Output(".", ""), folder, several=len(asked.sweep) * max(1, len(asked.targets)) > 1)
    return replace(
        asked,
        spec=replace(
            spec,
            workdir=workdir,
            uploads=(Upload(folder, "."), *spec.uploads),
            outputs=(replace(back, changed=True), *spec.outputs),
        ),
    )
