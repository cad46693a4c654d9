"""VPS in the dashboard: which rows there are, what its forms ask for, and what its screens show and send."""

from __future__ import annotations

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from agentless.client.client import Client
from agentless.controller.http import live_feed
from agentless.controller.http.live_feed import LiveFeed
from agentless.errors import Refused, UsageError
from agentless.model.caller import Caller
from agentless.model.tasks.task import Ended
from agentless.tui.app import Dashboard
from agentless.tui.data import forwards
from agentless.tui.data.copied import fields_of_vps
from agentless.tui.data.form import TASK, VPS
from agentless.tui.screens.places import Places
from agentless.tui.screens.vps.snapshots import Snapshots
from tests.fleet.eyes import Eyes
from tests.pure.build import NOW, spec, task
from tests.pure.forms import submission_of
from tests.pure.test_dashboard_views import FAILED, RECORDED, RUNS, alone, drawn, over, tasks  # noqa: F401 - for all

RUNNING = {**RUNS, "id": "2v1", "name": "dev", "workload": "vps", "env": None, "command": []}
STOPPED = {**RUNNING, "id": "2v2", "name": "box", "state": "stopped", "ended_at": RUNS["started_at"], "reason": None}
SNAPSHOTS = [
    {"snapshot": f"dev:{at}", "vps": "dev", "image": f"agentless/dev.vps:{at}", "size_bytes": 2 << 20,
     "message": f"message {at}", "by": "ann@laptop", "at": f"2026-11-22T0{at}:00:00.000Z", "nodes": ["node1"]}
    for at in (1, 2)
]  # fmt: skip


# -------------------------------------------------------------------------------- rows


async def test_the_view_has_each_vps_by_name_and_no_task():
    other = {**RUNNING, "id": "2v3", "name": "other", "foreign": True}
    text = await drawn(tasks(RUNNING, STOPPED, RUNS, other), "7")
    rows = [line.split()[0] for line in text.splitlines()[3:5]]
    assert rows == ["box", "dev"]
    assert "other" not in text
    assert RUNS["name"] not in text


async def test_the_container_that_took_the_place_of_another_one_is_the_vps_and_the_cursor_stays():
    async with over(tasks(RUNNING, STOPPED)) as eyes:
        await eyes.press("7", "down")
        await eyes.see(lambda: eyes.app.target.task["id"] == "2v1")
        eyes.app.incoming.take({"tasks": [{**RUNNING, "id": "2v9", "gpus": [5]}]})
        await eyes.see(lambda: eyes.app.target.task["id"] == "2v9", "node1::5")


@pytest.mark.slow
async def test_an_empty_view_says_what_it_is_for():
    assert "Press n to create one" in await drawn(tasks(RUNS), "7")


def test_stopped_vps_are_all_in_the_feed_however_many_tasks_have_ended_since(monkeypatch):
    monkeypatch.setattr(live_feed, "ENDED", 2)
    end = Ended("stopped", NOW, None, None)
    ended = [replace(task(f"2t{at}"), status=end) for at in range(4)]
    vps = replace(task("2v1"), status=end, spec=replace(spec(), workload="vps", name="dev"))
    history = SimpleNamespace(
        last_events=lambda *_: 0, newest=lambda _: ended, events=lambda *_: [], get=lambda _: None
    )
    services = SimpleNamespace(
        tasks=SimpleNamespace(history=history, live={}),
        vps=SimpleNamespace(names=SimpleNamespace(all=lambda: [vps])),
        workflows=None,
        views=SimpleNamespace(seen_by=lambda _, each: {"id": each.id}),
        nodes=SimpleNamespace(links={}, clusters={}),
        records=SimpleNamespace(known={}),
        reservation_book=SimpleNamespace(known={}),
        queue=SimpleNamespace(plan=None),
    )
    feed = LiveFeed(services, Caller("ann"))
    with feed.followed() as follower:
        feed.refresh()
        rows = orjson.loads(orjson.dumps(feed.news(follower)["tasks"]))
    assert {row["id"] for row in rows} == {"2t0", "2t1", "2v1"}


# ------------------------------------------------------------------------------- forms

EMPTY: dict[str, str] = {}


def test_the_form_of_a_vps_makes_the_same_request_as_the_command():
    fields = {"name": "dev", "target": "1x", "container": "torch:3", "cores": "4", "mount": "/a:/b:ro /c:/d"}
    request = submission_of(VPS, EMPTY | fields).request()
    wanted = request["spec"]
    assert (wanted["workload"], wanted["name"], wanted["command"], wanted["container"], wanted["cores"]) == (
        "vps", "dev", (), "torch:3", 4.0,
    )  # fmt: skip
    assert [(each["source"], each["target"], each["read_only"]) for each in wanted["mounts"]] == [
        ("/a", "/b", True), ("/c", "/d", False),
    ]  # fmt: skip
    assert request["targets"] == ["1x"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"target": "1x"}, "Enter a name"),
        ({"name": "dev"}, "No resources requested"),
        ({"name": "dev", "target": "1x 2x"}, "one place"),
        ({"name": "dev", "target": "1x", "image": "a", "container": "b"}, "cannot be combined"),
    ],
)
def test_what_is_wrong_in_the_form_is_said_before_anything_is_sent(fields, words):
    with pytest.raises(UsageError, match=words):
        submission_of(VPS, EMPTY | fields)


