"""A workflow in a terminal: what waits for what is seen at a glance."""

from __future__ import annotations

import random

import pytest

from agentless.cli.workflows import show
from agentless.client.workflow_graph import LANES, MARKS, lines


def job(name: str, task: str, state: str = "blocked", after: dict[str, str] | None = None) -> dict[str, object]:
    ended = state in ("completed", "failed", "cancelled")
    started = state in ("running", "completed", "failed")
    return {
        "job": name,
        "parameters": {},
        "requires": [{"on": on, "state": how} for on, how in (after or {}).items()],
        "task": {
            "id": task, "state": state, "exit_code": 3 if state == "failed" else None, "node": "node1", "gpus": [0],
            "started_at": "2026-05-01T11:20:00.000Z" if started else None, "gpu_uuids": ["GPU-1"], "target": "1x",
            "ended_at": "2026-05-01T11:22:00.000Z" if ended else None, "expected_start": None,
            "scheduled_for": None, "about": False, "reason": None,
        },
    }  # fmt: skip


def drawn(*jobs: dict[str, object]) -> list[str]:
    return [
        f"{line.left}{MARKS[line.kind]}{line.right} {line.job.name}: {line.job.words} {line.job.follows}".rstrip()
        if line
        else ""
        for line in lines(jobs)
    ]


@pytest.mark.parametrize(
    ("state", "spare", "words"),
    [
        ("completed", 0, "2 of 2 done (1 not needed)"),
        ("running", 1, "2 of 2 done (1 not needed)"),
        ("failed", 0, "2 of 2 done (1 cancelled)"),
    ],
)
def test_what_was_not_needed_is_told_apart_from_what_could_not_run(state: str, spare: int, words: str) -> None:
    counts = {"completed": 1, "cancelled": 1}
    shown = {"id": "2mxf", "name": "w", "state": state, "counts": counts, "not_needed": spare}
    assert show.summary(shown) == f"2mxf  w: {state}, {words}"


DONE = "completed"


def test_a_lane_leads_from_a_job_down_to_all_that_wait_for_it():
    assert drawn(
        job("prepare", "a", DONE),
        job("left", "b", DONE, {"a": DONE}),
        job("right", "c", "pending", {"a": DONE}),
        job("check", "d", "failed", {"a": DONE}),
        job("report", "e", after={"b": DONE, "c": DONE}),
        job("alarm", "f", after={"d": "failed", "e": "failed"}),
    ) == [
        "✓     prepare: completed in 2m 0s, node1::0",
        "├─✗   check: failed (3) in 2m 0s, node1::0 after prepare",
        "├─│─✓ left: completed in 2m 0s, node1::0 after prepare",
        "○ │ │ right: pending after prepare",
        "○─│─╯ report: waits for left, right",
        "○╌╯   alarm: waits for check to fail, report to fail",
    ]


def test_it_is_shown_whether_one_of_several_tasks_has_to_fail_or_all():
    tasks = [job("train", "a"), job("train", "b")]
    failed = {"a": "failed", "b": "failed"}
    one = job("alarm", "c", after=failed)
    one["requires"] = [{**each, "one_of": 1} for each in one["requires"]]
    alone = job("last", "e", after={"d": "failed"})
    assert drawn(*tasks, one, job("cleanup", "d", after=failed), alone) == [
        "○   train ×2: 2 blocked",
        "├╌○ alarm: waits for any of train to fail",
        "○   cleanup: waits for all of train to fail",
        "○   last: waits for cleanup to fail",
    ]


def test_a_matrix_is_one_row_with_counts_and_other_ends_are_in_words():
    assert drawn(
        job("train", "a", DONE),
        job("train", "b", "pending"),
        job("train", "c", "failed"),
        job("train", "d", DONE),
        job("clean", "e", "cancelled", {"a": "ended", "b": "ended"}),
        job("alarm", "f", "cancelled", {"a": "failed"}),
    ) == [
        "✗   train ×4: 2 completed, 1 failed, 1 pending",
        "├╌– clean: cancelled when train has ended",
        "–   alarm: cancelled if all of train fail",
    ]


def test_a_job_on_several_nodes_is_one_with_the_end_of_the_one_that_failed():
    rows = [job("pair", "a", DONE), job("pair", "b", "failed")]
    for rank, row in enumerate(rows):
        row["task"] |= {"attempt": 1, "gang": {"id": "a", "rank": rank, "size": 2, "members": ["a", "b"]}}
    rows[1]["task"] |= {"node": "node2", "reason": "rank 1 on node2 failed"}
    assert drawn(*rows) == ["✗ pair, 2 nodes: failed (3) in 2m 0s, node1::0, node2::0: rank 1 on node2 failed"]


