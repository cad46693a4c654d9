"""Sweeps and batches, typed as a user types them, on simulated nodes: n1 has four GPUs."""

from __future__ import annotations

import asyncio
import json

import pytest


async def typed(agentless, *words, code=0):
    """Type it while the simulated nodes live in this process."""
    return await asyncio.to_thread(agentless, *words, code=code)


async def batch_of(agentless, *words):
    out, _ = await typed(agentless, "submit", "1x", *words)
    return out.split()


SEEDS = ("--", "sh", "-c", 'echo "$0 $1"; test "$1" != 2', "lr=span:[0.1,0.01]", "span:{1..3}")


async def test_a_sweep_is_one_batch_of_all_combinations(agentless):
    ids = await batch_of(agentless, *SEEDS)
    out, _ = await typed(agentless, "wait", "--batch", ids[1], code=1)
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["ID", "lr", "arg4", "STATE", "WHERE", "TIME"]
    assert [(row[1], row[2], row[3]) for row in rows[1:]] == [
        ("0.1", "1", "completed"), ("0.1", "2", "failed"), ("0.1", "3", "completed"),
        ("0.01", "1", "completed"), ("0.01", "2", "failed"), ("0.01", "3", "completed"),
    ]  # fmt: skip
    assert [row[0] for row in rows[1:]] == ids


async def test_what_a_batch_printed_has_its_values_in_front(agentless):
    ids = await batch_of(agentless, *SEEDS)
    await typed(agentless, "wait", "--batch", ids[0], code=1)
    out, _ = await typed(agentless, "logs", "--batch", ids[0])
    assert out.splitlines()[:2] == ["lr=0.1 arg4=1 | lr=0.1 1", "lr=0.1 arg4=2 | lr=0.1 2"]


@pytest.mark.slow
async def test_those_that_failed_are_tried_again(agentless):
    ids = await batch_of(agentless, *SEEDS)
    await typed(agentless, "wait", "--batch", ids[0], code=1)
    out, _ = await typed(agentless, "retry", "--failed", "--batch", ids[0])
    assert [line.split()[0] for line in out.splitlines()] == [f"{ids[1]}-2", f"{ids[4]}-2"]
    out, _ = await typed(agentless, "wait", "--batch", ids[0], code=1)
    assert [line.split()[0] for line in out.splitlines()[1:]] == [
        ids[0],
        f"{ids[1]}-2",
        *ids[2:4],
        f"{ids[4]}-2",
        ids[5],
    ]


@pytest.mark.slow
async def test_a_name_that_many_tasks_of_a_batch_have_means_none_of_them(agentless):
    ids = await batch_of(agentless, "--name", "sweep", *SEEDS)
    await typed(agentless, "wait", "--batch", "sweep", code=1)
    for verb in ("wait", "logs", "retry"):
        _, err = await typed(agentless, verb, "sweep", code=2)
        assert f"'sweep' is a batch of 6 tasks; use the id of one, such as {ids[0]}, or --batch sweep" in err
    _, err = await typed(agentless, "explain", "sweep", code=2)
    assert "--batch" not in err


async def test_a_batch_is_stopped_as_a_whole(agentless):
    ids = await batch_of(agentless, "--", "sleep", "span:{600..605}")
    await typed(agentless, "stop", "--batch", ids[0], "--grace", "0s")
    out, _ = await typed(agentless, "ps", "--all", "--batch", ids[0], "--json")
    assert {task["state"] for task in json.loads(out)} == {"stopped", "cancelled"}


async def test_at_most_so_many_of_a_batch_run_at_a_time(agentless):
    ids = await batch_of(agentless, "--max-parallel", "2", "--", "sleep", "span:{600..603}")
    out, _ = await typed(agentless, "ps", "--json")
    assert [task["state"] for task in json.loads(out)] == ["running", "running", "pending", "pending"]
    out, _ = await typed(agentless, "explain", ids[3])
    assert "2 tasks of its batch are running (--max-parallel)" in out
    await typed(agentless, "kill", ids[0])
    async with asyncio.timeout(20):
        while '"state": "pending"' in (await typed(agentless, "show", "--json", ids[2]))[0]:
            pass
    out, _ = await typed(agentless, "ps", "--json")
    assert [task["id"] for task in json.loads(out) if task["gpu_uuids"]] == ids[1:3]


