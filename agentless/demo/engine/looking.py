"""The subcommands of the simulated `docker` that only read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import groupby

from agentless.demo.calls import Call
from agentless.demo.engine.container import SimulatedContainer, rfc3339
from agentless.demo.engine.engine import VERSION, Complaint, SimulatedEngine
from agentless.demo.engine.go_template import render
from agentless.demo.engine.words import Words

_STATES = ("created", "running", "paused", "restarting", "removing", "exited", "dead")


async def version(_engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Print that this is a simulation, and the version it follows."""
    server = {"Server": {"Version": VERSION}, "Client": {"Version": VERSION}}
    await call.print(render(words.last("--format", "Docker {{.Server.Version}}: a simulation by agentless"), server))
    return 0


async def info(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Print the properties of the engine."""
    running = sum(container.live for container in engine.containers.values())
    facts: dict[str, object] = {
        "ServerVersion": VERSION,
        "Runtimes": {"nvidia": {"path": "nvidia-container-runtime"}, "runc": {"path": "runc"}},
        "MemoryLimit": engine.cgroups != "none",
        "CpuCfsQuota": engine.cgroups != "none",
        "CPUSet": engine.cgroups != "none",
        "CgroupDriver": engine.cgroups,
        "CgroupVersion": "1",
        "Driver": "overlay2",
        "DriverStatus": [["Backing Filesystem", "extfs"]],
        "SecurityOptions": [],
        "SystemTime": rfc3339(engine.clock.now()),
        "ID": engine.id,
        "DockerRootDir": str(engine.root),
        "Containers": len(engine.containers),
        "ContainersRunning": running,
    }
    await call.print(render(words.last("--format", "Server Version: {{.ServerVersion}}"), facts))
    return 0


async def ps(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """List containers, the newest first; those that have ended only with --all or when asked for by status."""
    filters = [entry.partition("=")[::2] for entry in words.options.get("--filter", ())]
    asked = {value for key, value in filters if key == "status"}
    for key, value in filters:
        if key not in ("label", "status", "name", "id"):
            raise Complaint(f"Error response from daemon: Invalid filter '{key}'")
        if key == "status" and value not in _STATES:
            raise Complaint(f"Error response from daemon: Invalid filter 'status={value}'")
    names = [re.compile(value) for key, value in filters if key == "name"]
    ids = tuple(value for key, value in filters if key == "id")
    labels = [value for key, value in filters if key == "label"]
    states = asked or (set(_STATES) if "--all" in words.options else {"running", "paused", "restarting"})
    template = "{{.ID}}" if "--quiet" in words.options else words.last("--format", "{{.ID}}  {{.State}}  {{.Names}}")
    lines = []
    for container in reversed(engine.containers.values()):
        name = container.config.name
        if (
            container.state in states
            and all(_has_label(container.config.labels, label) for label in labels)
            and (not ids or container.id.startswith(ids))
            and (not names or any(pattern.search(n) for pattern in names for n in (name, f"/{name}")))
        ):
            facts = {
                "ID": container.id if "--no-trunc" in words.options else container.id[:12],
                "Names": name,
                "State": container.state,
                "Status": _status(container, engine.clock.now()),
                "Image": container.config.image,
                "Labels": container.config.labels,
                "CreatedAt": rfc3339(container.created),
            }
            lines.append(render(template, facts) + "\n")
    await call.write(1, "".join(lines).encode("utf-8", "surrogateescape"))
    return 0


def _status(container: SimulatedContainer, now: int) -> str:
    """The state as a person reads it: how long, and with what end."""
    match container.state:
        case "created":
            return "Created"
        case "exited":
            return f"Exited ({container.exit_code}) {(now - container.finished) // 10**9} seconds ago"
        case state:
            return f"Up {(now - container.started) // 10**9} seconds" + (" (Paused)" if state == "paused" else "")


def _has_label(labels: Mapping[str, str], asked: str) -> bool:
    key, equals, value = asked.partition("=")
    found = labels.get(key)
    return found == value if equals else found is not None


async def inspect(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Print containers as JSON or by a template, one per line."""
    found, missing = [], []
    for reference in words.rest:
        if container := engine.find(reference):
            found.append(container.inspect())
        else:
            missing.append(f"Error: No such object: {reference}")
    if "--format" in words.options:
        text = "\n".join(render(words.last("--format"), facts) for facts in found)
    else:
        text = json.dumps(found, indent=4)
    await call.print(text)
    if missing:
        await call.complain("\n".join(missing))
    return 1 if missing else 0


async def logs(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Print the log of a container, each line on its stream."""
    container = engine.find(words.rest[0] if words.rest else "")
    if not container:
        raise Complaint(f"Error: No such container: {' '.join(words.rest)}")
    tail = words.last("--tail", "all")
    since = int(float(words.last("--since", "0")) * 1e9)
    timestamps = "--timestamps" in words.options
    # A value that is no number means all, as in Docker.
    async for batch in container.log.read(int(tail) if tail.isdigit() else None, since, "--follow" in words.options):
        for stream, lines in groupby(batch, key=lambda line: line.stream):
            stamped = (f"{rfc3339(line.time)} ".encode() + line.data if timestamps else line.data for line in lines)
            await call.write(stream, b"".join(stamped))
    return 0


async def events(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """What happens to containers from now on, and what has since `--since`, as far as the engine remembers."""
    template = words.last("--format", "{{.ID}} {{.Action}}")
    since = float(words.last("--since", "inf")) * 1e9
    labels = [e.partition("=")[2] for e in words.options.get("--filter", ()) if e.startswith("label=")]
    with engine.events() as events:
        recent = [event for event in engine.recent if event["TimeNano"] >= since]
        while True:
            event = recent.pop(0) if recent else await events.get()
            if all(_has_label(event["Actor"]["Attributes"], label) for label in labels):
                await call.print(render(template, event))
