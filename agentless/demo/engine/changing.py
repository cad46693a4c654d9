"""The subcommands of the simulated `docker` that change something."""

from __future__ import annotations

import csv
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

from agentless.demo.calls import Call
from agentless.demo.engine.container import Config, SimulatedContainer
from agentless.demo.engine.engine import Complaint, SimulatedEngine
from agentless.demo.engine.words import Words


async def run(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Create a container and start it, in the background only."""
    if "--detach" not in words.options:
        raise Complaint("docker: the simulation runs containers in the background only; add --detach.", 125)
    container = await _create(engine, words, call)
    try:
        engine.start(container)
    except Complaint as complaint:
        raise Complaint(f"docker: Error response from daemon: {complaint}.", complaint.code) from None
    return 0


async def create(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Create a container that does not run yet."""
    await _create(engine, words, call)
    return 0


async def _create(engine: SimulatedEngine, words: Words, call: Call) -> SimulatedContainer:
    """Create the container of a command line; prints its id."""
    if not words.rest:
        raise Complaint("\"docker run\" requires at least 1 argument.\nSee 'docker run --help'.")
    image, *command = words.rest
    if program := words.last("--entrypoint"):
        command = [program, *command]
    env = {}
    for entry in words.options.get("--env", ()):
        name, equals, value = entry.partition("=")
        if equals or name in call.env:
            env[name] = value if equals else call.env[name]
    try:
        _check(words)
        config = Config(
            name=words.last("--name") or f"nameless_{len(engine.containers)}",
            image=image if ":" in image.rpartition("/")[2] else f"{image}:latest",
            command=command or ["sh"],
            labels=words.pairs("--label"),
            env=env,
            workdir=words.last("--workdir", "/"),
            gpus=_devices(words.last("--gpus")),
            devices=words.options.get("--device", ()),
        )
        container = engine.create(config)
    except Complaint as complaint:
        raise Complaint(f"docker: Error response from daemon: {complaint}.\nSee 'docker run --help'.", 125) from None
    await call.print(container.id)
    return container


def _check(words: Words) -> None:
    if not words.last("--workdir", "/").startswith("/"):
        bad = words.last("--workdir")
        raise Complaint(f"the working directory '{bad}' is invalid, it needs to be an absolute path")
    for record in words.options.get("--mount", ()):
        if record.startswith("type=volume"):
            raise Complaint("simulated nodes have no volumes: --volume needs a real engine")
        for part in next(csv.reader([record])):
            key, _, path = part.partition("=")
            if key in ("source", "src") and not Path(path).exists():
                raise Complaint(f'invalid mount config for type "bind": bind source path does not exist: {path}')


def _devices(text: str) -> list[str]:
    """The GPUs of `--gpus`: one CSV record, in which a list of devices is one quoted field."""
    if not text:
        return []
    match next(csv.reader([text])):
        case [field] if field.startswith("device="):
            return field.removeprefix("device=").split(",")
        case _:
            raise Complaint("cannot set both Count and DeviceIDs on device request")


async def start(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Start a container that does not run: a created one, or once more one that has ended."""

    async def begin(reference: str) -> None:
        try:
            engine.start(_found(engine, reference))
        except Complaint as complaint:
            failed = f"\nError: failed to start containers: {reference}"
            raise Complaint(f"Error response from daemon: {complaint}{failed}") from None

    return await _each(words, call, begin)


async def stop(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Stop a container with TERM, after some seconds with KILL."""
    return await _stopping(engine.stop, "stop", engine, words, call)


async def restart(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Stop a container, and start it again."""
    return await _stopping(engine.restart, "restart", engine, words, call)


async def _stopping(
    change: Callable[[SimulatedContainer, float], Awaitable[None]],
    verb: str,
    engine: SimulatedEngine,
    words: Words,
    call: Call,
) -> int:
    grace = float(words.last("--time", "10"))

    async def stop(reference: str) -> None:
        try:
            await change(_found(engine, reference), grace)
        except Complaint as complaint:
            raise Complaint(f"Error response from daemon: Cannot {verb} container {reference}: {complaint}") from None

    return await _each(words, call, stop)


async def rename(engine: SimulatedEngine, words: Words, _call: Call) -> int:
    """Give a container another name."""
    match words.rest:
        case [reference, name]:
            try:
                engine.rename(_found(engine, reference), name)
            except Complaint as complaint:
                raise Complaint(f"Error response from daemon: {complaint}") from None
            return 0
        case _:
            raise Complaint("\"docker rename\" requires exactly 2 arguments.\nSee 'docker rename --help'.")


async def pull(_engine: SimulatedEngine, words: Words, _call: Call) -> int:
    """Fail: there is no registry."""
    raise Complaint(f"Error response from daemon: a simulated node has no registry to pull {' '.join(words.rest)} from")


async def _each(words: Words, call: Call, change: Callable[[str], Awaitable[None]]) -> int:
    """Change containers one after the other; an error of one does not stop the rest."""
    code = 0
    for reference in words.rest:
        try:
            await change(reference)
            await call.print(reference)
        except Complaint as complaint:
            await call.complain(str(complaint))
            code = code or complaint.code
    return code


def _found(engine: SimulatedEngine, reference: str) -> SimulatedContainer:
    container = engine.find(reference)
    if not container:
        raise Complaint(f"No such container: {reference}")
    return container


async def kill(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Send a signal to containers."""
    name = words.last("--signal", "KILL")
    number = _signal(name)
    if not number:
        raise Complaint(f"Error response from daemon: Invalid signal: {name}")

    async def kill(reference: str) -> None:
        try:
            engine.kill(_found(engine, reference), number)
        except Complaint as complaint:
            raise Complaint(f"Error response from daemon: Cannot kill container: {reference}: {complaint}") from None

    return await _each(words, call, kill)


def _signal(name: str) -> signal.Signals | None:
    try:
        return signal.Signals(int(name)) if name.isdigit() else signal.Signals[f"SIG{name.upper().removeprefix('SIG')}"]
    except (KeyError, ValueError):
        return None


async def pause(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Pause containers."""
    return await _freezing(engine.pause, engine, words, call)


async def unpause(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Resume containers."""
    return await _freezing(engine.unpause, engine, words, call)


async def _freezing(
    change: Callable[[SimulatedContainer], None], engine: SimulatedEngine, words: Words, call: Call
) -> int:
    async def freeze(reference: str) -> None:
        try:
            change(_found(engine, reference))
        except Complaint as complaint:
            raise Complaint(f"Error response from daemon: {complaint}") from None

    return await _each(words, call, freeze)


async def rm(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Remove containers."""
    force = "--force" in words.options

    async def remove(reference: str) -> None:
        container = engine.find(reference)
        if not container:
            raise Complaint(f"Error: No such container: {reference}", 0 if force else 1)
        try:
            await engine.remove(container, force)
        except Complaint as complaint:
            raise Complaint(f"Error response from daemon: {complaint}") from None

    return await _each(words, call, remove)