async def test_a_sweep_can_be_waited_for_where_it_is_submitted(agentless):
    """A script gets the ids, as without `--wait`."""
    out, err = await typed(agentless, "submit", "1x", "--wait", "--zip", *SEEDS[:-2], "span:[a,b]", "span:{3..4}")
    rows = [line.split() for line in err.splitlines()[-2:]]
    assert [row[1:4] for row in rows] == [["a", "3", "completed"], ["b", "4", "completed"]]
    assert out.split() == [row[0] for row in rows]


async def test_a_rehearsal_of_a_sweep_is_one_script_and_the_commands_with_their_places(agentless):
    words = ("submit", "1x", "--dry-run", "--", "train", "--seed", "span:{1..6}", "a\nb")
    out, err = await typed(agentless, *words)
    lines = [line for line in out.splitlines() if line.startswith(("# runs on ", "# same script "))]
    assert lines == [
        "# runs on n1::0, through the stdin of sh:",
        *(f"# same script on n1::{gpu}, with: train --seed {gpu + 1} 'a" for gpu in (1, 2, 3)),
    ]
    assert {line[0] for line in out[out.index("# same script") :].splitlines()} == {"#"}  # whatever a shell makes of it
    assert out.count("docker create") == 1
    assert err.startswith(
        "agentless: would be pending: 1x: free resources are assigned or promised to tasks ahead of it"
    )
    assert err.endswith(" (2 tasks: seed=5, seed=6)\n")


async def test_a_rehearsal_ends_as_the_submit_would(agentless):
    await typed(agentless, "submit", "n1::0-3", "--", "sleep", "600")
    out, err = await typed(agentless, "submit", "1x", "--dry-run", "--", "true")
    assert out == ""
    assert "agentless: would be pending: 1x cannot start now" in err
    assert "n1: needs 1 GPU; 0 of 4 on n1 are free" in err
    _, err = await typed(agentless, "submit", "1x", "--no-queue", "--dry-run", "--", "true", code=3)
    assert "would wait" not in err


async def test_what_cannot_be_meant_is_said(agentless):
    for words, said in (
        (("wait",), "Which task? Give ids or names, or --batch NAME"),
        (("retry", "--failed"), "--failed needs --batch"),
        (("submit", "1x", "--", "echo", "span:1", "span:2"), "the shell split the span into several words"),
        (("submit", "1x", "-f", "--", "echo", "span:{1..2}"), "--follow works with one task only"),
        (("submit", "1x", "sh", "-c", "true"), "unknown option '-c'; write the command after '--'"),
        (("submit", "1x", "--no-queue", "--max-parallel", "2", "--", "true"), "use one of them"),
    ):
        _, err = await typed(agentless, *words, code=2)
        assert said in err


async def test_what_of_a_sweep_was_refused_is_named_by_its_values(agentless):
    _, err = await typed(agentless, "submit", "n1::0", "--no-queue", "--", "sleep", "600", "span:[a,b,c]", code=3)
    assert err.startswith(
        "agentless: n1::0: free resources are assigned or promised to tasks ahead of it (2 tasks: arg"
    )
    assert "=b, " in err.splitlines()[0]


async def test_a_task_that_never_started_is_named_by_its_id(agentless):
    _, err = await typed(agentless, "submit", "n1::0", "--", "no-such-program", code=1)
    [task] = json.loads((await typed(agentless, "ps", "--all", "--json"))[0])
    assert err.endswith(f" (task {task['id']})\n")


async def test_an_image_that_is_to_be_pulled_always_is_not_said_to_be_missing(agentless):
    words = ("submit", "n1::0", "--pull", "always", "--image", "nobody/nothing", "--", "true")
    _, err = await typed(agentless, *words, code=1)
    assert err.startswith("agentless: image nobody/nothing cannot be pulled on n1 (--pull always): ")