def test_the_form_of_a_vps_says_when_it_stops_by_itself_and_a_copy_takes_that_over():
    fields = {"name": "dev", "target": "1x", "expires": "7d", "idle_stop": "4h"}
    request = submission_of(VPS, EMPTY | fields).request()
    like = json.loads(json.dumps(request["spec"]))
    assert (like["terms"]["expires"], like["terms"]["idle_stop"]) == (7 * 86400.0, 4 * 3600.0)
    copied = EMPTY | fields_of_vps({**RUNNING, "target": "1x"}, like) | {"name": "copy"}
    asked = submission_of(VPS, {**copied, "idle_stop": ""})
    made = asked.request()["spec"]["terms"]
    assert (made["expires"], made["idle_stop"]) == (7 * 86400.0, None)
    with pytest.raises(UsageError) as caught:
        submission_of(VPS, EMPTY | fields | {"expires": "soon"})
    assert str(caught.value).startswith("expires ")


def test_a_preview_needs_no_name_yet():
    assert submission_of(VPS, EMPTY | {"target": "1x"}, preview=True).spec.workload == "vps"


def test_a_copy_of_a_vps_is_like_it_but_for_its_name():
    like = submission_of(
        VPS, EMPTY | {"name": "dev", "target": "1x", "container": "torch:3", "mount": "/a:/b"}
    ).request()["spec"]
    like = json.loads(json.dumps(like)) | {"shm_size": 1 << 30, "image_id": "sha256:1", "image": "agentless/torch:3"}
    fields = fields_of_vps({**RUNNING, "target": "1x", "image": "agentless/torch:3"}, like)
    assert (fields["name"], fields["container"], fields.get("image"), fields["mount"]) == ("", "torch:3", None, "/a:/b")
    asked = submission_of(VPS, EMPTY | fields | {"name": "copy", "container": "torch:4"})
    made = asked.request()["spec"]
    assert (made["workload"], made["name"], made["shm_size"]) == ("vps", "copy", 1 << 30)
    assert (made["container"], made["image_id"], made["image"]) == ("torch:4", None, None)


def test_a_task_needs_no_name():
    assert submission_of(TASK, {"target": "1x", "command": "true"}).spec.name is None


# ----------------------------------------------------------------------------- screens


