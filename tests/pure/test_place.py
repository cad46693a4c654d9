"""The places of the dashboard, as paths; and what a page is told of them."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.client.client import Client
from agentless.errors import Refused
from agentless.tui.app import VIEWS, Dashboard
from agentless.tui.data.place import LONGEST, Place, parsed
from agentless.tui.screens.details.task import TaskDetails
from agentless.tui.screens.logs.screen import LogScreen
from tests.fleet.eyes import Eyes
from tests.pure.test_dashboard_views import (
    RECORDED,
    RUNS,
    WORKFLOW,
    alone,  # noqa: F401 - a fixture for all
    over,
)

NAMES = st.text(st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), min_size=1, max_size=20)
EXAMPLES = {
    "/": Place("overview"),
    "/queue": Place("queue"),
    "/tasks/12ab": Place("tasks", "12ab"),
    "/tasks/12ab/log": Place("tasks", "12ab", "log"),
    "/gpus/node1/0": Place("gpus", "node1", "0"),
    "/gpus/node1/0%2F1": Place("gpus", "node1", "0/1"),
    "/nodes/a%20b": Place("nodes", "a b"),
    "/workflows/7": Place("workflows", "7"),
}


@pytest.mark.parametrize("path", EXAMPLES)
def test_a_path_is_a_place_and_a_place_is_a_path(path):
    assert parsed(path) == EXAMPLES[path]
    assert EXAMPLES[path].path == path


@given(NAMES.filter(lambda name: name.isprintable() and "�" not in name), st.sampled_from(("nodes", "tasks", "vps")))
def test_any_name_comes_back_from_its_path(name, view):
    assert parsed(Place(view, name).path) == Place(view, name)


@given(st.text(max_size=60))
def test_any_text_is_a_place_or_none(text):
    place = parsed(f"/{text}")
    assert place is None or all(word.isprintable() for word in (place.view, place.about, place.part))


@pytest.mark.parametrize(
    "path",
    ["/../etc", "/tasks/a/b", "/tasks/a/log/c", "/gpus/node1", "/queue/1", "/nodes//x", "/nodes/%1B%5B2J",
     "/nodes/%E2%80%AE", "/nodes/%ff", "/Tasks", "/?", f"/nodes/{'n' * LONGEST}"],
)  # fmt: skip
def test_what_is_no_path_of_ours_is_no_place(path):
    assert parsed(path) is None


@pytest.mark.parametrize(
    ("path", "title"),
    [("/", ""), ("/tasks", ""), ("/tasks/7", "Task 7"), ("/tasks/7/log", "Log of 7"), ("/gpus/n/0", "GPU n::0"),
     ("/nodes/n", "Node n"), ("/workflows/7", "Workflow 7"), ("/vps/web", "VPS web")],
)  # fmt: skip
def test_a_place_has_a_title(path, title):
    assert parsed(path).title == title


# ---------------------------------------------------------------------------------- in the app


@pytest.fixture(autouse=True)
def nobody(monkeypatch) -> Callable[..., None]:
    """No controller answers, nor is one started."""

    def answer(*_: object, **__: object) -> None:
        raise Refused("nobody answers")

    monkeypatch.setattr(Client, "get", answer)
    monkeypatch.setattr(Client, "followed", answer)
    return answer


@pytest.fixture
def told(monkeypatch) -> list[dict]:
    """What the page of a browser was told."""
    told: list[dict] = []
    monkeypatch.setattr(
        Dashboard, "is_web", property(lambda app: bool(setattr(app._driver, "write_meta", told.append)) or True)
    )
    return told


def notified(eyes: Eyes) -> str:
    """The newest notification."""
    return [*(note.message for note in eyes.app._notifications), ""][0]


async def until_told(eyes: Eyes, told: list[dict], path: str) -> dict:
    await eyes.see(lambda: told and told[-1]["path"] == path)
    return told[-1]


async def test_the_page_is_told_of_each_view(told):
    async with over(RECORDED) as eyes:
        for key, view in [*enumerate(VIEWS, 1)][::-1]:
            await eyes.press(str(key))
            found = await until_told(eyes, told, Place(view).path)
            assert found["title"] == f"1 problem · {VIEWS[view]} · agentless"
            assert not found["replaces"]


async def test_the_page_is_told_of_what_is_opened_and_closed(told):
    async with over(RECORDED) as eyes:
        await eyes.press("3", "enter")
        assert (await until_told(eyes, told, "/nodes/node1"))["title"].endswith("Node node1 · agentless")
        await eyes.press("escape")
        await until_told(eyes, told, "/nodes")


async def test_a_terminal_is_told_nothing(monkeypatch):
    async with over(RECORDED) as eyes:
        eyes.app._driver.write_meta = pytest.fail
        await eyes.press("3", "enter", "escape")


@pytest.mark.parametrize(
    "paths",
    [
        ("/gpus/node2/0", f"/tasks/{RUNS['id']}/log", "/"),
        pytest.param(
            ("/nodes/node2", "/queue", f"/tasks/{RUNS['id']}", f"/workflows/{WORKFLOW['id']}"), marks=pytest.mark.slow
        ),
    ],
    ids=" ".join,
)
async def test_the_app_goes_to_each_place_from_anywhere(told, paths):
    async with over({**RECORDED, "workflows": [WORKFLOW]}) as eyes:
        await eyes.press("4", "enter")
        for path in paths:
            eyes.app.go_to(path)
            assert (await until_told(eyes, told, path))["replaces"]
            await eyes.pilot.pause()
            assert len(eyes.app.screen_stack) <= 2


async def test_the_app_opens_where_the_page_was_opened_once_the_rows_are_there(told):
    async with over({}, place="/nodes/node2") as eyes:
        await eyes.pilot.pause()
        assert told == []
        eyes.app.incoming.take(RECORDED)
        await until_told(eyes, told, "/nodes/node2")
        assert [each["path"] for each in told] == ["/nodes/node2"]


async def test_back_from_a_log_is_the_screen_that_it_was_opened_on(told):
    async with over(RECORDED) as eyes:
        await eyes.press("4", "enter")
        details = eyes.app.screen
        assert isinstance(details, TaskDetails)
        here = eyes.app.places.here.path
        await eyes.press("l")
        assert isinstance(eyes.app.screen, LogScreen)
        eyes.app.go_to(here)
        await until_told(eyes, told, here)
        assert eyes.app.screen is details


@pytest.mark.parametrize(
    "path", ["/tasks/\x1b[2J", *(pytest.param(path, marks=pytest.mark.slow) for path in ("/nowhere", "/gpus/node1/99"))]
)
async def test_a_place_that_is_not_there_is_the_overview_with_a_sentence(told, path):
    async with over(RECORDED) as eyes:
        await eyes.press("4", "enter")
        eyes.app.go_to(path)
        await until_told(eyes, told, "/")
        await eyes.see(lambda: re.fullmatch("Not found: /.*; showing the overview", notified(eyes)))


async def test_a_task_that_ended_long_ago_is_asked_for(told, monkeypatch, nobody):
    def found(path: str, **query: object) -> dict:
        return RUNS if path == f"/v1/tasks/{RUNS['id']}-1" else nobody(path, **query)

    async with over({**RECORDED, "tasks": []}) as eyes:
        monkeypatch.setattr(eyes.app.client, "get", found)
        eyes.app.go_to(f"/tasks/{RUNS['id']}")
        await until_told(eyes, told, f"/tasks/{RUNS['id']}")
        await eyes.pilot.pause()


async def test_a_task_that_nobody_knows_is_the_overview(told):
    async with over(RECORDED) as eyes:
        eyes.app.go_to("/tasks/0r6v45dpx1q")
        await until_told(eyes, told, "/")


async def test_a_form_with_text_in_it_is_not_lost_by_going_back(told):
    async with over(RECORDED) as eyes:
        await eyes.press("4", "n", "sleep 5")
        eyes.app.go_to("/queue")
        await eyes.see("Discard this form?")
        assert told[-1]["path"] == "/tasks"


# -------------------------------------------------------------------------------------- copied


async def test_a_key_copies_the_chosen_row_or_the_name_of_what_is_open():
    async with over(RECORDED) as eyes:
        for keys, copied in (("1", "node1::0"), ("3", "node1\tonline"), (("3", "enter"), "node1"), ("2", "node1\t0")):
            await eyes.press(*keys, "y")
            assert eyes.app.clipboard.startswith(copied)
            await eyes.see(lambda: notified(eyes).startswith("Copied: node1"))
            await eyes.press("escape")


async def test_in_a_question_the_key_answers_and_copies_nothing():
    async with over(RECORDED) as eyes:
        await eyes.press("4", "question_mark", "y")
        assert eyes.app.clipboard == ""
