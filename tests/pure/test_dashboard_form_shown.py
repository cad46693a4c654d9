"""The form of the dashboard on the screen, without a controller: panels, lists, mistakes, secrets."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from textual import events

from agentless.client.client import Client
from agentless.tui.app import Dashboard
from agentless.tui.data.form import TASK, VPS
from agentless.tui.screens.keys import Keys
from agentless.tui.screens.submit import SubmitForm
from agentless.tui.screens.vps.create import VpsForm
from agentless.tui.widgets.fields import Picks
from tests.fleet.eyes import Eyes
from tests.pure.test_dashboard_views import RECORDED, alone  # noqa: F401 - for all

VERSION = {"version": 3, "current": True, "nodes": ["node1"], "message": "flash-attn"}
ENVS = [
    {"name": "torch", "version": 3, "versions": [VERSION, {**VERSION, "version": 2, "current": False, "message": ""}]}
]
IMAGES = [{"name": "pytorch/pytorch:2.9", "size": 1, "entrypoint": ""}]


class Answering(Client):
    """Instead of a controller: it has envs and images, and keeps what it is sent."""

    def __init__(self) -> None:
        super().__init__(Path("/nowhere"), None)
        self.sent: list[tuple[str, Any]] = []

    def get(self, path: str, **_: object) -> object:
        return ENVS if path == "/v1/envs" else IMAGES if path.endswith("/images") else {"gpus": []}

    def post(self, path: str, body: object = None, **_: object) -> object:
        self.sent.append((path, body))
        return {"summary": "1x would start now", "obstacles": [], "remedies": {}}


@contextlib.asynccontextmanager
async def formed(
    size: tuple[int, int], kind: type[SubmitForm] = SubmitForm, **given: str
) -> AsyncIterator[tuple[Eyes, Any]]:
    client = Answering()
    app = Dashboard(client)
    async with app.run_test(size=size) as pilot:
        app.incoming.begin()
        app.incoming.take(RECORDED)
        await app.push_screen(kind(app.cluster, client, given))
        await pilot.pause()
        yield Eyes(app, pilot), app.screen


def shown(form: SubmitForm) -> list[str]:
    """The fields and headings that Tab goes through."""
    return [getattr(widget, "heading", widget.id) for widget in form.focus_chain]


async def test_closed_panels_have_no_widgets_and_open_ones_have_all_options():
    async with formed((80, 24)) as (eyes, form):
        first = [field.name for field in TASK.shown]
        assert shown(form) == [*first, *TASK.panels, "submit"]
        assert len(form._fields) == len(first)
        for fold in form._folds.values():
            form.set_focus(fold)
            await eyes.press("enter")
        expected = [name for heading, fields in TASK.panels.items() for name in (heading, *(f.name for f in fields))]
        assert shown(form) == [*first, *expected, "submit"]
        form.set_focus(form._fields["exclusive"])
        await eyes.press("space")
        assert form._fields["exclusive"].text == "yes"
        form.set_focus(form._folds["Where"])
        await eyes.press("enter")
        await eyes.see("▸ Where: exclusive")
        await eyes.pilot.click(form._folds["Where"])
        await eyes.see("Exclusive         [x] no other tasks on its node")


async def test_a_list_is_narrowed_by_typing_taken_by_enter_or_click_and_closed_by_esc():
    async with formed((80, 24)) as (eyes, form):
        form.set_focus(form._fields["container"])
        await eyes.press("down")
        await eyes.see("torch    version 3, on node1", "torch:3  on node1; flash-attn")
        await eyes.press("2")
        await eyes.see("torch:2  on node1")
        assert "torch:3" not in eyes.text
        await eyes.press("enter")
        assert (form._fields["container"].value, form.focused.id) == ("torch:2", "container")
        await eyes.press("down", "escape")
        assert not form.query(Picks)
        form.set_focus(form._fields["image"])
        await eyes.press("down")
        await eyes.see("pytorch/pytorch:2.9")
        await eyes.pilot.click(Picks, offset=(5, 1))
        assert form._fields["image"].value == IMAGES[0]["name"]
        form.set_focus(form._fields["node"])
        await eyes.press("down", "down", "enter", "space", "down", "enter")
        assert form._fields["node"].value == "node2 node1"


async def test_a_long_list_is_cut_and_keeps_its_choice_when_more_is_known_and_when_the_screen_gets_narrow():
    async with formed((80, 24)) as (eyes, form):
        form._asked_for.add("image")
        form._keep("node1", [{"name": f"b{at:03}"} for at in range(300)])
        form.set_focus(form._fields["image"])
        await eyes.press("down", "b")
        await eyes.see("b000")
        await eyes.press("down")
        form._keep("node2", [{"name": "b000" + "x" * 70}, {"name": "a"}, {"name": "ab"}])
        (found,) = form.query(Picks)
        assert (found.taken, found.option_count) == ("b001", 201)
        assert str(found.options[200].prompt) == "102 more; type to narrow"
        await eyes.pilot.resize_terminal(48, 30)
        await eyes.see(lambda: found.virtual_size.height == 201, "  b001              on nod…")  # one line each
        await eyes.press("enter")
        assert form._fields["image"].value == "b001"


async def test_a_mistake_is_told_at_its_field_and_the_preview_stays():
    async with formed((80, 24)) as (eyes, form):
        await eyes.press("1x")
        await eyes.see("1x would start now")
        form.set_focus(form._fields["time_limit"])
        await eyes.press("soon", "tab")
        await eyes.see("time limit 'soon' is not a duration", "1x would start now")
        await eyes.press("ctrl+s")
        await eyes.see("Enter a command", lambda: form.focused.id == "command")
        await eyes.press("true", "ctrl+s")
        await eyes.see(lambda: form.focused.id == "time_limit")
        await eyes.press("ctrl+u")
        await eyes.see(lambda: not form._errors)
        form.set_focus(form._folds["If it fails"])
        await eyes.press("enter", "tab", "oom")
        await eyes.see("retry on needs retries")
        form.set_focus(form._folds["If it fails"])
        await eyes.press("enter", "ctrl+s")
        await eyes.see("retry on needs retries", lambda: form.focused.id == "retry_on")


async def test_a_secret_is_neither_shown_nor_sent_for_a_preview():
    async with formed((120, 40)) as (eyes, form):
        await eyes.press("1x", "tab", "true")
        form.set_focus(form._folds["Container"])
        await eyes.press("enter")
        form._fields["secret_env"].text = "TOKEN=s3cret\nOTHER=x=y"
        form.set_focus(form._fields["secret_env"])
        await eyes.see("TOKEN=••••••", "OTHER=•••", "1x would start now")
        await eyes.see(lambda: [each for each in form._client.sent if each[1]["spec"]["secret_env"]])
        form._fields["secret_env"].action_select_all()
        form._fields["secret_env"].action_copy()
        assert "s3cret" not in eyes.app.clipboard
        form._fields["secret_env"].text = "TOK=-----BEGIN KEY-----\ns3cretline\ns3cretpad==\nTWO=x"
        await eyes.see("TOK=••••", " ••••••••••• ", "TWO=•", "secrets, line 2")
        assert "s3cret" not in eyes.text
        (*_, (path, request)) = [each for each in form._client.sent if each[1]["spec"]["secret_env"]]
        assert (path, request["spec"]["secret_env"]) == ("/v1/explain", ("OTHER", "TOKEN"))
        assert "s3cret" not in repr(form._client.sent)


async def test_keys_that_come_at_once_go_into_the_panel_that_they_open():
    async with formed((80, 24)) as (eyes, form):
        form.set_focus(form._folds["Container"])
        for key in ("enter", "tab", "tab", "T", "=", "a", "b", "q"):
            eyes.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await eyes.see("T=•••")
        assert form._fields["secret_env"].text == "T=abq"


@pytest.mark.parametrize("size", [(200, 60), pytest.param((80, 24), marks=pytest.mark.slow)])
async def test_a_copied_mistake_in_a_panel_is_shown_at_its_field(size):
    async with formed(size, target="1x", command="true", secret_env="NOT_SET_HERE") as (eyes, form):
        await eyes.press("ctrl+s")
        await eyes.see("secrets, line 1: not set", lambda: form.focused.id == "secret_env")


async def test_pasted_lines_are_joined_in_one_and_keys_of_the_views_do_nothing_in_the_form():
    async with formed((80, 24)) as (eyes, form):
        await eyes.press("1x\n  2x \r\n\n", "shift+tab", "shift+tab", "q", "c", "S", "1", "y", "colon")
        assert (eyes.app.screen, eyes.app.is_running, form._fields["target"].value) == (form, True, "1x 2x")
        await eyes.press("question_mark")
        await eyes.see("submit the task", lambda: isinstance(eyes.app.screen, Keys))


@pytest.mark.slow
async def test_a_wide_screen_has_all_panels_open_beside_the_preview():
    async with formed((200, 60), VpsForm) as (eyes, form):
        await eyes.see(lambda: len(form._fields) == len(VPS.fields), "Snapshot on stop", "Create (Ctrl+S)")
        regions = [form.query_one(name).region for name in ("#first", "#more", "#preview")]
        assert [each.right <= after.x for each, after in pairwise(regions)] == [True, True]
        assert not form.query_one("#form").show_vertical_scrollbar
