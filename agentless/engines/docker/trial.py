"""Trials of an engine: containers that are started only to see what they get. Renders and parses; no I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence

from agentless.engines.docker.commands import Commands
from agentless.engines.times import seconds
from agentless.errors import RuntimeFailed
from agentless.formats import look_image
from agentless.model.command import Command, Result
from agentless.model.nodes.trial import TrialAnswer

WITHIN = 15
"""Seconds for a container to print what it sees and to end."""
EACH = 60.0
"""Seconds for one of the containers, from the lock to its removal."""
OVER_AFTER = 3600
"""Seconds after which a trial is surely over, on a node with many GPUs, too."""
_TIMES = "{{json .Created}} {{json .State.StartedAt}}"
_TIME = re.compile(r'"([^"]{1,64})"')
_LATE = "saw agentless: late"
_CODE = re.compile(r"code ([0-9]{1,3})")


def command(commands: Commands, scripts: Sequence[str], label: str, image: str | None) -> Command:
    """Run these scripts, each a launch of a container with this label, `KEY=SECONDS-TOKEN`.

    `image` is one that comes as an archive on stdin, and is removed at the end.
    """
    key = label.partition("=")[0]
    return commands.script(
        "docker-trial.sh.j2",
        timeout=EACH * (len(scripts) + 1),
        scripts=list(scripts),
        label=label,
        image=image or "",
        key=key,
        mark_format="{{.Names}}|" + commands.dialect.formats.label % key,
        name_format="{{.Repository}}:{{.Tag}}",
        repository=look_image.REPOSITORY,
        image_key=look_image.LABEL,
        over_after=OVER_AFTER,
        is_sent=image is not None,
        within=WITHIN,
        times_format=_TIMES,
    )


def parse(result: Result) -> list[TrialAnswer]:
    """The answers, in the order of the launches; those that did not come are missing. Raises RuntimeFailed."""
    if failed := [line[7:] for line in result.out.splitlines() if line.startswith("failed ")]:
        raise RuntimeFailed(" ".join(failed))
    found: list[list[str]] = []
    for line in result.out.splitlines():
        if line == "@launch":
            found.append([])
        elif found:
            found[-1].append(line)
    return [_answer(lines) for lines in found if any(map(_CODE.fullmatch, lines))]


def _answer(lines: Sequence[str]) -> TrialAnswer:
    # The lock prints a blank to see whether somebody listens, before whatever the launch says.
    said = "\n".join(line[5:] for line in lines if line.startswith("said ")).lstrip().encode()
    code = next(int(found[1]) for line in lines if (found := _CODE.fullmatch(line)))
    times = next((_TIME.findall(line) for line in lines if line.startswith("times ")), [])
    created, started = (seconds(time) for time in times) if len(times) == 2 else (None, None)
    return TrialAnswer(
        # What a launch is refused for is on one stream, what an engine complains of on the other.
        Result(code, said, said),
        "\n".join(line[4:] for line in lines if line.startswith("saw ") and line != _LATE),
        started - created if created and started and started >= created else None,
        _LATE in lines,
    )
