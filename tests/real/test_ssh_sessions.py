"""What users get of a node whose sshd allows so many sessions on a connection: 10, where nobody has changed that."""

from __future__ import annotations

import contextlib
import threading

import pytest

from tests.real.cli import Cli, finish, until
from tests.real.transports.nodes import LIBRARIES

LINES = "i=0; while [ -d /proc ]; do i=$((i+1)); echo line $i; sleep 0.3; done"


@pytest.fixture(scope="module")
def node(lab):
    """A node that the controllers of other tests do not log in to."""
    (node,) = lab.add_nodes({"few": 1})
    yield node
    lab.retire("few")


@pytest.fixture(scope="module")
def people(lab, node):
    """For each library somebody whose controller reaches the node with it."""
    people = {library: Cli(lab, f"sessions-{library}", None) for library in LIBRARIES}
    for library, cli in people.items():
        cli.write_inventory(
            f"version: 1\ndefaults: {{user: root, identity_file: {lab.identity}, image: busybox, "
            f"connection: {library}}}\nnodes:\n  few: {{host: {node.host}}}\n"
        )
    yield people
    for cli in people.values():
        cli.close()


@pytest.fixture
def agentless(people, library):
    """The only one of them whose controller runs."""
    for other in people.values():
        if other is not people[library]:
            other("controller", "stop", code=None)
    cli = people[library]
    until(lambda: cli.get("/v1/nodes/few")["state"] == "online")
    return cli


class Follower(threading.Thread):
    """Follows the log of a task, as `logs -f` does."""

    def __init__(self, cli: Cli, task: str, tail: int | None = None) -> None:
        super().__init__(daemon=True)
        self.lines: list[str] = []
        self._frames = cli.client.another().frames(f"/v1/tasks/{task}/logs", follow=True, tail=tail)
        self.start()

    def run(self):
        with contextlib.suppress(Exception):
            for fd, data in self._frames:
                self.lines += [f"{fd} {line}" for line in data.decode().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_24_who_follow_logs_and_8_runs_and_a_shell_on_a_stock_sshd(agentless, node):
    task = agentless.submit("few", "--", "sh", "-c", LINES)
    followers = [Follower(agentless, task, tail=1000 + n) for n in range(24)]
    until(lambda: all(follower.lines for follower in followers))
    runs = [agentless.start("run", "few", "--", "sh", "-c", f"sleep 1; echo ran {n}") for n in range(8)]
    assert agentless("shell", task, "--", "echo", "a shell").out == "a shell\n"
    assert [(done.code, done.out) for done in map(finish, runs)] == [(0, f"ran {n}\n") for n in range(8)]
    seen = [len(follower.lines) for follower in followers]
    until(lambda: all(len(f.lines) > before for f, before in zip(followers, seen, strict=True)))
    assert not [line for follower in followers for line in follower.lines if not line.startswith("1 line ")]
    shown = agentless("nodes", "show", "few").out
    assert "ssh  4 connections, " in shown
    assert "in use of 40 (MaxSessions 10)" in shown
    agentless("kill", task)


@pytest.mark.parametrize("library", ["asyncssh"])
def test_those_who_follow_the_same_share_a_session(agentless, node):
    task = agentless.submit("few", "--", "sh", "-c", LINES)
    first = Follower(agentless, task)
    until(lambda: len(first.lines) > 2)
    others = [Follower(agentless, task) for _ in range(20)]
    until(lambda: all(len(follower.lines) > 4 for follower in others))
    assert len([command for _, command in node.leftovers() if command.startswith("docker logs")]) == 1
    assert {tuple(follower.lines[:5]) for follower in others} == {tuple(f"1 line {n}" for n in range(1, 6))}
    agentless("kill", task)


@pytest.mark.slow
@pytest.mark.parametrize(("library", "allowed"), [("asyncssh", 1), pytest.param("paramiko", 2, marks=pytest.mark.slow)])
def test_a_node_with_few_sessions_stays_online_and_does_its_work(agentless, node, allowed):
    node.allow_sessions(allowed)
    agentless("doctor", "few", code=None)  # which tries a node that was offline at once
    until(lambda: agentless.get("/v1/nodes/few")["state"] == "online")
    logins, news = node.logins(), states_of_it(agentless)
    runs = [agentless.start("submit", "-f", "-t", "few", "--", "echo", f"ran {n}") for n in range(3)]
    assert [(done.code, done.out[-6:]) for done in map(finish, runs)] == [(0, f"ran {n}\n") for n in range(3)]
    seen = {agentless.get("/v1/nodes/few")["sampled_at"]}
    until(lambda: seen.add(agentless.get("/v1/nodes/few")["sampled_at"]) or len(seen) > 3)
    shown = agentless("nodes", "show", "few").out
    assert f"of {4 * allowed} (MaxSessions {allowed})" in shown
    assert node.logins() - logins <= 3
    assert states_of_it(agentless) == news


def states_of_it(cli: Cli) -> list[str]:
    """The states that it has been in."""
    every = cli.client.events(follow=False)
    return [event["state"] for event in every if event["kind"] == "node" and event["node"] == "few"]
