"""Real nodes for the tests of this folder: `node1` and `node2`, two GPUs each, cured after every test."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab, Node, requirements
from tests.real.cli import Cli

SLOW = ("test_envs", "test_engine_troubles", "test_faults", "test_engines")
"""Files whose tests take several times as long as those of others."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process is alone with one at the end; the others by their number of tests."""
    sizes = Counter(item.path for item in items)
    items.sort(key=lambda item: (item.path.stem not in SLOW, -sizes[item.path], item.path))


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    """One lab for the whole run. Its folder is a short one, see `Lab`."""
    if missing := requirements():
        pytest.skip(f"no real nodes on this machine: {'; '.join(missing)}")
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_nodes({"node1": 2, "node2": 2})
        yield lab


@pytest.fixture(autouse=True)
def _cured(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test that used the lab: no fault and no container is left for the next one."""
    lab = request.getfixturevalue("lab") if "lab" in request.fixturenames else None
    yield
    if lab:
        lab.reset()


@pytest.fixture
def agentless(lab: Lab) -> Cli:
    """A person with both nodes in the inventory."""
    return Cli(lab).settle()


@pytest.fixture
def node(lab: Lab) -> Node:
    """The first node."""
    return lab.nodes["node1"]


@pytest.fixture(scope="module")
def user(lab):
    """Makes logins of the nodes, each once."""
    made = {}

    def make(name, **how):
        if name not in made:
            made[name] = lab.add_user(name, **how)
        return made[name]

    return make


@pytest.fixture
def no_vps_left(agentless: Cli) -> Iterator[None]:
    """After a test, no VPS is left, and no snapshot."""
    yield
    for each in agentless.get("/v1/vps"):
        agentless("vps", "rm", each["name"], "--force", "--yes")
    for each in agentless.get("/v1/envs"):
        agentless("env", "rm", each["name"], "--yes")


@pytest.fixture
def newcomer(lab: Lab) -> Iterator[Cli]:
    """Somebody who has never used agentless: no inventory, and no host key is known to them."""
    home = lab.root / "newcomer"
    (home / ".ssh").mkdir(parents=True, exist_ok=True)
    (home / ".ssh/known_hosts").unlink(missing_ok=True)
    hosts = "".join(f"Host {n.name}\n  HostName {n.host}\n" for n in map(lab.nodes.get, ("node1", "node2")))
    (home / ".ssh/config").write_text(
        f"{hosts}Host github.com\n  User git\nHost *\n  User root\n  IdentityFile {lab.identity}\n"
    )
    cli = Cli(lab, "newcomer", inventory=None, HOME=str(home))
    yield cli
    cli.close()
