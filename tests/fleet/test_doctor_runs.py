"""`agentless doctor --run` on simulated nodes, as in the demo."""

from __future__ import annotations

import json
import re

import pytest

from agentless.engines.docker.checkup import SECTION as ENGINE
from agentless.errors import Timeout
from agentless.gpus.nvidia.checkup import SECTION as NVIDIA
from agentless.model.command import Result
from agentless.remote.checkup import SECTION as MACHINE
from agentless.remote.session import Session
from tests.fleet.desk import me
from tests.fleet.test_batches import typed
from tests.fleet.test_reservations import reserve


@pytest.mark.slow
async def test_each_gpu_is_proved_by_the_driver_in_its_container(agentless):
    out, _ = await typed(agentless, "doctor", "n1", "--run", "--json")
    found = {check["check"]: check for check in json.loads(out)}
    assert [found[f"run {gpu}"]["verdict"] for gpu in range(4)] == ["ok"] * 4
    assert found["run 3"]["detail"].startswith("nvidia-smi in the container lists its GPU and no other")
    assert "agentless-doctor" not in (await typed(agentless, "ps", "--all"))[0]


async def test_gpus_that_are_reserved_for_others_are_left_alone(desk):
    async with desk.running() as controller:
        await reserve(controller, "n1::1,2", reason="deadline")
        found = {check.check: check for check in await controller.trials.run(["n1"], me(controller))}
        assert [found[f"run {gpu}"].verdict for gpu in range(4)] == ["ok", "skipped", "skipped", "ok"]
        assert found["run 1"].detail.startswith("GPU 1 is reserved for ann from ")


MARK = b"\n== agentless "
ESCAPES = b"\x1b]0;x\x07\x1b[2J\x9b2J\x90\xe2\x80\xae\r\0\xff"
SPAM = b"user 0 root\ninfo {\ncdi a\npci 0000:01:00.0 x\nsaw GPU-\n" + ESCAPES


def parts_of(said: bytes) -> list[bytes]:
    """The sections of an answer, each with its marks."""
    return re.split(rb"(?m)^(?=\S+ (?:%s|%s|%s)$)" % tuple(name.encode() for name in (MACHINE, ENGINE, NVIDIA)), said)


HOSTILE = {
    "nothing": lambda _: b"",
    "no sections": lambda _: b"x" * 100 + b"\n",
    "one missing": lambda said: b"".join(part for part in parts_of(said) if MACHINE.encode() not in part),
    "one twice": lambda said: b"".join((*parts_of(said), *parts_of(said)[1:])),
    "ten megabytes": lambda said: said.replace(b"\n", b"\n" + SPAM * 200) + SPAM * (10 << 20 // len(SPAM)),
    "one long line": lambda said: said.replace(b"user ", b"user " + b"9" * (4 << 20)),
    "control characters": lambda said: re.sub(rb"(?m)^(\w+) ", rb"\1 " + ESCAPES.replace(b"\0", b""), said),
    "cut off": lambda said: said[: len(said) // 2],
    "no end": None,
}
"""What a node makes of its answers to doctor."""


QUICK = ("one missing", "control characters", "no end")


@pytest.mark.parametrize("how", [how if how in QUICK else pytest.param(how, marks=pytest.mark.slow) for how in HOSTILE])
async def test_whatever_a_node_answers_is_checks_with_words_that_can_be_shown(desk, monkeypatch, how):
    run, feed = Session.run, Session.feed

    def made(result):
        if HOSTILE[how] is None:
            raise Timeout("n1 did not answer within 60 s")
        return Result(result.exit_code, HOSTILE[how](result.stdout), result.stderr)

    async def runs(session, command, *more):
        answer = await run(session, command, *more)
        return made(answer) if MACHINE in command.script else answer

    async def feeds(session, command, *more):
        return made(await feed(session, command, *more))

    async with desk.running() as controller:
        monkeypatch.setattr(Session, "run", runs)
        monkeypatch.setattr(Session, "feed", feeds)
        found = [*await controller.doctor.examine(["n1"]), *await controller.trials.run(["n1"], me(controller))]
        assert {check.node for check in found} == {"n1"}
        assert not [check for check in found if "cannot examine" in check.detail], found
        for check in found:
            words = (check.detail, check.seen, check.wrong, check.why)
            assert all(len(text) < 4000 for text in words), check.check
            assert all(text.isprintable() for text in words), check
            assert all(line.isprintable() for line in check.fix.split("\n"))
        assert not desk.fleet.nodes["n1"].engine.containers
