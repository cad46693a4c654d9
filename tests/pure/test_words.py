"""A task in words: where it is, when it starts, how it ended."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentless.client.words import (
    _HAPPENED,
    cores_in_use,
    date,
    ending,
    happened,
    host_lines,
    in_use,
    numa_lines,
    reserved,
    running,
    starts,
    variables,
    where,
)


def task(**fields: Any) -> dict[str, Any]:
    plain = {
        "id": "t1", "state": "running", "node": "n1", "gpus": [3], "gpu_uuids": ["GPU-3"], "target": "1x",
        "exit_code": None, "reason": None, "time_limit": None,
        "expected_start": None, "scheduled_for": None, "about": False,
    }  # fmt: skip
    return plain | fields


NOW = datetime(2026, 11, 22, tzinfo=UTC)
IN_TWO_HOURS = (NOW + timedelta(hours=2)).isoformat()


@pytest.fixture(autouse=True)
def now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", NOW.timestamp)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, "n1::3"),
        ({"gpus": [], "gpu_uuids": []}, "n1"),
        ({"gpus": [0, 1]}, "n1::0,1"),
        ({"gpus": [0, 1, 2, 3, 6]}, "n1::0-3,6"),
        ({"state": "pending", "target": "n1:0::4,5,6 1/3", "gpu_uuids": []}, "n1:0::4-6 1/3"),
        ({"state": "pending", "node": None, "gpus": [], "gpu_uuids": []}, "1x"),
        ({"state": "pending", "target": "n1::3", "gpu_uuids": []}, "n1::3"),
        ({"state": "cancelled", "target": "n1::3", "gpu_uuids": []}, "n1::3"),
        ({"state": "cancelled", "target": "n1 2x", "gpus": [], "gpu_uuids": []}, "n1 2x"),
        ({"target": "hpc 2xA100", "compute_nodes": "c1"}, "hpc 2xA100 (c1)"),
        ({"target": "hpc 2x", "compute_nodes": "c[1-2]", "job_nodes": 2}, "hpc 2x (c[1-2])"),
        ({"target": "hpc 2x", "compute_nodes": "gpu-a100-[001,017,090]", "job_nodes": 3}, "hpc 2x on 3 nodes"),
        ({"target": "hpc 2x", "compute_nodes": "a-long-name-of-a-node"}, "hpc 2x (a-long-name-of-…)"),
    ],
)
def test_where_a_task_is_or_would_have_been(fields: dict[str, Any], words: str) -> None:
    assert where(task(**fields)) == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({}, None),
        ({"expected_start": IN_TWO_HOURS}, "within 2h 0m"),
        ({"expected_start": IN_TWO_HOURS, "about": True}, "in about 2h 0m"),
        ({"scheduled_for": IN_TWO_HOURS}, "after 2h 0m"),
    ],
)
def test_when_a_task_starts(fields: dict[str, Any], words: str | None) -> None:
    assert starts(task(**fields)) == words


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": "completed", "exit_code": 0}, None),
        ({"state": "failed", "exit_code": 7}, "t1  failed (7)"),
        ({"state": "timeout", "exit_code": 137, "time_limit": 3.0}, "t1  timeout (137): reached its time limit of 3s"),
        ({"state": "cancelled", "reason": "stopped before it started"}, "t1  cancelled: stopped before it started"),
    ],
)
def test_an_ending_that_is_not_good_is_told_with_its_reason(fields: dict[str, Any], words: str | None) -> None:
    assert ending(task(**fields)) == words


def test_a_date_of_another_year_has_its_year() -> None:
    assert (date("2026-12-24T08:00:00"), date("2027-01-02T08:00:00")) == ("12-24 08:00 UTC", "2027-01-02 08:00 UTC")


def test_of_a_secret_variable_the_name_is_shown() -> None:
    spec = {"env": {"A": "1", "B": "x y"}, "secret_env": ["TOKEN"]}
    assert variables(spec) == ["A=1", "B='x y'", "TOKEN (secret)"]


@pytest.mark.parametrize(
    ("name", "fields", "words"),
    [
        ("assigned", {}, "Assigned to n1::0,1"),
        ("job-queued", {"node": "hpc", "reason": "job 7: held"}, "In the queue of hpc as job 7: held"),
        ("stop-asked", {}, "Stop requested"),
        ("exited", {"state": "failed", "exit_code": 3, "ended_at": "2026-11-22T08:00:00Z"}, "Exited: failed (3)"),
        ("retried", {"state": "failed", "exit_code": 3, "ended_at": "2026-11-22T08:00:00Z"}, "Retried"),
        ("gave-up", {"state": "cancelled", "ended_at": "2026-11-22T08:00:00Z"}, "Gave up waiting"),
        ("not-known-yet", {}, "Not known yet"),
    ],
)
def test_what_happened_to_a_task(name: str, fields: dict[str, Any], words: str) -> None:
    before = task(gpus=[0, 1], gpu_uuids=["a", "b"], node="n1", ended_at=None)
    assert happened({"event": name, "task": before | fields}) == words


def test_every_documented_event_of_a_task_has_words() -> None:
    section = (Path(__file__).parents[2] / "docs/reference/json.md").read_text().partition("| `event` of a task |")[2]
    names = re.findall(r"`([a-z-]+)`", " ".join(row.split("|")[1] for row in section.split("\n\n")[0].splitlines()[2:]))
    assert len(names) > 20
    assert set(names) == set(_HAPPENED)


@pytest.mark.parametrize(
    ("tasks", "words"), [(0, "no tasks running"), (1, "1 task still running"), (None, "its tasks are unknown: away")]
)
def test_how_many_tasks_run_on_a_node(tasks: int | None, words: str) -> None:
    assert running({"tasks": tasks, "reason": "away"}) == words


NODE = {
    "cores": 64, "cores_busy": 12.34, "cores_set_aside": 32.0, "load_1m": 11.2, "load_5m": 10.9, "load_15m": 10.5,
    "memory_mib": 515932, "memory_used_mib": 98304, "memory_set_aside_mib": 262144,
    "disk_path": "/var/lib/docker", "disk_used_mib": 431200, "disk_total_mib": 1875000, "temperature_c": 61,
    "network_in_bytes_per_second": 1258291.2, "network_out_bytes_per_second": 512.0,
}  # fmt: skip


def test_how_busy_a_node_is_is_said_beside_what_is_set_aside() -> None:
    assert host_lines(NODE) == {
        "cores": "12.3 of 64 busy, 32 set aside, load 11.20 10.90 10.50",
        "memory": "96.0 of 503.8 GiB used, 256 GiB set aside",
        "disk": "0.4 of 1.8 TiB used (/var/lib/docker)",
        "temp": "61C",
        "network": "1.2 MiB/s in, 512 B/s out",
    }
    assert (cores_in_use(NODE), in_use(98304, 515932)) == ("12.3/64", "96.0/503.8 GiB")


def test_what_is_not_known_of_a_node_is_left_out() -> None:
    unknown = {**dict.fromkeys(NODE), "cores": 64, "memory_mib": 515932, "cores_set_aside": 0.0}
    shown = {key: line for key, line in host_lines(unknown).items() if line is not None}
    assert shown == {"cores": "64", "memory": "503.8 GiB"}
    assert (cores_in_use(unknown), in_use(None, 515932), in_use(None, None)) == ("-/64", "-/503.8 GiB", "-")
    assert not any(host_lines({**dict.fromkeys(NODE), "cores_set_aside": 0.0}).values())


def test_numa_nodes_are_listed_with_their_gpus_where_there_are_several() -> None:
    first = {"id": 0, "cpus": "0-15,32-47", "cores": 32, "memory_mib": 257966, "gpus": [0, 1, 2, 3]}
    second = {"id": 1, "cpus": "16", "cores": 1, "memory_mib": None, "gpus": [4]}
    third = {"id": 2, "cpus": "17", "cores": 1, "memory_mib": None, "gpus": []}
    assert numa_lines({"numa": [first, second, third]}) == [
        "0: 32 cores (0-15,32-47), 251.9 GiB, GPUs 0-3",
        "1: 1 core (16), GPU 4",
        "2: 1 core (17)",
    ]
    assert numa_lines({"numa": [first]}) == []


def test_a_time_limit_that_only_the_cluster_knows_is_no_mistake() -> None:
    ended = task(state="timeout", exit_code=143, target="hpc", node="hpc")
    assert ending(ended) == "t1  timeout (143)"
    assert ending({**ended, "reason": "reached the time limit of its job"}) == (
        "t1  timeout (143): reached the time limit of its job"
    )


@pytest.mark.parametrize(
    ("owner", "begin", "end", "reason", "words"),
    [
        ("ann", "11-21T08:00", "11-22T18:00", "x", "reserved for ann until 18:00 (x)"),
        ("ann", "11-21T08:00", "12-01T18:00", "", "reserved for ann until 12-01 18:00"),
        (None, "11-22T12:00", "12-01T18:00", "", "reserved for maintenance from 12:00"),
    ],
)
def test_of_a_reservation_its_end_is_said_where_there_is_little_room(
    owner: str | None, begin: str, end: str, reason: str, words: str
) -> None:
    times = {"begins_at": f"2026-{begin}:00Z", "ends_at": f"2026-{end}:00Z"}
    assert reserved({"reserved": "long", "reservation": {"owner": owner, "reason": reason, **times}}) == words


def test_of_a_reservation_an_older_controller_has_only_words() -> None:
    assert [reserved({"reserved": words}) for words in ("reserved for ann", None)] == ["reserved for ann", ""]
