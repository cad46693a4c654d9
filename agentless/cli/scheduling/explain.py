"""`agentless explain`: why a task does not start, what would help, and what would become of one."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from agentless.cli import complete
from agentless.cli.common import Json, client, named, print_json, print_line
from agentless.client.client import Client
from agentless.client.http import RequestFailed
from agentless.errors import AgentlessError, UsageError
from agentless.model.nodes.node import naming
from agentless.rules.submit.options import Options, Outside, submission


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(explain)


def explain(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK|TARGET]",
            help="A task that waits; or what one would want, like 2xA100:40G or node1::0.",
            autocompletion=complete.tasks,
            callback=named,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None, typer.Option("--target", "-t", metavar="TARGET", help="A target, also if a task is called so.")
    ] = None,
    gpus: Annotated[int | None, typer.Option(metavar="N", help="What if, as in submit; so are the others.")] = None,
    gpu_memory: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    gpu_type: Annotated[str | None, typer.Option(metavar="TYPE,...")] = None,
    gpu_share: Annotated[int | None, typer.Option(metavar="N")] = None,
    node: Annotated[list[str] | None, typer.Option(autocompletion=complete.nodes)] = None,
    exclude: Annotated[list[str] | None, typer.Option(metavar="NODE", autocompletion=complete.nodes)] = None,
    on: Annotated[list[str] | None, typer.Option(metavar="LABEL=VALUE")] = None,
    cores: Annotated[float | None, typer.Option()] = None,
    memory: Annotated[str | None, typer.Option(metavar="SIZE")] = None,
    exclusive: Annotated[bool, typer.Option("--exclusive")] = False,
    share: Annotated[bool, typer.Option("--share")] = False,
    policy: Annotated[str | None, typer.Option()] = None,
    priority: Annotated[int | None, typer.Option(metavar="N")] = None,
    owner: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    time_limit: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    signal_before: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    stop_grace: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    as_json: Json = False,
) -> None:
    """Say why a task does not start: what stands in the way on each node, what would help, and when it will start.

    Without a task, what would become of one: agentless explain 2x:40G --time-limit 2h
    """
    options = Options(
        gpus=gpus,
        gpu_memory=gpu_memory,
        gpu_type=gpu_type,
        gpu_share=gpu_share,
        node=node,
        exclude=exclude,
        on=on,
        cores=cores,
        memory=memory,
        exclusive=exclusive,
        share=share,
        policy=policy,
        priority=priority,
        owner=owner,
        time_limit=time_limit,
        signal_before=signal_before,
        stop_grace=stop_grace,
    )
    found = _found(client(context), task, target, options)
    if as_json:
        print_json(found)
        return
    print_line(found["summary"])
    for name in dict.fromkeys((*(each["node"] for each in found["obstacles"]), *found["remedies"])):
        for obstacle in found["obstacles"]:
            if obstacle["node"] == name:
                print_line(f"  {naming(name, obstacle['text'])}")
                for line in obstacle["details"]:
                    print_line(f"    {line}")
        if helps := found["remedies"].get(name):
            print_line(f"    it would fit: {'; or '.join(helps)}")


def _found(served: Client, word: str | None, target: str | None, options: Options) -> Any:
    """What there is to say of a task, or of what would become of one."""
    asked = any(value is not None and value is not False for value in options.values())
    if word is None and target is None and not asked:
        raise UsageError("name a task that waits, or say what one would want: agentless explain 2x:40G")
    if word is None or asked:
        return _what_if(served, tuple(filter(None, (word, target))), options)
    if target is not None:
        raise UsageError("a task and a --target are two questions; leave one of them out")
    try:
        return served.get(f"/v1/tasks/{word}/explain")
    except RequestFailed as error:
        # Any word might be the name of a node; this one was meant as a target if it looks like one, or if it is one.
        if error.error != "NotFound":
            raise
        try:
            return _what_if(served, (word,), options)
        except AgentlessError as other:
            raise (other if ":" in word or not isinstance(other, RequestFailed) else error) from None


def _what_if(served: Client, targets: tuple[str, ...], options: Options) -> Any:
    wanted = submission(("true",), targets, options, Outside(0.0, {}, lambda _: ()))
    return served.post("/v1/explain", wanted.request())
