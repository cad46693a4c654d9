"""What a node may say: a limit in the reader, for a node whose own are not ours, and one for all that is counted."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import time
import zlib
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import nullcontext
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace

import orjson
import pytest

from agentless.controller import plugins
from agentless.controller.images import archive_reader, direct
from agentless.controller.images.archive_reader import BrokenOffError, fetch
from agentless.controller.images.layer_spool import LayerSpool
from agentless.controller.nodes.conversation import conversed
from agentless.controller.nodes.link import sampler, watcher
from agentless.controller.nodes.link.engines import NodeEngines
from agentless.controller.nodes.link.inspector import Inspector
from agentless.controller.nodes.node_link import NodeLink
from agentless.controller.nodes.program import Program
from agentless.engines.client_warnings import AsItIs
from agentless.engines.docker.complaints import explain
from agentless.engines.podman.complaints import explain as podman_explain
from agentless.engines.systemd.journal import JournalReading
from agentless.errors import StateError, Timeout, TooMuch
from agentless.gpus.nvidia.probe import ANSWER
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.command import SECTION, Command, Result
from agentless.model.containers.claim import GPUS, SPEC, TASK
from agentless.model.containers.container import Container
from agentless.model.images.image import Blob, Image
from agentless.model.nodes.cluster import Observation
from agentless.model.nodes.gpu import MOST_GPUS
from agentless.model.nodes.host_load import HostLoad
from agentless.model.nodes.node import EngineFacts, HostFacts, NodeConfig
from agentless.model.terminal import InputKind
from agentless.ports import Shell
from agentless.remote import host_facts
from agentless.remote.session import Session
from agentless.remote.token_bucket import TokenBucket
from agentless.remote.transports import SshFiles
from agentless.rules.nodes import container_limits
from agentless.rules.nodes.container_limits import MOST
from tests.engines import RENDERER, docker_engine, systemd_engine
from tests.listener import Listener
from tests.pure.build import NOW, SIGNER

REST = (
    ", NVIDIA H100, 550.54.15, 00000000:3B:00.0, 81559, 7, 81552, 0, 0, 31, 69.53, 700.00, [N/A], 345, 2619, P0, 0, "
    "Disabled, Default"
)
CONFIG = NodeConfig("here", "", connection="local")


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    """A shell of this machine."""
    session = Session(plugins.load("remote.transports", "local").make(CONFIG, SshFiles(tmp_path, tmp_path)), "here")
    await session.connect()
    yield session
    await session.close()


# ---------------------------------------------------------------------- the reader


@pytest.mark.parametrize("where", ["", " >&2"], ids=["standard output", "standard error"])
async def test_a_command_that_says_too_much_is_ended_and_the_next_one_runs(session: Session, where: str) -> None:
    with pytest.raises(TooMuch, match="here sent more than 12 MiB for one command"):
        await session.run(Command(f"echo $$ >&2; exec yes{where}\n"))
    assert await session.run(Command("echo 1\n")) == Result(0, b"1\n")


async def test_what_a_command_says_is_heard_before_its_end(session: Session, tmp_path: Path) -> None:
    heard, end = list[bytes](), tmp_path / "end"

    def hear(out: bytes) -> None:
        heard.append(out)
        end.touch()

    wait = Command(f"echo 1; while [ ! -e {end} ]; do sleep 0.01; done; echo 2\n")
    assert await session.run(wait, hear) == Result(0, b"1\n2\n")
    assert heard[0] == b"1\n"


class _InOnePiece:
    """A shell: the begin of a command comes in one piece with the first line that it says."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self._held = b""

    def __getattr__(self, name: str) -> object:
        return getattr(self._shell, name)

    async def read(self) -> tuple[int, bytes] | None:
        while chunk := await self._shell.read():
            fd, data = chunk
            if fd == 2:
                return chunk
            self._held += data
            if b"<" not in self._held or b"begun\n" in self._held:
                data, self._held = self._held, b""
                return fd, data
        return None


