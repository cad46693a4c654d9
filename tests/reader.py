"""Somebody who types the commands of a page from top to bottom, and compares what is printed with what it says."""

from __future__ import annotations

import fnmatch
import re
import shlex
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.keyboard import at_terminal

WIDE = 200
"""Columns of the terminal: no row is cut."""
CTRL_C = "\x03"
ID = r"\b2[0-9a-z]{10}(?:-\d+)?\b|\br[0-9a-z]{4}\b(?=  )"
"""Of a task, or of a reservation."""
_PLAIN = re.compile(r"agentless(?! --install-completion)( ([\w./:@%+=,-]+|'[^']*'))*")
_BLOCK = re.compile(r"^```(sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
_SAME = (
    (ID, "ID"),
    (r"[\w.-]+@[\w.-]+( port \d+)?", "OWNER"),
    (r"\w+'s process \d+ \(.*?, ", "OWNER's process N (COMMAND, "),
    (r"(?<!\S)/[\w./-]+", "PATH"),
    (r"\[?\d+(\.\d+){3}(\]:\d+)?\b", "ADDRESS"),
    (r"SHA256:\S+|GPU-[0-9a-f-]{36}|\?token=\S+", "KEY"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?( ?UTC|Z|[+-]\d\d:\d\d)?|\w{3} \d\d-\d\d(?= )", "DATE"),
    (r"(Simulated|NVIDIA|RTX|[AH]100)( [\w-]+)*", "MODEL"),
    (r"<?[\d.,]*\d(-simulated)?", "N"),
    (r"N ?([KMGT]i?B?|B)\b", "SIZE"),
    (r"N[dhms]\b( N[hms]\b)*", "TIME"),
    (r"[▁▂▃▄▅▆▇█▏▎▍▌▋▊▉]+", "BAR"),
    (r"\s+", " "),
)
"""What may differ between two runs, and what is compared in its place."""


ON_ENGINES = frozenset(
    {
        "docs/how-to/files/copy.md",
        "docs/how-to/files/env.md",
        "docs/how-to/files/upload.md",
        "docs/how-to/files/volumes.md",
        "docs/how-to/nodes/doctor.md",
        "docs/how-to/run/folder.md",
        "docs/how-to/work/forward.md",
        "docs/how-to/work/interactive.md",
        "docs/how-to/work/notebook.md",
        "docs/how-to/work/ssh.md",
        "docs/how-to/work/vps.md",
    }
)
"""Pages about images and volumes, which simulated nodes do not have."""
ON_SYSTEMD = "docs/how-to/run/without-a-container.md"
"""A page about tasks of a systemd, which they do not have either."""
ON_AMD = "docs/how-to/nodes/amd.md"
"""A page about AMD GPUs, of which they have none."""
ON_PYTHON = "docs/how-to/run/train.md"
"""A page whose programs are real ones: it needs an image with Python."""


@dataclass(frozen=True)
class Step:
    """One command of a page, and what the page quotes below it."""

    line: int
    command: str
    quoted: str


@dataclass(frozen=True)
class Help:
    """What a command of a page needs besides itself.

    `first` is typed elsewhere before it. Of `keys`, each text is typed when the one before it is on the screen; if that
    begins with `$ `, it is a command that is typed elsewhere.
    """

    first: Sequence[str] = ()
    code: int = 0
    keys: Sequence[tuple[str, str]] = ()


def steps(text: str) -> Iterator[Step]:
    """The commands in the blocks for a shell, without comments. Only in a `console` is the rest output."""
    for block in _BLOCK.finditer(text):
        line = text.count("\n", 0, block.start(2)) + 1
        split = r"^(?=\$ )" if block[1] == "console" else r"^"
        for part in re.split(split, block[2], flags=re.MULTILINE):
            first, _, quoted = part.partition("\n")
            if command := re.sub(r"(^|\s+)#\s.*", "", first.removeprefix("$ ")).strip():
                yield Step(line, command, quoted)
            line += part.count("\n")


class Reader:
    """Reads one page in a folder. `meant` is what to type in place of words of the page.

    Ids in the page stand for those that its commands really get. Programs of the folder `before` come before those of
    the PATH, unless keys are typed for a command.
    """

    def __init__(
        self, env: Mapping[str, str], folder: Path, meant: Mapping[str, str], before: Path | None = None
    ) -> None:
        self._env, self._folder, self._words, self._before = env, folder, meant, before
        self._known: dict[str, str] = {}
        self._last = "TASK"

    def read(self, text: str, helps: Mapping[str, Help], skipped: Collection[str]) -> str:
        """Type all; gives what is not as the page says. `helps` has commands, or how they begin before a `*`."""
        wrong, unused = [], set(helps)
        for step in steps(text):
            if step.command not in skipped:
                fitting = [each for each in helps if step.command == each or _begins(step.command, each)]
                wrong += self._take(step, helps[fitting[0]] if fitting else Help())
                unused -= set(fitting)
        return "\n".join([*wrong, *(f"no such command: {each}" for each in unused)])

    def _take(self, step: Step, help_: Help) -> Iterator[str]:
        for each in help_.first:
            code, shown = self._type(self._meant(each), ())
            assert code == 0, f"{each}\n{shown}"
            self._learn("", shown)
        command = self._meant(step.command)
        code, shown = self._type(command, help_.keys)
        printed = [_same(line) for line in shown.splitlines()]
        missing = [line for line in step.quoted.splitlines() if not fnmatch.filter(printed, _pattern(line))]
        self._learn(step.quoted, shown)
        if code != help_.code:
            missing.append(f"(exit code {help_.code}, not {code})")
        if missing:
            yield "\n".join([f"line {step.line}: {command}", *missing, "    is not what is printed:", shown])

    def _type(self, command: str, keys: Sequence[tuple[str, str]]) -> tuple[int, str]:
        """Run a line of shell on a terminal. What it exports stays.

        Where a shell would do no more than to start our command, there is none.
        """
        left, is_plain = self._folder / ".left", _PLAIN.fullmatch(command)
        path = f"PATH={self._before}:$PATH" if self._before and not keys else ""
        argv = ["bash", "-c", f"{path}\n{command}\ncode=$?\nenv -0 >{left}\nexit $code"]
        if is_plain:
            argv = shlex.split(command)
        with at_terminal(argv, self._env, self._folder, (WIDE, 50)) as keyboard:
            place = 0
            for seen, typed in keys:
                place = keyboard.sees(seen.encode(), place)
                if typed.startswith("$ "):
                    self._type(self._meant(typed[2:]), ())
                else:
                    keyboard.type(typed.encode())
            code, shown = keyboard.ended(), keyboard.text()
        if not is_plain:
            self._env = dict(entry.split("=", 1) for entry in left.read_text().split("\0") if entry)
            self._env["PATH"] = self._env["PATH"].removeprefix(f"{self._before}:")
        return code, _screen(shown)

    def _meant(self, command: str) -> str:
        """The command with the ids of real tasks, and with dates that are to come."""
        for quoted, real in self._known.items():
            command = re.sub(rf"\b{quoted}\b|\b{quoted[:4]}\b", real, command)
        for word, meant in self._words.items():
            command = command.replace(word, meant)
        command = re.sub(r"\b(TASK|ID)\b(\.\.\.)?", self._last, command)
        return re.sub(r"\b20\d\d(?=-\d\d-\d\dT)", str(time.localtime().tm_year + 1), command)

    def _learn(self, quoted: str, shown: str) -> None:
        """Which tasks the ids of the page stand for, by their order; the last one is what TASK stands for."""
        ours = [each for each in dict.fromkeys(re.findall(ID, quoted)) if each not in self._known]
        theirs = [each for each in dict.fromkeys(re.findall(ID, shown)) if each not in self._known.values()]
        self._known |= dict(zip(ours, theirs, strict=False))
        if tasks := re.findall(rf"^(?:Batch )?({ID})", shown, re.MULTILINE):
            self._last = tasks[-1]


def _begins(command: str, pattern: str) -> bool:
    return pattern.endswith("*") and command.startswith(pattern.removesuffix("*"))


def _screen(text: str) -> str:
    """What stands there in the end: without lines that were overwritten, and without control sequences."""
    lines: list[str] = []
    for line in text.split("\n"):
        del lines[len(lines) - line.count("\033[1A") :]
        lines.append(re.sub(r"\033\[[?\d;]*[a-zA-Z]", "", line.rpartition("\033[2K")[2].lstrip("\r")))
    return "\n".join(lines)


def _same(line: str) -> str:
    """What two runs have in common."""
    for pattern, name in _SAME:
        line = re.sub(pattern, name, line)
    return line.strip()


def _pattern(quoted: str) -> str:
    """A pattern for the line that the page quotes; an ellipsis stands for anything."""
    return re.sub(r"…|\.\.\.", "*", re.sub(r"[\[*?]", "[\\g<0>]", _same(quoted)))
