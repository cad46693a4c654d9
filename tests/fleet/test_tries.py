"""A task that is tried again, typed as a user types it, on simulated nodes: n1 has four GPUs."""

from __future__ import annotations

import asyncio
import json
import shlex
import subprocess
import sys

import pytest

from tests.fleet.test_batches import typed

FAILS_AT_ONCE = ("n1::0", "--image", "nowhere/no:image", "--retries", "2", "--backoff", "0.2s", "--", "true")
"""Each try has failed before its launch is answered, so the submit is answered with the one after it."""
FAILS_TWICE = ("n1::0", "--retries", "2", "--backoff", "0s", "--", "sh", "-c", 'echo $0; test "$AGENTLESS_TASK_ID" = x')


async def test_a_submit_that_waits_waits_for_the_last_try(agentless):
    out, _ = await typed(agentless, "submit", "--wait", "--json", *FAILS_AT_ONCE, code=1)
    (task,) = json.loads(out)
    assert (task["attempt"], task["state"]) == (3, "failed")


async def test_the_id_that_a_script_gets_means_all_tries(agentless):
    out, _ = await typed(agentless, "submit", *FAILS_AT_ONCE)
    out, _ = await typed(agentless, "wait", "--json", out.strip(), code=1)
    assert json.loads(out)[0]["attempt"] == 3


@pytest.mark.slow
async def test_a_single_try_is_shown_with_its_own_history(agentless):
    out, _ = await typed(agentless, "submit", *FAILS_TWICE)
    task = out.strip()
    await typed(agentless, "wait", task, code=1)
    histories = {n: (await typed(agentless, "show", f"{task}{n}"))[0] for n in ("", "-1", "-2", "-3")}
    assert ["Retried: " in histories[n] for n in ("-1", "-2", "-3")] == [False, True, True]
    assert f"{task}-2 is failed" in histories["-3"]
    assert histories[""] == histories["-3"]


@pytest.mark.parametrize("words", [["{task}"], pytest.param(["--batch", "{task}"], marks=pytest.mark.slow)])
async def test_a_task_is_removed_with_all_its_tries(agentless, words):
    out, _ = await typed(agentless, "submit", *FAILS_TWICE)
    task = out.strip()
    await typed(agentless, "wait", task, code=1)
    out, _ = await typed(agentless, "rm", *(word.format(task=task) for word in words))
    assert out == f"{task}-3  removed\n"
    out, _ = await typed(agentless, "ps", "--all", "--json")
    assert json.loads(out) == []


@pytest.mark.slow
async def test_a_single_try_is_removed_alone(agentless):
    out, _ = await typed(agentless, "submit", *FAILS_TWICE)
    task = out.strip()
    await typed(agentless, "wait", task, code=1)
    await typed(agentless, "rm", f"{task}-1")
    out, _ = await typed(agentless, "ps", "--all", "--json")
    assert [each["id"] for each in json.loads(out)] == [f"{task}-2", f"{task}-3"]


GENTLE = ("sh", "-c", "trap 'exit 0' TERM; while :; do sleep 0.05; done")


async def test_a_task_that_answers_its_time_limit_with_0_is_no_success(agentless):
    out, err = await typed(
        agentless, "submit", "n1::0", "--time-limit", "2s", "--wait", "--json", "--", *GENTLE, code=124
    )
    (task,) = json.loads(out)
    assert (task["state"], task["exit_code"]) == ("timeout", 0)
    assert "reached its time limit of 2s" in err


async def test_a_task_that_answers_a_stop_with_0_is_no_success_for_who_waits(agentless):
    out, _ = await typed(agentless, "submit", "n1::0", "--", *GENTLE)
    await typed(agentless, "stop", out.strip())
    await typed(agentless, "wait", out.strip(), code=143)


async def test_a_sweep_of_which_one_ran_into_its_time_limit_is_no_success(agentless):
    script = 'test "$0" = 1 && exit 0; trap "exit 0" TERM; while :; do sleep 0.05; done'
    words = ("submit", "1x", "--time-limit", "2s", "--wait", "--", "sh", "-c", script, "span:{1..2}")
    await typed(agentless, *words, code=124)


async def test_a_code_of_its_own_is_the_exit_code_also_after_its_time_limit(agentless):
    script = "trap 'exit 3' TERM; while :; do sleep 0.05; done"
    await typed(agentless, "submit", "n1::0", "--time-limit", "2s", "--wait", "--", "sh", "-c", script, code=3)


def to_a_full_disk(environment, words):
    """Type this as a script does that writes what is printed to a file."""
    script = f"{shlex.quote(sys.executable)} -m agentless {words} >/dev/full"
    return subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize(
    ("words", "code"), [("", 1), ("--json", 1), ("--wait", 3), ("--follow", 3), ("--wait --json", 3)]
)
@pytest.mark.slow
async def test_what_was_started_is_told_and_waited_for_where_no_output_can_be_written(
    environment, agentless, words, code
):
    """A script that took it for a failed submit would start the task twice."""
    said = await asyncio.to_thread(to_a_full_disk, environment, f"submit n1::0 {words} -- sh -c 'echo x; exit 3'")
    (task,) = json.loads((await typed(agentless, "ps", "--all", "--json"))[0])
    assert said.returncode == code
    assert code == 1 or task["exit_code"] == 3  # which is the task's own, once it has ended
    assert f"agentless: Cannot write the output: No space left on device; started tasks: {task['id']}" in said.stderr


@pytest.mark.slow
async def test_a_sweep_whose_ids_cannot_be_written_is_waited_for(environment, agentless):
    done = await asyncio.to_thread(to_a_full_disk, environment, "submit n1 --wait -- sh -c 'exit $0' 'span:[0,3]'")
    tasks = json.loads((await typed(agentless, "ps", "--all", "--json"))[0])
    assert (done.returncode, sorted(task["exit_code"] for task in tasks)) == (3, [0, 3])
    assert all(task["id"] in done.stderr for task in tasks)
