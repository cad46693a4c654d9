"""`agentless run`: the current folder goes along, and what was made or changed in it comes back."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from agentless.model.files.task_files import Output, Upload
from agentless.rules.files.task_files import WORKDIR, brought_to
from agentless.rules.submit.submission import Submission


def needs_nothing(options: Mapping[str, Any], targets: object) -> bool:
    """Whether nothing is said of what it needs: then it is a GPU, if there are any."""
    return not targets and options.get("gpus") is None


def in_folder(asked: Submission, folder: str) -> Submission:
    """The submission with the user's current folder: uploaded, worked in, and what changes there brought back.

    It works in a folder of that name of its own, unless it was said where: so whatever is there is the user's.
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
