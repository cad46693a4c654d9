"""Messages of tar, rsync and shells during a copy, as sentences."""

from __future__ import annotations

import re

_GOOD_RSYNC = re.compile(rb"rsync +version v?3\.(1\.([3-9]|[1-9][0-9])|([2-9]|[1-9][0-9])\.)")
"""The first version with all options that are used. The rsync of macOS lacks some."""
LEFT_OUT = ": socket ignored"
"""The end of messages about files that tar leaves out while its exit code is 0."""
_FULL = re.compile(r"No space left on device|Disk quota exceeded|Wrote only \d+ of \d+ bytes", re.IGNORECASE)
_NO_TAR = re.compile(r"tar'?: ((command )?not found|inaccessible or not found)")
_EMPTY = re.compile(
    r"rsync error: |rsync: connection unexpectedly closed|rsync: \[\w+\] connection unexpectedly closed"
    r"|rsync: (\[\w+\] )?(write error|writefd_unbuffered failed to write .*): (Broken pipe|Connection reset)"
    r"|tar: (Exiting|Error is not recoverable|Child returned|Unexpected EOF)"
    r"|tar: (short read|unexpected end of file)"
)
_RSYNC = re.compile(r'rsync: (?:\[\w+\] )?.*?"(?P<path>.*)"(?: \(in .*\))?.*?: (?P<why>[^:]+?)(?: \(\d+\))?')
_TAR = re.compile(r"(?:/\S*/)?(?:tar|mkdir|mv|rm|chmod|cd|sh|bash|dash|ash|-sh): (?:(?:line )?\d+: )?(?P<rest>.+)")


def is_good_rsync(words: bytes) -> bool:
    """Whether the output of `rsync --version` is of a usable version."""
    return _GOOD_RSYNC.match(words) is not None


def sentences(words: str, node: str, *, there: bool, name: str = "") -> list[str]:
    """The messages of a copy, one line each. Messages that only say that it failed are left out.

    `there`: files were written on the node, so a full disk is the node's. `name` replaces `t`, the name within the tar
    stream.
    """
    found = dict[str, None]()
    for line in map(str.strip, words.splitlines()):
        if not line or _EMPTY.match(line):
            continue
        if _NO_TAR.search(line):
            found[f"tar not found on {node}; install it there, or install rsync on both machines"] = None
        elif _FULL.search(line):
            found[f"the disk of {node} is full" if there else "the local disk is full"] = None
        elif match := _RSYNC.fullmatch(line):
            found[f"{match['path']}: {_lower(match['why'])}"] = None
        elif match := _TAR.fullmatch(line):
            found[_tidied(match["rest"], name)] = None
        else:
            found[line[:300]] = None
    return list(found)


def _tidied(text: str, name: str) -> str:
    """A message like `./t/x: Cannot open: Permission denied`, shortened."""
    text = re.sub(r"^(can't open|cannot (create directory|access|move|stat|open)) ", "", text, flags=re.IGNORECASE)
    text = re.sub(r"(Cannot \w+|can't \w+): ", "", text)
    text = re.sub(r"^['‘]?(\./)?(\.agentless-[0-9a-f]+/)?", "", text)
    text = re.sub(r"^\.agentless-[0-9a-f]+(?=[:'’])", "its folder", text)
    if name:
        text = re.sub(r"^t(?=[/:'’])", lambda _: name, text)
    return re.sub(r"['’]: ", ": ", text)[:300]


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]
