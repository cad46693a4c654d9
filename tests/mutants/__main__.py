"""`make mutants`: whether the pure ring notices when a decision is changed.

One operator, number or condition in `rules/` or `model/` is changed at a time, and the tests that run its line have to
fail. A sample is tried, always the same one for the same seed. The exit code is 1 when less than 95 % are noticed.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.changes import Change, changes, mutated
from tests.mutants.trial import ROOT, Child, Ran, preload, survey, try_mutant

FOLDERS = ("agentless/rules", "agentless/model")
EXPLAINED = Path(__file__).with_name("explained.toml")
WANTED = 0.95
PATIENCE = 20.0
"""Seconds on top of ten times what its tests take, after which a mutant counts as one that does not end: noticed."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file; `number` is its place among those of the file."""

    file: str
    number: int
    change: Change

    def __str__(self) -> str:
        return f"{self.file}:{self.change.line}  {self.change}"


def all_mutants() -> list[Mutant]:
    """In the order of files and lines."""
    files = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
    return [
        Mutant(str(file.relative_to(ROOT)), number, change)
        for file in files
        for number, change in enumerate(changes(file.read_text()))
    ]


def explained(mutants: list[Mutant]) -> list[Mutant]:
    """Those that do what the original does, as it is written there with the reason."""
    with EXPLAINED.open("rb") as file:
        entries = tomllib.load(file)["equivalent"]

    def is_meant(mutant: Mutant, entry: dict[str, str]) -> bool:
        line = (ROOT / mutant.file).read_text().splitlines()[mutant.change.line - 1]
        same = (mutant.file, mutant.change.before, mutant.change.after)
        return same == (entry["file"], entry["before"], entry["after"]) and entry.get("within", "") in line

    return [mutant for mutant in mutants if any(is_meant(mutant, entry) for entry in entries)]


def tests_of(mutant: Mutant, ran: dict[str, Ran]) -> list[str]:
    """The tests that run its function, the quickest first; of what is run at the import, all that run the module.

    Of a module without functions, those whose file names it.
    """
    path, around = str(ROOT / mutant.file), set(mutant.change.functions)
    found = {name: each for name, each in ran.items() if not around.isdisjoint(each.functions.get(path, ()))}
    if not around:
        found = {name: each for name, each in ran.items() if path in each.functions}
    if not around and not found:
        module = mutant.file.removesuffix(".py").replace("/", ".")
        found = {name: each for name, each in ran.items() if module in Path(name.partition("::")[0]).read_text()}
    return sorted(found, key=lambda name: found[name].seconds)


class Trials:
    """Mutants, so many at a time."""

    def __init__(self, ran: dict[str, Ran], folder: Path) -> None:
        self._ran, self._folder = ran, folder
        self.unnoticed: list[Mutant] = []
        self.endless = 0

    def run(self, mutants: list[Mutant], at_once: int) -> None:
        """Try them all."""
        waiting, live = list(reversed(mutants)), dict[Child, tuple[Mutant, float, Path]]()
        while waiting or live:
            while waiting and len(live) < at_once:
                mutant = waiting.pop()
                tests = tests_of(mutant, self._ran)
                if not tests:
                    self._note(mutant, "no test runs it")
                    continue
                folder = Path(tempfile.mkdtemp(dir=self._folder))
                source = (ROOT / mutant.file).read_text()
                child = try_mutant(ROOT / mutant.file, mutated(source, mutant.number), tests, folder)
                limit = PATIENCE + 10 * sum(self._ran[name].seconds for name in tests)
                live[child] = (mutant, limit, folder)
            for child, (mutant, limit, folder) in list(live.items()):
                if child.poll() is None and time.monotonic() - child.began > limit:
                    self.endless += 1
                    child.kill()
                    child.wait()
                elif child.code == 0:
                    self._note(mutant, "all tests pass")
                elif child.code is None:
                    continue
                del live[child]
                shutil.rmtree(folder, ignore_errors=True)
            time.sleep(0.02)

    def _note(self, mutant: Mutant, why: str) -> None:
        self.unnoticed.append(mutant)
        print(f"  {mutant}  ({why})", flush=True)


def main() -> int:
    """Try a sample, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description="Try mutants of rules/ and model/.")
    parser.add_argument("--sample", type=int, default=220, help="how many (default: 220)")
    parser.add_argument("--all", action="store_true", help="all of them: hours")
    parser.add_argument("--seed", type=int, default=1, help="which (default: 1)")
    parser.add_argument("--only", default="", metavar="TEXT", help="those whose file:line contains this")
    parser.add_argument("--at-once", type=int, default=os.cpu_count() or 1, help="(default: the number of processors)")
    arguments = parser.parse_args()
    os.chdir(ROOT)
    os.nice(19)
    every = [each for each in all_mutants() if arguments.only in f"{each.file}:{each.change.line}:"]
    chosen = every
    if not arguments.all and len(every) > arguments.sample:
        chosen = random.Random(arguments.seed).sample(every, arguments.sample)
    print(f"{len(chosen)} of {len(every)} mutants; first the tests as they are ...", flush=True)
    ran, modules = survey([str(ROOT / folder) for folder in FOLDERS])
    preload(modules)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trials = Trials(ran, Path(folder))
        trials.run(chosen, arguments.at_once)
    equal = explained(trials.unnoticed)
    survivors = [each for each in trials.unnoticed if each not in equal]
    killed = len(chosen) - len(trials.unnoticed)
    rate = killed / max(1, len(chosen) - len(equal))
    print(
        f"{len(chosen)} mutants in {time.monotonic() - began:.0f} s: {killed} killed, {trials.endless} of them endless"
    )
    print(f"{len(equal)} explained, {len(survivors)} survivors: {100 * rate:.1f} % of those not explained are killed")
    for each in survivors:
        print(f"  {each}")
    return int(rate < WANTED)


if __name__ == "__main__":
    sys.exit(main())
