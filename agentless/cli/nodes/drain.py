"""`agentless nodes drain` and `resume`: start nothing new on a node, and end that."""

from __future__ import annotations

from typing import Annotated

import typer

from agentless.cli import complete
from agentless.cli.app import complain
from agentless.cli.arguments import NodeArgument, path_words
from agentless.cli.client import client
from agentless.cli.output import Quiet, confirm_done, say
from agentless.cli.progress import progress
from agentless.client.client import Client
from agentless.client.words import running
from agentless.errors import AgentlessError

_Nodes = Annotated[
    list[str], typer.Argument(metavar="NODE...", help="Node names", autocompletion=complete.nodes, callback=path_words)
]


def drain(
    context: typer.Context,
    nodes: _Nodes,
    reason: Annotated[str | None, typer.Option(metavar="TEXT", help="Reason, shown to everybody")] = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until no task runs there")] = False,
    _: Quiet = False,
) -> int:
    """Start no new tasks on nodes, until you resume them.

    Running tasks keep running. Undo with: agentless nodes resume NODE
    """
    served = client(context)
    code, drained = 0, dict[str, str]()
    for node in nodes:
        try:
            found = served.post(f"/v1/nodes/{node}/drain", {"reason": reason})
        except AgentlessError as error:
            complain(str(error))
            code = code or error.exit_code
        else:
            drained[node] = running(found)
            confirm_done(f"{node}: drained, {drained[node]}")
    try:
        for node, said in drained.items() if wait else ():
            _until_empty(served, node, said)
    except KeyboardInterrupt:
        say("", f"Still drained: {', '.join(drained)}. To resume: agentless nodes resume NODE")
        raise
    return code


def resume(
    context: typer.Context,
    node: NodeArgument,
    gpu: Annotated[int | None, typer.Option(metavar="N", min=0, help="Only this GPU")] = None,
    drain_only: Annotated[bool, typer.Option("--drain-only", help="Unhealthy GPUs stay out")] = False,
    _: Quiet = False,
) -> None:
    """Use a drained node and its unhealthy GPUs again."""
    found = client(context).post(f"/v1/nodes/{node}/resume", {"gpu": gpu, "drain_only": drain_only})
    for words in found["lifted"]:
        confirm_done(f"{node}: resumed ({words})")
    if not found["lifted"]:
        what = "not drained" if drain_only else "not drained, and no GPU is unhealthy"
        if gpu is not None:
            what = f"GPU {gpu} is not unhealthy"
        confirm_done(f"{node}: nothing to resume; {what}")


def _until_empty(served: Client, node: str, said: str) -> None:
    """Wait until no task runs there; `said` is what was printed about it last."""
    with progress(f"Waiting until {node} is empty"):
        for found in served.until_empty(node):
            if found["tasks"] == 0:
                confirm_done(f"{node}: empty")
            elif (words := running(found)) != said:
                say(f"{node}: {words}")
                said = words
