"""VPS, ssh and ports from Python: a real controller and simulated nodes."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator

import pytest

from agentless import Cluster, NotFound, Refused, Task, UsageError, Vps, paths
from agentless.client.connection import Connector
from agentless.controller.ssh.ports.relays import MOST
from agentless.demo.fleet import NodePlan
from tests.fleet.client import until
from tests.fleet.inhabited import end_controller, inhabited
from tests.fleet.world import World
from tests.ports import reserve


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with inhabited(tmp_path_factory.mktemp("vps"), [NodePlan("n1", 2)]) as world:
        yield world


@pytest.fixture
def cluster(world: World) -> Iterator[Cluster]:
    cluster = Cluster()
    yield cluster
    for vps in cluster.vps.list():
        vps.remove(force=True)
    for task in cluster.tasks():
        with contextlib.suppress(NotFound):  # it has just gone
            task.remove(force=True)


# ----------------------------------------------------------------------- vps


def test_a_vps_is_stopped_and_started_and_its_methods_give_it_anew(cluster):
    vps = cluster.vps.create("dev", target="n1::0", env={"A": "b"})
    assert (vps.name, vps.state, vps.gpus, vps.env_names) == ("dev", "running", (0,), ("A",))
    assert [each.state for each in (vps.stop(grace=1), vps.start(), vps.restart(grace="1s"))] == [
        "stopped", "running", "running",
    ]  # fmt: skip
    assert vps.refresh() == cluster.vps.get("dev")
    assert isinstance(vps.pause(), Vps)
    assert vps.resume().remove(force=True).name == "dev"
    assert cluster.vps.list() == []


@pytest.mark.slow
def test_all_of_them_are_listed_by_name_the_stopped_ones_too(cluster):
    for name in ("two", "one"):
        cluster.vps.create(name, target="n1")
    cluster.vps.get("two").stop(grace=1)
    assert [(vps.name, vps.state) for vps in cluster.vps.list()] == [("one", "running"), ("two", "stopped")]


@pytest.mark.slow
def test_a_vps_may_run_a_command_of_its_own(cluster):
    cluster.vps.create("dev", "sh", "-c", "echo ready; sleep 600", target="n1")
    assert next(cluster.vps.get("dev").logs(follow=True)) == "ready"


def test_what_cannot_be_is_an_error_of_its_class(cluster):
    cluster.vps.create("dev", target="n1")
    with pytest.raises(Refused, match="already exists"):
        cluster.vps.create("dev", target="n1")
    with pytest.raises(Refused, match="n1 is a node"):
        cluster.vps.create("n1", target="n1")
    with pytest.raises(UsageError, match="has no end"):
        cluster.vps.create("other", target="n1", time_limit="1h")
    with pytest.raises(UsageError, match="agentless cp"):
        cluster.vps.create("other", target="n1", upload="/etc/hostname")
    with pytest.raises(NotFound, match="no VPS 'other'"):
        cluster.vps.get("other")
    with pytest.raises(Refused, match="is running"):
        cluster.vps.get("dev").remove()


@pytest.mark.slow
async def test_it_can_be_awaited(cluster):
    vps = await cluster.vps.create.aio("dev", target="n1")
    assert (await (await vps.stop.aio(1)).start.aio()).state == "running"


# ----------------------------------------------------------------------- ssh


def test_plain_ssh_uses_the_configuration_of_a_task(cluster, tmp_path):
    task = cluster.submit("sleep", "600", target="n1", name="train")
    file = tmp_path / "ssh_config"
    file.write_text(task.ssh_config())
    for host in (task.id, "train"):
        argv = ["ssh", "-F", str(file), f"{host}.agentless", "echo here; exit 3"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode, done.stdout) == (3, "here\n"), done.stderr
    done = subprocess.run(["ssh", "-F", str(file), "-G", "other.agentless"], capture_output=True, text=True, check=True)
    assert "proxycommand" not in done.stdout


# --------------------------------------------------------------------- ports


SERVER = """
import http.server
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
print(server.server_port, flush=True)
server.serve_forever()
"""


@pytest.fixture
def served(cluster) -> tuple[Task, int]:
    """A task, and the port that it serves."""
    task = cluster.submit("python", "-c", SERVER, target="n1", name="web")
    return task, int(next(task.logs(follow=True)))


def test_a_port_is_forwarded_as_long_as_it_is_open(served):
    task, there = served
    before = os.getcwd()
    with task.forward(there) as web:
        assert web.url == f"http://localhost:{web.port}"
        assert b"Directory listing" in urllib.request.urlopen(web.url).read()
        assert os.getcwd() == before
        unread = socket.create_connection(("127.0.0.1", web.port))
    assert unread.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(web.url)
    web.close()


def test_a_port_that_is_taken_is_refused_only_if_it_was_asked_for(served):
    task, there = served  # on simulated nodes, the task has the ports of this machine
    with pytest.raises(Refused, match=f"cannot listen on port {there} "):
        task.forward(there, there)
    with reserve() as holder:
        local = holder.getsockname()[1]
        with task.forward(there, local) as web:
            assert web.port == local
    for number in (0, 65536):
        with pytest.raises(UsageError, match="is no port"):
            task.forward(number)


async def test_a_port_where_nobody_listens_is_reported_and_the_next_connection_tries_again(served, caplog):
    task, _ = served
    with reserve() as there, reserve() as local:
        web = await task.forward.aio(there.getsockname()[1], local.getsockname()[1])
    with web:
        with pytest.raises(http.client.RemoteDisconnected):
            await asyncio.to_thread(urllib.request.urlopen, web.url)
        await until(lambda: "Connection refused" in caplog.text)


@pytest.mark.slow
def test_connections_that_are_given_up_before_they_are_answered_take_no_place(served):
    task, there = served
    for _ in range(MOST + 1):
        with Connector(paths.state_dir(), None, paths.SSH_SOCKET).connect() as connection:
            connection.sendall(json.dumps({"host": task.id, "port": there}).encode() + b"\n")
    with task.forward(there) as web:
        assert b"Directory listing" in urllib.request.urlopen(web.url).read()


@pytest.mark.slow
def test_a_forward_goes_on_over_the_death_of_the_controller(served):
    task, there = served
    with task.forward(there) as web:
        end_controller(signal.SIGKILL)
        assert b"Directory listing" in urllib.request.urlopen(web.url).read()


@pytest.mark.slow
def test_a_program_that_ends_with_an_open_forward_ends_at_once_and_without_a_word(served):
    task, there = served
    script = f"import agentless, socket\nweb = agentless.Cluster().task({task.id!r}).forward({there})\n"
    script += "open = socket.create_connection(('127.0.0.1', web.port))\nopen.sendall(b'GET')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout + done.stderr == ""
