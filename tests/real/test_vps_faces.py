"""VPS from Python and from the dashboard, on real engines."""

from __future__ import annotations

import errno
import json
import shlex
import shutil
import socket
import sys
import urllib.request

import pytest

from tests.ports import reserve
from tests.real.cli import until
from tests.tmux import Tmux

pytestmark = pytest.mark.usefixtures("no_vps_left")


PROGRAM = """
import json, subprocess, tempfile, urllib.request
from agentless import Cluster

cluster = Cluster()
vps = cluster.vps.create("dev", target="node1::0")
with tempfile.NamedTemporaryFile("w") as file:
    file.write(vps.ssh_config())
    file.flush()

    def ssh(line):
        argv = ["ssh", "-F", file.name, "dev.agentless", line]
        return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout

    found = [ssh("echo one >/file; hostname"), vps.snapshot("the first").snapshot]
    ssh("echo two >/file")
    vps = vps.restore(1)
    found += [ssh("cat /file"), vps.gpus, [each.message for each in vps.snapshots()]]
    found += [vps.resize(cores=1).cores, vps.resize("2x", memory="512MiB").gpus, vps.refresh().memory_bytes]
    ssh("mkdir -p /www && hostname >/www/index.html && busybox httpd -p 127.0.0.1:8888 -h /www")
    with vps.forward(8888) as web:
        found.append(urllib.request.urlopen(web.url).read().decode())
vps.remove(force=True)
copy = cluster.vps.create("copy", target="node1", snapshot="dev:1")
found += [copy.stop(grace=0).state, [each.snapshot for each in cluster.vps.snapshots("dev")]]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_python_does_what_the_commands_do(agentless):
    ran = agentless.shell(f"exec {sys.executable} -c {shlex.quote(PROGRAM)}")
    assert ran.code == 0, ran.err
    assert json.loads(ran.out) == [
        "dev\n", "dev:1", "one\n", [0], ["the first"], 1.0, [0, 1], 512 << 20, "dev\n", "stopped",
        ["dev:1", "dev:2"],
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tmux"), reason="there is no tmux (Debian's package tmux)")
def test_the_dashboard_creates_one_saves_it_restores_it_resizes_it_and_reaches_its_port(agentless, node, tmp_path):
    with Tmux(tmp_path, agentless.env) as tmux, reserve() as holder:
        tmux.agentless("dashboard")
        tmux.see("node1 online", "node2 online")
        tmux.press("7")
        tmux.see("No VPS")
        tmux.press("n")
        tmux.see("Create (Ctrl+S)")
        tmux.press("desk", "Tab", "node1::0")
        tmux.see("would start now")
        tmux.press("C-s")
        tmux.see("desk is running on node1", "desk  running")
        agentless("vps", "ssh", "desk", "--", "mkdir /www; hostname >/www/index.html")
        tmux.press("v")
        tmux.see("No snapshots")
        tmux.press("n")
        tmux.see("Make a snapshot of VPS desk?")
        tmux.press("the first", "Enter")
        tmux.see("desk:1 made", "the first")
        agentless("vps", "ssh", "desk", "--", "rm -r /www")
        tmux.press("Enter")
        tmux.see("Restore VPS desk to desk:1?")
        tmux.press("y")
        tmux.see("desk is running")  # perhaps the message of its first start
        until(lambda: "desk.vps:1" in agentless.get("/v1/vps/desk")["image"])
        tmux.press("q")
        tmux.see("desk  running", "desk.vps:1")
        tmux.press("z")
        tmux.see("Resize VPS desk")
        tmux.press("1", "C-s")
        until(lambda: agentless.get("/v1/vps/desk")["cores"] == 1)
        agentless("vps", "ssh", "desk", "--", "busybox httpd -p 127.0.0.1:8888 -h /www")
        local = holder.getsockname()[1]
        tmux.press("P")
        tmux.see("Forward a port of VPS desk?")
        tmux.press(f"8888:{local}", "Enter")
        tmux.see(f"http://localhost:{local}")
        assert urllib.request.urlopen(f"http://localhost:{local}").read() == b"desk\n"
        tmux.press("q")
        until(lambda: socket.socket().connect_ex(("127.0.0.1", local)) == errno.ECONNREFUSED)
