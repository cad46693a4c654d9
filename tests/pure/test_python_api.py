"""The Python API without a controller: JSON to values, errors, awaited calls, and what an import costs."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import subprocess
import sys
import threading
from datetime import UTC, date, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

import agentless
from agentless import errors
from agentless.api.lines import lines
from agentless.api.parse import parse
from agentless.api.task import Task, future_moment, moment
from agentless.api.verb import StreamVerb, Verb
from agentless.client.client import Client
from agentless.model.moment import parse_past
from agentless.model.nodes.gpu import GpuProcess
from agentless.model.tasks.spec import TaskSpec
from agentless.model.view import EventView, ExplainView, GpuView, ObstacleView, RecoveryView, StartView, TaskView

# -------------------------------------------------------------------- values

TASK = {
    "id": "2mxfkgcr0vf", "name": None, "state": "running", "node": "node1", "gpus": [0, 1],
    "gpu_uuids": ["GPU-a", "GPU-b"],
    "image": "python", "command": ["true"], "env_names": [], "batch": "2mxfkgcr0vf", "owner": "ann@laptop",
    "created_at": "2026-05-01T12:00:00.000Z", "started_at": None, "ended_at": None, "exit_code": None, "reason": None,
    "container": "c1", "target": "node1::0,1", "cores": None, "memory_bytes": None, "labels": {"a": "b"}, "mine": True,
    "intruders": [
        {"gpu_uuid": "GPU-a", "pid": 7, "name": None, "memory_mib": None, "user": "bob", "command": None,
         "container": None},
    ],
    "priority": 0, "time_limit": None, "position": None, "expected_start": None,
    "scheduled_for": None, "attempt": 1, "retries": 0, "retried_as": None, "parameters": {},
}  # fmt: skip


def a_task(**other: object) -> Task:
    return parse(Task, {**TASK, **other}, _client=None)


def test_a_task_is_read_with_what_is_in_it():
    found = a_task()
    assert (found.gpus, found.gpu_uuids, found.labels) == ((0, 1), ("GPU-a", "GPU-b"), {"a": "b"})
    assert found.intruders == (GpuProcess("GPU-a", 7, user="bob"),)


def test_what_a_newer_controller_adds_is_left_out():
    newer = {**TASK, "mood": "sunny", "intruders": [{**TASK["intruders"][0], "shoe_size": 46}]}
    assert parse(TaskView, newer) == parse(TaskView, TASK)


def test_an_event_of_an_older_version_is_read():
    older = {name: value for name, value in TASK.items() if name not in ("intruders", "priority", "position")}
    found = parse(EventView, {"seq": 1, "at": 2.5, "kind": "task", "event": "exited", "cause": "", "task": older})
    assert found.task == parse(TaskView, {**TASK, "intruders": []})
    assert found.node is None


@given(st.data())
def test_every_published_value_is_read_as_it_was_written(data):
    cls = data.draw(st.sampled_from([TaskView, GpuView, ExplainView, StartView, RecoveryView, EventView]))
    value = data.draw(
        st.builds(
            cls, **{field: _strategy(hint) for field, hint in inspect.get_annotations(cls, eval_str=True).items()}
        )
    )
    assert repr(parse(cls, _as_json(value))) == repr(value)  # NaN is not equal to itself


def _strategy(hint):
    if hint in (GpuProcess, ObstacleView, TaskView):
        return st.builds(hint)
    if hint == dict[str, TaskSpec]:
        return st.dictionaries(st.text(), st.builds(TaskSpec))
    return st.from_type(hint)


def _as_json(value):
    import json

    return json.loads(json.dumps(dataclasses.asdict(value)))


def test_the_same_task_asked_for_twice_is_one_in_a_set():
    assert len({a_task(), a_task()}) == 1
    assert a_task() != a_task(state="completed")


def test_a_task_shows_nothing_of_its_client():
    assert "_client" not in repr(a_task())


# --------------------------------------------------------------------- lines


def test_a_line_is_given_once_it_is_whole():
    parts = [(1, b"on"), (1, b"e\ntwo\nthr"), (1, b"ee")]
    assert list(lines(parts, {1, 2})) == ["one", "two", "three"]


def test_the_streams_do_not_run_into_each_other():
    parts = [(1, b"out"), (2, b"err\n"), (1, b"put\n")]
    assert list(lines(parts, {1, 2})) == ["err", "output"]
    assert list(lines(parts, {2})) == ["err"]


def test_a_character_may_come_in_two_parts():
    first, second = "é\n".encode()[:1], "é\n".encode()[1:]
    assert list(lines([(1, first), (1, second)], {1})) == ["é"]


def test_a_note_is_no_line_and_goes_to_the_log(caplog):
    assert list(lines([(3, b"12 bytes are left out"), (1, b"end\n")], {1, 2})) == ["end"]
    assert caplog.messages == ["12 bytes are left out"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10min", 400.0), ("1970-01-01T00:01:00+00:00", 60.0), ("1970-01-01T00:01:00Z", 60.0)],
)
def test_a_moment_is_a_date_or_how_long_ago(text, seconds):
    assert parse_past(text, 1000.0) == seconds


def test_a_moment_is_also_a_datetime(monkeypatch):
    from agentless.api import task

    monkeypatch.setattr(task.time, "time", lambda: 1000.0)
    assert task.moment(datetime(1970, 1, 1, 0, 1, tzinfo=UTC)) == 60.0
    assert task.moment(timedelta(minutes=10)) == task.moment("10min") == task.moment(400) == 400


@pytest.mark.parametrize("read", [moment, lambda value: future_moment(value, 0.0)])
def test_what_is_no_moment_is_refused_in_a_sentence(read):
    with pytest.raises(errors.UsageError, match=r"A time must be a number, .*, not datetime\.date"):
        read(date(2026, 5, 1))


# -------------------------------------------------------------------- errors

NAMED = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, errors.AgentlessError) and each is not errors.HostKeyRejected
]


@pytest.mark.parametrize("kind", NAMED)
def test_an_error_of_the_controller_is_raised_as_what_it_is(kind):
    error = errors.error_named(kind.__name__, "a sentence", kind.exit_code)
    assert (type(error), str(error)) == (kind, "a sentence")


def test_a_rejected_host_key_is_unreachable():
    assert type(errors.error_named("HostKeyRejected", "a sentence", 4)) is errors.Unreachable


@pytest.mark.parametrize(
    ("code", "kind"),
    [(1, errors.AgentlessError), (2, errors.UsageError), (3, errors.Refused), (4, errors.NoAnswer)],
)
def test_an_error_of_a_newer_controller_is_known_by_its_exit_code(code, kind):
    assert type(errors.error_named("Moonstruck", "a sentence", code)) is kind
    assert type(errors.error_named("Client", "a sentence", code)) is kind


# --------------------------------------------------------------------- verbs


class Clock:
    """Something to call."""

    @Verb
    def tell(self, hour: int) -> str:
        """The time."""
        if hour > 24:
            raise ValueError(hour)
        return f"{hour} o'clock in {threading.current_thread().name.partition('_')[0]}"

    @StreamVerb
    def strike(self, times: int):
        """Each stroke."""
        yield from range(times)


async def test_a_verb_is_called_and_awaited():
    assert Clock().tell(3) == "3 o'clock in MainThread"
    assert await Clock().tell.aio(3) == "3 o'clock in agentless"


async def test_an_awaited_error_is_the_same():
    with pytest.raises(ValueError, match="25"):
        await Clock().tell.aio(25)


async def test_a_stream_is_read_and_awaited():
    assert list(Clock().strike(3)) == [0, 1, 2]
    assert [stroke async for stroke in Clock().strike.aio(3)] == [0, 1, 2]


async def test_any_number_of_calls_wait_at_the_same_time():
    barrier = threading.Barrier(100)
    names = await asyncio.gather(*(Gate().enter.aio(barrier) for _ in range(100)))
    assert len(names) == 100


class Gate:
    """Where the last to come lets all go on."""

    @Verb
    def enter(self, barrier: threading.Barrier) -> int:
        """Wait for all others."""
        return barrier.wait(20)


def test_a_verb_says_what_it_does_and_takes():
    assert Clock.tell.__doc__ == Clock().tell.__doc__ == "The time."
    assert str(inspect.signature(Clock().tell)) == "(hour: 'int') -> 'str'"


# ---------------------------------------------------------- what an import costs


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_an_import_of_the_package_imports_nothing_else_of_it():
    assert {name for name in modules_after("import agentless") if name.startswith("agentless.")} == set()


def test_the_python_api_imports_nothing_of_the_controller():
    heavy = {"asyncio", "pydantic", "fastapi", "asyncssh", "tinydb", "typer", "jinja2", "yaml", "agentless.controller"}
    assert modules_after("from agentless import Cluster, Task, Refused, GpuView") & heavy == set()


@pytest.mark.parametrize("name", agentless.__all__)
def test_all_that_is_exported_is_there(name):
    assert getattr(agentless, name).__name__ == name


def test_what_is_not_exported_is_no_attribute():
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        _ = agentless.Clutser


# -------------------------------------------------------------------- client


@pytest.mark.parametrize("length", [1, 150])
def test_a_socket_is_found_whatever_the_length_of_its_path(tmp_path, length):
    import os
    import socket

    state = tmp_path / ("s" * length)
    state.mkdir()
    back = os.getcwd()
    with socket.socket(socket.AF_UNIX) as server:
        try:
            os.chdir(state)
            server.bind("controller.sock")
        finally:
            os.chdir(back)
        server.listen()
        assert Client(state, None).is_running()
    assert os.getcwd() == back


@pytest.mark.parametrize("lost", range(1, 10))
def test_a_log_that_breaks_off_in_the_middle_of_a_frame_has_not_ended(tmp_path, lost):
    """As when the controller is killed while it writes: half a position would be another one, half an error none."""
    import socket

    from agentless.formats.frames import END, frame

    whole = frame(1, b"out") + frame(END, b"{}{}")

    def answer(server):
        with server.accept()[0] as asked:
            asked.recv(65536)
            asked.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + whole[:-lost])

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "controller.sock"))
        server.listen()
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        frames = Client(tmp_path, None).frames("/v1/tasks/one/logs")
        assert next(frames) == (1, b"out")
        with pytest.raises(errors.ControllerError):
            next(frames)
        thread.join()
