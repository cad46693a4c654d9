"""Whoever may use Docker on a node writes any label there: a container that nobody here has started starts nothing."""

from __future__ import annotations

import json
from dataclasses import replace

import orjson
import pytest

from agentless.controller.submit.request import Submit
from agentless.demo.engine.container import Config
from agentless.demo.engine.engine import DEFAULT_IMAGE
from agentless.model.containers.claim import CONTROLLER, GPUS, OWNER, SPEC, TASK
from agentless.model.containers.signature import SIGNATURE
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.terms import Terms
from tests.fleet.client import until
from tests.fleet.desk import me
from tests.fleet.test_owners import ask

FAILS = ["sh", "-c", "exit 1"]


def labels_of(desk, task):
    """What anybody with Docker on n1 reads there."""
    engine = desk.fleet.nodes["n1"].engine
    return dict(engine.containers[desk.controller.lookup.find(task).container].config.labels)


def forged(labels, **changes):
    """The labels with the spec of whoever forges them: it wants to be tried again, on n2."""
    whole = json.loads(labels[SPEC])
    whole["spec"] |= {"needs": {"nodes": ["n2"]}, "terms": {"retries": 3}, "command": ["touch", "/evil"]} | changes
    return labels | {SPEC: json.dumps(whole), TASK: "0000000evil", GPUS: ""}


async def put(desk, controller, labels, node="n1", name="somebodys", command=FAILS, start=True):
    """Somebody starts a container with these labels, and the controller looks at the node."""
    engine = desk.fleet.nodes[node].engine
    container = engine.create(Config(name, DEFAULT_IMAGE, list(command), labels))
    if start:
        engine.start(container)
        await until(lambda: command is not FAILS or not container.live)
    await controller.nodes.links[node].refresh()
    return container


def started(desk):
    """All containers on all nodes, by name."""
    return sorted(c.config.name for node in desk.fleet.nodes.values() for c in node.engine.containers.values())


async def settled(desk, controller):
    """All that follows from what the nodes show by now has been begun."""
    for node in ("n1", "n2"):
        await controller.nodes.links[node].refresh()
    controller.deadlines.tick()
    controller.scheduler._begin()
    controller.retention.tick()
    await until(lambda: not controller.tasks.launching and not controller.retention.busy)


async def row(controller, task):
    return next(each for each in (await ask(controller, "GET", "/v1/tasks", ended=True))[1] if each["id"] == task)


FORGERIES = {
    "another spec": forged,
    "a spec that wants no container": lambda labels: forged(labels, container="NULL", image=None),
    "a later try": lambda labels: forged(labels) | {TASK: f"{labels[TASK]}-2"},
    "no signature": lambda labels: {k: v for k, v in forged(labels).items() if k != SIGNATURE},
    "a signature of another form": lambda labels: forged(labels) | {SIGNATURE: "é"},
    "only another owner": lambda labels: labels | {OWNER: "eve", TASK: labels[TASK] + "0"},
    "another controller": lambda labels: forged(labels) | {CONTROLLER: "another"},
}


