"""The controller's core: requests and news from the nodes come in, and become events of tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime

from agentless.controller.guarded import guarded, guarded_item
from agentless.controller.nodes.connection import Link, Sighting
from agentless.controller.state.events import Hub
from agentless.controller.state.ledger import Ledger
from agentless.errors import NotFound, StateError
from agentless.model.nodes.cluster import Cluster, Node
from agentless.model.nodes.exclusion import NodeRecord
from agentless.model.nodes.node import naming
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.claim import Claim, claim_of, task_of
from agentless.model.tasks.container import Container
from agentless.model.tasks.event import Event, Exited, LostContact, Restarted, Vanished
from agentless.model.tasks.task import Assigning, Lost, Paused, Running, Task
from agentless.model.tasks.task_id import first_try, is_task_id, next_try, numbered
from agentless.model.view import TaskView
from agentless.ports import Clock
from agentless.remote.session import Allowance
from agentless.rules.nodes.survey import describe, survey
from agentless.rules.nodes.twins import marks, may_have, taken, twin_words
from agentless.rules.tasks.identity import called, is_adoptable
from agentless.rules.tasks.reconcile import container_of, reconcile
from agentless.rules.views.nearest import nearest
from agentless.stores.records.history import History
from agentless.stores.secrets import SecretStore
from agentless.stores.state.tinydb import TaskStore

FIRST_ANSWER = 8.0
"""Seconds a request waits for nodes that have not answered since the controller started."""
TOLD = 60, 0.1
"""Changes of a node's state that are recorded at once, and with each second: one that says something else at every
sample would fill the history. Whoever listens hears of all of them."""
LOST_AFTER = 60.0
"""Seconds without an answer after which the tasks of a node are `lost`: not known to run, not known to have ended."""

_log = logging.getLogger(__name__)


class Core(Ledger):
    """The ledger, and the links to the nodes that keep it true.

    `shared_dir`, `image` and `container` are those of the inventory's defaults; `reservations` are by id.
    `launching` are the tasks that a launch is under way for; `relaunch` begins another one. `sampled` are told of each
    node that something new is known of, were it only fresh numbers.
    `homes` are the nodes that GPUs and engines belong to, by their marks, see `rules/nodes/twins`.
    `records` are what is remembered of nodes; `examine` brings the one of a node to what was seen, and gives what has
    happened by that, each as an event and its cause.
    """

    def __init__(
        self, owner: str, store: TaskStore, history: History, secrets: SecretStore, hub: Hub, clock: Clock
    ) -> None:
        self.links: dict[str, Link] = {}
        super().__init__(owner, store, history, secrets, hub, clock)
        self.shared_dir: str | None = None
        self.image: str | None = None
        self.container: str | None = None
        self.reservations: dict[str, Reservation] = {}
        self.relaunch: Callable[[Task], None] | None = None
        self.launching: set[str] = set()
        self.records: dict[str, NodeRecord] = {}
        self.homes: dict[str, str] = {}
        self.examine: Callable[[Link], Iterable[tuple[str, str]]] = lambda _: ()
        self.sampled: list[Callable[[Link], None]] = []
        self._behind = False  # something that a node has said could not be written
        self._gists: dict[str, object] = {}
        self._states: dict[str, tuple[str, str]] = {}
        self._told: dict[str, Allowance] = {}

    # ----------------------------------------------------------------- reading

    def cluster(self, nodes: Iterable[str] | None = None) -> Cluster:
        """The cluster, or these nodes of it, as it is known now."""
        names = list(self.links if nodes is None else nodes)
        return survey(
            {name: self.links[name].node for name in names},
            {name: self.links[name].observation for name in names},
            self.tasks.values() if nodes is None else [task for name in names for task in self.on_node(name)],
            self.clock.now(),
            self.records,
            self.reservations.values(),
            self._called,
            self.homes,
        )

    def twin(self, node: str) -> str:
        """That a node is another one, or has what another one has, in words; empty when it is itself."""
        return twin_words(node, self.links[node].observation, self.homes)

    def view(self, task: Task) -> TaskView:
        """As the ledger's, and as of when; of one that nobody here remembers that it is not ours, whatever it says."""
        view = super().view(task)
        if self.knows(task.id):
            stale = self.stale(task)
            return replace(view, reason="; ".join(filter(None, (stale, view.reason)))) if stale else view
        hint = "; if you did, run: agentless recover" if task.owner == self.owner else ""
        return replace(view, foreign=True, reason=f"not ours: this controller did not start it{hint}")

    def stale(self, task: Task) -> str | None:
        """From when the state of a task is whose node does not say how it is, and why; None where it is as of now."""
        link = self.links.get(task.node or "")
        if link is None or link.silence is None or not isinstance(task.status, (Running, Paused)):
            return None
        since = link.known_until
        if since is None and link.failure is None:
            return None  # it is being asked for the first time
        then = "before this controller"
        if since is not None:
            then = f"{datetime.fromtimestamp(since, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
        return f"as of {then}: {naming(link.node.name, link.silence)}"

    def others(self, nodes: Iterable[str] | None = None, *, ended: bool = True) -> dict[str, Task]:
        """Tasks, by their containers' labels, that nobody here remembers; ended ones as long as the container is there.

        By id, or by that of the container where its label has no right to the id that it gives. One that was removed
        here is none of them: until its node is heard again, an answer from before still has it.
        """
        found: dict[str, Task] = {}
        for name in self.links if nodes is None else nodes:
            for container in self.links[name].containers:
                claim = claim_of(container)
                if not claim or not (container.live or (ended and claim.task not in self.forgotten)):
                    continue
                remembered = self.remembered(claim.task)
                task_id = called(container, claim, self.controller, remembered)
                if task_id == claim.task and remembered[0]:
                    continue
                task = task_of(container, name, self.clock.now(), task_id)
                if task and (container.live or task_id not in found):
                    found[task_id] = task
        return found

    def unremembered(self, asking: str | None = None) -> dict[str, tuple[Task, Container]]:
        """What the nodes carry for this controller's owner and the one who is asking, and nobody here remembers.

        What this controller has signed is taken in as soon as it is seen, whosever it is. A state that was lost had
        another key: all that is left then are words that anybody may have written, which a person has to look at.
        """
        found: dict[str, tuple[Task, Container]] = {}
        for name, link in self.links.items():
            for container in sorted(link.containers, key=lambda each: (each.live, each.created_at or 0.0)):
                claim = claim_of(container)
                if not claim or claim.owner not in (self.owner, asking) or not is_task_id(claim.task):
                    continue
                if self.knows(claim.task) or (claim.task in self.forgotten and not container.live):
                    continue
                task = task_of(container, name, self.clock.now())
                if task and (claim.task not in found or container.name == task.container_name):
                    found[claim.task] = task, container
        return dict(sorted(found.items()))

    def silent(self) -> dict[str, str]:
        """The nodes that do not say which containers they have, and why."""
        return {name: link.silence for name, link in self.links.items() if link.silence is not None}

    def task(self, task_id: str) -> Task:
        """The task that has exactly this id, live or ended, by whichever controller; raises NotFound."""
        found = self.tasks.get(task_id) or self.history.get(task_id) or self.others().get(task_id)
        if found is None:
            raise NotFound(f"task {task_id} is not there any more")
        return found

    def find(self, reference: str) -> Task:
        """The task that an id, a unique beginning of one, or a name means; raises NotFound with the candidates.

        A name means the live task of that name, else the last one that ended. A task that is tried again is found as
        its last try, unless the number of one is given: `…-1` is the first.
        """
        task = self._find(reference)
        if reference != numbered(task.id):
            while self.knows(later := next_try(task.id)):
                task = self.task(later)
        return task

    def _find(self, reference: str) -> Task:
        if reference in self.tasks:
            return self.tasks[reference]
        exact = first_try(reference) if reference.endswith("-1") else reference
        if found_one := self.tasks.get(exact) or self.history.get(exact):
            return found_one
        others = self.others()
        if exact in others:
            return others[exact]
        known = {**others, **self.tasks}
        every = {task.id: task for task in self.history.find(reference)} | self.tasks
        # Whatever strangers write into labels, a name or the beginning of an id of ours means what it did.
        if not any(task.spec.name == reference or task.id.startswith(reference) for task in every.values()):
            every = others
        named = [task for _, task in sorted(every.items(), reverse=True) if task.spec.name == reference]
        begun = [task for task in every.values() if reference and task.id.startswith(reference)]
        begun = [task for task in begun if first_try(task.id) == task.id or first_try(task.id) not in every]
        found = [task for task in named if task.live] or named[:1] or begun
        if len(found) == 1:
            return found[0]
        if not found:
            hint = nearest(reference, [*known, *(t.spec.name for t in known.values() if t.spec.name)])
            raise NotFound(f"no task {reference!r}{hint}; agentless ps --all lists them")
        ids = ", ".join(sorted(task.id for task in found)[:5])
        raise NotFound(f"{reference!r} means {len(found)} tasks ({ids}); type more of the id")

    async def heard(self, nodes: Iterable[str]) -> None:
        """Wait until these nodes have answered since the controller started, or are known not to, or for a while."""
        events = [self.links[name].answered for name in nodes]
        waits = [asyncio.ensure_future(answered.wait()) for answered in events if not answered.is_set()]
        if waits:
            _, late = await asyncio.wait(waits, timeout=FIRST_ANSWER)
            for wait in late:
                wait.cancel()

    def link(self, node: str) -> Link:
        """The link to a node; raises NotFound with the nearest name."""
        if node not in self.links:
            hint = nearest(node, self.links)
            raise NotFound(f"no node {node!r} in the inventory{hint}; agentless nodes lists them")
        return self.links[node]

    # -------------------------------------------------------------- from nodes

    def node_changed(self, link: Link) -> None:
        """Something new is known of a node; publishes it when it is more than fresh numbers."""
        if self.links.get(link.node.name) is not link:
            return  # the inventory has changed
        self._settle_in(link)
        for told in self.sampled:
            with guarded(f"{link.node.name}: its sample"):
                told(link)
        seen = link.observation
        happened = self.examine(link)
        record = self.records.get(link.node.name)
        gist = (
            seen.error,
            seen.sample and (seen.sample.error, seen.sample.processes),
            seen.engine,
            record,
            seen.broken,
        )
        if self._gists.get(link.node.name) == gist:
            return
        self._gists[link.node.name] = gist
        node = self.cluster([link.node.name]).nodes[link.node.name]
        self._watch_gpus(node)
        before, now = self._states.get(node.name), (node.state, node.reason)
        news = {"kind": "node", "at": self.clock.now(), "node": node.name, "state": node.state, "reason": node.reason}
        allowance = self._told.setdefault(node.name, Allowance(*TOLD))
        if before != now and (before or node.state != "online") and not allowance.take(1):
            self.tell(news)
        else:
            self.hub.publish(news)
        self._states[node.name] = now
        for event, cause in happened:
            self.tell({**news, "event": event, "cause": cause})

    def _settle_in(self, link: Link) -> None:
        """What a node says of itself that nobody else has, or has any more, is its own."""
        named = marks(link.observation)
        for mark in named:
            if mark not in self.homes:  # who had it before the controller was started
                for name, record in self.records.items():
                    if mark in record.gpus:
                        self.homes.setdefault(mark, name)
        if new := taken(link.node.name, named, self.homes, self._may_have):
            # Of those that it names no more, one that says something else each time leaves nothing.
            name, known = link.node.name, self.records.get(link.node.name, NodeRecord()).gpus
            gone = {mark for mark, home in self.homes.items() if home == name and mark not in named}
            self.homes = {mark: home for mark, home in self.homes.items() if mark not in gone - known.keys()} | new

    def _may_have(self, node: str, mark: str) -> bool:
        link = self.links.get(node)
        return link is not None and may_have(link.observation, mark)

    def note_node(self, name: str, event: str, cause: str) -> None:
        """Tell that something has happened to a node; its state, as it is by now, is told along."""
        node = self.cluster([name]).nodes[name]
        self._states[name] = (node.state, node.reason)
        news = {"kind": "node", "at": self.clock.now(), "node": name, "state": node.state, "reason": node.reason}
        self.tell({**news, "event": event, "cause": cause})

    def sighted(self, link: Link, sighting: Sighting) -> None:
        """Bring the tasks of a node to what it said of its containers, and take in those that nobody remembers."""
        if self.links.get(link.node.name) is not link:
            return  # the inventory has changed
        try:
            for task in self.on_node(link.node.name):
                if sighting.only in (None, task.id) and task.id not in self.launching:
                    container = container_of(task, sighting.containers)
                    unseen = (sighting.blind and task.spec.on_node_itself) or _is_another(task, sighting)
                    if container is not None or not (unseen or _is_newer(task, sighting)):
                        with guarded_item(f"task {task.id}"):
                            self._settle(task, container, link.booted_at)
            for container in sighting.containers:
                with guarded_item(f"{link.node.name}: container {container.short_id}"):
                    self._take_in(link.node.name, container)
        except StateError as error:
            _log.warning("%s: %s", link.node.name, error)
            self._behind = True

    def retry(self) -> None:
        """Write what was left; if that was what nodes had said, bring all tasks to what they said last."""
        self.flush()
        if self._behind:
            self._behind = False
            for link in self.links.values():
                if link.online:
                    with guarded_item(f"{link.node.name}: its containers"):
                        self.sighted(link, Sighting(link.containers, asked_at=0.0))

    def catch_up(self, task_id: str) -> None:
        """Bring a task that was just launched to what its node has said of it meanwhile: it may be over already."""
        task = self.tasks.get(task_id)
        link = self.links.get(task.node or "") if task else None
        container = container_of(task, link.containers) if task and link else None
        if task and container:
            self._settle(task, container)

    def _take_in(self, node: str, container: Container) -> None:
        claim = claim_of(container)
        if not claim or not is_task_id(claim.task) or claim.task in self.tasks or claim.task in self.forgotten:
            return
        ended = self.history.get(claim.task)
        if ended is not None:
            events = reconcile(ended, container, self.clock.now())
            for event in events[:1]:
                self.revive(ended, event, _seen(node, event))
            for event in events[1:]:
                self.apply(ended.id, event, _seen(node, event))
            return
        adoptable = is_adoptable(container, claim, self.controller) and not self.was_forgotten(claim.task)
        if adoptable and (task := task_of(container, node, self.clock.now())):
            self.adopt(task, f"found on {node}")

    def _called(self, container: Container, claim: Claim) -> str:
        return called(container, claim, self.controller, self.remembered(claim.task))

    def _watch_gpus(self, node: Node) -> None:
        """Report who has come to use a GPU that a task holds."""
        for task in self.on_node(node.name):
            held = task.placement.gpu_uuids if task.placement else ()
            found = tuple(p for gpu in node.gpus if gpu.reading.uuid in held for p in gpu.intruders)
            known = {process.pid for process in self.intruders.pop(task.id, ())}
            if found:
                self.intruders[task.id] = found
            for process in found:
                if process.pid not in known:
                    index = next(gpu.reading.index for gpu in node.gpus if gpu.reading.uuid == process.gpu_uuid)
                    self.publish(task, "intruded", f"{describe(process)} uses GPU {index}")

    def lose_silent(self) -> None:
        """Mark the tasks of nodes that have not answered past the grace time."""
        for task in list(self.tasks.values()):
            if not task.placement or isinstance(task.status, Lost) or task.id in self.launching:
                continue
            with guarded_item(f"task {task.id}: whether it is lost"):
                self._lose_if_silent(task, task.placement.node)

    def _lose_if_silent(self, task: Task, node: str) -> None:
        link = self.links.get(node)
        if link is None:
            self.apply(task.id, LostContact(f"{node} is not in the inventory any more"), "the inventory")
        elif link.offline_since is not None and self.clock.now() - link.offline_since >= LOST_AFTER:
            why = link.observation.error or "it does not answer"
            self.apply(task.id, LostContact(why), f"no answer for {LOST_AFTER:.0f} s")

    def _settle(self, task: Task, container: Container | None, booted_at: float | None = None) -> None:
        for event in reconcile(task, container, self.clock.now(), booted_at):
            task = self.apply(task.id, event, _seen(task.node or "", event))
        unanswered = isinstance(task.status, (Assigning, Lost)) and not task.container
        unstarted = container is None or container.state == "created"
        if unstarted and unanswered and not task.stop and self.relaunch:
            self.relaunch(task)


def _seen(node: str, event: Event) -> str:
    """What the node has shown, as the cause of an event."""
    match event:
        case Exited(exit_code=code):
            return f"{node}: it ended" + ("" if code is None else f" with exit code {code}")
        case Restarted():
            return f"{node}: somebody started it again"
        case Vanished():
            return f"{node}: its container or service is gone"
        case _:
            return f"seen on {node}"


def _is_another(task: Task, sighting: Sighting) -> bool:
    # Others with its label were asked for. Of one that has just been started the link may not have heard yet.
    return sighting.about is not None and task.container is not None and task.container not in sighting.about


def _is_newer(task: Task, sighting: Sighting) -> bool:
    # The question left before this container was started.
    return isinstance(task.status, Running) and task.status.started_at >= sighting.asked_at
