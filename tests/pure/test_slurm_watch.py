"""`gpus CLUSTER --watch` and `--plot`."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from agentless.cli.nodes.clusters import check_has_plot, watch_gpus_of
from agentless.client.http import RequestFailed
from agentless.engines.slurm.nodes import parse_nodes
from agentless.errors import UsageError
from agentless.rules.views.publish import cluster_node_view

LINE = "c1|idle|idle|gpu:a100:2|gpu:a100:1(IDX:0)|0/16/0/16|64000|0|none"


class Served:
    """A controller that knows the cluster `hpc`, which does not answer any more at the second look."""

    def __init__(self) -> None:
        self.looks = 0

    def get(self, path: str) -> list[dict[str, object]]:
        if path != "/v1/clusters/hpc/nodes":
            raise RequestFailed("no cluster", 2, error="NotFound")
        self.looks += 1
        as_of = "2026-11-27T17:00:00.000Z" if self.looks > 2 else None
        return [asdict(cluster_node_view(node)) | {"as_of": as_of} for node in parse_nodes(LINE)]


def test_a_cluster_is_watched_and_says_as_of_when_it_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waits: list[float] = []

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr("time.sleep", sleep)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    unknown = RequestFailed("no node", 2, error="NotFound")
    with pytest.raises(KeyboardInterrupt):
        watch_gpus_of(Served(), "hpc", unknown, free=False)
    first, second = capsys.readouterr().out.split("\033[H")[1:]
    assert "c1" in first
    assert "does not answer" not in first
    assert "c1" in second
    assert "hpc does not answer; as of 2026-11-27" in second
    with pytest.raises(UsageError, match="agentless keeps no history of hpc, which is a cluster"):
        check_has_plot(Served(), "hpc", unknown)
    with pytest.raises(RequestFailed, match="no node"):
        check_has_plot(Served(), "nowhere", unknown)