async def test_a_forged_container_starts_nothing_whatever_its_labels(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        for forgery, forge in FORGERIES.items():
            labels = forge(labels_of(desk, task))
            evil = await put(desk, controller, labels, name=f"agentless-{labels[TASK]}")
            before = started(desk)
            await settled(desk, controller)
            assert started(desk) == before, forgery
            assert set(controller.tasks.live) == {task}, forgery
            assert not any(share["owner"] == "eve" for share in (await ask(controller, "GET", "/v1/shares"))[1]), (
                forgery
            )
            found = [t for t in (await ask(controller, "GET", "/v1/tasks", ended=True))[1] if t["container"] == evil.id]
            (row,) = found
            assert (row["foreign"], row["reason"].startswith("foreign: this controller")) == (True, True), forgery
            await desk.fleet.nodes["n1"].engine.remove(evil, force=True)


async def test_a_forged_container_that_was_never_started_is_not_started(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        labels = forged(labels_of(desk, task))
        evil = await put(desk, controller, labels, name="agentless-0000000evil", start=False)
        await settled(desk, controller)
        assert (evil.state, set(controller.tasks.live)) == ("created", {task})


async def test_its_gpus_are_held_and_it_can_be_stopped(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        gpu = desk.fleet.nodes["n1"].gpus.uuids[1]
        labels = forged(labels_of(desk, task), stop_grace=1e9) | {GPUS: gpu}
        evil = await put(desk, controller, labels, command=["sleep", "60"])
        assert [g.state for g in controller.nodes.cluster().nodes["n1"].gpus][:2] == ["allocated", "allocated"]
        status, _ = await ask(controller, "POST", f"/v1/tasks/{evil.id[:12]}/stop", body={})
        assert (status, evil.live) == (200, False)


async def test_what_says_that_it_needs_no_container_is_stopped_as_the_container_that_it_is(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        labels = forged(labels_of(desk, task), container="NULL", image=None)
        evil = await put(desk, controller, labels, command=["sleep", "60"])
        assert (await ask(controller, "POST", f"/v1/tasks/{evil.id[:12]}/kill", body={}))[0] == 200
        assert not evil.live


# ------------------------------------------------------------------- signed labels on another container


@pytest.mark.parametrize("node", ["n1", "n2"])
async def test_a_copy_of_signed_labels_is_not_the_task(desk, node):
    """Nor when the task's own container is removed, and the copy has all of its names."""
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        own = controller.lookup.find(task).container
        copy = await put(desk, controller, labels_of(desk, task), node, command=["sleep", "60"])
        assert controller.lookup.find(task).container == own
        engine = desk.fleet.nodes["n1"].engine
        await engine.remove(engine.containers[own], force=True)
        engine = desk.fleet.nodes[node].engine
        engine.rename(copy, f"agentless-{task}")
        await until(lambda: not controller.lookup.find(task).live)
        await settled(desk, controller)
        ended = controller.lookup.find(task)
        assert (ended.state, ended.container, set(controller.tasks.live)) == ("failed", own, set())
        assert (await row(controller, copy.id[:12]))["foreign"]


async def test_labels_of_a_task_that_was_removed_are_not_a_task_any_more(desk):
    async with desk.running() as controller:
        task = await desk.submit("exit 1", "n1::0")
        await controller.commands.wait(task)
        labels = labels_of(desk, task)
        await controller.removal.remove(task, by=me(controller))
        controller.tasks.forgotten.clear()  # as after a restart
        await put(desk, controller, labels, name=f"agentless-{task}", command=["sleep", "60"])
        await settled(desk, controller)
        assert not controller.tasks.live


async def test_a_container_of_ours_that_the_state_does_not_know_is_taken_in_by_its_signature(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        was = controller.tasks.live[task]
        controller.ledger.stores.state.remove(task)
        controller.tasks.history._db.execute("DELETE FROM events")
    async with desk.running() as controller:
        await until(lambda: task in controller.tasks.live)
        now = controller.tasks.live[task]
        assert (now.spec, now.container) == (was.spec, was.container)


async def test_where_the_key_is_lost_nothing_is_taken_in_unasked_and_recover_takes_what_was_shown(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        controller.ledger.stores.state.remove(task)
        controller.tasks.history._db.execute("DELETE FROM events")
    (desk.state / "key").unlink()
    async with desk.running() as controller:
        await settled(desk, controller)
        assert not controller.tasks.live
        _, shown = await ask(controller, "GET", "/v1/recovery")
        assert shown["specs"][task]["command"] == ["sh", "-c", "sleep 60"]
        wrong = {"tasks": [task], "digests": {task: "of another container"}}
        assert (await ask(controller, "POST", "/v1/recovery", body=wrong))[0] == 409
        assert not controller.tasks.live
        right = {"tasks": [task], "digests": shown["digests"]}
        assert (await ask(controller, "POST", "/v1/recovery", body=right))[0] == 200
        assert set(controller.tasks.live) == {task}


async def test_a_task_that_is_remembered_needs_no_signature(desk):
    """As those that an earlier version has started."""
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
    (desk.state / "key").unlink()
    async with desk.running() as controller:
        await settled(desk, controller)
        assert controller.tasks.live[task].state == "running"
        await controller.stops.stop(task, "kill", by=me(controller))
        assert controller.lookup.find(task).state == "killed"


# ------------------------------------------------------------------- what labels say of ids


async def test_a_claim_whose_id_is_none_holds_its_gpu_under_its_containers(desk):
    async with desk.running() as controller:
        gpu = desk.fleet.nodes["n1"].gpus.uuids[2]
        for name in ("two words", "", "../../etc", "x" * 300, "a\x1b[31mb", "n1::0"):
            odd = await put(desk, controller, {TASK: name, GPUS: gpu, OWNER: "eve"}, command=["sleep", "60"])
            found = controller.nodes.cluster().nodes["n1"].gpus[2]
            assert (found.state, found.holder and found.holder.task) == ("allocated", odd.id[:12]), name
            assert (await row(controller, odd.id[:12]))["owner"] == "eve", name
            await desk.fleet.nodes["n1"].engine.remove(odd, force=True)


async def test_an_id_of_mine_on_another_node_is_shown_as_the_container_that_it_is(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        gpu = desk.fleet.nodes["n2"].gpus.uuids[0]
        labels = {TASK: task, GPUS: gpu, OWNER: "eve"}
        odd = await put(desk, controller, labels, "n2", command=["sleep", "60"])
        assert controller.nodes.cluster().nodes["n2"].gpus[0].holder.task == odd.id[:12]
        assert controller.lookup.find(task).node == "n1"
        assert (await row(controller, odd.id[:12]))["node"] == "n2"


async def test_an_image_made_of_a_task_holds_its_gpu_for_itself(desk):
    """`docker commit` copies labels: a container of such an image outlives the task."""
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        copy = await put(desk, controller, labels_of(desk, task), command=["sleep", "60"])
        await controller.stops.stop(task, "kill", by=me(controller))
        gpu = controller.nodes.cluster().nodes["n1"].gpus[0]
        assert (gpu.state, gpu.holder.task) == ("allocated", copy.id[:12])


async def test_a_name_that_a_stranger_has_chosen_does_not_stand_for_one_of_mine(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        live = controller.tasks.live
        live[task] = replace(live[task], spec=replace(live[task].spec, name="train"))
        await put(desk, controller, forged(labels_of(desk, task), name="train"), command=["sleep", "9"])
        assert controller.lookup.find("train").id == task
        assert controller.lookup.find(task[:4]).id == task


async def test_a_task_whose_next_name_somebody_has_taken_on_a_node_is_tried_elsewhere(desk, tmp_path):
    """Ids of tries are no secret. It costs the task none of its tries."""
    taken = tmp_path / "taken"
    async with desk.running() as controller:
        command = ("sh", "-c", f"until [ -e {taken} ]; do sleep 0.05; done; exit 1")
        spec = TaskSpec(command, needs=Needs(), terms=Terms(retries=1, backoff=0.1))
        (start,) = await controller.submission.submit(Submit((spec,), {}, me(controller)))
        task, node = start.task.id, start.task.node
        await put(desk, controller, {}, node=node, name=f"agentless-{task}-2", command=["sleep", "600"])
        taken.touch()
        await until(lambda: controller.tasks.knows(f"{task}-2"))
        await until(lambda: controller.lookup.find(f"{task}-2").state == "failed")
        again = controller.lookup.find(f"{task}-2")
        assert (again.node, again.status.exit_code) == ("n2" if node == "n1" else "n1", 1)


async def test_the_script_of_a_stranger_is_not_written_for_them(desk):
    """It would carry our signature under their words."""
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        evil = await put(desk, controller, forged(labels_of(desk, task)), command=["sleep", "60"])
        status, said = await ask(controller, "GET", f"/v1/tasks/{evil.id[:12]}/script")
        assert status == 409
        assert "agentless.signature" not in json.dumps(said)


HUGE = 10**40


ODD = [
    {"memory": HUGE}, {"terms": {"retries": HUGE}}, {"terms": {"priority": -HUGE}}, {"needs": {"gpus": HUGE}},
    {"terms": {"time_limit": 1e308}}, {"stop_grace": 1e308}, {"parameters": {"a": "\ud800"}}, {"command": []},
]  # fmt: skip


async def test_whatever_a_label_says_the_tasks_can_be_listed(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        engine = desk.fleet.nodes["n1"].engine
        for number, changes in enumerate(ODD):
            labels = forged(labels_of(desk, task), **changes)
            for words in ({"gpus": [HUGE]}, {"created_at": 9e10}, {"numa": -HUGE}, {}):
                each = labels | {SPEC: json.dumps(json.loads(labels[SPEC]) | words)}
                name = f"odd{number}-{len(engine.containers)}"
                engine.start(engine.create(Config(name, DEFAULT_IMAGE, ["sleep", "60"], each)))
        await controller.nodes.links["n1"].refresh()
        status, found = await ask(controller, "GET", "/v1/tasks", ended=True)
        assert (status, len(found)) == (200, 1 + 4 * len(ODD))
        for path in ("/v1/queue", "/v1/recovery", "/v1/gpus", "/v1/nodes", "/v1/shares"):
            assert (await ask(controller, "GET", path))[0] == 200, path
        assert all(
            orjson.dumps(controller.views.view(each)) for each in controller.lookup.others().values()
        )  # as screens


async def test_who_stops_a_batch_stops_nothing_that_a_label_puts_into_it(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        evil = await put(desk, controller, forged(labels_of(desk, task)), command=["sleep", "60"])
        _, batch = await ask(controller, "GET", "/v1/tasks", batch=task)
        assert [each["id"] for each in batch] == [task]
        _, theirs = await ask(controller, "GET", "/v1/tasks", batch=evil.id[:12])
        assert evil.id[:12] in [each["id"] for each in theirs]


async def test_who_ends_a_strangers_container_is_on_record(desk):
    async with desk.running() as controller:
        task = await desk.submit("sleep 60", "n1::0")
        evil = await put(desk, controller, forged(labels_of(desk, task)), command=["sleep", "60"])
        await ask(controller, "POST", f"/v1/tasks/{evil.id[:12]}/kill", body={})
        events = [json.loads(each) for _, each in controller.tasks.history.events(0, -1, evil.id[:12])]
        assert [event["event"] for event in events] == ["stop-asked"]


async def test_the_end_of_a_strangers_container_is_not_that_of_a_task_that_has_just_been_started(desk):
    """It has the task's label, and the engine's word of the task's own container is still on its way."""
    async with desk.running() as controller:
        link = controller.nodes.links["n1"]
        task = await desk.submit("sleep 60", "n1::0")
        await until(lambda: link.containers)
        seen = link.observation
        link.cache.observe(replace(seen, engine=replace(seen.engine, containers=())))
        await link.inspector.look_at({"d" * 64: task})
        assert controller.lookup.find(task).state == "running"
