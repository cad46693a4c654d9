"""`agentless submit`: argv to a TaskSpec, one request, and what became of each target."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.app import complain
from agentless.cli.common import Json, client, own_code, print_json, print_line, say, tell_end, tell_outputs
from agentless.cli.submit.batch import show_results, tell, wait_for_batch, worst
from agentless.cli.submit.command import WithCommand, command_of
from agentless.cli.submit.steps import showing
from agentless.cli.tasks.logs import copy_log
from agentless.client.client import Client
from agentless.client.files.span_files import read_lines
from agentless.client.words import local
from agentless.errors import AgentlessError, UsageError
from agentless.model.tasks.task_id import first_try
from agentless.model.text import lines_of
from agentless.paths import current_dir
from agentless.rules.submit.options import Options, Outside, Submission, submission

_NAMED = 20  # so many tasks are named after one message


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command(cls=WithCommand)(submit)


def submit(
    context: typer.Context,
    targets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TARGET... -- COMMAND...",
            help="HOST[:NUMA][::GPU,...], like node1::0,1; or COUNTxTYPE:SIZE, like 2xA100:40G. Several: one batch.",
            autocompletion=complete.targets,
        ),
    ] = None,
    more_targets: Annotated[
        list[str] | None,
        typer.Option(
            "--target", "-t", metavar="TARGET", help="The same, as an option.", autocompletion=complete.targets
        ),
    ] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="Any N GPUs, on one node; 0: none.")] = None,
    gpu_memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory of each GPU, free and in all, like 40G; a number alone is MB."),
    ] = None,
    gpu_share: Annotated[
        int, typer.Option(metavar="N", help="Up to N tasks on each GPU, if all are willing; needs --gpu-memory.")
    ] = 1,
    gpu_type: Annotated[str | None, typer.Option(metavar="TYPE,...", help="The best first: A100,H100 or RTX*.")] = None,
    node: Annotated[
        list[str] | None, typer.Option(help="Only this node; several: any of them.", autocompletion=complete.nodes)
    ] = None,
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="NODE", help="Not on this node.", autocompletion=complete.nodes)
    ] = None,
    on: Annotated[list[str] | None, typer.Option(metavar="LABEL=VALUE", help="Only on nodes with this label.")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive", help="With no other task on the node.")] = False,
    policy: Annotated[
        str | None, typer.Option(help="Which node of those that do: pack, spread, best_fit, ...; default: inventory.")
    ] = None,
    priority: Annotated[int, typer.Option(metavar="N", help="Higher ones come first; -1000 to 1000.")] = 0,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="How long it may run; short ones may fill gaps in the queue; 0: no limit."),
    ] = None,
    signal: Annotated[
        str, typer.Option(metavar="NAME", help="What tells it that its time limit is over, or nearly: TERM, USR1, ...")
    ] = "TERM",
    signal_before: Annotated[
        str | None, typer.Option(metavar="TIME", help="So long before the limit, when it is killed; default: at it.")
    ] = None,
    at: Annotated[str | None, typer.Option(metavar="DATE", help="Not before: 18:30 or 2026-05-01T18:30.")] = None,
    after: Annotated[str | None, typer.Option("--in", metavar="TIME", help="Not before so long: 30min, 2h30m.")] = None,
    retries: Annotated[int, typer.Option(metavar="N", help="Try it again, up to so often, when it fails.")] = 0,
    retry_on: Annotated[
        str | None, typer.Option(metavar="WHAT,...", help="When: failed, oom, timeout, lost, exit:CODE.")
    ] = None,
    backoff: Annotated[
        str, typer.Option(metavar="TIME", help="Pause before the second try; doubled for each one more.")
    ] = "10s",
    max_parallel: Annotated[
        int | None, typer.Option(metavar="N", help="Of this batch, at most so many at a time; 0: no limit.")
    ] = None,
    zipped: Annotated[
        bool, typer.Option("--zip", help="Of several spans the first values together, then the second ones.")
    ] = False,
    owner: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose it is; default: $AGENTLESS_OWNER, else you, as user@host.")
    ] = None,
    image: Annotated[str | None, typer.Option(help="The container image; default: the inventory's.")] = None,
    container: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[:N]", help="The env to run in, brought to the node if need be.", autocompletion=complete.envs
        ),
    ] = None,
    pull: Annotated[
        str | None,
        typer.Option(metavar="WHEN", help="When the --image is fetched: missing (the default), always, never."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name to refer to it by.")] = None,
    cores: Annotated[float | None, typer.Option(help="CPU cores for it, like 4 or 0.5; 0: no limit.")] = None,
    memory: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for it, like 8GB or 16GiB; a number alone is MB; 0: no limit."),
    ] = None,
    shm_size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Size of /dev/shm, like 8G; a number alone is MB; 0: the default."),
    ] = None,
    env: Annotated[
        list[str] | None, typer.Option("--env", "-e", metavar="KEY[=VALUE]", help="A variable; without =VALUE yours.")
    ] = None,
    secret_env: Annotated[
        list[str] | None,
        typer.Option(
            "--secret-env", "-s", metavar="KEY[=VALUE]", help="The same, and its value is never shown or stored."
        ),
    ] = None,
    mount: Annotated[
        list[str] | None, typer.Option(metavar="HOST:CONT[:ro]", help="A folder of the node to see in the container.")
    ] = None,
    upload: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH[:DEST]", help="A file or folder of yours to have there, as it is now."),
    ] = None,
    output: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH[:LOCAL]", help="What to bring back when it has ended, however it did."),
    ] = None,
    volume: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME:CONT[:ro]", help="A volume of the node, made if it is not there; see volume."),
    ] = None,
    workdir: Annotated[str | None, typer.Option(help="Folder in the container to start in.")] = None,
    user: Annotated[str | None, typer.Option(help="User in the container, like 1000:1000.")] = None,
    network: Annotated[str | None, typer.Option(help="Docker network, like host or none.")] = None,
    privileged: Annotated[
        bool, typer.Option("--privileged", help="Full access to the node, all GPUs included.")
    ] = False,
    share: Annotated[
        bool, typer.Option("--share", help="Also on a GPU that a process outside agentless uses.")
    ] = False,
    stop_grace: Annotated[str, typer.Option(metavar="TIME", help="Between SIGTERM and SIGKILL.")] = "10s",
    label: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", help="A label to find it by.")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end; the exit code is the task's.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its output until it ends; implies --wait.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the script for the node; start nothing.")] = False,
    wait_for: Annotated[
        str | None,
        typer.Option("--wait-for", metavar="TIME", help="Give up after so long in the queue; 0: do not wait."),
    ] = None,
    no_queue: Annotated[bool, typer.Option("--no-queue", help="Start now or be refused (exit code 3).")] = False,
    as_json: Json = False,
) -> int:
    """Run a command on GPUs: exactly these, or any that will do. When they are busy, it waits for its turn.

    With spans in the command it is a sweep, one task for each combination. Quote them, or the shell takes them apart.

    agentless submit node1::0 -- python train.py --lr 0.1

    agentless submit 2xA100:40G --time-limit 8h -- python train.py

    agentless submit --gpus 1 -- python train.py --lr 'span:[0.1,0.01]' --seed 'span:{1..3}'
    """
    all_targets = [*(targets or []), *(more_targets or [])]
    options = Options(
        gpus=gpus,
        gpu_memory=gpu_memory,
        gpu_share=gpu_share,
        gpu_type=gpu_type,
        node=node,
        exclude=exclude,
        on=on,
        exclusive=exclusive,
        policy=policy,
        priority=priority,
        time_limit=time_limit,
        signal=signal,
        signal_before=signal_before,
        at=at,
        after=after,
        retries=retries,
        retry_on=retry_on,
        backoff=backoff,
        max_parallel=max_parallel,
        zipped=zipped,
        owner=owner,
        image=image,
        container=container,
        pull=pull,
        name=name,
        cores=cores,
        memory=memory,
        shm_size=shm_size,
        env=env,
        secret_env=secret_env,
        mount=mount,
        upload=upload,
        output=output,
        volume=volume,
        workdir=workdir,
        user=user,
        network=network,
        privileged=privileged,
        share=share,
        stop_grace=stop_grace,
        label=label,
        wait_for=wait_for,
        no_queue=no_queue,
    )
    outside = Outside(time.time(), os.environ, read_lines, current_dir())
    check_targets(context, all_targets)
    asked = submission(command_of(context), all_targets, options, outside)
    if follow and (len(all_targets) > 1 or len(asked.sweep) > 1):
        raise UsageError("--follow shows one task; use --wait, and agentless logs -f --batch for all of them")
    served = client(context)
    starts = post(served, asked, dry_run=dry_run)
    return report(served, asked, starts, wait=wait, follow=follow, as_json=as_json, dry_run=dry_run)


def check_targets(context: typer.Context, targets: Sequence[str]) -> None:
    """Raises UsageError for a command among the targets, with how to write it."""
    commands = [target for target in targets if len(target.split()) > 1]
    if commands and not command_of(context):
        others = " ".join(target for target in targets if target not in commands) or "..."
        words = commands[0]
        if not re.fullmatch(r"[\w\s@%+=:,./-]*", words):
            words = f"sh -c {shlex.quote(words)}"
        raise UsageError(f"write the command after '--': agentless {context.info_name} {others} -- {words}")


def options_of(given: Mapping[str, Any]) -> tuple[list[str], Options]:
    """The targets among the arguments of a submit, and the options."""
    options: Any = {name: given[name] for name in Options.__annotations__ if name in given}
    return [*(given["targets"] or []), *(given["more_targets"] or [])], options


def post(served: Client, asked: Submission, *, dry_run: bool) -> list[dict[str, Any]]:
    """Send what is uploaded with it, and then the request; what has become of each task."""
    try:
        if asked.spec.uploads and not dry_run:
            from agentless.client.files.snapshot import sent

            asked = sent(served, asked, complain)
        request = {**asked.request(dry_run=dry_run), "request": os.urandom(8).hex()}
        with showing(served, lambda event: event.get("request") == request["request"]):
            starts: list[dict[str, Any]] = served.submit(request)
    except KeyboardInterrupt:
        say("", "Interrupted while the task was being started; it may run. See: agentless ps")
        raise
    return starts


def _complain_of(asked: Submission, starts: list[dict[str, Any]]) -> None:
    """What went wrong, and with which: the ids of tasks that failed, the values of those that were refused."""
    which: dict[str, list[str]] = {}
    combinations = [each for each in asked.sweep for _ in asked.targets or ("any",)]
    for each, start in zip(combinations, starts, strict=True):
        if message := start["message"]:
            name = " ".join(f"{key}={value}" for key, value in each.parameters.items())
            if task := start["task"]:
                name = "" if task["id"] in message or not start["exit_code"] else f"task {task['id']}"
            which.setdefault(message, []).append(name)
    for message, names in which.items():
        number = [f"{len(names)} tasks"] if len(names) > 1 else []
        known = [name for name in names if name]
        more = [f"and {len(known) - _NAMED} more"] if len(known) > _NAMED else []
        words = ": ".join(number + [", ".join(known[:_NAMED] + more)] * bool(known))
        complain(f"{message} ({words})" if words else message)


def _rehearsed(asked: Submission, starts: list[dict[str, Any]]) -> int:
    """Print what would be run, and where; of a sweep one script and the other commands."""
    commands = [each.argv for each in asked.sweep for _ in asked.targets or ("any",)]
    told = False
    for command, start in zip(commands, starts, strict=True):
        if start["script"] is None:
            continue
        if told and len(asked.sweep) > 1:
            for line in f"the same on {start['place']}: {shlex.join(command)}".split("\n"):
                print_line(f"# {line}")
        else:
            print_line(f"# on {start['place']}, to the stdin of sh:")
            print(start["script"])  # noqa: T201 - to be run as it is
        told = True
    return _worst(start["exit_code"] for start in starts)


def report(
    served: Client,
    asked: Submission,
    starts: list[dict[str, Any]],
    *,
    wait: bool,
    follow: bool,
    as_json: bool,
    dry_run: bool,
) -> int:
    """Say what has become of each, wait for what was started if that is wanted, and give the exit code.

    That is 3 or 4 only for what was not started. What may run, as where a node has not answered, counts as started.
    """
    _complain_of(asked, starts)
    if dry_run:
        return _rehearsed(asked, starts)
    tasks = [start["task"] for start in starts if start["task"]]
    # A short one may be over already.
    started = [task for task in tasks if task["ended_at"] is None or task["container"]]
    code = _worst(start["exit_code"] for start in starts if start["task"] not in started)
    if len(starts) > 1 and started and started[0]["parameters"]:
        return _report_sweep(served, started, code, wait=wait, as_json=as_json)
    output = _Output(started)
    if not as_json:
        for task in started:
            with output:
                _announce(task, wait=wait, follow=follow)
    if follow and started:
        with output:
            _follow(served, first_try(started[0]["id"]))
    if (wait or follow) and started:
        tasks = [_await(served, task) if task in started else task for task in tasks]
        code = code or _worst(own_code(task) for task in tasks)
    if as_json:
        with output:
            print_json(tasks, flush=True)
    return code or int(output.is_lost)


class _Output:
    """Goes on where what is said on stdout cannot be written, and tells on stderr which tasks there are all the same.

    Who takes that for a failed submit would start them twice.
    """

    def __init__(self, started: list[dict[str, Any]]) -> None:
        self.is_lost = False
        self._started = started

    def __enter__(self) -> None: ...

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, OSError) or isinstance(error, BrokenPipeError):
            return False
        self.is_lost = True
        ids = ", ".join(first_try(task["id"]) for task in self._started) or "no task"
        complain(f"the output cannot be written: {error.strerror}; started: {ids}")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True


def _report_sweep(served: Client, tasks: list[dict[str, Any]], code: int, *, wait: bool, as_json: bool) -> int:
    """Likewise of a sweep; `code` is the exit code for what was not started, 0: all of it was."""
    table, output = sys.stdout, _Output(tasks)
    if not as_json:
        tell(tasks)
        if not sys.stdout.isatty():  # the ids alone are for it
            for task in tasks:
                with output:
                    print_line(first_try(task["id"]), flush=True)
            table = sys.stderr
    if wait:
        try:
            tasks = wait_for_batch(served, tasks[0]["batch"])
        except AgentlessError as error:
            complain(f"batch {tasks[0]['batch']} was started, and its end is not known: {error}")
            code = code or 1
        for task in tasks:
            tell_outputs(task, here=False)
    if as_json:
        with output:
            print_json(tasks, flush=True)
    elif wait:
        with contextlib.redirect_stdout(table):
            show_results(tasks)
    return code or (worst(tasks) if wait else 0) or int(output.is_lost)


def _follow(served: Client, task_id: str) -> None:
    """Show its output until it has ended. Where that cannot be had, the task goes on, and the command with it."""
    sys.stdout.flush()
    try:
        copy_log(served, task_id, {"follow": True}, patient=True)
    except AgentlessError as error:
        complain(f"the output of task {task_id} cannot be shown, and its end is waited for: {error}")


def _announce(task: dict[str, Any], *, wait: bool, follow: bool) -> None:
    """Its id on stdout, which is the task's own with `follow`; what it does now for a person."""
    task_id = first_try(task["id"])  # which means all its tries: the first may have failed already
    gpus = "" if not task["gpus"] else " on GPU " + ", ".join(map(str, task["gpus"]))
    words = f"{'running' if task['container'] else 'being started'} on {task['node']}{gpus}"
    if task["state"] == "pending":
        words = "queued" + (f": {task['reason']}" if task["reason"] else "")
    if task["state"] == "scheduled":
        words = f"scheduled for {local(task['scheduled_for'])}"
    if sys.stdout.isatty() and not follow:
        for line in lines_of(f"{task_id}  {words}"):
            print_line(line)
        if not wait:
            say(f"follow it: agentless logs -f {task_id}    end it: agentless stop {task_id}")
        return
    if not follow:
        print_line(task_id, flush=True)
    if wait or follow or task["state"] in ("pending", "scheduled"):
        say(*lines_of(f"{task_id}  {words}"))


def _await(served: Client, task: dict[str, Any]) -> dict[str, Any]:
    task_id = first_try(task["id"])
    try:
        with showing(served, lambda event: first_try(event["task"]["id"]) == task_id):
            ended = served.wait(task_id)
    except AgentlessError as error:
        complain(f"task {task_id} was started, and its end is not known: {error}; see: agentless wait {task_id}")
        return task
    except KeyboardInterrupt:
        say("", f"The task goes on. See it: agentless logs -f {task_id}    end it: agentless stop {task_id}")
        raise
    tell_end(ended)
    return ended


def _worst(codes: Any) -> int:
    """3 before 4 before any other: a refusal can be helped by the user."""
    found = [code for code in codes if code]
    return next((code for code in (3, 4) if code in found), found[0] if found else 0)
