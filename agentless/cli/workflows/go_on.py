"""What `recover` shows of workflows, and how they go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from agentless.cli.app import complain
from agentless.cli.confirm import confirm
from agentless.cli.output import say
from agentless.cli.pager import paged
from agentless.cli.progress import progress
from agentless.cli.tasks.spec import in_full
from agentless.client.client import Client
from agentless.errors import Refused, UsageError
from agentless.model.units import counted
from agentless.rules.workflows.workflow import job_title

_NAMED = 10
_LEAST = 40
"""The fewest characters of a digest that are taken: who makes two workflows must not find two with the same ones."""

_DECISIONS = {"goes_on": "will go on", "ask": "not started without you", "cannot": "cannot go on"}


def show_left(workflows: Sequence[Mapping[str, Any]]) -> None:
    """Show what had not started, and what becomes of it."""
    for workflow in workflows:
        if left := workflow["unread"]:
            say(f"{_title(workflow)}: {counted(left, 'task')} had not started, and cannot be read; run the file again")
            continue
        _show_jobs(workflow)
        if any(job["decision"] == "ask" for job in workflow["jobs"]):
            say(f"  To look at them, and start them: agentless recover --go-on {_reference(workflow)}")


def _show_jobs(workflow: Mapping[str, Any]) -> None:
    jobs = _once(workflow["jobs"])
    say(f"{_title(workflow)}: {counted(len(jobs), 'job')} had not started")
    groups: dict[tuple[str, str], list[str]] = {}
    for job in jobs:
        groups.setdefault((job["decision"], job["reason"]), []).append(_name(job))
    for (decision, reason), names in groups.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        why = f" ({reason})" if reason else ""
        say(f"  {_DECISIONS.get(decision, decision)}: {', '.join(names[:_NAMED])}{more}{why}")


def go_on_with(served: Client, workflow: Mapping[str, Any]) -> int:
    """Have the jobs go on that can by themselves; the exit code."""
    jobs = [job for job in workflow["jobs"] if job["decision"] == "goes_on"]
    return _post(served, workflow, jobs, by_hand=False)


def go_on_by_hand(
    served: Client, left: Sequence[dict[str, Any]], specs: Mapping[str, Any], wanted: str, *, yes: bool
) -> int:
    """Show the jobs of a workflow that ask, with all their options, and start them if a person says so."""
    workflow = _find(left, wanted)
    if any(((spec or {}).get("job") or {}).get("workflow") == workflow["id"] for spec in specs.values()):
        raise Refused(f"tasks of workflow {workflow['id']} are not recovered yet; first run: agentless recover")
    jobs = [job for job in workflow["jobs"] if job["decision"] != "cannot"]
    _show_jobs(workflow)
    if not jobs:
        raise Refused(f"no job of workflow {workflow['id']} can go on")
    with paged():
        for job in _once(jobs):
            for line in in_full(f"{_name(job)} {job['id']}", job["spec"]):
                say(line)
    signed = "signed by this controller" if workflow["signed"] else "NOT signed by this controller"
    say(f"{_title(workflow)}: {signed}, digest {workflow['digest']}")
    if not yes:
        confirm(
            f"Start {counted(len(_once(jobs)), 'job')} with these options?",
            "Nothing started",
            unattended=Refused(
                "Cannot ask for confirmation without a terminal. If these jobs are yours, and have not run: "
                f"agentless recover --yes --go-on {_reference(workflow)}"
            ),
        )
    return _post(served, workflow, jobs, by_hand=True)


def _post(served: Client, workflow: Mapping[str, Any], jobs: Sequence[Mapping[str, Any]], *, by_hand: bool) -> int:
    body = {"digest": workflow["digest"], "jobs": [job["id"] for job in jobs], "by_hand": by_hand}
    try:
        with progress(f"Going on with {workflow['name']}"):
            found = served.post(f"/v1/recovery/workflows/{workflow['id']}", body)
    except Refused as error:
        complain(str(error))
        return error.exit_code
    for message in list(dict.fromkeys(start["message"] for start in found["starts"] if start["exit_code"]))[:_NAMED]:
        complain(f"workflow {workflow['id']}: {message}")
    begun = len(_once(jobs)) if found["workflow"] else 0
    if begun:
        key = workflow["id"]
        say(f"Workflow {key}: {counted(begun, 'job')} will run. To see how far it is: agentless workflow show {key}")
    return max((start["exit_code"] for start in found["starts"]), default=0)


def _find(left: Sequence[dict[str, Any]], wanted: str) -> dict[str, Any]:
    """The workflow with this id or name, and this digest if one is given. Raises UsageError."""
    reference, _, digest = wanted.partition("@")
    if digest and len(digest) < _LEAST:
        raise UsageError(f"digest {digest[:80]!r}: use at least {_LEAST} characters of it")
    named = [each for each in left if each["jobs"] and reference in (each["id"], each["name"])]
    meant = [each for each in named if each["digest"].startswith(digest)]
    if not meant:
        raise UsageError(f"No workflow {wanted[:80]} to go on with. To list them: agentless recover")
    if len(meant) > 1:
        several = ", ".join(map(_reference, meant[:_NAMED]))
        raise UsageError(f"{reference} matches {len(meant)} workflows; use one of these: {several}")
    return meant[0]


def _reference(workflow: Mapping[str, Any]) -> str:
    return f"{workflow['id']}@{workflow['digest'][:_LEAST]}"


def _title(workflow: Mapping[str, Any]) -> str:
    return (
        f"Workflow {workflow['id']} {workflow['name']} of {workflow['owner']}, found on {', '.join(workflow['nodes'])}"
    )


def _name(job: Mapping[str, Any]) -> str:
    gang = job["spec"].get("gang")
    title = job_title(str(job["job"]), job["spec"].get("parameters") or {})
    return title + (f" ({gang['size']} nodes)" if gang else "")


def _once(jobs: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """A job on several nodes once: the first of them that is left."""
    return list({str((job["spec"].get("gang") or {}).get("members") or job["id"]): job for job in jobs[::-1]}.values())[
        ::-1
    ]
