"""Which nodes and GPUs are kept out, why, and until when."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.controller.nodes.health.records import NodeRecords
from agentless.errors import StateError
from agentless.inventory.inventory import load
from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.nodes.gpu import MOST_GPUS, GpuFault, GpuReading, GpuSample
from agentless.model.nodes.node import HostFacts, NodeConfig
from agentless.model.nodes.node_record import Drain, GpuRecord, HealthPolicy, NodeRecord, Trouble
from agentless.model.scheduling.needs import parse_target
from agentless.model.tasks.task import Task
from agentless.rules.explain.obstacles import never, refusal
from agentless.rules.nodes.gpu_exclusion import (
    CHANGES_WITHIN,
    OUT_FOR,
    REMEMBERED,
    gated,
    looked,
    recognised,
    remembered,
    resumed,
    with_external,
)
from agentless.rules.nodes.gpu_findings import Faults, Kind, kind_of
from agentless.rules.nodes.survey import survey
from agentless.rules.views.publish import node_view
from agentless.stores.state.node_records import NodeRecordStore
from agentless.stores.state.tinydb import TaskStore
from tests.engines import xid as an_xid
from tests.pure.build import NOW, process, reading, seen, spec, task, uuid
from tests.pure.test_plan import clusters, look, wish, wishes

GPUS = tuple(reading("node1", n, pci_bus_id=f"0000:{n + 1:02x}:00.0", ecc_uncorrected=0) for n in range(3))
FIRST = uuid("node1", 0)
DRAIN = Drain("ann@laptop", 4_070_908_800.0, "new disks")
ILL = GpuRecord(GPUS[0], (Trouble("ecc 2", "2 uncorrected ECC errors", 4_070_908_800.0),))
MANUAL, AUTOMATIC = HealthPolicy(90), HealthPolicy(90, automatic=True)


def first(**changes: Any) -> GpuSample:
    """The GPUs of a healthy node, the first with these readings."""
    return GpuSample((replace(GPUS[0], **changes), *GPUS[1:]))


def xid(code: int, at: float | None) -> GpuFault:
    return an_xid("0000:01:00.0", code, "", at)


WELL = first()


class Watch:
    """A node that is looked at again and again."""

    def __init__(self, policy: HealthPolicy = MANUAL) -> None:
        self.policy, self.record, self.now = policy, NodeRecord(), NOW

    def look(self, sample: GpuSample = WELL, xids: tuple[GpuFault, ...] | None = (), after: float = 2.0) -> str:
        """What keeps the first GPU out after a look."""
        self.now += after
        self.record = looked({"node1": self.record}, "node1", sample, xids, self.now, self.policy)
        return self.why()

    def resume(self, sample: GpuSample = WELL, xids: tuple[GpuFault, ...] | None = ()) -> str:
        self.record, _ = resumed(self.record, None, sample, xids, self.policy)
        return self.why()

    def why(self) -> str:
        known = self.record.gpus.get(FIRST)
        return "; ".join(trouble.reason for trouble in known.troubles) if known else ""


# ---------------------------------------------------------------------- until when


def test_what_was_found_keeps_a_gpu_out_when_it_is_found_no_longer() -> None:
    watch = Watch()
    assert watch.look(first(ecc_uncorrected=2)) == "2 uncorrected ECC errors"
    assert watch.look(first(ecc_uncorrected=0), after=10 * OUT_FOR) == "2 uncorrected ECC errors"


def test_once_resumed_it_is_in_as_long_as_nothing_new_is_found() -> None:
    watch = Watch()
    watch.look(first(ecc_uncorrected=2))
    assert watch.resume(first(ecc_uncorrected=2)) == ""
    assert watch.look(first(ecc_uncorrected=2)) == ""
    assert watch.look(first(ecc_uncorrected=3)) == "3 uncorrected ECC errors"


def test_what_has_grown_while_it_was_out_is_forgiven_too() -> None:
    watch = Watch()
    watch.look(first(ecc_uncorrected=2))
    assert watch.look(first(ecc_uncorrected=5)) == "2 uncorrected ECC errors"
    watch.resume(first(ecc_uncorrected=5))
    assert watch.look(first(ecc_uncorrected=5)) == ""


def test_what_was_forgiven_and_went_away_counts_when_it_is_back() -> None:
    watch = Watch()
    watch.look(first(ecc_uncorrected=2))
    watch.resume(first(ecc_uncorrected=2))
    watch.look(first(ecc_uncorrected=0))
    assert watch.look(first(ecc_uncorrected=2)) == "2 uncorrected ECC errors"


@pytest.mark.parametrize("unread", [first(ecc_uncorrected=None), GpuSample((), None, "the driver hangs"), GpuSample()])
def test_what_was_forgiven_stays_so_while_it_cannot_be_read(unread: GpuSample) -> None:
    watch = Watch()
    watch.look(first(ecc_uncorrected=2))
    watch.resume(first(ecc_uncorrected=2))
    watch.look(unread)
    assert watch.look(first(ecc_uncorrected=2)) == ""


def test_heat_passes_by_itself_if_the_admin_says_so_and_not_before_a_minute_is_over() -> None:
    watch = Watch(AUTOMATIC)
    assert watch.look(first(temperature_c=91))
    assert watch.look(first(temperature_c=60), after=OUT_FOR - 1)
    assert watch.look(first(temperature_c=91), after=2)
    assert watch.look(first(temperature_c=60), after=2) == ""


def test_heat_that_is_over_passes_when_a_minute_is_over() -> None:
    watch = Watch(AUTOMATIC)
    watch.look(first(temperature_c=91))
    assert watch.look(first(temperature_c=60), after=OUT_FOR) == ""


def test_what_no_reading_shows_passes_by_itself_only_when_the_reading_is_whole() -> None:
    watch = Watch(AUTOMATIC)
    watch.look(first(needs_reset=True))
    for unread in (first(memory_total_mib=None), GpuSample((), None, "the driver hangs")):
        assert watch.look(unread, after=OUT_FOR) == "needs a reset"
    assert watch.look(first(), after=OUT_FOR) == ""


def test_a_gpu_that_was_gone_comes_back_by_itself_if_the_admin_says_so() -> None:
    watch = Watch(AUTOMATIC)
    watch.look()
    assert watch.look(GpuSample(GPUS[1:]))
    assert watch.look(GpuSample((), None, "the driver hangs"), after=OUT_FOR) == "disappeared"
    assert watch.look(after=OUT_FOR) == ""


def test_errors_of_two_kinds_in_the_log_are_two_troubles() -> None:
    watch = Watch()
    watch.look()
    assert watch.look(xids=(xid(79, 1.0), xid(48, 2.0))) == (
        "Xid 79: the GPU has fallen off the bus; Xid 48: double-bit ECC error"
    )


def test_what_a_gpu_is_stays_known_while_it_cannot_be_read_and_changes_when_it_does() -> None:
    watch = Watch()
    watch.look()
    watch.look(first(name=None, pci_bus_id=None, memory_total_mib=None))
    known = watch.record.gpus[FIRST].reading
    assert (known.name, known.pci_bus_id, known.memory_total_mib) == ("NVIDIA L4", "0000:01:00.0", 23034)
    watch.look(first(name="NVIDIA L40", pci_bus_id="0000:09:00.0", memory_total_mib=46068, index=5))
    known = watch.record.gpus[FIRST].reading
    assert (known.name, known.pci_bus_id, known.memory_total_mib) == ("NVIDIA L40", "0000:09:00.0", 46068)
    assert known.index == 5


@pytest.mark.parametrize("unread", [first(temperature_c=None), GpuSample((), None, "the driver hangs")])
def test_nothing_passes_by_itself_while_it_cannot_be_read(unread: GpuSample) -> None:
    watch = Watch(AUTOMATIC)
    watch.look(first(temperature_c=91))
    assert watch.look(unread, after=10 * OUT_FOR) == "too hot: 91 °C (limit: 90 °C)"


def test_an_error_in_the_log_passes_by_itself_when_the_log_is_a_new_one_and_not_while_nobody_may_read_it() -> None:
    watch = Watch(AUTOMATIC)
    watch.look()
    watch.look(xids=(xid(79, 100.0),))
    assert watch.look(xids=None, after=10 * OUT_FOR)
    assert watch.look(xids=()) == ""


DRIVER_HANGS = GpuSample((), None, "the driver hangs")
UNREADABLE: dict[Kind, tuple[GpuSample, Faults, GpuSample, Faults]] = {
    Kind.RESET: (first(needs_reset=True), (), first(memory_total_mib=None), ()),
    Kind.ECC: (first(ecc_uncorrected=1), (), first(ecc_uncorrected=None), ()),
    Kind.HOT: (first(temperature_c=95), (), first(temperature_c=None), ()),
    Kind.GONE: (GpuSample(GPUS[1:]), (), DRIVER_HANGS, ()),
    Kind.LOGGED: (WELL, (xid(79, 100.0),), WELL, None),
}
"""A look with a finding of each kind, and one that could not read it: the sample and the kernel log."""


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_finding_says_whether_it_could_be_read(kind: Kind) -> None:
    """A new kind needs a case here."""
    sample, log, unread, unread_log = UNREADABLE[kind]
    watch = Watch(AUTOMATIC)
    watch.look()
    reason = watch.look(sample, log)
    assert reason
    assert [kind_of(trouble.key) for trouble in watch.record.gpus[FIRST].troubles] == [kind]
    assert watch.look(unread, unread_log, after=OUT_FOR) == reason
    log = () if kind is Kind.LOGGED else None
    assert watch.look(first(temperature_c=40), log, after=OUT_FOR) == ""


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("ecc 3", Kind.ECC),
        ("hot", Kind.HOT),
        ("reset", Kind.RESET),
        ("gone", Kind.GONE),
        ("xid 79 1204.5", Kind.LOGGED),
        ("xid 79 None", Kind.LOGGED),
    ],
)
def test_keys_in_state_files_keep_their_kind(key: str, kind: Kind) -> None:
    """Controllers of all versions wrote these."""
    assert kind_of(key) is kind


def test_a_gpu_that_was_gone_stays_out_when_it_is_back() -> None:
    watch = Watch()
    watch.look()
    assert watch.look(GpuSample(GPUS[1:])) == "disappeared"
    assert watch.look() == "disappeared"
    assert watch.resume() == ""
    assert watch.look(GpuSample(GPUS[1:])) == "disappeared"


OTHERS = GpuSample((replace(GPUS[0], uuid="GPU-of-another-machine"),))


def test_where_all_gpus_are_others_another_machine_has_the_name_and_none_has_vanished() -> None:
    watch = Watch()
    watch.look()
    assert [watch.look(OTHERS), watch.look(OTHERS), watch.look(), watch.look()] == [""] * 4
    assert not any(gpu.troubles for gpu in watch.record.gpus.values())


def test_what_keeps_a_gpu_out_is_remembered_while_another_machine_has_its_name() -> None:
    watch = Watch()
    assert watch.look(first(needs_reset=True)) == "needs a reset"
    watch.look(OTHERS)
    assert watch.look().startswith("needs a reset")


def test_what_the_log_says_when_it_is_read_for_the_first_time_is_old_however_late_that_is() -> None:
    watch = Watch()
    watch.look(xids=None)
    assert watch.look(xids=(xid(79, 100.0),)) == ""
    assert watch.look(xids=(xid(79, 100.0), xid(79, 200.0))) == "Xid 79: the GPU has fallen off the bus"


def test_memory_errors_count_from_the_first_look_on() -> None:
    assert Watch().look(first(ecc_uncorrected=1)) == "1 uncorrected ECC error"


def test_hundreds_of_errors_of_one_kind_are_one_trouble() -> None:
    watch = Watch()
    watch.look()
    for number in range(10):
        watch.look(xids=(xid(79, float(number)),))
    assert watch.why() == "Xid 79: the GPU has fallen off the bus"


def test_a_look_that_shows_nothing_new_changes_nothing() -> None:
    watch = Watch()
    watch.look(first(temperature_c=95, ecc_uncorrected=1))
    before = watch.record
    watch.look(first(temperature_c=96, ecc_uncorrected=2, utilization_pct=7))
    assert watch.record is before


def test_what_is_remembered_of_a_gpu_comes_along_to_another_name_of_its_node() -> None:
    watch = Watch()
    watch.look(first(ecc_uncorrected=2))
    after = looked({"node1": watch.record}, "renamed", first(), (), NOW, MANUAL)
    assert after.gpus[FIRST].troubles == watch.record.gpus[FIRST].troubles


def test_what_was_found_is_forgiven_also_while_the_node_does_not_answer() -> None:
    watch = Watch()
    watch.look()
    log = (xid(79, 100.0),)
    watch.look(first(ecc_uncorrected=2), log)
    watch.record, _ = resumed(watch.record, None, None, log, MANUAL)
    assert watch.look(first(ecc_uncorrected=2), log) == ""


def test_one_gpu_is_resumed_and_the_others_and_the_node_stay_out() -> None:
    watch = Watch()
    watch.look(GpuSample(tuple(replace(gpu, ecc_uncorrected=1) for gpu in GPUS)))
    record, lifted = resumed(replace(watch.record, drain=DRAIN), 1, None, None, MANUAL)
    assert [bool(gpu.troubles) for gpu in record.gpus.values()] == [True, False, True]
    assert (record.drain, len(lifted)) == (DRAIN, 1)
    record, lifted = resumed(record, None, None, None, MANUAL)
    assert (any(gpu.troubles for gpu in record.gpus.values()), record.drain, len(lifted)) == (False, None, 3)
    assert resumed(record, None, None, None, MANUAL) == (record, ())


looks = st.tuples(
    st.sampled_from([0, 1, 2, None]),
    st.sampled_from([40, 95, None]),
    st.sampled_from([None, (), (xid(79, 1.0),), (xid(79, 1.0), xid(79, 2.0)), (xid(48, None),)]),
    st.sampled_from([True, True, True, False]),
)


@given(st.lists(st.tuples(looks, st.booleans()), max_size=12))
def test_a_gpu_that_is_out_comes_back_by_a_resume_alone_and_then_stays(steps: list[Any]) -> None:
    watch = Watch()
    for (errors, celsius, log, there), resume in steps:
        sample = first(ecc_uncorrected=errors, temperature_c=celsius) if there else GpuSample(GPUS[1:])
        was_out = bool(watch.why())
        watch.look(sample, log)
        assert watch.why() or not was_out
        if resume:
            watch.resume(sample, log)
            assert watch.look(sample, log) == ""


# ---------------------------------------------------------------------- what is shown


def shown(record: NodeRecord, on: Any = None, *tasks: Task, **config: Any) -> Node:
    nodes = {"node1": NodeConfig("node1", "h", **config)}
    return survey(nodes, {"node1": on or seen(gpus=2)}, tasks, NOW, {"node1": record}).nodes["node1"]


def test_a_drained_node_has_no_free_gpu_and_says_who_drained_it() -> None:
    found = shown(NodeRecord(DRAIN), seen(gpus=3, processes=(process("node1", 1),)), task("t1"))
    words = "new disks (by ann@laptop, 2099-01-01 00:00 UTC)"
    assert (found.state, found.reason, found.drained) == ("drained", words, True)
    assert [(gpu.state, gpu.reason == words) for gpu in found.gpus] == [
        ("allocated", False),
        ("foreign", False),
        ("drained", True),
    ]
    assert (node_view(found).gpus_free, node_view(found).tasks, node_view(found).drained) == (0, 1, True)


def test_without_a_reason_it_says_who_and_when() -> None:
    assert shown(NodeRecord(replace(DRAIN, reason=""))).reason == "by ann@laptop, 2099-01-01 00:00 UTC"


def test_a_drained_node_that_cannot_be_reached_is_offline_and_stays_drained() -> None:
    found = shown(NodeRecord(DRAIN), seen(error="no route"))
    assert (found.state, found.drained) == ("offline", True)
    assert found.reason == "no route; drained: new disks (by ann@laptop, 2099-01-01 00:00 UTC)"
    assert node_view(found).tasks is None


def test_a_drained_node_that_is_not_well_says_both() -> None:
    found = shown(NodeRecord(DRAIN), seen(sample=GpuSample((), None, "the driver hangs")))
    assert (found.state, found.reason.endswith("UTC); the driver hangs")) == ("drained", True)


def test_an_unhealthy_gpu_is_not_free_and_says_since_when() -> None:
    found = shown(NodeRecord(gpus={FIRST: ILL}))
    assert [(gpu.state, gpu.reason) for gpu in found.gpus] == [
        ("unhealthy", "2 uncorrected ECC errors (since 2099-01-01 00:00 UTC)"),
        ("free", ""),
    ]


def test_an_unhealthy_gpu_is_still_held_by_its_task() -> None:
    found = shown(NodeRecord(gpus={FIRST: ILL}), None, task("t1")).gpus[0]
    assert (found.state, found.holder and found.holder.task) == ("unhealthy", "t1")
    assert found.reason.endswith("UTC); held by task t1 of me@here")


def test_an_excluded_gpu_is_excluded_however_it_is() -> None:
    assert shown(NodeRecord(gpus={FIRST: ILL}), exclude_gpus=(0,)).gpus[0].state == "excluded"


def test_a_gpu_that_has_vanished_is_listed_last() -> None:
    gone = GpuRecord(GpuReading(0, "GPU-gone"), (Trouble("gone", "disappeared", NOW),))
    found = shown(NodeRecord(gpus={"GPU-gone": gone}))
    assert [(gpu.reading.index, gpu.state) for gpu in found.gpus] == [(0, "free"), (1, "free"), (0, "unhealthy")]
    on = Cluster({"node1": found})
    assert look(on, wish("a", "node1::0")).starts["a"].gpu_uuids == (FIRST,)
    assert refusal(on, spec(needs=parse_target("node1::0"))) is None


# ---------------------------------------------------------------------- who may start


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (NodeRecord(DRAIN), "node1 is drained: new disks (by ann@laptop, 2099-01-01 00:00 UTC)"),
        (
            NodeRecord(gpus={FIRST: ILL}),
            "GPU 0 is unhealthy: 2 uncorrected ECC errors (since 2099-01-01 00:00 UTC)",
        ),
    ],
)
def test_who_wants_a_gpu_that_is_kept_out_waits_and_is_told_why(record: NodeRecord, words: str) -> None:
    on = Cluster({"node1": shown(record)})
    wanted = spec(needs=parse_target("node1::0"))
    assert str(refusal(on, wanted)) == f"node1::0: {words}"
    assert never(on, wanted) is None
    assert look(on, wish("a", "node1::0")).starts == {}


def test_nobody_is_promised_an_unhealthy_gpu_after_the_task_that_holds_it() -> None:
    held = task("t1", "node1::0", spec=replace(spec(), terms=wish("x", limit=100.0).spec.terms))
    on = Cluster({"node1": shown(NodeRecord(gpus={FIRST: ILL}), seen(gpus=1), held)})
    assert look(on, wish("a")).promises == {"a": None}


@st.composite
def gated_clusters(draw: st.DrawFn) -> Cluster:
    """A few nodes with tasks on them, some drained, with GPUs that are unhealthy or have vanished."""
    on, nodes = draw(clusters()), {}
    for name, node in on.nodes.items():
        known = [gpu.reading for gpu in node.gpus] + [reading(name, 9)]
        ill = {r.uuid: replace(ILL, reading=r) for r in known if draw(st.integers(0, 3)) == 0}
        nodes[name] = gated(node, NodeRecord(DRAIN if draw(st.integers(0, 3)) == 0 else None, ill))
    return Cluster(nodes)


@given(gated_clusters(), wishes())
def test_nothing_starts_and_nothing_is_promised_where_it_is_kept_out(on: Cluster, queue: list[Task]) -> None:
    found = look(on, *queue)
    ill = {gpu.reading.uuid for node in on.nodes.values() for gpu in node.gpus if gpu.state == "unhealthy"}
    for place in (*found.starts.values(), *filter(None, found.promises.values())):
        assert not on.nodes[place.node].drained
        assert ill.isdisjoint(place.gpu_uuids)


@given(gated_clusters(), wishes())
def test_there_is_a_reason_exactly_when_it_does_not_start(on: Cluster, queue: list[Task]) -> None:
    for one in queue:
        assert (refusal(on, one.spec) is None) == (one.id in look(on, one).starts)


# ---------------------------------------------------------------------- state file and inventory


RECORDS = {
    "node1": NodeRecord(DRAIN, {FIRST: replace(ILL, forgiven=("hot",), logged=True)}),
    "node2": NodeRecord(),
}


def test_what_is_remembered_is_there_after_a_restart_beside_the_tasks(tmp_path: Path) -> None:
    store = TaskStore(tmp_path / "state.json")
    store.save(task("t1"))
    NodeRecordStore(store.storage).save(RECORDS)
    store.save(task("t2"))
    again = TaskStore(tmp_path / "state.json")
    assert NodeRecordStore(again.storage).load() == RECORDS
    assert list(again.load()) == ["t1", "t2"]


def test_a_file_of_an_older_version_has_no_records(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parent / "data" / "state" / "v1.json", tmp_path / "state.json")
    assert NodeRecordStore(TaskStore(tmp_path / "state.json").storage).load() == {}
    assert NodeRecordStore(TaskStore(tmp_path / "new.json").storage).load() == {}


def test_a_damaged_record_is_refused_with_what_to_do(tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    NodeRecordStore(TaskStore(file).storage).save(RECORDS)
    document = json.loads(file.read_text())
    document["nodes"]["node1"]["drain"] = 7
    file.write_text(json.dumps(document))
    with pytest.raises(StateError, match=r"damaged record of a node .* move the file away"):
        NodeRecordStore(TaskStore(file).storage).load()


@pytest.mark.parametrize(
    ("text", "policy"),
    [
        ("", HealthPolicy()),
        ("health: {}", HealthPolicy()),
        ("health: {temperature: 90}", HealthPolicy(90)),
        ("health: {resume: manual}", HealthPolicy()),
        ("health: {temperature: 85, resume: automatic}", HealthPolicy(85, automatic=True)),
    ],
)
def test_the_inventory_says_when_a_gpu_is_too_hot_and_when_it_comes_back(
    tmp_path: Path, text: str, policy: HealthPolicy
) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(f"version: 1\nnodes: {{node1: {{host: h}}}}\n{text}\n")
    assert load(file).health == policy


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("health: {temprature: 90}", "health.temprature: unknown key 'temprature'; did you mean 'temperature'?"),
        ("health: {temperature: hot}", "health.temperature: is 'hot'; must be a whole number"),
        ("health: {temperature: 0}", "health.temperature: is '0'; must be at least 1"),
        ("health: {resume: never}", "health.resume: is 'never'; must be 'manual' or 'automatic'"),
        ("health: 90", "health: is '90'; must be a mapping, like {temperature: 90}"),
    ],
)
def test_a_mistake_about_health_is_told_with_what_is_wanted(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "inventory.yaml"
    file.write_text(f"version: 1\nnodes: {{node1: {{host: h}}}}\n{text}\n")
    with pytest.raises(Exception, match="health") as caught:
        load(file)
    assert words in str(caught.value)


# ---------------------------------------------------------------------- no more than can be


def others(look: int) -> GpuSample:
    """A first GPU that is always there, and so many others that each look has its own."""
    return GpuSample((GPUS[0], *(reading("node1", 1000 * look + n) for n in range(1, MOST_GPUS))))


def test_gpus_that_have_vanished_are_remembered_up_to_a_number() -> None:
    """The first of them: else each look would tell of others that are gone."""
    record = NodeRecord()
    for number in range(10):
        before, record = record, looked({"node1": record}, "node1", others(number), (), NOW + number, MANUAL)
        assert {gpu.uuid for gpu in others(number).gpus} <= record.gpus.keys()
    assert len(record.gpus) == REMEMBERED
    ill = [{uuid for uuid, gpu in each.gpus.items() if gpu.troubles} for each in (before, record)]
    assert ill[0] == ill[1]
    assert len(ill[0]) == REMEMBERED - MOST_GPUS


def test_one_that_is_kept_out_is_remembered_before_one_that_is_not() -> None:
    well = {uuid("node1", n): GpuRecord(reading("node1", n)) for n in range(4500)}
    kept = remembered({**well, "GPU-ill": ILL, "GPU-here": GpuRecord(GPUS[1])}, {"GPU-here"})
    assert len(kept) == REMEMBERED
    assert {"GPU-ill", "GPU-here", uuid("node1", 0)} <= kept.keys()


def test_a_state_with_thousands_of_gpus_is_read_and_forgets_most(tmp_path: Path) -> None:
    """A controller of an earlier version may have written 2 MB of them."""
    store = NodeRecordStore(TaskStore(tmp_path / "state.json").storage)
    gpus = {uuid("node1", n): GpuRecord(reading("node1", n)) for n in range(4500)}
    store.save({"node1": NodeRecord(DRAIN, gpus)})
    record = NodeRecords(store, SimpleNamespace()).of("node1")  # type: ignore[arg-type]
    assert (len(record.gpus), record.drain) == (REMEMBERED, DRAIN)


def test_a_node_whose_gpus_are_others_at_every_look_has_none() -> None:
    known: Mapping[str, float] = {}
    for number in range(2):
        known, sample = recognised(known, others(number), NOW)
        assert len(sample.gpus) == MOST_GPUS
    for number in range(2, 9):
        known, sample = recognised(known, others(number), NOW + number)
        assert (sample.gpus, sample.processes) == ((), None)
        assert "keep changing their UUIDs" in (sample.error or "")
        assert len(known) <= 2 * MOST_GPUS
    known, sample = recognised(known, others(1), NOW + 9)
    assert len(sample.gpus) == MOST_GPUS
    _, sample = recognised(known, others(9), NOW + 2 * CHANGES_WITHIN)
    assert len(sample.gpus) == MOST_GPUS


def test_all_gpus_of_a_node_may_be_other_ones_once_and_an_hour_later_again() -> None:
    ever = [GpuSample(tuple(reading("node1", 100 * look + n) for n in range(MOST_GPUS))) for look in range(3)]
    known, _ = recognised({}, ever[0], NOW)
    known, sample = recognised(known, ever[1], NOW + 1)
    assert (sample, len(known)) == (ever[1], 2 * MOST_GPUS)
    assert recognised(known, ever[2], NOW + CHANGES_WITHIN - 1)[1].gpus == ()
    assert recognised(known, ever[2], NOW + CHANGES_WITHIN)[1] == ever[2]


# ---------------------------------------------------------------------- external GPUs

DOCKED = HostFacts(removable=("0000:01:00.0",))


def plugged(record: NodeRecord, there: bool, *held: str, host: HostFacts | None = DOCKED) -> NodeRecord:
    """The record after a look at the node, with or without its first GPU, which is external."""
    sample = with_external(GpuSample(GPUS if there else GPUS[1:]), host, record, held)
    return looked({"node1": record}, "node1", sample, (), NOW, MANUAL)


def test_an_external_gpu_comes_and_goes_without_a_fault() -> None:
    record = plugged(NodeRecord(), there=True)
    assert record.gpus[FIRST].reading.removable
    away = plugged(record, there=False, host=HostFacts())
    assert not any(gpu.troubles for gpu in away.gpus.values())
    assert not any(gpu.troubles for gpu in plugged(away, there=True).gpus.values())


def test_an_external_gpu_that_a_task_holds_has_disappeared() -> None:
    away = plugged(plugged(NodeRecord(), there=True), False, FIRST)
    assert [trouble.reason for trouble in away.gpus[FIRST].troubles] == ["disappeared"]


def test_an_external_gpu_that_fell_off_the_bus_is_a_fault() -> None:
    record = plugged(NodeRecord(), there=True)
    sample = replace(GpuSample(GPUS[1:], None, "lost"), lost=("0000:01:00.0",))
    found = looked({"node1": record}, "node1", with_external(sample, DOCKED, record, ()), (), NOW, MANUAL)
    assert found.gpus[FIRST].troubles[0].reason == "the driver cannot reach it; it may have fallen off the bus"


def test_an_internal_gpu_that_vanishes_is_a_fault_beside_an_external_one() -> None:
    record = plugged(NodeRecord(), there=True)
    sample = with_external(GpuSample(GPUS[:2]), DOCKED, record, ())
    found = looked({"node1": record}, "node1", sample, (), NOW, MANUAL)
    assert [uuid for uuid, gpu in found.gpus.items() if gpu.troubles] == [GPUS[2].uuid]