def test_the_values_of_failed_tasks_of_a_matrix_are_named():
    rows = [job("t", task, state) for task, state in (("a", DONE), ("b", "failed"), ("c", "running"), ("d", "failed"))]
    for number, row in enumerate(rows):
        row["parameters"] = {"n": str(number)}
    assert drawn(*rows) == ["✗ t ×4: 1 completed, 2 failed, 1 running (failed: n=1, n=3)"]


def test_what_waits_for_a_failure_stands_beside_the_way():
    after = {"a": DONE}
    assert drawn(job("a", "a", DONE), job("b", "b", DONE, after), job("alarm", "c", "cancelled", {"a": "failed"})) == [
        "✓   a: completed in 2m 0s, node1::0",
        "├╌– alarm: cancelled if a fails",
        "✓   b: completed in 2m 0s, node1::0 after a",
    ]


def test_what_follows_by_way_of_another_job_is_drawn_once_and_told():
    assert drawn(
        job("a", "a", DONE), job("b", "b", DONE, {"a": DONE}), job("c", "c", after={"a": DONE, "b": DONE})
    ) == [
        "✓ a: completed in 2m 0s, node1::0",
        "✓ b: completed in 2m 0s, node1::0 after a",
        "○ c: waits for a, b",
    ]


def test_jobs_that_have_nothing_to_do_with_each_other_stand_apart():
    assert drawn(
        job("a", "a", DONE), job("b", "b", DONE, {"a": DONE}), job("c", "c", DONE), job("d", "d", DONE), job("e", "e"),
        job("f", "f", after={"e": DONE}),
    ) == [
        "✓ a: completed in 2m 0s, node1::0",
        "✓ b: completed in 2m 0s, node1::0 after a",
        "",
        "✓ c: completed in 2m 0s, node1::0",
        "✓ d: completed in 2m 0s, node1::0",
        "",
        "○ e: blocked",
        "○ f: waits for e",
    ]  # fmt: skip


def test_a_job_below_a_job_of_the_same_place_waits_for_it():
    """Else two jobs that begin would look like a chain."""
    first, second, _ = lines([job("a", "a"), job("b", "b"), job("c", "c", after={"a": DONE, "b": DONE})])
    assert first
    assert second
    assert len(first.left) != len(second.left)


@pytest.mark.parametrize("seed", range(20))
def test_every_job_is_shown_once_behind_what_it_waits_for_whatever_the_graph(seed):
    chance = random.Random(seed)
    jobs = [
        job(f"j{at}", f"t{at}", after={f"t{chance.randrange(at)}": DONE for _ in range(chance.randrange(4)) if at})
        for at in range(chance.choice([1, 30, 200]))
    ]
    rows = [line for line in lines(jobs) if line]
    names = [line.job.job for line in rows]
    assert sorted(names) == sorted(f"j{at}" for at in range(len(jobs)))
    assert all(names.index(before) < at for at, line in enumerate(rows) for before in line.job.after)
    assert len({len(line.left + line.right) for line in rows}) == 1
    assert len(rows[0].left + rows[0].right) <= 2 * LANES


def test_a_chain_goes_down_and_not_off_the_screen():
    jobs = [job(f"step{at}", f"t{at}", after={f"t{at - 1}": DONE} if at else {}) for at in range(1000)]
    assert drawn(*jobs)[1:3] == ["○ step1: waits for step0", "○ step2: waits for step1"]


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_graph_fits_the_terminal(columns, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    wide = [job(f"a-job-with-a-long-name-{at}", f"w{at}", after={"a": DONE}) for at in range(12)]
    jobs = [job("a", "a", "failed"), *wide, job("end", "e", after={f"w{at}": DONE for at in range(12)})]
    show.print_graph({"id": "2mxf", "name": "w", "state": "running", "counts": {"running": 14}, "jobs": jobs})
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 15
    assert max(map(len, rows)) <= columns


def test_a_pipe_gets_whole_lines_without_escapes(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "20")
    jobs = [job("a", "a", DONE), job("b\x1b[2J", "b", DONE, {"a": DONE})]
    show.print_graph({"id": "2mxf", "name": "w", "state": "completed", "counts": {"completed": 2}, "jobs": jobs})
    assert capsys.readouterr().out == (
        "2mxf  w: completed, 2 of 2 done\n"
        "✓  a      completed in 2m 0s, node1::0\n"
        "✓  b�[2J  completed in 2m 0s, node1::0  after a\n"
    )
