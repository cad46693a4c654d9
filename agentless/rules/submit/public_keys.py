"""The public keys that a submit names, in files and as they are."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from agentless.errors import UsageError
from agentless.model.tasks.public_key import parse_public_key
from agentless.rules.submit.kinds import texts


def public_keys(
    files: str | Iterable[str], strings: str | Iterable[str], read_lines: Callable[[str], Iterable[str]]
) -> tuple[str, ...]:
    """One line per key, none twice; raises UsageError with the place of one that is none."""
    lines: list[str] = []
    for path in texts(files, "--public-key-file"):
        lines += _keys(read_lines(path), f"--public-key-file {path}")
    for text in texts(strings, "--public-key-string"):
        lines += _keys(text.split("\n"), "--public-key-string")
    return tuple(dict.fromkeys(lines))


def _keys(lines: Iterable[str], where: str) -> Iterator[str]:
    """The lines that are keys, as in authorized_keys(5): without comments."""
    written = [line.strip() for line in lines]
    found = [line for line in written if line and not line.startswith("#")]
    if not found:
        raise UsageError(f"{where}: no public key in it; give a file such as ~/.ssh/id_ed25519.pub")
    for line in found:
        try:
            parse_public_key(line)
        except UsageError as error:
            raise UsageError(f"{where}: {error}") from None
        yield line
