"""Copies between this machine and a node, or the container of a task: by rsync where both ends have it, else by tar.

Both go through the connection that the controller has. Files here are read and written by this process, with the rights
of whoever runs it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

from agentless.client.client import Client
from agentless.client.files.rsync_shell import VARIABLE
from agentless.client.files.transfer import ByteCount, Meter, StreamEnded, TransferInput, TransferOutput
from agentless.client.http import RequestFailed
from agentless.client.stream import ProgramStream
from agentless.errors import AgentlessError, CopyFailed, UsageError
from agentless.formats.archive import Unpacker, forbidden_bits, pack
from agentless.model.files.location import PARTIAL, Kind, Location, encoded, split, there
from agentless.rules.files.copy_errors import LEFT_OUT, is_good_rsync, sentences
from agentless.rules.files.destination import Landing, check_source, check_target, landings

_PROGRESS = re.compile(rb"\s*([0-9,.]+) +[0-9]+% ")
_CANNOT_WRITE = 11
"""The exit code of rsync if a file cannot be written."""
_PATTERN = re.compile(r"[*?\[\\]")


@dataclass(frozen=True, slots=True)
class _Found:
    """What is at the paths of one place."""

    kinds: Mapping[str, Kind]
    rsync: bool = False
    container: bool = False


class Copier:
    """Copies files. `notes` are sentences about what was left out; `warnings` those of programs when all was copied."""

    def __init__(self, client: Client, meter: Meter) -> None:
        self.notes: list[str] = []
        self.warnings: list[str] = []
        self._client = client
        self._meter = meter
        self._rsync = _good_rsync()

    def copy(self, sources: Sequence[Location], destination: Location) -> None:
        """Copy all sources; raises CopyFailed for the first one that fails, and errors of the controller."""
        self._check_sides(sources, destination)
        ours = {at: self._look(at, [s.path for s in sources if s.at == at]) for at in {s.at for s in sources}}
        kinds = [(source, ours[source.at].kinds[source.path]) for source in sources]
        for source, kind in kinds:
            check_source(source, kind)  # before anything is said of where it is to go
        goal = self._look(destination.at, [destination.path])
        found = landings(kinds, destination, goal.kinds[destination.path])
        targets = self._look(destination.at, [landing.target for landing in found])
        for landing in found:
            check_target(landing, Location(destination.at, landing.target), targets.kinds[landing.target])
        for landing in found:
            far = goal if landing.source.at is None else ours[landing.source.at]
            self._meter.begin(str(landing.source))
            self._one(landing, destination.at, far, exists=targets.kinds[landing.target] == "folder")

    def _check_sides(self, sources: Sequence[Location], destination: Location) -> None:
        away = [source for source in sources if source.at is not None]
        if destination.at is None and len(away) < len(sources):
            here = next(source for source in sources if source.at is None)
            raise UsageError(f"both {here} and {destination} are local; use NODE:PATH or TASK:PATH for one of them")
        if destination.at is not None and away:
            raise UsageError(f"both {away[0]} and {destination} are remote; copy {away[0]} to this machine first")

    def _look(self, at: str | None, paths: Sequence[str]) -> _Found:
        if at is None:
            return _Found({path: _kind(path) for path in paths})
        answer = self._client.post(f"/v1/files/{at}/look", {"paths": [encoded(path) for path in paths]})
        return _Found(dict(zip(paths, answer["kinds"], strict=True)), answer["rsync"], answer["container"])

    def _one(self, landing: Landing, away: str | None, far: _Found, *, exists: bool) -> None:
        at = landing.source.at or away or ""
        is_coming = away is None
        path = landing.source.path if is_coming else landing.target
        # A name with signs of a pattern in it would be one to the rsync there; a folder is entered before it starts.
        is_plain = landing.is_folder or not _PATTERN.search(split(there(path))[1])
        by_rsync = bool(self._rsync and far.rsync and is_plain)
        try:
            if by_rsync:
                self._by_rsync(landing, at, is_coming=is_coming, exists=exists)
            elif is_coming:
                self._fetch(landing, at, far, exists=exists)
            else:
                self._bring(landing, at, far)
        except RequestFailed as error:
            if error.exit_code == 4:
                again = "run the command again to continue" if by_rsync else "run the command again"
                raise RequestFailed(f"{error}; the copy was interrupted: {again}", 4, error.error) from None
            raise

    # --------------------------------------------------------------------- tar

    def _fetch(self, landing: Landing, at: str, far: _Found, *, exists: bool) -> None:
        """Copy to this machine by tar."""
        folder, name = (landing.target or ".", ".") if exists else _split_here(landing.target)
        counted = ByteCount(self._meter)
        strip = 1 if far.container or not landing.is_folder else 0
        unpacker = Unpacker(folder, name, strip, counted.add)
        with self._transfer(at, "send", landing.source.path, landing) as program:
            stream = TransferOutput(program)
            failure: CopyFailed | None = None
            try:
                members = unpacker.unpack(stream)
            except CopyFailed as error:
                failure, members = error, 0
                if stream.received:
                    raise
            stream.drain()  # raises what broke it off
        complaints = sentences(stream.words, at, there=False)
        if not members:
            raise CopyFailed("; ".join(complaints[:3]) or str(failure or f"received nothing from {landing.source}"))
        self.notes += unpacker.notes
        if program.exit_code:
            self.notes += complaints or [f"{landing.source}: copy incomplete (tar exited with {program.exit_code})"]
        else:
            self._warn(at, complaints)
        self._meter.end(stream.received)

    def _bring(self, landing: Landing, at: str, far: _Found) -> None:
        """Copy from this machine by tar."""
        base = landing.target.rstrip("/").rpartition("/")[2]
        with self._transfer(at, "receive", landing.target, landing) as program:
            sink = TransferInput(program, ByteCount(self._meter))
            notes: list[str] = []
            try:
                if far.container:
                    notes = pack(sink, landing.source.path, base or ".")
                else:
                    notes = pack(sink, landing.source.path, "t", whole="whole")
                program.write_eof()
            except StreamEnded:
                pass
            sink.wait()  # raises what broke it off
        complaints = sentences(sink.words, at, there=True, name=base)
        if program.exit_code:
            raise CopyFailed("; ".join(complaints[:3]) or f"{at} did not accept {landing.source}; retry")
        self.notes += notes
        self._warn(at, complaints)
        self._meter.end(sink.sent)

    def _warn(self, at: str, words: Sequence[str]) -> None:
        """Keep the messages of a copy that succeeded. Some of tar's are about what it left out."""
        self.notes += [line for line in words if line.endswith(LEFT_OUT)]
        self.warnings += [f"{at}: {line}" for line in words if not line.endswith(LEFT_OUT)]

    def _transfer(self, at: str, way: str, path: str, landing: Landing) -> ProgramStream:
        return self._client.transfer(at, way=way, path=encoded(path), folder=landing.is_folder)

    # ------------------------------------------------------------------- rsync

    def _by_rsync(self, landing: Landing, at: str, *, is_coming: bool, exists: bool) -> None:
        """Copy in either direction. A folder that exists keeps its mode, since only what is in it is copied."""
        path = landing.source.path if is_coming else landing.target
        what = {"path": encoded(path), "folder": landing.is_folder}
        forbidden = forbidden_bits()
        modes = ["u-s", "g-s", "-t", *(["g-w"] if forbidden & 0o020 else []), *(["o-w"] if forbidden & 0o002 else [])]
        options = ["-s", "-lptS", f"--chmod={','.join(modes)}", f"--partial-dir={PARTIAL}"]
        options += ["--no-inc-recursive", "--modify-window=-1", "--info=progress2", "--outbuf=N"]
        options += ["-r"] if landing.is_folder else []
        here = os.path.abspath(landing.target if is_coming else landing.source.path)
        names = b""
        if not landing.is_folder:
            inner = f"there:./{split(there(path))[1]}"
            ends = [inner, here] if is_coming else [os.path.realpath(here), inner]
        elif is_coming:
            if exists:
                options.append("--ignore-missing-args")
                ends = ["there:./*", "there:./.*", f"{here}/"]
            else:
                _make(here)
                ends = ["there:./", f"{here}/"]
        elif exists:
            options += ["--files-from=-", "--from0"]
            names = b"".join(name + b"\0" for name in sorted(os.listdir(os.fsencode(here))))
            ends = [f"{here}/", "there:./"]
        else:
            ends = [f"{here}/", "there:./"]
        try:
            self._run_rsync([*options, *ends], at, what, names, is_coming=is_coming)
        except AgentlessError:
            if is_coming and landing.is_folder and not exists:
                with contextlib.suppress(OSError):  # there is something in it
                    os.rmdir(here)
            raise

    def _run_rsync(
        self, words: Sequence[str], at: str, what: Mapping[str, object], names: bytes, *, is_coming: bool
    ) -> None:
        bridge = shlex.join([sys.executable, "-m", "agentless.client.files.rsync_shell"])
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given, _open_pipe() as (report, writer):
            given.write(names)
            given.seek(0)
            setting = {**self._client.setting(), "place": at, "what": what, "report": writer.fileno()}
            process = subprocess.Popen(
                [self._rsync or "rsync", "-e", bridge, *words],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=said,
                pass_fds=[writer.fileno()],
                env={**os.environ, "LC_ALL": "C", VARIABLE: json.dumps(setting)},
            )
            writer.close()
            try:
                self._watch(process)
                code = process.wait()
            finally:
                if process.poll() is None:
                    process.terminate()  # it tidies up, or keeps what it has to go on with
                    process.wait()
            ended = report.read()  # up to the end of the bridge, which rsync does not wait for
            said.seek(0)
            words_said = said.read().decode("utf-8", "surrogateescape")
        end = json.loads(ended) if ended else {}
        if "message" in end:
            raise RequestFailed(end["message"], end["exit_code"])
        complaints = sentences(words_said, at, there=not is_coming)
        if code in (23, 24) and len(complaints) > 0 and end.get("received"):
            self.notes += complaints
        elif code:
            if code == _CANNOT_WRITE and is_coming:
                _drop_partial(words[-1])
            raise CopyFailed("; ".join(complaints[:3]) or f"rsync ended with exit code {code}; retry")
        self._meter.end(int(end.get("sent", 0)) + int(end.get("received", 0)))

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Report the progress that rsync prints, again and again on one line."""
        rest = b""
        while process.stdout and (data := os.read(process.stdout.fileno(), 65536)):
            *lines, rest = re.split(rb"[\r\n]", rest + data)
            for line in lines:
                if match := _PROGRESS.match(line):
                    self._meter.reached(int(re.sub(rb"[^0-9]", b"", match[1])))
                elif line.startswith(b"skipping non-regular file "):
                    name = os.fsdecode(line[26:].strip(b'"'))
                    self.notes.append(f"skipped {name}: neither a file nor a folder")


def _drop_partial(path: str) -> None:
    """Remove partial files. They are kept after a broken link, to continue, but not after a full disk."""
    if not path.endswith("/"):
        partial = os.path.join(os.path.dirname(path), PARTIAL)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(partial, os.path.basename(path)))
            os.rmdir(partial)
        return
    for folder, folders, _ in os.walk(path):
        if PARTIAL in folders:
            shutil.rmtree(os.path.join(folder, PARTIAL), ignore_errors=True)


@contextlib.contextmanager
def _open_pipe() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as ours, os.fdopen(writer, "wb", buffering=0) as theirs:
        yield ours, theirs


def _good_rsync() -> str | None:
    """The local rsync, if its version is new enough."""
    program = shutil.which("rsync")
    if program is None:
        return None
    said = subprocess.run([program, "--version"], capture_output=True, check=False)
    return program if is_good_rsync(said.stdout) else None


def _kind(path: str) -> Kind:
    """What is at a path here."""
    path = path or "."
    try:
        if os.path.isdir(path):
            return "folder" if os.access(path, os.X_OK) else "denied"
        os.lstat(path.rstrip("/") or "/")
    except PermissionError:
        return "denied"
    except OSError:
        return "nothing" if os.path.isdir(os.path.dirname(path.rstrip("/")) or ".") else "orphan"
    return "file" if os.path.isfile(path.rstrip("/")) else "other"


def _split_here(path: str) -> tuple[str, str]:
    folder, name = os.path.split(path.rstrip("/"))
    return folder or ".", name


def _make(folder: str) -> None:
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise CopyFailed(f"{folder}: {error.strerror}") from None