class Answering(Client):
    """Instead of a controller: it has snapshots, and keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), None)
        self.sent: list[tuple[str, Any]] = []

    def get(self, path: str, **_: object) -> object:
        return SNAPSHOTS if path == "/v1/vps/2v1/snapshots" else {"gpus": []}

    def post(self, path: str, body: object = None, **_: object) -> object:
        self.sent.append((path, body))
        return SNAPSHOTS[1] if path.endswith("/snapshots") else {"task": RUNNING, "message": ""}


@contextlib.asynccontextmanager
async def on_dev(client: Client, **more: bool) -> AsyncIterator[Eyes]:
    app = Dashboard(client, **more)
    async with app.run_test(size=(100, 30)) as pilot:
        app.incoming.begin()
        app.incoming.take(tasks(RUNNING))
        eyes = Eyes(app, pilot)
        app.notify = lambda message, **_: eyes.notes.append(message)
        await eyes.press("7")
        yield eyes


async def test_a_snapshot_is_made_with_a_message():
    client = Answering()
    async with on_dev(client) as eyes:
        await eyes.press("v")
        await eyes.see("Snapshots of VPS dev", "message 2")
        assert eyes.text.index("dev:2") < eyes.text.index("dev:1")
        await eyes.press("n", "before the change", "enter")
        await eyes.see("dev:2 made")
    assert client.sent == [("/v1/vps/2v1/snapshots", {"message": "before the change"})]


async def test_a_restore_asks_first_and_names_what_is_lost():
    client = Answering()
    async with on_dev(client) as eyes:
        await eyes.press("v")
        await eyes.see("message 1")
        await eyes.press("down", "enter")
        await eyes.see("Restore VPS dev to dev:1?", "message 1", "is lost")
        await eyes.press("n")
        assert client.sent == []
        await eyes.press("enter", "y")
        await eyes.see(lambda: client.sent == [("/v1/vps/2v1/restore", {"snapshot": "dev:1"})])


async def test_a_read_only_dashboard_only_lists_snapshots():
    async with on_dev(Answering(), read_only=True) as eyes:
        await eyes.press("z", "P", "R", "v")
        await eyes.see("message 2")
        await eyes.press("n", "enter")
        await eyes.pilot.pause()
        assert isinstance(eyes.app.screen, Snapshots)


@pytest.mark.slow
async def test_only_what_is_typed_is_resized():
    client = Answering()
    async with on_dev(client) as eyes:
        await eyes.press("z", "ctrl+s")
        await eyes.see("Enter what to change")
        await eyes.press("four", "ctrl+s")
        await eyes.see("is not a number")
        eyes.app.screen.query_one("#cores").value = "4"
        eyes.app.screen.query_one("#memory").value = "16G"
        await eyes.press("ctrl+s")
        await eyes.see(
            lambda: client.sent == [("/v1/vps/2v1/resize", {"cores": 4.0, "memory": 16 * 10**9, "target": None})]
        )


# ------------------------------------------------------------------------------- ports


class Port:
    """Instead of a forwarded port."""

    def __init__(self, there: int, here: int | None) -> None:
        self.there, self.port = there, here or there
        self.url = f"http://localhost:{self.port}"
        self.open = True

    def close(self) -> None:
        self.open = False


@pytest.fixture
def opened(monkeypatch) -> list[Port]:
    """The ports that are forwarded. Port 80 of this machine is taken, and there is a browser."""
    opened = []

    def forward(_, task, there, here, tell):
        del task, tell
        if here == 80:
            raise Refused("cannot listen on port 80 of this machine")
        opened.append(Port(there, here))
        return opened[-1]

    monkeypatch.setattr(forwards, "forward_port", forward)
    return opened


@pytest.fixture
def browsed(monkeypatch) -> list[str]:
    """What a browser was asked for."""
    browsed: list[str] = []
    monkeypatch.setattr("agentless.tui.app.browse", lambda url: not browsed.append(url))
    return browsed


async def test_a_port_is_forwarded_once_opened_shown_and_closed_with_the_dashboard(opened, browsed):
    async with on_dev(Answering()) as eyes:
        for _ in range(2):
            await eyes.press("P", "8888", "enter")
            await eyes.see(lambda: "http://localhost:8888 leads to port 8888 of dev" in eyes.messages)
            eyes.notes.clear()
        await eyes.press("P")
        await eyes.see("http://localhost:8888 → 8888")
        await eyes.press("8888:9999", "enter")
        await eyes.see(lambda: "http://localhost:9999 leads to port 8888 of dev" in eyes.messages)
        assert [port.open for port in opened] == [False, True]
    assert browsed == ["http://localhost:8888"] * 2 + ["http://localhost:9999"]
    assert not any(port.open for port in opened)


@pytest.mark.slow
@pytest.mark.parametrize(("typed", "words"), [("80:80", "cannot listen on port 80"), ("web", "is no port")])
async def test_a_port_that_cannot_be_is_a_sentence(opened, browsed, typed, words):
    async with on_dev(Answering()) as eyes:
        await eyes.press("P", typed, "enter")
        await eyes.see(lambda: words in eyes.messages)
    assert browsed == []


@pytest.mark.slow
async def test_the_ports_of_a_task_are_offered(opened, browsed):
    async with on_dev(Answering()) as eyes:
        eyes.app.incoming.take({"tasks": [{**RUNNING, "ports": [{"port": 8888, "local": 9999}]}]})
        await eyes.press("P")
        await eyes.see("8888:9999")
        await eyes.press("enter")
        await eyes.see(lambda: "http://localhost:9999 leads to port 8888" in eyes.messages)


async def test_in_a_browser_nothing_is_opened_and_the_way_from_another_machine_is_said(opened, browsed, monkeypatch):
    monkeypatch.setattr(Dashboard, "is_web", True)
    monkeypatch.setattr(Places, "tell", lambda *_: None)  # there is no page
    async with on_dev(Answering()) as eyes:
        await eyes.press("P", "8888", "enter")
        await eyes.see(lambda: "on the machine of this dashboard" in eyes.messages)
        assert "first run: ssh -L 8888:localhost:8888 " in eyes.messages
    assert browsed == []


@pytest.mark.parametrize(("browser", "has"), [("lynx", False), ("firefox &", True)])
def test_a_browser_in_the_terminal_is_left_alone(monkeypatch, tmp_path, browser, has):
    program = tmp_path / "browser"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    monkeypatch.setattr("webbrowser._tryorder", None)
    monkeypatch.setattr("webbrowser._browsers", {})
    monkeypatch.setenv("BROWSER", f"{program} %s{' &' if has else ''}")
    assert forwards.browse("http://localhost:1") is has
