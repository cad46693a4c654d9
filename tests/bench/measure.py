"""Pairs of measurements and what follows from them: rows of a table."""

from __future__ import annotations

import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Side = Callable[[], float]
"""Does the thing once, cleans up after it, and gives the seconds that the thing itself took."""
Pairs = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One figure with its bound. `passed` is None when it could not be measured: `measured` says why."""

    what: str
    bound: str
    measured: str
    passed: bool | None = None

    def __str__(self) -> str:
        verdict = {True: "PASS", False: "MISS", None: "NOT RUN"}[self.passed]
        return f"| {self.what} | {self.bound} | {self.measured} | {verdict} |"


def paired(ours: Side, theirs: Side, runs: int) -> Pairs:
    """Both in turn: whatever else the machine does meets either. One try of each goes before and does not count."""
    ours(), theirs()
    return [(ours(), theirs()) for _ in range(runs)]


def ratio(what: str, most: float, pairs: Pairs) -> Row:
    """The median of the pairs' ratios, with the half of them around it and the two medians."""
    ratios = [a / b for a, b in pairs]
    form = ".2f" if most >= 1 else ".3f"
    times = " : ".join(milliseconds(statistics.median(side)) for side in zip(*pairs, strict=True))
    found = statistics.median(ratios)
    measured = f"**{found:{form}} ×** ({_middle_half(ratios, form)}; {times}; n={len(pairs)})"
    return Row(what, f"≤ {most:g} ×", measured, found <= most)


def difference(what: str, most: float, bound: str, pairs: Pairs) -> Row:
    """The median of the pairs' differences; `most` in seconds, `bound` in words."""
    differences = [1e3 * (a - b) for a, b in pairs]
    times = " - ".join(milliseconds(statistics.median(side)) for side in zip(*pairs, strict=True))
    found = statistics.median(differences)
    measured = f"**{found:.1f} ms** ({_middle_half(differences, '.1f')}; {times}; n={len(pairs)})"
    return Row(what, bound, measured, found <= 1e3 * most)


def timed(argv: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> tuple[float, str]:
    """Run a program to its end: its seconds, and what it printed. Raises RuntimeError when it fails."""
    began = time.perf_counter()
    done = subprocess.run(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(argv)[:200]} ended with {done.returncode}: {done.stderr[-2000:]}")
    return seconds, done.stdout


def milliseconds(seconds: float) -> str:
    """As a table shows it."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.2f} s"


def _middle_half(values: Sequence[float], form: str) -> str:
    if len(values) < 4:
        return f"{min(values):{form}} … {max(values):{form}}"
    low, _, high = statistics.quantiles(values, n=4)
    return f"{low:{form}} … {high:{form}}"
