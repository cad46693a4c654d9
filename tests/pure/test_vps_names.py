"""Which VPS a request is about: by its name, or by the id of its task."""

from __future__ import annotations

from types import SimpleNamespace

from agentless.controller.vps.names import VpsNames
from agentless.stores.state.vps import VpsRecord


def test_the_id_of_a_vps_leads_to_it_and_never_to_another_one_that_took_its_name():
    tasks = {"old": None, "new": "old", "other": None}
    lookup = SimpleNamespace(task=lambda id_: SimpleNamespace(spec=SimpleNamespace(replaces=tasks[id_])))
    store = SimpleNamespace(load=lambda: {"dev": VpsRecord(task="new"), "box": VpsRecord(task="other")})
    bus = SimpleNamespace(subscribe=lambda *_: None)
    names = VpsNames(SimpleNamespace(live={}), lookup, store, None, bus)
    assert [names.name_of(each) for each in ("dev", "new", "old", "box", "other")] == ["dev"] * 3 + ["box"] * 2
    assert names.name_of("gone") == "gone", "no VPS has this name"