async def test_what_comes_along_with_the_begin_of_a_command_is_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    transport = plugins.load("remote.transports", "local").make(CONFIG, SshFiles(tmp_path, tmp_path))
    shell, end = transport.shell, tmp_path / "end"

    async def in_one_piece(**how: bool) -> _InOnePiece:
        return _InOnePiece(await shell(**how))

    monkeypatch.setattr(transport, "shell", in_one_piece)
    session = Session(transport, "here")
    await session.connect()
    wait = Command(f"echo begun; while [ ! -e {end} ]; do sleep 0.01; done\n")
    try:
        assert await session.run(wait, lambda _: end.touch()) == Result(0, b"begun\n")
    finally:
        await session.close()


async def test_what_is_asked_for_in_bulk_may_be_more(session: Session) -> None:
    result = await session.run(Command("head -c 13000000 /dev/zero\n", most=14_000_000))
    assert len(result.stdout) == 13_000_000


async def test_a_login_shell_that_prints_without_end_is_no_way_in(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sh").write_text("#!/bin/dash\nexec yes\n")
    (tmp_path / "sh").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TooMuch, match="here prints more than 1 MiB before its shell starts"):
        await session.run(Command("echo 1\n"))


async def test_what_may_come_comes_again_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now)
    allowed = TokenBucket(10, 2)
    assert [allowed.take(6), allowed.take(4), allowed.take(1)] == [0, 0, 0.5]
    now = 3.0
    assert [allowed.take(5), allowed.take(2)] == [0, 1.0]
    now = 100.0
    assert [allowed.take(10), allowed.take(0)] == [0, 0]


# ---------------------------------------------------------------------- the link


class Now:
    def now(self) -> float:
        return time.time()


class Stand:
    """A session in which every stream prints what a script does, and no command says anything."""

    def __init__(self, session: Session, script: str) -> None:
        self._session, self._script = session, script

    def stream(self, _: Command, **__: bool):
        return self._session.stream(Command(self._script))

    async def run(self, _: Command) -> Result:
        return Result(0)

    def flooded(self, what: str) -> TooMuch:
        return self._session.flooded(what)


def linked(session: object, heard: Callable[[NodeLink], None] = lambda _: None) -> NodeLink:
    engines = NodeEngines(docker_engine(CONFIG, RENDERER, SIGNER), systemd_engine(CONFIG, RENDERER, SIGNER))
    return NodeLink(CONFIG, session, Nvidia(), engines, RENDERER, Now(), Listener(heard))  # type: ignore[arg-type]


@pytest.mark.parametrize("script", ["yes", "cat /dev/zero", "yes >&2"], ids=["lines", "no newline", "standard error"])
async def test_a_stream_of_samples_without_end_is_left(session: Session, script: str) -> None:
    with pytest.raises(TooMuch, match=r"here sends (more than 2 MiB for a sample|too many error messages)"):
        await linked(Stand(session, script)).sampler.sample(streamed=True)


@pytest.mark.parametrize("script", ["yes start", "cat /dev/zero", "yes >&2"], ids=["lines", "no newline", "errors"])
async def test_a_stream_of_events_without_end_is_left(
    session: Session, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Inspector, "look", lambda *_: asyncio.sleep(0))
    monkeypatch.setattr(watcher, "LOOKS", (1e9, 1e9))
    with pytest.raises(TooMuch, match=r"here sends too many (container events|error messages)"):
        await linked(Stand(session, script)).watcher._follow()


