"""What `agentless doctor` prints for people: a line for a healthy node, and what is wrong with the others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from agentless.cli.output import has_colours, print_line
from agentless.cli.table import wrapped
from agentless.model.nodes.device import number_of
from agentless.model.text import printable
from agentless.model.units import format_indices

Row = dict[str, Any]
_MARKS = {"ok": "ok", "warning": "warn", "failed": "FAIL", "skipped": "-"}
_COLOURS = {"ok": 32, "warn": 33, "FAIL": 31, "-": 90}
_SUM = "reach"
"""The sum of the checks before it: a node that fails one of those fails it, too."""
_RUN = "run "
"""The checks of GPUs by a container begin with it, and have the number of the GPU after it."""
_LONG = 40
"""Characters of a text that is not repeated for each node."""


def by_node(found: Iterable[Row]) -> dict[str, list[Row]]:
    """The checks of each node, in order."""
    nodes: dict[str, list[Row]] = {}
    for check in found:
        nodes.setdefault(check["node"], []).append(check)
    return nodes


def merged(found: Sequence[Row], tried: Sequence[Row]) -> list[Row]:
    """The checks of each node, and after them those with a container."""
    more = by_node(tried)
    return [check for node, checks in by_node(found).items() for check in (*checks, *more.get(node, ()))]


def show(found: Sequence[Row], *, in_full: bool, hints: bool = True) -> None:
    """Print the checks; without `in_full` only those that are not ok, below a line for each node.

    `hints`: what to type for more.
    """
    nodes = by_node(found)
    wide = max(map(len, nodes))
    said: dict[tuple[str, ...], str] = {}
    for at, (node, checks) in enumerate(nodes.items()):
        verdicts = [verdict_of(check) for check in checks]
        shown = [check for check in checks if not _is_sum(check, verdicts)]
        verdicts = [verdict_of(check) for check in shown]
        if in_full and at:
            print_line("")
        worst = next(each for each in ("failed", "warning", "skipped", "ok") if each in verdicts)
        _line(f"{node:{wide}}  ", _MARKS[worst], _counts(verdicts))
        if not in_full:
            shown = [check for check in shown if is_bad(check) or _is_trial(check)]
        _checks(_as_before(_joined(shown), said), in_full=in_full)
    if hints and not in_full and any(verdict_of(check) != "ok" for check in found):
        print_line("Details: agentless doctor NODE")
        print_line("Scripts that mend: agentless doctor --fix (with warnings: --all)")


def verdict_of(check: Mapping[str, Any]) -> str:
    """The verdict, also of an early controller."""
    return check.get("verdict") or {True: "ok", False: "failed"}.get(check["ok"], "skipped")


def _is_sum(check: Row, verdicts: Sequence[str]) -> bool:
    return check["check"] == _SUM and check["ok"] is False and verdicts.count("failed") > 1


def _is_trial(check: Row) -> bool:
    """Whether it was asked for by --run."""
    return bool(check["check"] == "start" or check["check"].startswith("run"))


def _counts(verdicts: Sequence[str]) -> str:
    words = {"failed": "failed", "warning": "warning", "skipped": "skipped", "ok": "ok"}
    counts = {each: verdicts.count(each) for each in words}
    if counts["ok"] == len(verdicts):
        return f"{len(verdicts)} check{'s' * (len(verdicts) != 1)}"
    plural = {"warning": "s" * (counts["warning"] != 1)}
    return ", ".join(f"{count} {words[each]}{plural.get(each, '')}" for each, count in counts.items() if count)


def _joined(checks: Iterable[Row]) -> Iterator[Row]:
    """The checks; those of GPUs that say the same are one, and so are others that were skipped for the same reason."""

    def alike(check: Row) -> tuple[str, str, str]:
        verdict, name = verdict_of(check), check["check"]
        kind = _RUN if name.startswith(_RUN) else "" if verdict == "skipped" else name
        return kind, verdict, text_of(check)

    for (kind, _, text), same in groupby(checks, alike):
        first, *others = same
        names = [check["check"] for check in (first, *others)]
        if not others:
            yield first
        elif kind:
            yield {**first, "check": _RUN + format_indices(number_of(name.removeprefix(_RUN)) for name in names)}
        else:
            yield {**first, "check": "others", "seen": f"{', '.join(names)}: {text}"}


def _as_before(checks: Iterable[Row], said: dict[tuple[str, ...], str]) -> list[Row]:
    """The checks; what was `said` of a node before at length is only mentioned."""
    found = []
    for check in checks:
        text, node = text_of(check), check["node"]
        before = said.setdefault((check["check"], text, check.get("fix") or ""), node)
        is_long = is_bad(check) and len(text) > _LONG
        found.append(
            {**check, "wrong": f"as on {before}", "fix": "", "why": ""} if is_long and before != node else check
        )
    return found


def is_bad(check: Mapping[str, Any]) -> bool:
    """Whether something is wrong."""
    return verdict_of(check) in ("failed", "warning")


def text_of(check: Row) -> str:
    """What is wrong with it, or what was seen."""
    return str((check.get("wrong") if is_bad(check) else check.get("seen")) or check["detail"])


def _checks(checks: Sequence[Row], *, in_full: bool) -> None:
    names = max((len(check["check"]) for check in checks), default=0)
    for check in checks:
        verdict = verdict_of(check)
        indent = names + 10
        first, *others = wrapped(text_of(check), indent)
        _line(f"  {check['check']:{names}}  ", f"{_MARKS[verdict]:4}", first)
        for line in others:
            print_line(" " * indent + line)
        if verdict == "failed" or (is_bad(check) and in_full):
            _remedy(check, " " * indent, in_full=in_full)


def _remedy(check: Row, indent: str, *, in_full: bool) -> None:
    """The commands, which are not wrapped because they are there to be copied, and why it matters."""
    if in_full and (why := check.get("why")):
        for line in wrapped(why, len(indent)):
            print_line(indent + line)
    fix = (check.get("fix") or "").splitlines()
    if fix:
        place = "Run here:" if check.get("here") else f"Run on {check['node']}:"
        print_line(f"{indent}{place}")
        for line in fix:
            print_line(f"{indent}  {line}")


def _line(before: str, mark: str, after: str) -> None:
    word = mark.strip()
    shown = printable(before) + (f"\033[{_COLOURS[word]}m{mark}\033[0m" if has_colours() else mark)
    print(f"{shown}  {printable(after)}".rstrip())  # noqa: T201 - with a colour
