"""A gang in lists and details: its members stand together, by rank."""

from __future__ import annotations

from agentless.client.words import asked_for, ending, in_gangs, members, rank, whole
from agentless.client.workflow_graph import neighbours
from tests.pure.test_dashboard_views import (
    RECORDED,
    RUNS,
    WAITS,
    WORKFLOW,
    alone,  # noqa: F401 - a fixture for all
    drawn,
    over,
    tasks,
)

IDS = ("2ma", "2mb", "2mc")


def member(number: int, task: dict = RUNS, attempt: int = 1, **more: object) -> dict:
    return {
        **task,
        "id": IDS[number] + ("" if attempt == 1 else f"-{attempt}"),
        "attempt": attempt,
        "gang": {"id": "2ma", "rank": number, "size": 3, "members": list(IDS)},
        **more,
    }


def test_members_stand_together_by_rank_where_the_first_was_and_tries_apart():
    other = {**RUNS, "id": "2x"}
    listed = [member(2), other, member(0), member(1, attempt=2), member(1)]
    assert [task["id"] for task in in_gangs(listed)] == ["2ma", "2mb", "2mc", "2x", "2mb-2"]
    assert [rank(task) for task in in_gangs(listed)] == ["0/3", "└ 1/3", "└ 2/3", "", "└ 1/3"]


def test_the_details_of_a_member_name_the_others_of_its_try():
    listed = [member(1), member(0), member(1, attempt=2), {**RUNS, "id": "2x"}]
    assert [row.partition(",")[0] for row in members(member(1), listed)] == ["rank 0: 2ma", "rank 1: 2mb"]
    assert members({**RUNS, "id": "2x"}, listed) == []


def test_the_first_member_stands_for_all_and_has_the_end_of_the_one_that_failed():
    """Its own program was stopped because of that one, and its id is the one that you know."""
    first = member(0, state="stopped", exit_code=137, reason="rank 1 on n2 failed with exit code 7")
    bad = member(1, state="failed", exit_code=7, reason="rank 1 on n2 failed with exit code 7")
    shown = whole(first, [first, bad, member(2, state="completed")])
    assert (shown["id"], shown["state"], shown["exit_code"]) == ("2ma", "failed", 7)
    assert whole(member(2, state="completed"), [first, bad])["state"] == "completed"
    assert whole(RUNS, [first, bad]) == RUNS
    assert ending(bad) == "2ma  failed (7): rank 1 on n2 failed with exit code 7"
    assert ending({**bad, "id": "2mb-2"}) == "2ma-2  failed (7): rank 1 on n2 failed with exit code 7"


def test_a_target_says_on_how_many_nodes_unless_it_names_them():
    assert asked_for(member(1, target="1x")) == "1x on 3 nodes"
    assert asked_for(member(1, target="n1::0,1,2")) == "n1::0-2"
    assert asked_for({**RUNS, "target": "1x"}) == "1x"


def test_the_details_of_a_job_name_what_it_requires_and_what_needs_it():
    rows = {job["job"]: job["task"] for job in WORKFLOW["jobs"]}
    every = [job["task"] for job in WORKFLOW["jobs"]]
    assert neighbours(rows["train"], every) == ("split", "distill, eval-large, alarm")
    assert neighbours(rows["fetch"], every) == ("", "split, check, tokens")


async def test_a_gang_is_seen_as_one_in_tasks_queue_and_details():
    waits = [member(number, {**WAITS, "position": 1 + number}, id=f"2n{number}") for number in (2, 1, 0)]
    for task in waits:
        task["gang"] = {**task["gang"], "id": "2n0"}
    line = tasks(member(1), {**RUNS, "id": "2mx"}, member(2), member(0), *waits)
    async with over(line, (120, 36)) as eyes:
        await eyes.press("5")
        await eyes.see("REASON", "└ 2/3")
        await eyes.press("4")
        await eyes.see("COMMAND", "└ 2/3")
        rows = [row.split()[0] for row in eyes.text.splitlines()[3:9]]
        assert rows == ["2mx", "2ma", "2mb", "2mc", "2n0", "2n1"]
        await eyes.press("down", "enter")
        await eyes.see("rank 1: 2mb, ")
    assert "RANK" not in await drawn(RECORDED, "4")