async def test_the_script_of_a_sample_is_rendered_once_for_many_samples(
    session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred nodes are sampled every two seconds."""
    monkeypatch.setattr(sampler, "SAMPLE_EVERY", 0.0)
    rendered: list[str] = []
    heard: list[NodeLink] = []
    enough = asyncio.Event()
    original = RENDERER.script

    def script(name: str, /, **values: object) -> str:
        rendered.append(name)
        return original(name, **values)

    def sampled(link: NodeLink) -> None:
        heard.append(link)
        if len(heard) == 5:
            enough.set()

    monkeypatch.setattr(RENDERER, "script", script)
    sampling = asyncio.create_task(linked(Stand(session, ""), sampled).sampler.sample(streamed=False))
    await enough.wait()
    sampling.cancel()
    assert rendered == ["nvidia-probe.sh.j2", "host-load.sh.j2"]


async def test_a_node_that_does_not_wait_between_its_samples_is_not_read_more_often(session: Session) -> None:
    """Each is read and judged: ten thousand of them would leave no time for other nodes."""
    mark, looks = "@@agentless .", []
    script = f"n=0; while [ $n -lt 10000 ]; do n=$((n + 1)); echo '{mark}'; done"
    with pytest.raises(Exception, match="ended the stream of samples"):
        await linked(Stand(session, script), looks.append).sampler._follow("", 1000.0)
    assert len(looks) == 1


async def test_a_long_sample_comes_whole(session: Session, tmp_path: Path) -> None:
    """What costs is packets; and a shell that collects line by line copies all of it for each."""
    rows = "".join(f"{n}, GPU-{n}{REST}\n" for n in range(1000))
    (tmp_path / "answer").write_text(rows)
    body = f"cat {tmp_path}/answer\n"
    script = sampler.SAMPLES.format(every=0.01, body=body, end="END")
    async with session.stream(Command(script)) as stream:
        said = b""
        while said.count(b"END\n") < 2:
            said += (await anext(stream))[1]
    assert said.startswith((rows + "END\n").encode() * 2)


async def test_a_look_that_cannot_tell_whether_slurmd_runs_changes_nothing(session: Session) -> None:
    sampler = linked(Stand(session, "")).sampler
    for known in (True, False, None):
        seen = sampler.with_answer(Observation(host=HostFacts(slurmd=known)), {}, 0.0)
        assert seen.host == HostFacts(slurmd=known)
    gone = {"host": Result(0, b"slurmd no\n")}
    assert sampler.with_answer(Observation(host=HostFacts(slurmd=True)), gone, 0.0).host == HostFacts(slurmd=False)


async def test_how_busy_a_machine_was_before_a_break_is_not_how_busy_it_is(session: Session) -> None:
    sampler, load = linked(Stand(session, "")).sampler, HostLoad(cores_busy=1.0)
    for error, known in ((None, load), ("no route", None)):
        assert sampler.with_answer(Observation(error=error, load=load), {}, 0.0).load == known


async def test_the_machine_is_asked_with_some_samples_only(session: Session) -> None:
    """Twice at the beginning, since a rate takes two readings."""
    body = sampler.BODY.format(gpus="echo gpus", host="echo host", host_every=sampler.HOST_EVERY)
    async with session.stream(Command(sampler.SAMPLES.format(every=0.001, body=body, end="END"))) as stream:
        said = b""
        while said.count(b"END\n") < 11:
            said += (await anext(stream))[1]
    assert [at for at, frame in enumerate(said.split(b"END\n")[:11]) if b"host" in frame] == [0, 1, 5, 10]


# ---------------------------------------------------------------------- the parsers


def sample(gpus: str, rest: str = "@end 0\n"):
    return Nvidia().parse({"nvidia": Result(0, f"{gpus}\n@gpus 0\n{rest}".encode())})


def test_a_node_has_at_most_so_many_gpus() -> None:
    rows = [f"{n}, GPU-{n}{REST}" for n in range(4500)]
    assert len(sample("\n".join(rows[:MOST_GPUS])).gpus) == MOST_GPUS
    found = sample("\n".join(rows[: MOST_GPUS + 1]))
    assert (found.gpus, found.processes) == ((), None)
    assert found.error is not None
    assert found.error.startswith(f"nvidia-smi lists more than {MOST_GPUS} GPUs")


@pytest.mark.parametrize(
    "hostile",
    [
        "Unable to determine the device handle for GPU " * 5000,
        'Field "' * 30_000,
        "timeout: " * 25_000,
        "\n" * (ANSWER - 100),
        ", " * 100_000,
        "@topology\n" * 20_000,
        "0, GPU-0" * 30_000,
    ],
    ids=["handles", "fields", "timeouts", "lines", "commas", "topologies", "rows"],
)
def test_no_answer_of_nvidia_smi_takes_long_to_read(hostile: str) -> None:
    """Patterns that look for an end at each beginning took minutes; CPU time, of which this has 20 times enough."""
    began = time.process_time()
    for answer in (hostile + "\n@gpus 9", hostile + "\n@gpus 0\n@end 0", "\n@gpus 0\n>" + hostile + "\n@end 0"):
        sections = {"nvidia": Result(0, answer.encode())}
        Nvidia().parse(sections)
        Nvidia().parse_topology(sections)
        Nvidia().parse_faults({"xid": Result(0, b"@dmesg 0\n" + answer.encode())})
        host_facts.parse({"host": Result(0, answer.encode())})
    assert time.process_time() - began < 2


def test_a_section_that_was_cut_is_not_taken_for_a_whole_one() -> None:
    rows = f"0, GPU-0{REST}\n@gpus 0\n".encode()
    found = Nvidia().parse({"nvidia": Result(0, rows + b"x" * (SECTION - len(rows)))})
    assert (found.gpus, found.processes) == ((), None)


def test_a_host_with_more_parts_than_a_kernel_has_is_not_described() -> None:
    lines = "".join(f"node {n} {n}\n" for n in range(10_000))
    assert host_facts.parse({"host": Result(0, lines.encode())}) == HostFacts()
    cpus = ",".join(map(str, range(0, 20_000, 2)))
    assert host_facts.parse({"host": Result(0, f"online {cpus}\nmemory 1024\n".encode())}) == HostFacts(None, 1)


# ---------------------------------------------------------------------- others who read


class Endless:
    """A shell, or the stream of one, that says the same for ever: bytes on one of its streams."""

    exit_code: int | None = None

    def __init__(self, fd: int = 1, said: bytes = b"x" * 65536) -> None:
        self.said = fd, said
        self.count = 0

    def __aiter__(self) -> Endless:
        return self

    async def __anext__(self) -> tuple[int, bytes]:
        self.count += 1
        assert self.count < 1000, "it is listened to for ever"
        return self.said

    read = __anext__

    async def wait(self) -> int:
        return 0

    async def write(self, _: bytes) -> None:
        await asyncio.Event().wait()

    @contextlib.asynccontextmanager
    async def stream(self, _: object, **__: bool) -> AsyncIterator[Endless]:
        yield self

    node = CONFIG


async def nothing() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def never(signal: str) -> None:
    raise AssertionError(signal)


@pytest.mark.parametrize("fd", [1, 2])
async def test_a_script_that_never_says_its_mark_is_given_up(fd: int) -> None:
    with pytest.raises(TooMuch):
        await conversed(Endless(fd), "mark", nothing())  # type: ignore[arg-type]
    with pytest.raises(TooMuch):
        await Program(Endless(fd), AsItIs(), InputKind.LINES, never).begin("mark")  # type: ignore[arg-type]


async def test_a_script_that_does_not_end_after_its_mark_is_given_up() -> None:
    shell = Endless(said=b"mark;" + b"x" * 65536)
    with pytest.raises(TooMuch):
        await conversed(shell, "mark", nothing())  # type: ignore[arg-type]


async def test_a_build_or_a_copy_of_an_image_that_talks_without_end_is_given_up() -> None:
    link = SimpleNamespace(stream=lambda _: nullcontext(Endless()), node=SimpleNamespace(name="n1"))
    with pytest.raises(TooMuch):
        await NodeLink.collect(link, Command("true"))  # type: ignore[arg-type]
    with pytest.raises(TooMuch):
        await direct._read(Endless())  # type: ignore[arg-type]


def test_an_entry_of_the_journal_without_end_is_given_up() -> None:
    reading = JournalReading(timestamps=False)
    with pytest.raises(TooMuch):
        deque(chain.from_iterable(reading(1, b"x" * 65536) for _ in range(1000)))


async def test_an_archive_of_nothing_but_small_files_is_given_up() -> None:
    image, spool = Image("sha256:" + "0" * 64, ("sha256:1",), 1), LayerSpool()

    class Files(Endless):
        async def __anext__(self) -> tuple[int, bytes]:
            self.count += 1
            assert self.count < 20_000, "it is listened to for ever"
            return 1, b"r 512 file%d\n" % self.count + b"x" * 512

    with pytest.raises(BrokenOffError, match="too many files"):
        await fetch(Files(), image, 0, None, spool)  # type: ignore[arg-type]
    spool.close()


class Stream(Endless):
    """This, then more and more of something."""

    def __init__(self, first: bytes, more: Callable[[], bytes]) -> None:
        super().__init__()
        self._first, self._more = first, more

    async def __anext__(self) -> tuple[int, bytes]:
        self.count += 1
        assert self.count < 1000, "it is listened to for ever"
        return 1, self._first if self.count == 1 else self._more()


async def test_a_layer_that_is_larger_than_it_was_said_to_be_is_given_up() -> None:
    image, spool = Image("sha256:" + "0" * 64, ("sha256:1",), 1), LayerSpool()
    packer = zlib.compressobj(0, wbits=31)
    stream = Stream(b"p 1000000 x\n", lambda: packer.compress(bytes(65536)))
    with pytest.raises(BrokenOffError, match="invalid answer"):
        await fetch(stream, image, 0, "gzip", spool)  # type: ignore[arg-type]
    spool.close()


async def test_a_layer_of_another_size_than_its_manifest_says_is_not_read() -> None:
    blob = Blob("sha256:" + "1" * 64, 1 << 20, "")
    image, spool = Image("sha256:" + "0" * 64, ("sha256:1",), 1, blobs=(blob,)), LayerSpool()
    stream = Stream(b"r 99999999999 blobs/sha256/" + b"1" * 64 + b"\n", lambda: bytes(65536))
    with pytest.raises(BrokenOffError, match="invalid answer"):
        await fetch(stream, image, 0, None, spool)  # type: ignore[arg-type]
    assert spool.layers == {}
    spool.close()


async def test_an_archive_of_more_and_more_layers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    image, spool = Image("sha256:" + "0" * 64, ("sha256:1",), 1), LayerSpool()
    monkeypatch.setattr(archive_reader, "SMALL", 0)
    stream = Stream(b"", lambda: b"r 512 f%d\n" % stream.count + bytes(512))
    with pytest.raises(BrokenOffError, match="invalid answer"):
        await fetch(stream, image, 0, None, spool)  # type: ignore[arg-type]
    spool.close()


@pytest.mark.parametrize(
    ("total", "free", "is_full"),
    [
        (100 << 30, 900 << 20, True),
        (100 << 30, 2 << 30, False),
        (10 << 30, 600 << 20, False),
        (10 << 30, 100 << 20, True),
        (0, 0, False),  # a tmpfs without a limit
    ],
)
async def test_an_image_on_its_way_leaves_room_on_the_disk(
    total: int, free: int, is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = SimpleNamespace(f_blocks=total >> 12, f_bavail=free >> 12, f_frsize=4096)
    monkeypatch.setattr(os, "fstatvfs", lambda _: disk)
    spool = LayerSpool()
    refused = pytest.raises(StateError, match="would be left free; free some space") if is_full else nullcontext()
    with refused:
        await spool.put(spool.begin("x", 5), b"layer", 5)
    spool.close()


def test_a_long_complaint_is_read_at_both_ends() -> None:
    """Its patterns look for an end at each beginning; CPU time, of which this has 20 times enough."""
    began = time.process_time()
    for hostile in ("permission denied" * 300_000, "sudo: " * 500_000, 'exec: "' * 500_000):
        assert len(explain(hostile, CONFIG)) <= 300
        assert "disk of here is full" in explain(hostile + " no space left on device", CONFIG)
        assert "disk of here is full" in podman_explain("no space left on device " + hostile, CONFIG)
    assert time.process_time() - began < 2


# ---------------------------------------------------------------------- containers


def described(**labels: str) -> Container:
    return Container("c" * 64, "agentless-t1", "running", {TASK: "t1", **labels})


DOCKER = docker_engine(CONFIG, RENDERER, SIGNER)


def facts(listed: str) -> EngineFacts:
    info = '{"ServerVersion":"28.0","Runtimes":{},"SystemTime":"2026-05-01T12:00:00Z"}\n'
    return DOCKER.parse_facts(
        {"docker.info": Result(0, info.encode()), "docker.containers": Result(0, listed.encode())}, NOW, NOW
    )


def test_an_engine_with_too_many_containers_is_not_asked_about_them() -> None:
    lines = "".join(f"{n:064x} Up 5 minutes\n" for n in range(MOST + 1))
    assert len(facts(lines[: lines.rstrip().rindex("\n") + 1]).listed or ()) == MOST
    found = facts(lines)
    assert (found.listed, found.containers) == (None, None)
    assert "more than 5000 containers of agentless" in (found.error or "")


def test_a_claim_that_cannot_be_read_to_its_end_is_never_a_small_one() -> None:
    """GPUs that it names beyond the limit would look free: nothing more is placed on that node."""
    whole, endless = described(**{GPUS: "GPU-0," * 600}), described(**{GPUS: "GPU-0," * 700})
    assert container_limits.endless([whole]) is None
    assert "container cccccccccccc claims more GPUs than a node can have" in (
        container_limits.endless([whole, endless]) or ""
    )
    assert container_limits.endless([replace(endless, state="exited")]) is None


def test_labels_of_all_containers_together_have_a_limit() -> None:
    large = described(**{SPEC: "x" * 100_000})
    assert container_limits.excess([large] * 100) is None
    assert "exceed 16 MiB" in (container_limits.excess([large] * 200) or "")
    assert container_limits.excess([described()] * MOST) is None


def test_a_service_whose_labels_unpack_to_a_gigabyte_is_not_unpacked() -> None:
    """A thousand of them are in a megabyte of systemd's answer."""
    packed = base64.urlsafe_b64encode(zlib.compress(orjson.dumps({TASK: "t1", SPEC: "x" * 150_000}), 9)).decode()
    block = "Id=agentless-{}.service\nLoadState=loaded\nActiveState=active\nEnvironment=AGENTLESS_LABELS={}\n\n"
    units = systemd_engine(CONFIG, RENDERER, SIGNER)
    answer = {"systemd.units": Result(0, "".join(block.format(n, packed) for n in range(1000)).encode())}
    assert units.parse_facts(answer, 0.0, 0.0).containers is None
    assert "too many services" in (units.parse_facts(answer, 0.0, 0.0).error or "")
    few = {"systemd.units": Result(0, "".join(block.format(n, packed) for n in range(10)).encode())}
    assert len(units.parse_facts(few, 0.0, 0.0).containers or ()) == 10
    assert units.parse_facts({"systemd.units": Result(1, b"Failed to connect to bus")}, 0.0, 0.0).error is None


class Engine:
    """A session with an engine that has so many containers, and says more than may be of more than fifty at once."""

    def __init__(self, count: int, size: int = 10) -> None:
        self.ids, self.size, self.asked = [f"{n:064x}" for n in range(count)], size, list[int]()

    async def run(self, command: Command) -> Result:
        if " inspect " not in command.script:
            info = '{"ServerVersion":"28.0","Runtimes":{},"SystemTime":"2026-05-01T12:00:00Z"}'
            listed = "".join(f"{each} Up 5 minutes\n" for each in self.ids)
            sections = {"docker.info": info, "docker.containers": listed}
            said = "".join(f"@@agentless {name}\n{text}\n@@agentless = 0\n" for name, text in sections.items())
            return Result(0, said.encode())
        asked = [each for each in self.ids if each in command.script]
        self.asked.append(len(asked))
        if len(asked) > 50:
            raise TooMuch("here said more")
        spec = "x" * self.size
        labels = f'{{"agentless.task":"t","s":"{spec}"}}'
        rest = f'"name":"/n","created":"","state":{{"Status":"running"}},"labels":{labels}'
        return Result(0, "".join(f'{{"id":"{each}",{rest}}}\n' for each in asked).encode())


async def test_containers_of_which_there_is_too_much_to_say_are_asked_about_one_part_at_a_time() -> None:
    engine = Engine(130)
    link = linked(engine)
    await link.refresh()
    assert [container.id for container in link.containers] == engine.ids
    assert engine.asked == [130, 65, 32, 33, 65, 32, 33]


async def test_one_stops_asking_when_there_is_too_much_on_all_of_them() -> None:
    engine = Engine(2000, 1_000_000)
    link = linked(engine)
    await link.refresh()
    assert link.containers == ()
    assert "exceed 16 MiB" in (link.silence or "")
    assert sum(asked for asked in engine.asked if asked <= 50) < 60


class Starting(Engine):
    """One that is starting its first container, and does not come to an end with that."""

    async def run(self, command: Command) -> Result:
        if " inspect " in command.script and self.ids[0] in command.script:
            raise Timeout("here did not finish a command")
        result = await super().run(command)
        return Result(
            0, result.stdout.replace(f"{self.ids[0]} Up 5 minutes".encode(), f"{self.ids[0]} Created".encode())
        )


async def test_a_container_whose_start_hangs_does_not_hide_the_others() -> None:
    engine = Starting(3)
    link = linked(engine)
    await link.refresh()
    assert [container.id for container in link.containers] == engine.ids[1:]
    assert link.silence is None
