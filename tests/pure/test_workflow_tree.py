"""A workflow in a terminal: what waits for what is seen at a glance."""

from __future__ import annotations

from agentless.client.workflow_tree import MARKS, lines


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
            "scheduled_for": None, "about": False,
        },
    }  # fmt: skip


def drawn(*jobs: dict[str, object]) -> list[str]:
    return [f"{lead}{MARKS[kind]} {name}  {words}" for lead, kind, name, words in lines(jobs)]


def test_a_job_is_below_the_last_one_that_it_waits_for():
    done = "completed"
    assert drawn(
        job("prepare", "a", done),
        job("download", "b", done),
        job("train", "c", done, {"a": done, "b": done}),
        job("train", "d", "pending", {"a": done, "b": done}),
        job("check", "e", "failed", {"a": done}),
        job("evaluate", "f", after={"c": done, "d": done}),
        job("report", "g", after={"f": done, "e": "ended"}),
        job("alarm", "h", "cancelled", {"f": "failed"}),
    ) == [
        "✓ prepare  completed in 2m 0s, node1::0",
        "├─ ● train ×2  1 completed, 1 pending; also after download",
        "│  ↓ ○ evaluate  blocked",
        "│  ├─ ○ report  blocked; when check has ended",
        "│  └─ – alarm  cancelled; if evaluate fails",
        "└─ ✗ check  failed (3) in 2m 0s, node1::0",
        "✓ download  completed in 2m 0s, node1::0",
    ]


def test_it_is_shown_whether_one_of_several_tasks_has_to_fail_or_all():
    tasks = [job("train", "a"), job("train", "b")]
    failed = {"a": "failed", "b": "failed"}
    one = job("alarm", "c", after=failed)
    one["requires"] = [{**each, "one_of": 1} for each in one["requires"]]
    alone = job("last", "e", after={"d": "failed"})
    assert drawn(*tasks, one, job("cleanup", "d", after=failed), alone) == [
        "○ train ×2  2 blocked",
        "├─ ○ alarm  blocked; if any of train fails",
        "└─ ○ cleanup  blocked; if all of train fail",
        "   ↓ ○ last  blocked; if cleanup fails",
    ]


def test_every_job_is_shown_once_whatever_the_graph():
    for size in (1, 30):
        jobs = [
            job(f"j{at}", f"t{at}", after={f"t{before}": "completed" for before in range(at) if (at * before) % 3 < 2})
            for at in range(size)
        ]
        assert sorted(name for _, _, name, _ in lines(jobs)) == sorted(f"j{at}" for at in range(size))


def test_a_chain_goes_down_and_not_off_the_screen():
    jobs = [job(f"step{at}", f"t{at}", after={f"t{at - 1}": "completed"} if at else {}) for at in range(200)]
    assert drawn(*jobs)[:2] == ["○ step0  blocked", "↓ ○ step1  blocked"]
    assert max(map(len, drawn(*jobs))) <= 30
