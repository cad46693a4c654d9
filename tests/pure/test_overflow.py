"""Overflow: which tasks go from the queue to a cluster, and when."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.controller.scheduling.overflows import Overflows
from agentless.errors import IllegalMove, JobRefused, RuntimeFailed, UsageError
from agentless.inventory.inventory import load
from agentless.model.files.file_spec import Upload
from agentless.model.nodes.cluster_node import ClusterNode
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.slurm import SlurmCluster
from agentless.model.scheduling.overflow import Refusal, parse_overflow
from agentless.model.tasks.job import Job
from agentless.model.tasks.spec import Mount, TaskSpec
from agentless.model.tasks.task import KeptPlace, Pending, Placement, Task
from agentless.model.tasks.task_event import Assigned, HandedBack, HandedOver, TermsChanged
from agentless.model.tasks.terms import Terms
from agentless.rules.explain.obstacles import never
from agentless.rules.scheduling.overflow import KnownCluster, deadline, going, overflow_words, takers
from agentless.rules.scheduling.timeline.promise import Promise
from agentless.rules.tasks.lifecycle import apply
from tests.pure.build import NOW
from tests.pure.test_plan import look, runs, two_nodes, wish

AFTER = 1800.0
WAITS: dict[str, Any] = {"created_at": NOW - AFTER + 60}
DUE: dict[str, Any] = {"created_at": NOW - AFTER}


def node(name: str = "c1", gpus: tuple[tuple[str, int], ...] = (("a100", 4),), state: str = "idle") -> ClusterNode:
    return ClusterNode(name, state, gpus, (), 64, 0, 1 << 18, 0, "")


def link_of(name: str, **keys: Any) -> Any:
    """What is known of a cluster of the inventory."""
    config = NodeConfig(name, "login", slurm=SlurmCluster(container="apptainer", **keys))
    return SimpleNamespace(node=config, inside=(node(),), inside_at=NOW, silence=None)


HPC = KnownCluster("hpc", SlurmCluster(container="pyxis"), (node(),))


def waiting(name: str = "t1", target: str = "1x", **fields: Any) -> Task:
    own = {key: fields.pop(key) for key in ("created_at", "queued_at", "status") if key in fields}
    return replace(wish(name, target, **fields), **(WAITS | own))


def gone(*queue: Task, to: KnownCluster = HPC, **promises: Promise | None) -> dict[str, str]:
    def cluster(task: Task) -> str | None:
        able = takers(task.spec, [to])
        return able[0].name if able and not able[0].unknown else None

    known = dict.fromkeys((task.id for task in queue), None) | promises
    return going(queue, known, NOW, AFTER, cluster, lambda task: task.spec.needs.gpus > 8)


def starts(seconds: float, *, about: bool = False) -> Promise:
    return Promise("node1", NOW + seconds, about=about)


@pytest.mark.parametrize(
    ("task", "promise", "goes"),
    [
        (waiting(), None, False),
        (waiting(**DUE), None, True),
        (waiting(**DUE, queued_at=NOW - 60), None, False),  # it was blocked before
        (waiting(), starts(59), False),
        (waiting(), starts(60), True),
        (waiting(), starts(3600, about=True), False),  # a guess is no certain time
        (waiting(), Promise("node1", None), False),
        (waiting(**DUE), Promise("node1", None), True),
        (waiting(target="9x", needs={"gpu_types": ()}), None, False),  # no node can run it, nor can the cluster
        (waiting(**DUE, status=Pending(place=KeptPlace("node1", (), ("t9",), NOW + 9))), None, False),
        (waiting(**DUE, needs={"nodes": ("node1",)}), None, False),
    ],
)
def test_a_task_is_due_once_it_is_expected_to_wait_too_long(task: Task, promise: Promise | None, goes: bool) -> None:
    assert gone(task, t1=promise) == ({"t1": "hpc"} if goes else {})


@pytest.mark.parametrize(
    ("task", "promise", "cause"),
    [
        (waiting(), starts(60), "it is expected to wait 30m 0s for a node"),
        (waiting(queued_at=NOW - 60), starts(7200), "it is expected to wait 2h 1m for a node"),
        (waiting(**DUE), None, "it has waited 30m 0s for a node, and its start there is unknown"),
        (waiting(**DUE), starts(60, about=True), "it has waited 30m 0s for a node, and its start there is unknown"),
        (waiting(target="9x"), None, "no node can ever run it"),
    ],
)
def test_the_event_has_the_cause_for_which_a_task_goes(task: Task, promise: Promise | None, cause: str) -> None:
    link: Any = SimpleNamespace(**{**vars(link_of("hpc")), "inside": (node(gpus=(("", 16),)),)})
    nodes: Any = SimpleNamespace(clusters={"hpc": link}, cluster=two_nodes, links={})
    clock: Any = SimpleNamespace(now=lambda: NOW)
    asks = replace(task, spec=replace(task.spec, terms=Terms(overflow=("hpc",))))
    assert Overflows(nodes, clock).going([asks], {asks.id: promise}) == {asks.id: (HandedOver("hpc"), cause)}


def test_a_task_that_no_node_can_ever_run_goes_at_once() -> None:
    assert gone(waiting(target="9x"), to=replace(HPC, nodes=(node(gpus=(("", 16),)),))) == {"t1": "hpc"}


def test_the_first_that_is_due_goes_with_those_like_it_and_others_are_planned_anew() -> None:
    """The others may start where the first one has waited: a small one behind a large one."""
    large, small, last = waiting("large", "4x", **DUE), waiting("small", **DUE), waiting("last", "4x", **DUE)
    assert gone(large, small, last) == {"large": "hpc", "last": "hpc"}
    assert gone(small, large) == {"small": "hpc"}


def test_who_comes_later_does_not_go_along_if_the_place_of_the_first_is_soon_enough_for_it() -> None:
    first, later = waiting("first"), replace(waiting("later"), created_at=NOW)
    assert gone(first, later, first=starts(100), later=starts(2000)) == {"first": "hpc"}
    assert gone(first, later, first=starts(1900), later=starts(2000)) == {"first": "hpc", "later": "hpc"}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"uploads": (Upload("/a", "/a"),)}, "use a relative DEST"),
        ({"volumes": ("v",)}, "--volume cannot be used"),
        ({"container": "torch:1"}, "--container cannot be used"),
        ({"needs": {"on": {"rack": "a"}}}, "--on cannot be used"),
        ({"needs": {"gpu_types": ("H100",)}}, "H100: no type of hpc matches; use hpc 1xa100"),
        ({"needs": {"gpus": 5}}, "no node of hpc that is up has 5 GPUs"),
        ({"needs": {"nodes": ("node1",)}}, "the task names its node, node1; omit that, or --overflow"),
        ({"mounts": (Mount("/a,b", "/a"),)}, "a comma"),
        ({"job": Job("train", "flow", artifacts=("model",))}, "a job with artifacts"),
    ],
)
def test_what_a_cluster_cannot_do_is_said_and_the_task_stays(fields: dict[str, Any], words: str) -> None:
    task = waiting(**DUE, **fields)
    assert words in HPC.refuses(task.spec)
    assert gone(task) == {}


def test_an_image_goes_only_where_images_run_and_null_is_a_plain_job() -> None:
    bare = replace(HPC, config=SlurmCluster())
    assert "use --container NULL" in bare.refuses(waiting().spec)
    null = replace(waiting().spec, image=None, container="NULL")
    assert bare.refuses(null) == ""
    assert null.on_cluster("hpc").container is None


def test_a_task_is_checked_with_the_image_of_the_inventory_that_it_will_have(tmp_path: Path) -> None:
    """Refused at once, or not at all: a mount means something in that image."""
    inventory = tmp_path / "inventory.yaml"
    link = link_of("hpc")
    nodes: Any = SimpleNamespace(cluster_link=lambda _: link, clusters={"hpc": link}, links={})
    clock: Any = None
    overflows = Overflows(nodes, clock)
    bare = TaskSpec(("true",), terms=Terms(overflow=("hpc",)), mounts=(Mount("/data", "/data"),))

    def problem(defaults: str, spec: TaskSpec = bare) -> str:
        inventory.write_text(f"version: 1\ndefaults: {{{defaults}}}\nnodes:\n  node1: {{host: a}}\n")
        overflows.on_inventory(load(inventory))
        try:
            overflows.check(overflows.as_built(spec))
        except UsageError as error:
            return str(error)
        return ""

    assert problem("image: torch") == ""
    assert "where --mount without --image cannot be used; a task without an image sees" in problem("")
    assert "--mount without --image" in problem('image: torch, container: "NULL"')
    assert problem('image: torch, container: "NULL"', replace(bare, mounts=())) == ""
    assert "--container cannot be used" in problem("image: torch, container: env")
    assert problem("image: torch, container: env", replace(bare, image="own")) == ""
    assert "--mount /a,b:/shared: apptainer takes no path with a comma" in problem('image: torch, shared_dir: "/a,b"')


def test_what_only_chooses_among_nodes_does_not_keep_a_task() -> None:
    task = waiting(**DUE, needs={"exclude": ("node2",), "policy": "spread"})
    assert gone(task) == {"t1": "hpc"}
    needs = task.spec.on_cluster("hpc").needs
    assert (needs.nodes, needs.exclude, needs.policy, needs.gpus) == (("hpc",), (), None, 1)


def test_the_first_cluster_that_can_take_it_and_answers_gets_it() -> None:
    silent, other = replace(HPC, name="silent", silence="cut off"), replace(HPC, name="other")
    drained = replace(HPC, name="drained", nodes=(node(state="idle+drain"),))
    assert [each.name for each in takers(waiting().spec, [drained, silent, other, HPC])] == ["other", "hpc", "silent"]
    assert gone(waiting(**DUE), to=silent) == {}
    assert gone(waiting(**DUE), to=replace(HPC, nodes=None)) == {}


@pytest.mark.parametrize(
    ("task", "clusters", "words"),
    [
        (waiting(), [], ""),
        (waiting(), [HPC], "goes to hpc in 1m 0s if it has not started by then"),
        (waiting(), [replace(HPC, gone=True)], "cannot go to hpc: hpc is no longer in the inventory"),
        (waiting(), [replace(HPC, name="old", gone=True), HPC], "goes to hpc in 1m 0s"),
        (waiting(**DUE), [HPC], "goes to hpc now"),
        (waiting(**DUE), [replace(HPC, silence="cut off")], "goes to hpc as soon as possible: hpc cannot be reached"),
        (waiting(**DUE), [replace(HPC, nodes=None)], "as soon as possible: the nodes of hpc are not known yet"),
        (waiting(share=True), [HPC], "cannot go to hpc: hpc is a Slurm cluster, where --share cannot be used"),
        (
            waiting(image="i"),
            [replace(HPC, config=SlurmCluster())],
            "cannot go to hpc: hpc runs no images; if it has pyxis or apptainer, set container: of hpc",
        ),
        (waiting(status=Pending(place=KeptPlace("node1", (), ("t9",), NOW)), **DUE), [HPC], "does not go to hpc, beca"),
    ],
)
def test_explain_says_when_it_goes_or_why_not(task: Task, clusters: list[KnownCluster], words: str) -> None:
    found = overflow_words(task, None, NOW, AFTER, clusters)
    assert words in found
    assert bool(words) == bool(found)


def test_a_task_that_has_gone_to_a_cluster_goes_nowhere_else() -> None:
    there = apply(waiting(**DUE), HandedOver("hpc"), NOW)
    assert (there.state, there.node) == ("pending", "hpc")
    assert gone(there) == {}
    with pytest.raises(IllegalMove):
        apply(there, HandedOver("other"), NOW)
    held = waiting(status=Pending(place=KeptPlace("node1", (), ("t9",), NOW)))
    for has_place in (held, apply(waiting(), Assigned(Placement("node1")), NOW)):
        with pytest.raises(IllegalMove):
            apply(has_place, HandedOver("hpc"), NOW)


def test_a_task_whose_job_is_refused_asks_of_nodes_what_it_had_asked_and_does_not_go_there_again() -> None:
    task = waiting(**DUE, image=None, container="NULL", needs={"exclude": ("node2",), "policy": "spread"})
    there = apply(apply(task, HandedOver("hpc", ("a100",)), NOW), Assigned(Placement("hpc")), NOW)
    there = apply(there, TermsChanged(Terms(time_limit=60)), NOW)
    event = HandedBack(
        Refusal("hpc", SlurmCluster(account="x", container="apptainer"), "hpc refused its job: Invalid account")
    )
    back = apply(there, event, NOW)
    assert (back.state, back.spec) == ("pending", replace(task.spec, terms=Terms(time_limit=60)))
    links = {name: link_of(name, account="x") for name in ("hpc", "other")}
    nodes: Any = SimpleNamespace(clusters=links, cluster=two_nodes, links={})
    clock: Any = SimpleNamespace(now=lambda: NOW)
    overflows = Overflows(nodes, clock)
    back = replace(back, spec=replace(back.spec, terms=Terms(overflow=("hpc",))))
    assert overflows.words(back, None) == "cannot go to hpc: hpc refused its job: Invalid account"
    assert overflows.going([back], {back.id: None}) == {}
    both = replace(back, spec=replace(back.spec, terms=Terms(overflow=("hpc", "other"))))
    assert overflows.going([both], {both.id: None})[both.id][0].cluster == "other"
    links["hpc"] = link_of("hpc", account="y")
    assert overflows.going([back], {back.id: None})[back.id][0].cluster == "hpc"
    for other in (replace(there, stop="stop"), apply(task, Assigned(Placement("hpc")), NOW)):
        with pytest.raises(IllegalMove):
            apply(other, event, NOW)


def test_a_cluster_that_has_left_the_inventory_is_a_reason_and_takes_nothing() -> None:
    clock: Any = SimpleNamespace(now=lambda: NOW)
    nodes: Any = SimpleNamespace(clusters={"new": link_of("new")}, cluster=two_nodes, links={})
    overflows, asks = Overflows(nodes, clock), waiting(**DUE)
    asks = replace(asks, spec=replace(asks.spec, terms=Terms(overflow=("hpc",))))
    assert overflows.words(asks, None) == "cannot go to hpc: hpc is no longer in the inventory"
    assert (overflows.going([asks], {asks.id: None}), overflows.may_go(asks.spec)) == ({}, False)


def test_a_refused_task_that_has_nowhere_to_wait_is_not_taken_back() -> None:
    nodes: Any = SimpleNamespace(clusters={"hpc": link_of("hpc")}, cluster=two_nodes, links={})
    clock: Any = SimpleNamespace(now=lambda: NOW)
    overflows = Overflows(nodes, clock)

    def comes_back(task: Task) -> bool:
        there = apply(apply(task, HandedOver("hpc"), NOW), Assigned(Placement("hpc")), NOW)
        found = overflows.taken_back(there, JobRefused("hpc: Invalid account", "Invalid account"))
        said = Refusal("hpc", SlurmCluster(container="apptainer"), "hpc refused its job: Invalid account")
        assert found is None or found.refusal == said
        return found is not None

    assert (comes_back(waiting()), comes_back(waiting(target="9x"))) == (True, False)
    named = replace(waiting(), spec=replace(waiting().spec, needs=replace(waiting().spec.needs, nodes=("hpc",))))
    assert overflows.taken_back(apply(named, Assigned(Placement("hpc")), NOW), JobRefused("no")) is None


def test_a_thousand_refusals_cost_one_look_at_the_nodes() -> None:
    looks = list[float]()

    def cluster() -> Any:
        looks.append(NOW)
        return two_nodes()

    nodes: Any = SimpleNamespace(clusters={"hpc": link_of("hpc")}, cluster=cluster, links={})
    clock: Any = SimpleNamespace(now=lambda: NOW)
    overflows = Overflows(nodes, clock)
    tasks = [
        apply(apply(waiting(f"t{at}"), HandedOver("hpc"), NOW), Assigned(Placement("hpc")), NOW) for at in range(20)
    ]
    assert all(overflows.taken_back(task, JobRefused("no")) for task in tasks)
    assert len(looks) == 1
    overflows.going([], {})
    overflows.taken_back(tasks[0], JobRefused("no"))
    assert len(looks) == 2


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RuntimeFailed("hpc: cannot write to .agentless"), "hpc: cannot write to .agentless"),
        (JobRefused("hpc: a limit", "a limit", lasts=False), "hpc refused its job: a limit"),
    ],
)
def test_a_task_goes_again_after_an_hour_if_the_reason_may_pass_even_where_no_node_can_run_it(
    error: RuntimeFailed, words: str
) -> None:
    nodes: Any = SimpleNamespace(clusters={"hpc": link_of("hpc")}, cluster=two_nodes, links={})
    now = [NOW]
    clock: Any = SimpleNamespace(now=lambda: now[0])
    overflows, asks = Overflows(nodes, clock), waiting(**DUE, target="9x")
    asks = replace(asks, spec=replace(asks.spec, terms=Terms(overflow=("hpc",))))
    nodes.clusters["hpc"].inside = (node(gpus=(("a100", 9),)),)
    there = apply(apply(asks, HandedOver("hpc"), NOW), Assigned(Placement("hpc")), NOW)
    event = overflows.taken_back(there, error)
    assert event is not None
    back = apply(there, event, NOW)
    now[0] += 600
    assert overflows.words(back, None) == f"cannot go to hpc: {words}; tried again in 50m 0s"
    assert overflows.going([back], {back.id: None}) == {}
    now[0] += 3000
    assert overflows.going([back], {back.id: None})[back.id][0].cluster == "hpc"


@pytest.mark.parametrize("text", ["", "hpc,", "a b", "none,hpc", "-x"])
def test_only_names_are_clusters_for_overflow(text: str) -> None:
    with pytest.raises(UsageError, match="--overflow"):
        parse_overflow(text)


def test_none_is_no_cluster() -> None:
    assert (parse_overflow("none"), parse_overflow("hpc, big,hpc")) == ((), ("hpc", "big"))


@st.composite
def queues(draw: st.DrawFn) -> list[Task]:
    """Tasks with and without time limits that have waited for a while, of which some may go to a cluster."""
    found = list[Task]()
    for number in range(draw(st.integers(1, 8))):
        gpus, limit = draw(st.sampled_from((1, 2, 4, 9))), draw(st.sampled_from((None, 600.0, 3600.0)))
        task = wish(f"t{number}", f"{gpus}x", limit, share=draw(st.booleans()))
        found.append(replace(task, created_at=NOW - draw(st.sampled_from((0.0, 900.0, AFTER, 4 * AFTER)))))
    return found


@given(queues(), st.lists(st.sampled_from((None, 600.0, 7200.0)), max_size=2), st.booleans())
def test_own_nodes_first_and_never_before_it_is_due_and_never_twice(
    queue: list[Task], busy: list[float | None], is_large: bool
) -> None:
    """Look by look, until nothing goes any more: as the controller does."""
    on = two_nodes(*(runs(f"r{at}", f"node{at + 1}::0,1,2", limit=limit) for at, limit in enumerate(busy)))
    cluster = replace(HPC, nodes=(node(gpus=(("", 16 if is_large else 4),)),))
    tasks, there = {task.id: task for task in queue}, set[str]()
    for _ in range(len(queue) + 1):
        waits = [task for task in tasks.values() if not task.spec.needs.nodes]
        planned = look(on, *waits)

        def to(task: Task) -> str | None:
            return next((each.name for each in takers(task.spec, [cluster])), None)

        def hopeless(task: Task) -> bool:
            return never(on, task.spec) is not None

        goes = going(waits, planned.promises, NOW, AFTER, to, hopeless)
        assert goes.keys().isdisjoint(there | planned.starts.keys())
        for task_id in goes:
            task, promise = tasks[task_id], planned.promises[task_id]
            expected = promise.start if promise and promise.firm else None
            assert hopeless(task) or max(NOW, expected or NOW) >= deadline(task, AFTER)
            assert cluster.refuses(task.spec) == ""
            tasks[task_id] = apply(task, HandedOver("hpc"), NOW)
        there |= goes.keys()
        if not goes:
            # Who is left starts here, or waits for less than the limit, or no cluster takes it.
            for task in waits:
                if task.id not in planned.starts and not cluster.refuses(task.spec):
                    promise = planned.promises[task.id]
                    assert not hopeless(task)
                    assert max(NOW, (promise.start if promise and promise.firm else 0) or 0) < deadline(task, AFTER)
            return
    raise AssertionError("it does not come to an end")
