"""All checks of a node, in order: each after those that it depends on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from agentless.model.nodes.check import SKIPPED, Check, VendorChecks, ok, skipped
from agentless.model.nodes.checkup import SYSTEM, Checkup, System
from agentless.model.nodes.cluster import Node
from agentless.rules.nodes.checks import connection, engine, gpus, machine, platform


def examine(node: Node, checkup: Checkup, vendor: VendorChecks, twin: str = "") -> tuple[Check, ...]:
    """The checks of `doctor` for a node. `twin`: it is another node's machine."""
    found = list(connection.checks(node.config, node.observation.error, checkup))
    if node.observation.error is not None:
        rest = ("docker", gpus.DRIVER, "toolkit")
        names = dict.fromkeys((*_expected(checkup), *machine.NAMES, *engine.NAMES, *rest))
        return (*found, *_skip(names, found))
    if twin:
        found.append(Check("identity", "failed", "another node is this machine", twin, words=twin))
    system = checkup.machine.system if checkup.machine else SYSTEM
    if checkup.machine:
        found += machine.checks(checkup.machine)
    elif checkup.silence:
        found.append(Check("answer", "failed", "does not answer", checkup.silence, words=checkup.silence))
    if node.observation.engine is None or node.observation.sample is None:
        return (*found, skipped("docker", node.reason))
    found += _engine(node, checkup, system, found)
    found += platform.checks(node, system)
    found += _gpus(node, vendor, found)
    return tuple(found)


def _expected(checkup: Checkup) -> tuple[str, ...]:
    """The checks of the connection that a node has."""
    return connection.NAMES if checkup.approach is not None else ("shell",)


def _engine(node: Node, checkup: Checkup, system: System, before: Sequence[Check]) -> Iterator[Check]:
    if _has_failed(before, "path", "flock"):
        yield from _skip(engine.NAMES, ())
        return
    user = node.config.user or (checkup.machine.user if checkup.machine else "")
    found = list(engine.access(node, checkup.engine, system, user)) if checkup.engine else []
    yield from found
    if not _has_failed(found):
        seen = node.observation.engine
        error, broken = (seen.error if seen else None), _breakdown(node)
        if error or (broken and node.observation.broken and node.observation.broken.fault != "gpus"):
            # Where only launches fail, the engine can still be asked how it is set up.
            failed = Check("docker", "failed", "does not work", error or broken, words=error or broken)
            found += [failed] if error else []
            yield failed
        else:
            yield ok("docker", engine.version(seen))
    if _has_failed(found):
        yield from _skip(engine.NAMES, found)
        return
    if checkup.engine:
        yield from engine.state(node, checkup.engine, system)
    yield from engine.limits(node, system)


def _gpus(node: Node, vendor: VendorChecks, before: Sequence[Check]) -> Iterator[Check]:
    if _has_failed(before, "path"):
        yield from _skip((gpus.DRIVER, "toolkit"), ())
        return
    yield from vendor.before
    drivers = (skipped(gpus.DRIVER, SKIPPED),) if _has_failed(vendor.before) else gpus.drivers(node)
    yield from drivers
    sample, well = node.observation.sample, all(check.verdict == "ok" for check in drivers)
    if well and sample and sample.gpus:
        yield from vendor.after
        yield from gpus.numa(node)
    if _has_failed(before, "flock", "command", "socket"):
        yield skipped("toolkit", SKIPPED)
        return
    if not well and not (sample and sample.gpus):
        yield skipped("toolkit", SKIPPED)
        return
    docker_failed = _has_failed(before, "docker")
    broken = "" if docker_failed else _breakdown(node)
    yield gpus.toolkit(node, broken, vendor.install)


def _breakdown(node: Node) -> str:
    """Why launches on a node fail, and what follows. Empty if they do not."""
    broken = node.observation.broken
    if not broken:
        return ""
    return f"{broken.reason}; after the fix, run: agentless nodes resume {node.name} (or let a task try the node)"


def _skip(names: Iterable[str], found: Iterable[Check]) -> Iterator[Check]:
    """The others of these checks."""
    there = {check.name for check in found}
    yield from (skipped(name, SKIPPED) for name in names if name not in there)


def _has_failed(found: Iterable[Check], *names: str) -> bool:
    """Whether one of these checks failed, of all if none is named."""
    return any(check.verdict == "failed" and (not names or check.name in names) for check in found)
