"""What people read of tasks and GPUs, typed as a user types it: n1 has four GPUs, n2 has one that is in use."""

from __future__ import annotations

import json

import pytest

from agentless.client.client import Client, RequestFailed
from tests.fleet.test_batches import typed


async def submitted(agentless, *words):
    out, _ = await typed(agentless, "submit", *words)
    return out.strip()


async def test_show_says_where_it_runs_and_what_was_asked_for(agentless):
    options = ("-e", "A=1", "-e", "B=x y", "-s", "TOKEN=secret", "--mount", "/tmp:/d:ro", "--shm-size", "1GiB")
    await submitted(agentless, "1x", "--name", "t", "--priority", "3", *options, "--", "sleep", "600")
    out, _ = await typed(agentless, "show", "t")
    shown = dict(line.strip().split("  ", 1) for line in out.splitlines() if line)
    assert (shown["target"], shown["where"], shown["priority"]) == ("1x", "n1::0", "3")
    assert (shown["variables"], shown["mounts"]) == ("A=1, B='x y', TOKEN (secret)", "/tmp:/d:ro")
    assert shown["shm size"] == "1 GiB"
    assert "=secret" not in out


async def test_events_say_where_it_was_placed(agentless):
    await submitted(agentless, "1x", "--name", "t", "--", "sleep", "600")
    out, _ = await typed(agentless, "events", "t")
    assert all(" n1::0 " in line for line in out.splitlines())


async def test_a_bad_end_is_told_to_who_waits(agentless):
    task = await submitted(agentless, "1x", "--", "sh", "-c", "exit 7")
    _, err = await typed(agentless, "wait", task, code=7)
    assert err == f"{task}  failed (7)\n"
    limit = ("--time-limit", "1s", "--stop-grace", "0s")
    _, err = await typed(agentless, "submit", "1x", *limit, "--wait", "--", "sleep", "600", code=137)
    assert err.splitlines()[-1].endswith("  timeout (137): reached its time limit of 1s")


async def test_a_good_end_is_told_by_the_exit_code_alone(agentless):
    task = await submitted(agentless, "1x", "--", "true")
    assert await typed(agentless, "wait", task) == ("", "")


async def test_whose_task_holds_a_gpu_is_said_of_others_only(agentless):
    mine = await submitted(agentless, "n1::0", "--", "sleep", "600")
    anns = await submitted(agentless, "n1::1", "--owner", "ann", "--", "sleep", "600")
    out, _ = await typed(agentless, "gpus", "n1")
    assert [line.split()[9:] for line in out.splitlines()[1:3]] == [[mine], [anns, "ann"]]
    out, _ = await typed(agentless, "gpus", "n1", "--json")
    assert [gpu["mine"] for gpu in json.loads(out)] == [True, False, False, False]


async def test_that_older_tasks_are_not_listed_is_said(agentless):
    for _ in range(2):
        await typed(agentless, "submit", "1x", "--wait", "--", "true")
    out, err = await typed(agentless, "ps", "--all", "--limit", "1")
    assert len(out.splitlines()) == 2
    assert err == "Only the newest 1 ended tasks are listed. For more: --limit 10\n"
    assert (await typed(agentless, "ps", "--all"))[1] == ""


async def test_a_request_that_is_none_has_an_error_like_all_others(agentless, tmp_path):
    await typed(agentless, "nodes")
    with pytest.raises(RequestFailed, match="GET /v1/nope: no such request") as failed:
        Client(tmp_path / "typed" / "agentless", None).get("/v1/nope")
    assert (failed.value.exit_code, failed.value.error) == (2, "UsageError")
