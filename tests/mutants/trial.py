"""The pure ring against one mutant, in a process of its own: a fork of one that has imported all libraries before.

No file is touched: the mutant is what the import of its module gives.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.abc
import importlib.util
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any

import pytest
from hypothesis import Phase, settings

ROOT = Path(__file__).parents[2]
SHELLS = ("script", "crash", "screens", "store", "history", "render", "signals", "span_command", "archive", "log_store")
"""Parts of the names of tests that run shells or fill disks for seconds, and ask no decision that others do not ask."""
KEPT = ROOT / ".mutants"
OURS = ("agentless", "tests", "test_", "conftest", "__")


def pytest_words(*words: str) -> list[str]:
    """Hypothesis looks at few examples, and always at the same ones: what dies today dies tomorrow.

    It looks for no smaller one: the first that fails is enough.
    """
    few: dict[str, Any] = {"max_examples": 30, "derandomize": True, "phases": (Phase.explicit, Phase.generate)}
    settings.register_profile("mutants", database=None, deadline=None, **few)
    return ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "--hypothesis-profile=mutants", *words]


@dataclass
class Ran:
    """What a test runs: by file, the first lines of functions; and for how many seconds."""

    seconds: float
    functions: dict[str, list[int]] = field(default_factory=dict)


class Observer:
    """A plugin of pytest that notes which functions of some files each test runs."""

    def __init__(self, prefixes: Sequence[str]) -> None:
        self._prefixes = tuple(prefixes)
        self._seen: set[CodeType] = set()
        self.ran: dict[str, Ran] = {}

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterable[None]:
        """One test with its fixtures."""
        began = time.monotonic()
        self._seen.clear()
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        yield
        sys.setprofile(None)
        threading.setprofile(None)
        ran = self.ran.setdefault(item.nodeid.partition("[")[0], Ran(0.0))
        ran.seconds += time.monotonic() - began
        for code in self._seen:
            if code.co_filename.startswith(self._prefixes):
                lines = ran.functions.setdefault(code.co_filename, [])
                if code.co_firstlineno not in lines:
                    lines.append(code.co_firstlineno)

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            self._seen.add(frame.f_code)


def ring() -> list[str]:
    """The files of the pure ring that name something of these folders."""
    files = sorted((ROOT / "tests/pure").glob("test_*.py"))
    named = [file for file in files if re.search(r"agentless\.(rules|model)|tests\.pure\.build", file.read_text())]
    return [str(file.relative_to(ROOT)) for file in named if not any(part in file.name for part in SHELLS)]


def survey(prefixes: Sequence[str]) -> tuple[dict[str, Ran], list[str]]:
    """What each test runs, as they are, and the libraries that all of them have imported.

    It is kept until a file changes. Raises RuntimeError when a test fails.
    """
    files = sorted(file for folder in ("agentless", "tests/pure", "templates") for file in (ROOT / folder).rglob("*.*"))
    state = hashlib.sha256()
    for file in files:
        if file.suffix != ".pyc" and file.is_file():
            state.update(str(file).encode() + file.read_bytes())
    kept = KEPT / f"{state.hexdigest()[:16]}.json"
    if not kept.exists():
        KEPT.mkdir(exist_ok=True)
        for old in KEPT.iterdir():
            old.unlink()
        kept.write_text(_survey(prefixes))
    found, modules = json.loads(kept.read_text())
    return {name: Ran(*ran) for name, ran in found.items()}, modules


def _survey(prefixes: Sequence[str]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer")

        def run() -> int:
            observer = Observer(prefixes)
            code = pytest.main(pytest_words(f"--basetemp={folder}/tests", *ring()), plugins=[observer])
            found = {name: [ran.seconds, ran.functions] for name, ran in observer.ran.items()}
            answer.write_text(json.dumps([found, [name for name in sys.modules if not name.startswith(OURS)]]))
            return int(code)

        child = Child(run, Path(folder, "said"))
        if child.wait() != 0:
            raise RuntimeError(f"the tests fail as they are:\n{Path(folder, 'said').read_text()[-3000:]}")
        return answer.read_text()


def preload(modules: Iterable[str]) -> None:
    """Import libraries once for all that is forked from now on."""
    for name in modules:
        with contextlib.suppress(Exception):
            importlib.import_module(name)


class Child:
    """A fork of this process that does `run` and ends with what that gives; `said` takes its output."""

    def __init__(self, run, said: Path) -> None:
        self.began = time.monotonic()
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            self._be(run, said)

    def poll(self) -> int | None:
        """Its exit code, None while it runs."""
        if self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._over(status)
        return self.code

    def wait(self) -> int:
        """Its exit code in the end."""
        if self.code is None:
            self._over(os.waitpid(self.pid, 0)[1])
        assert self.code is not None
        return self.code

    def kill(self) -> None:
        """End it with what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def _over(self, status: int) -> None:
        self.kill()
        self.code = os.waitstatus_to_exitcode(status)

    def _be(self, run, said: Path) -> None:
        code = 70
        try:
            os.setsid()
            out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            for number in (1, 2):
                os.dup2(out, number)
            code = run()
        finally:
            sys.stdout.flush()
            os._exit(code)


def try_mutant(file: Path, tree: ast.Module, tests: Sequence[str], folder: Path) -> Child:
    """Start these tests against the module `file` as the tree has it."""
    code = compile(tree, str(file), "exec")

    def run() -> int:
        sys.meta_path.insert(0, _Finder(_module_name(file), file, code))
        return int(pytest.main(pytest_words(f"--basetemp={folder}/tests", *tests)))

    return Child(run, folder / "said")


def _module_name(file: Path) -> str:
    parts = list(file.relative_to(ROOT).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, name: str, file: Path, code: CodeType) -> None:
        self._name, self._file, self._code = name, file, code

    def find_spec(self, name, *_):
        if name != self._name:
            return None
        inside = [str(self._file.parent)] if self._file.name == "__init__.py" else None
        return importlib.util.spec_from_file_location(name, self._file, loader=self, submodule_search_locations=inside)

    def exec_module(self, module: ModuleType) -> None:
        exec(self._code, module.__dict__)
