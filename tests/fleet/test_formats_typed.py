"""`-o` as it is typed: every verb that lists or shows has every format, and a typo costs no request."""

from __future__ import annotations

import json

import pytest
import yaml

from agentless.demo.fleet import NodePlan
from tests import ready
from tests.fleet.inhabited import inhabited
from tests.fleet.test_batches import typed

LISTS = {
    "ps": "id,state,labels.team",
    "queue": "id,position",
    "queue --shares": "owner,gpu_hours",
    "gpus": "node,index,state",
    "nodes": "name,state",
    "reservations": "id,node",
    "env list": "name,version",
    "volume list": "name,node",
    "doctor n1": "node,check,ok",
    "usage": "name,tasks",
    "show t": "id,name",
    "nodes show n1": "name,cores",
}


BUSY = (
    ("submit", "n1::0", "--name", "t", "--label", "team=vision", "--", "sleep", "600"),
    ("submit", "n1::0", "--name", "next", "--", "true"),
    ("reserve", "n1::3", "--for", "ann", "--from", "20h", "--to", "21h"),
)


@pytest.fixture
async def busy(agentless):
    for words in BUSY:
        await typed(agentless, *words)
    return agentless


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """Likewise, for tests that change nothing there."""
    folder = tmp_path_factory.mktemp("shown")

    def type_(*words, code=0):
        done = ready.agentless(*words, cwd=folder)
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    with inhabited(folder, [NodePlan("n1", 4), NodePlan("n2", 1, foreign=True)]):
        for words in BUSY:
            type_(*words)
        yield type_


@pytest.mark.parametrize(("verb", "fields"), LISTS.items())
def test_every_list_has_every_format(shown, verb, fields):
    def out(*options: str) -> str:
        return shown(*verb.split(), *options)[0]

    plain = json.loads(out("--json"))
    same = json.loads(out("-o", "json"))
    read = yaml.safe_load(out("-o", "yaml"))
    assert type(plain) is type(same) is type(read)
    for other in (same, read):
        assert len(other) == len(plain)
    rows = plain if isinstance(plain, list) else plain.get("rows", [plain])
    names = out("-o", "name").splitlines()
    table = out("-o", fields).splitlines()
    assert len(names) == len(set(names))
    assert bool(names) is bool(rows) is bool(table)
    if rows:
        assert table[0].split() == fields.upper().split(",")
        assert len(table) == 1 + len(rows)
    wide, usual = out("-o", "wide"), out()
    assert len(wide.splitlines()) >= len(usual.splitlines()) - 1


def test_events_have_every_format(shown):
    plain = [json.loads(line) for line in shown("events", "t", "--json")[0].splitlines()]
    out, _ = shown("events", "t", "-o", "yaml")
    assert list(yaml.safe_load_all(out)) == plain
    out, _ = shown("events", "t", "-o", "seq,task.id,event")
    assert [line.split() for line in out.splitlines()] == [
        ["SEQ", "TASK.ID", "EVENT"], *([str(each["seq"]), each["task"]["id"], each["event"]] for each in plain),
    ]  # fmt: skip
    assert shown("events", "t", "-o", "name")[0] == plain[0]["task"]["id"] + "\n"


@pytest.mark.slow
async def test_names_can_be_given_to_another_command(busy):
    names = (await typed(busy, "gpus", "--free", "-o", "name"))[0].split()
    assert names[:2] == ["n1::1", "n1::2"]
    out, _ = await typed(busy, "explain", names[0], "--json")
    assert json.loads(out)["obstacles"] == []


@pytest.mark.parametrize("verb", ["ps", "queue", "queue --shares", "gpus", "nodes", "events", "usage", "recover"])
def test_an_unknown_field_is_a_sentence(shown, verb):
    _, err = shown(*verb.split(), "-o", "nope", code=2)
    assert err.startswith("agentless: -o 'nope': no format or field named 'nope'; formats are json, yaml, name, wide,")
    assert len(err.splitlines()) == 1


@pytest.mark.slow
async def test_quiet_prints_nothing_when_it_went_well(busy):
    assert await typed(busy, "pause", "t", "--quiet") == ("", "")
    assert await typed(busy, "kill", "t", "-q") == ("", "")
    assert await typed(busy, "rm", "t", "-q") == ("", "")
    _, err = await typed(busy, "rm", "t", "-q", code=2)
    assert err.startswith("agentless: ")


async def test_a_script_removes_without_being_asked(busy):
    await typed(busy, "kill", "t")
    out, _ = await typed(busy, "rm", "t")
    assert out.endswith("  removed\n")
