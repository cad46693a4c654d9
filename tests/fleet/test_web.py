"""`agentless dashboard --web`: who gets in, and what they get.

A small app stands in for the dashboard; the server, its processes and its connections are real.
"""

from __future__ import annotations

import re

import aiohttp
import pytest

from tests.fleet.client import proc
from tests.fleet.web import shown, told

PATHS = ("", "ws", "ws/tasks/1", "tasks/1", "static/js/textual.js", "static/", "page/page.css", "download/x", "nowhere")
FOREIGN = ("http://evil.example", "http://127.0.0.1:1", "http://localhost:{}", "https://127.0.0.1:{}", "null", None)


async def test_a_link_leads_to_the_dashboard(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "90 by 20")


async def test_what_is_typed_reaches_the_app(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "k"])
        await shown(websocket, "pressed k")


async def test_the_app_takes_the_size_of_the_browser(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "90 by 20")
        await websocket.send_json(["resize", {"width": 100, "height": 30}])
        await shown(websocket, "100 by 30")


async def test_the_app_opens_at_the_path_and_follows_the_page(visitor):
    async with visitor.connect("/tasks/1%2F2") as websocket:
        await shown(websocket, "opened at /tasks/1%2F2.")
        await websocket.send_json(["place", "/queue"])
        await shown(websocket, "went to /queue.")


async def test_the_page_is_told_where_the_app_is(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "p"])
        assert await told(websocket) == ["place", {"path": "/nodes"}]


async def test_a_path_is_bounded_before_it_reaches_an_app(visitor):
    for path in ("/" + "x" * 600, "/%00" * 200):
        async with visitor.connect(path) as websocket:
            await shown(websocket, "opened at /?.")
            await websocket.send_json(["place", path])
            await shown(websocket, "went to /?.")


NONSENSE = {
    "a": "", "b": "[", "c": "7", "e": '["stdin", 7]', "f": '["resize", {"width": "x"}]', "g": '["place", 7]',
    "i": '["stdin", "\\ud800"]',
}  # fmt: skip
"""By the key that is pressed next."""


async def test_a_message_that_means_nothing_ends_nothing(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        for key, message in NONSENSE.items():
            await websocket.send_str(message)
            await websocket.send_json(["stdin", key])
            await shown(websocket, f"pressed {key}")


async def test_a_link_works_once(served, visitor, visitors):
    assert (await (await visitors()).open(served.first_link)).status == 403


async def test_another_link_is_printed_when_enter_is_pressed(served, visitor, visitors):
    served.process.stdin.write(b"\n")
    assert (await (await visitors()).open(await served.link())).status == 200


async def test_the_token_is_gone_from_the_address(served, visitor):
    token = served.first_link.partition("=")[2]
    assert token not in visitor.page


async def test_without_the_cookie_there_is_nothing_but_a_sentence(visitor, visitors):
    stranger = await visitors()
    answers = [await stranger.session.get(visitor.page + path) for path in PATHS]
    answers += [await stranger.session.get(visitor.own + path) for path in ("/", "/?token=", "/?token=x", "/static/")]
    answers += [await stranger.session.request(method, visitor.page) for method in ("HEAD", "POST", "OPTIONS")]
    said = {(answer.status, await answer.text()) for answer in answers if answer.method != "HEAD"}
    assert {answer.status for answer in answers} == {403}
    assert len(said) == 1
    assert "press Enter" in next(iter(said))[1]


async def test_a_connection_needs_the_cookie(visitor, visitors):
    stranger = await visitors()
    stranger.page = visitor.page
    with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
        await stranger.connect()


async def test_no_page_but_our_own_may_connect(visitor, served):
    for origin in FOREIGN:
        headers = {"Origin": origin.format(served.port)} if origin else {}
        with pytest.raises(aiohttp.WSServerHandshakeError, match="403"):
            await visitor.session.ws_connect(f"{visitor.page}ws", headers=headers)


async def test_a_foreign_name_that_leads_here_gets_nothing(visitor, served):
    names = ("evil.example", f"evil.example:{served.port}", "")
    answers = [await visitor.session.get(visitor.page, headers={"Host": name}) for name in names]
    assert [answer.status for answer in answers] == [403] * 3


async def test_a_foreign_name_cannot_use_up_a_link(served, visitors):
    visitor = await visitors()
    await visitor.session.get(served.first_link, headers={"Host": "evil.example"})
    assert (await visitor.open(served.first_link)).status == 200


async def test_behind_a_forwarded_port_it_works_alike(visitor):
    forwarded = {"Host": "localhost:9", "Origin": "http://localhost:9"}
    page = await (await visitor.session.get(visitor.page, headers=forwarded)).text()
    assert 'url="ws://localhost:9/' in page
    async with visitor.session.ws_connect(f"{visitor.page}ws", headers=forwarded) as websocket:
        await shown(websocket, "counted")


async def test_the_cookie_is_for_no_script_no_other_site_and_no_other_port(served, visitors):
    answer = await (await visitors()).session.get(served.first_link, allow_redirects=False)
    words = answer.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", f"Path={answer.headers['Location']}"} <= set(words)
    assert len(answer.headers["Location"]) > 20


async def test_the_page_and_what_it_loads_come_from_this_server_only(visitor):
    answer = await visitor.session.get(visitor.page)
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    assert {word for word in policy.split() if "//" in word} == {visitor.own.replace("http", "ws") + ";"}
    folder = visitor.page.removeprefix(visitor.own)
    assert {path.startswith(folder) for path in re.findall(r'(?:src|href)="([^"]*)', await answer.text())} == {True}


async def test_the_page_has_a_language_a_title_landmarks_a_status_and_a_name_for_each_button(visitor):
    page = await (await visitor.session.get(f"{visitor.page}tasks/1")).text()
    assert all(word in page for word in ('<html lang="en">', "<title>agentless</title>", "<main>", 'role="status"'))
    assert "user-scalable" not in page
    buttons = re.findall(r"<button([^>]*)>([^<]+)</button>", page)
    names = [re.search('aria-label="([^"]+)"', attributes) for attributes, _ in buttons]
    named = [name[1] if name else text for name, (_, text) in zip(names, buttons, strict=True)]
    assert len(buttons) == len(set(named)) >= 8
    assert all(re.search("[A-Z][a-z]+|larger|smaller", name) for name in named)


async def test_a_page_is_neither_kept_nor_framed_nor_told_of(visitor):
    headers = (await visitor.session.get(visitor.page)).headers
    found = [headers[name] for name in ("Cache-Control", "X-Frame-Options", "Referrer-Policy")]
    assert found == ["no-store", "DENY", "no-referrer"]


async def test_neither_token_nor_session_is_in_an_argv_or_an_environment(served, visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        words = "".join(
            proc(pid, name) for pid in (served.process.pid, *served.apps()) for name in ("cmdline", "environ")
        )
    secrets = [cookie.value for cookie in visitor.session.cookie_jar] + [served.first_link.partition("=")[2]]
    assert len(secrets) == 2
    assert not any(secret in words for secret in secrets)


async def test_what_the_app_hands_out_is_saved(visitor):
    async with visitor.connect() as websocket:
        await shown(websocket, "counted")
        await websocket.send_json(["stdin", "d"])
        kind, key = await told(websocket)
        answer = await visitor.session.get(f"{visitor.own}/download/{key}")
        assert (kind, await answer.text()) == ("deliver_file_start", "what a task has said\n")
        assert answer.headers["Content-Disposition"] == "attachment; filename*=UTF-8''task%201.log"
