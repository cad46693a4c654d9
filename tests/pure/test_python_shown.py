"""How values look at Python's prompt and in a notebook."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from agentless.api.batch import Batch
from agentless.api.cluster import Cluster
from agentless.api.parse import parse
from agentless.api.shown import MOST, table
from agentless.api.task import Task
from agentless.api.usage import Usage
from agentless.errors import ControllerError, UsageError
from agentless.model.view import ClusterView
from tests.pure.test_dashboard_reports import USAGE
from tests.pure.test_dashboard_views import RUNS, WAITS

NONE = SimpleNamespace()
RUNNING: Task = parse(Task, RUNS, _client=NONE)
WAITING: Task = parse(Task, WAITS, _client=NONE)


def test_a_task_is_a_line_with_what_one_wants_to_know():
    assert repr(RUNNING).startswith(f"<Task {RUNNING.id} pretrain-a: running on node1::1, ")
    assert repr(WAITING) == f"<Task {WAITING.id} big: pending (needs 8 GPUs; 5 of 8 on node1 are free)>"


def test_what_others_wrote_stays_text():
    evil = replace(RUNNING, name="<script>alert(1)</script>\x1b[2J", command=("<img src=x>",))
    assert "<script>" not in evil._repr_html_()
    assert "&lt;script&gt;" in evil._repr_html_()
    assert "\x1b" not in repr(evil)


def test_a_batch_is_counted_and_its_table_has_the_values():
    tasks = tuple(replace(RUNNING, id=f"b{at}", batch="b0", parameters={"lr": str(at)}) for at in range(3))
    batch = Batch((*tasks[:2], replace(tasks[2], state="completed")), (UsageError("no"),))
    assert repr(batch) == "<Batch b0: 3 tasks, 2 running, 1 completed and 1 error>"
    assert batch._repr_html_().count("<tr>") == 4
    assert "<th>lr</th>" in batch._repr_html_()
    assert repr(Batch((), ())) == "<Batch -: 0 tasks>"


def test_a_long_table_says_how_much_is_left_out():
    assert table(["n"], [[at] for at in range(MOST + 7)]).endswith("<p>7 more</p>")


def test_usage_is_a_table_and_a_frame(monkeypatch):
    usage = parse(Usage, {**USAGE, "by": "owner", "begins_at": "", "ends_at": ""})
    assert "<td>ann@laptop</td><td>60.00</td><td>17.0%</td>" in usage._repr_html_()
    pandas = pytest.importorskip("pandas")
    frame = usage.frame()
    assert isinstance(frame, pandas.DataFrame)
    assert frame.loc["bob@pc", "gpu_hours"] == 30.0
    assert frame["tasks"].sum() == 3


def test_without_pandas_a_frame_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match="pip install pandas"):
        parse(Usage, {**USAGE, "by": "owner", "begins_at": "", "ends_at": ""}).frame()


def test_to_look_at_a_cluster_starts_nothing(tmp_path: Path, monkeypatch):
    inventory = tmp_path / "inventory.yaml"
    inventory.write_text("nodes: {n1: {host: n1}}\n")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cluster = Cluster(inventory)
    assert repr(cluster) == f"<Cluster {inventory}>"
    assert cluster._repr_html_() is None
    assert not (tmp_path / "agentless" / "controller.sock").exists()
    monkeypatch.setattr(cluster._client, "is_running", lambda: True)
    monkeypatch.setattr(cluster._client, "get", lambda *_, **__: _fail())
    assert cluster._repr_html_() is None


def test_a_cluster_is_its_gpus_and_its_slurm_clusters(tmp_path: Path, monkeypatch):
    monkeypatch.setenv("AGENTLESS_INVENTORY", str(tmp_path / "inventory.yaml"))
    (tmp_path / "inventory.yaml").write_text("nodes: {n1: {host: n1}}\n")
    hpc = ClusterView("hpc", "slurm", "online", "", "login", 1, 3, {"a100": 8}, {"a100": 5}, 3, 1, {"c2": "<fan>"})
    answers = {"/v1/gpus": [], "/v1/clusters": [asdict(hpc)]}
    cluster = Cluster()
    monkeypatch.setattr(cluster._client, "is_running", lambda: True)
    monkeypatch.setattr(cluster._client, "get", lambda path, **_: answers[path])
    shown = cluster._repr_html_() or ""
    assert "<td>hpc</td><td>online</td><td>3</td><td>3/8</td><td>8xa100</td><td>1</td>" in shown
    assert "c2 (&lt;fan&gt;)" in shown
    answers["/v1/clusters"] = []
    assert (cluster._repr_html_() or "").count("<table>") == 1


def _fail() -> None:
    raise ControllerError("gone")
