"""The records of envs, updated from the images on nodes, and the choice of what to prune."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from agentless.errors import NotFound, Refused
from agentless.model.images.env import EnvImage, EnvRecord, EnvRef, Sight, Version
from agentless.model.images.snapshot import is_snapshot
from agentless.rules.views.nearest import nearest

LEFT_FOR = 300.0
"""Seconds after which an unnamed result is a leftover. A result is named a moment after it is made."""


def with_seen_versions(records: Mapping[str, EnvRecord], seen: Mapping[str, Sight], now: float) -> dict[str, EnvRecord]:
    """The records, updated from some nodes. For other nodes, the earlier knowledge stays."""
    names = set(records)
    for sight in seen.values():
        names.update(image.ref.name for image in sight.images)
        names.update(container.env for container in sight.containers)
    return {name: _learned(name, records.get(name), seen, now) for name in names}


def _learned(name: str, known: EnvRecord | None, seen: Mapping[str, Sight], now: float) -> EnvRecord:
    record = known or EnvRecord(since=now)
    found: dict[int, list[tuple[str, EnvImage]]] = {}
    for node, sight in seen.items():
        for image in sight.images:
            if image.ref.name == name and image.ref.version is not None:
                found.setdefault(image.ref.version, []).append((node, image))
    versions: dict[int, Version] = {}
    for number in sorted({*record.versions, *found}):
        if version := _version(record.versions.get(number), found.get(number, []), seen):
            versions[number] = version
    homes = [node for node, sight in seen.items() if sight.container(name)]
    home = homes[0] if homes else None if record.home in seen else record.home
    if record.home in homes:
        home = record.home
    highest, unsettled = max(record.highest, *versions, 0), record.unsettled
    if highest > record.highest:
        unsettled = known is None or versions[highest].at < record.since
    return replace(record, highest=highest, home=home, versions=versions, unsettled=unsettled)


def _version(known: Version | None, found: list[tuple[str, EnvImage]], seen: Mapping[str, Sight]) -> Version | None:
    """The version with a number. If two images have the same number by accident, the older one counts."""
    elsewhere = tuple(node for node in known.nodes if node not in seen) if known else ()
    here = [(node, image) for node, image in found if known and known.is_image(image.id, image.content)]
    if known and (elsewhere or here):
        ids = {node: known.ids[node] for node in elsewhere if node in known.ids}
        return _with_nodes(replace(known, nodes=elsewhere, ids=ids), here)
    if not found:
        return None
    first = min((image for _, image in found), key=lambda image: (image.at, image.id))
    version = Version(first.id, first.size, first.message, first.by, first.at, content=first.content)
    return _with_nodes(version, [each for each in found if version.is_image(each[1].id, each[1].content)])


def _with_nodes(version: Version, found: list[tuple[str, EnvImage]]) -> Version:
    """The version, seen on these nodes too.

    An early record learns its content when most nodes that have it say the same, and none says other. Until then, only
    the known ids count.
    """
    said = [image.content for _, image in found if image.id == version.id and image.content]
    nodes = {*version.nodes, *(node for node, _ in found)}
    agreed = len(set(said)) == 1 and 2 * len(said) > len(nodes)
    return replace(
        version,
        nodes=tuple(sorted(nodes)),
        content=version.content or (said[0] if agreed else ""),
        ids={**version.ids, **{node: image.id for node, image in found if image.id != version.id}},
    )


def env_named(records: Mapping[str, EnvRecord], name: str) -> EnvRecord:
    """Find an env. Raises NotFound with the nearest name."""
    record = records.get(name)
    if record is None or not record.there:
        hint = nearest(name, [each for each, known in records.items() if known.there])
        raise NotFound(f"no env {name!r}{hint}; list envs with: agentless env list")
    return record


def version_named(records: Mapping[str, EnvRecord], ref: EnvRef) -> tuple[EnvRef, Version]:
    """Find a version, the current one by default. Raises NotFound or Refused."""
    record = env_named(records, ref.name)
    number = record.current if ref.version is None else ref.version
    if number is None:
        raise Refused(f"env {ref.name} has no version yet; save one with: agentless env save {ref.name}")
    if number not in record.versions:
        there = ", ".join(map(str, sorted(record.versions))) or "none"
        hint = nearest(str(number), map(str, record.versions))
        raise NotFound(f"env {ref.name} has no version {number}{hint}; versions: {there}")
    return EnvRef(ref.name, number), record.versions[number]


def assumed_words(name: str, number: int | None) -> str:
    """The message for an env whose current version is only assumed, with the fix."""
    return (
        f"env {name}: it is not recorded which version is current; assuming the newest, {number}. To confirm or "
        f"choose another version: agentless env rollback {name}:{number}"
    )


def next_number(record: EnvRecord, seen: Mapping[str, Sight], name: str) -> int:
    """The number of the next version: never used before in the records, or in any name on a node."""
    taken = [record.highest, *record.versions]
    for sight in seen.values():
        for word in sight.foreign:
            _, _, number = word.removeprefix("agentless/").partition(":")
            if word.startswith(f"agentless/{name}:") and number.isascii() and number.isdigit() and len(number) < 10:
                taken.append(int(number))
    return max(taken) + 1


def prunable(
    records: Mapping[str, EnvRecord],
    sight: Sight,
    now: float,
    *,
    used: Iterable[EnvRef] = (),
    busy: Iterable[str] = (),
    coming: Iterable[str] = (),
) -> tuple[str, ...]:
    """The images and containers of a node that can be pruned: versions before the current one, and leftovers.

    If the current version of an env is only assumed, its older versions are kept. `used` are the versions of live
    tasks, `busy` the envs with an operation under way, `coming` the ids of images that are being sent. `now` is by the
    node's clock. Images and containers of others are never returned.
    """
    wanted, left_alone = set(used), set(busy)
    bases = {container.image for container in sight.containers}
    old = [
        image.ref.image
        for image in sight.images
        if image.ref.name not in left_alone and image.ref not in wanted and image.id not in bases
        if _is_old(records.get(image.ref.name), image.ref)
    ]
    arriving = {
        *coming,
        *(id_ for name in left_alone if name in records for v in records[name].versions.values() for id_ in v.all_ids),
    }
    broken = [name for name, made in sight.leftovers.items() if now - made > LEFT_FOR]
    return (*old, *broken, *(held for held, image in sight.partial.items() if image not in arriving))


def _is_old(record: EnvRecord | None, ref: EnvRef) -> bool:
    if is_snapshot(ref.name):
        return False
    current = record.current if record and not record.assumed else None
    return current is not None and ref.version is not None and ref.version < current
