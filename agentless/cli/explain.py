"""`agentless explain`: why a task does not start, what would help, and what would become of one."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless.cli import complete
from agentless.cli.common import Json, client, named, print_json
from agentless.errors import UsageError
from agentless.rules.options import Options, Outside, submission


def add_to(app: typer.Typer) -> None:
    """Add the verb."""
    app.command()(explain)


def explain(
    context: typer.Context,
    task: Annotated[
        str | None,
        typer.Argument(
            metavar="[TASK]",
            help="A task that waits.",
            autocompletion=complete.tasks,
            callback=named,
            show_default=False,
        ),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option("--target", "-t", metavar="TARGET", help="What if one wanted this, like 2xA100:40G or node1::0?"),
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
    time_limit: Annotated[str | None, typer.Option(metavar="TIME")] = None,
    priority: Annotated[int, typer.Option(metavar="N")] = 0,
    as_json: Json = False,
) -> None:
    """Say why a task does not start: what stands in the way on each node, what would help, and when it will start.

    Without a task, what would become of one with these options: agentless explain --gpus 2 --gpu-memory 40G
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
        time_limit=time_limit,
        priority=priority,
    )
    asked = target is not None or any(options.values())
    if (task is not None) == asked:
        raise UsageError("name a task that waits, or say what one would want: agentless explain --gpus 2")
    if task is not None:
        found = client(context).get(f"/v1/tasks/{task}/explain")
    else:
        wanted = submission(("true",), () if target is None else (target,), options, Outside(0.0, {}, lambda _: ()))
        found = client(context).post("/v1/explain", wanted.request())
    if as_json:
        print_json(found)
        return
    print(found["summary"])
    for name in dict.fromkeys((*(each["node"] for each in found["obstacles"]), *found["remedies"])):
        for obstacle in found["obstacles"]:
            if obstacle["node"] == name:
                text = obstacle["text"]
                print(f"  {text}" if text.startswith(f"{name} ") else f"  {name}: {text}")
                for line in obstacle["details"]:
                    print(f"    {line}")
        if helps := found["remedies"].get(name):
            print(f"    it would fit: {'; or '.join(helps)}")
