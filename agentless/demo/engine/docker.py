"""The `docker` command of a simulated node: what agentless says to an engine, and no more of it.

Messages and exit codes are those of Docker 20.10 on Debian 12, read off a real engine.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import NamedTuple

from agentless.demo.calls import Call
from agentless.demo.engine import changing, executing, looking
from agentless.demo.engine.engine import IMAGES, Complaint, SimulatedEngine
from agentless.demo.engine.go_template import BadTemplate, render
from agentless.demo.engine.words import Words, parse

_DOWN = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"


class Verb(NamedTuple):
    """A subcommand: its function, its options with a value, and its switches."""

    run: Callable[[SimulatedEngine, Words, Call], Awaitable[int]]
    options: frozenset[str]
    switches: frozenset[str] = frozenset()


async def docker(engine: SimulatedEngine, call: Call) -> int:
    """Run the subcommand of a call and print what Docker would; gives the exit code."""
    name, *words = call.words or ["--help"]
    command = _COMMANDS.get(name)
    if not command:
        await call.complain(
            f"docker: '{name}' is not a docker command, or the simulation does not support it.\nSee 'docker --help'"
        )
        return 1
    try:
        return await command.run(engine, parse(name, words, command.options, command.switches), call)
    except Complaint as complaint:
        await call.complain(str(complaint))
        return complaint.code
    except BadTemplate as error:
        await call.complain(f"failed to execute template: {error}")
        return 1


async def _images(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """List the images there are; of anything about files nothing is simulated."""
    listed = {f"sha256:{sha256(name.encode()).hexdigest()}": name for name in sorted(IMAGES)}
    match words.rest:
        case ["ls"] if "--quiet" in words.options and "--filter" not in words.options:
            await call.print("\n".join(listed))
            return 0
        case ["inspect", *ids] if ids and listed.keys() >= set(ids):
            for each in ids:
                facts = {"RepoTags": [listed[each]], "Size": 100_000_000, "Config": {"Entrypoint": None}}
                await call.print(render(words.last("--format"), facts))
            return 0
    return await _no_files(engine, words, call)


async def _copy(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """Take files for a container that has not been started, and drop them; of no other copy anything is simulated."""
    match words.rest:
        case ["-", to] if (found := engine.find(to.partition(":")[0])) and found.state == "created":
            return 0
    return await _no_files(engine, words, call)


async def _volume(engine: SimulatedEngine, words: Words, call: Call) -> int:
    """List the volumes: there are none."""
    del engine, call
    if words.rest[:1] == ["ls"]:
        return 0
    if words.rest[:1] == ["inspect"]:
        raise Complaint(f"Error: No such volume: {' '.join(words.rest[1:])}")
    raise Complaint("simulated nodes have no volumes: --volume needs a real engine")


async def _unchanging(engine: SimulatedEngine, words: Words, call: Call) -> int:
    del engine, words, call
    raise Complaint("simulated containers stay as they are: resize and snapshots need a real engine")


async def _no_files(engine: SimulatedEngine, words: Words, call: Call) -> int:
    del engine, words, call
    raise Complaint("simulated nodes cannot receive files: --upload and agentless run need a real engine")


async def docker_without_engine(call: Call) -> int:
    """Print what Docker prints if its engine does not run."""
    match call.words:
        case ["run", *_]:
            await call.complain(f"docker: {_DOWN}.\nSee 'docker run --help'.")
            return 125
        case ["info", "--format", template]:
            # It asks the engine and reports that it could not, which is an answer.
            await call.print(render(template, {"ServerErrors": [_DOWN]}))
            return 0
        case _:
            await call.complain(_DOWN)
            return 1


_FORMAT = frozenset({"--format"})
_RUN_OPTIONS = (
    "--name --label --env --gpus --device --pull --workdir --mount --entrypoint "
    # What follows is taken and changes nothing: a simulation has no limits, users or networks.
    "--cgroup-parent --cpus --cpuset-cpus --cpuset-mems --hostname --memory --network --shm-size --stop-timeout --user"
)
_COMMANDS: dict[str, Verb] = {
    "version": Verb(looking.version, _FORMAT),
    "info": Verb(looking.info, _FORMAT),
    "ps": Verb(looking.ps, frozenset({"--format", "--filter"}), frozenset({"--all", "--quiet", "--no-trunc"})),
    "image": Verb(_images, _FORMAT | {"--filter"}, frozenset({"--quiet", "--no-trunc"})),
    "volume": Verb(_volume, _FORMAT | {"--filter", "--label"}),
    "update": Verb(_unchanging, frozenset({"--cpus", "--cpuset-cpus", "--memory", "--memory-swap"})),
    "container": Verb(_unchanging, _FORMAT | {"--filter"}),
    "inspect": Verb(looking.inspect, _FORMAT),
    "logs": Verb(looking.logs, frozenset({"--tail", "--since"}), frozenset({"--follow", "--timestamps"})),
    "events": Verb(looking.events, frozenset({"--format", "--filter", "--since"})),
    "run": Verb(changing.run, frozenset(_RUN_OPTIONS.split()), frozenset({"--detach", "--privileged"})),
    "cp": Verb(_copy, frozenset(), frozenset({"--follow-link"})),
    "create": Verb(changing.create, frozenset(_RUN_OPTIONS.split()), frozenset({"--privileged"})),
    "start": Verb(changing.start, frozenset()),
    "stop": Verb(changing.stop, frozenset({"--time"})),
    "restart": Verb(changing.restart, frozenset({"--time"})),
    "rename": Verb(changing.rename, frozenset()),
    "pull": Verb(changing.pull, frozenset(), frozenset({"--quiet"})),
    "kill": Verb(changing.kill, frozenset({"--signal"})),
    "exec": Verb(executing.execute, frozenset({"--detach-keys"}), frozenset({"--interactive", "--tty"})),
    "pause": Verb(changing.pause, frozenset()),
    "unpause": Verb(changing.unpause, frozenset()),
    "rm": Verb(changing.rm, frozenset(), frozenset({"--force", "--volumes"})),
}
