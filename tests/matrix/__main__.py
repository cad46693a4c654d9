"""`python -m tests.matrix [ENGINE …] [--only COMMAND] [--write]`: every command on each engine, and a table of it.

Exits with 1 unless everything works, or is refused with the sentence that is known.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.lab import Lab, requirements
from tests.lab.roots import root_of
from tests.matrix import together
from tests.matrix.commands import COMMANDS, Scene
from tests.matrix.engines import ENGINES, Engine
from tests.matrix.table import PAGE, Cell, Column, write
from tests.real.cli import Cli, until


def main() -> int:
    """Run what is asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.matrix", description=__doc__)
    parser.add_argument(
        "engines", nargs="*", metavar="ENGINE", help="part of a name: " + "; ".join(each.name for each in ENGINES)
    )
    parser.add_argument("--only", default="", help="part of a row: " + "; ".join(COMMANDS))
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.name}, which needs all of them")
    given = parser.parse_args()
    wanted = [each for each in ENGINES if not given.engines or any(part in each.name for part in given.engines)]
    columns = []
    for engine in wanted:
        print(engine.name, file=sys.stderr, flush=True)
        suite = engine.kind.suite if engine.kind else ""
        if missing := requirements(podman=engine.podman, suite=suite):
            print(f"  not run: {'; '.join(missing)}", file=sys.stderr)
            continue
        if suite:
            root_of(suite)
        columns.append(_column(engine, given.only))
    if given.write:
        write(columns)
    failed = []
    if len(columns) == len(ENGINES) and not given.only:
        print("all in one inventory", file=sys.stderr, flush=True)
        with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
            failed += together.problems(lab)
    failed += [
        f"{each.engine}: {row}: {cell.words}" for each in columns for row, cell in each.cells.items() if cell.bad
    ]
    print("\n".join(failed) or "all as it should be")
    return int(bool(failed) or len(columns) < len(wanted))


def _column(engine: Engine, only: str) -> Column:
    cells = {}
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        node = engine.node(lab)
        cli = Cli(lab, "main", _inventory(engine, lab))
        version = str(cli.node("n")["docker"])
        for row in (each for each in COMMANDS if only in each):
            began = time.monotonic()
            cells[row] = cell = _cell(engine, row, Scene(_clean(cli), node, _folder(lab)))
            mark = "FAILED" if cell.bad else "works" if not cell.words else "refused"
            words = f"  {row}: {mark} ({time.monotonic() - began:.1f} s) {cell.words}"
            print(words.replace("\n", " | "), file=sys.stderr, flush=True)
        cli.close()
    return Column(engine.name, engine.short, version, cells)


def _cell(engine: Engine, row: str, at: Scene) -> Cell:
    """What became of a command: nothing to say, or a sentence with which it was refused."""
    expected = engine.refuses.get(row)
    try:
        COMMANDS[row](at)
    except Exception as error:  # noqa: BLE001 - the next one is tried
        said = str(error)[-1500:] or repr(error)
        known = expected is not None and expected in said
        return Cell(_sentence(said, expected) if known and expected else said, bad=not known)
    return Cell("it was to be refused", bad=True) if expected else Cell()


def _sentence(said: str, part: str) -> str:
    """The sentence in an error that has these words."""
    lines = said.replace("\\n", "\n").splitlines()
    line = next(line for line in lines if part in line).partition("agentless: ")[2]
    return next(each for each in line.split("; ") if part in each).rpartition("n::0: ")[2].removeprefix("n: ")


def _clean(cli: Cli) -> Cli:
    """Nothing of an earlier command is left."""
    for task in cli.json("ps"):
        cli("kill", task["id"], code=None)
    for each in cli.get("/v1/vps"):
        cli("vps", "rm", each["name"], "--force", "--yes", code=None)
    for each in cli.get("/v1/envs"):
        cli("env", "rm", each["name"], "--force", code=None)
    until(lambda: [gpu["state"] for gpu in cli.get("/v1/gpus")] == ["free"] * 2)
    return cli


def _folder(lab: Lab) -> Path:
    folder = lab.root / "work"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


def _inventory(engine: Engine, lab: Lab) -> str:
    keys = f"{engine.inventory}, identity_file: {lab.identity}, image: lab/busybox"
    return f"version: 1\nnodes:\n  n: {{host: {lab.nodes['n'].host}, {keys}}}\n"


if __name__ == "__main__":
    sys.exit(main())
