"""Snapshots of VPS: the versions of an env of its own for each VPS, `dev.vps` for VPS `dev`."""

from __future__ import annotations

from agentless.errors import UsageError
from agentless.model.images.env import MAX_NAME, EnvRef, is_env_name, parse_ref

SUFFIX = ".vps"
ON_STOP = "snapshot-on-stop"
"""The author of a snapshot that was made because the VPS stopped. Older ones of these are removed."""


def snapshots_of(vps: str) -> str:
    """The env with the snapshots of a VPS."""
    return vps + SUFFIX


def is_snapshot(env: str) -> bool:
    """Whether the versions of an env are snapshots of a VPS."""
    return env.endswith(SUFFIX)


def parse_snapshot(text: str, vps: str | None = None) -> EnvRef:
    """`dev:2` as version 2 of `dev.vps`; `2` is of this VPS, and `dev` the newest of dev. Raises UsageError."""
    name, colon, number = text.partition(":")
    if vps and text.isascii() and text.isdigit():
        name, colon, number = vps, ":", text
    try:
        return parse_ref(snapshots_of(name.removesuffix(SUFFIX)) + colon + number)
    except UsageError:
        raise UsageError(f"snapshot {text[:80]!r}: use NAME:N, such as dev:2; see agentless vps snapshots") from None


def snapshot_words(ref: EnvRef) -> str:
    """`dev:2` for version 2 of `dev.vps`."""
    return str(EnvRef(ref.name.removesuffix(SUFFIX), ref.version))


def check_vps_name(name: str) -> str:
    """Check and return the name of a VPS. It names a host and an env, too. Raises UsageError."""
    if not is_env_name(snapshots_of(name)) or is_snapshot(name):
        most = MAX_NAME - len(SUFFIX)
        raise UsageError(
            f"VPS name {name[:80]!r}: use up to {most} lowercase letters and digits, with single '.', '_' or '-' "
            f"between them, and not {SUFFIX} at the end"
        )
    return name
