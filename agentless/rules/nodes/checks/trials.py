"""Checks by a container that was started on a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from agentless.errors import AgentlessError, NodeBroken, Refused
from agentless.model.nodes.check import Check, ok, skipped
from agentless.model.nodes.cluster import Gpu, Node
from agentless.model.nodes.trial import Proof, TrialAnswer
from agentless.rules.nodes.slurm_nodes import why_slurm

_LONGEST = 60.0
"""Seconds that a container may take. They follow each other."""
_SLOW = 10.0
"""Seconds, above which something delays every start: a driver without persistence mode, a full or slow disk."""


def name_of(gpu: Gpu | None) -> str:
    """The name of the check of a GPU, or of a node without any."""
    return f"run {gpu.reading.number}" if gpu else "run"


def unfit(node: Node) -> str:
    """Why nothing can be started on the node, empty if something can."""
    seen = node.observation
    if seen.error is not None or seen.engine is None:
        return "skipped; the node does not answer"
    if seen.engine.error:
        return seen.engine.error
    if slurm := why_slurm(node.config, seen):
        return f"skipped; {slurm}"
    return f"skipped; {node.config.name} is drained" if node.drained else ""


def left_alone(node: Node, gpu: Gpu | None, owner: str, now: float) -> Check | None:
    """The check of a GPU, or of a node without any, on which this owner may start nothing now; None if he may."""
    if gpu and gpu.state != "free":
        words = f"GPU {gpu.reading.number} is {gpu.state}" + (f": {gpu.reason}" if gpu.reason else "")
        return skipped(name_of(gpu), words)
    until = now + _LONGEST * (len(node.gpus) + 1)
    for each in node.reservations:
        if each.bars(owner, now, until) and (each.covers(gpu.reading.number) if gpu else not each.gpus):
            place = f"GPU {gpu.reading.number}" if gpu else node.name
            return skipped(name_of(gpu), f"{place} is {each}")
    return None


def verdict(
    gpu: Gpu | None, answer: TrialAnswer | None, error: AgentlessError | None, proof: Proof | None, image: str
) -> Check:
    """The check of a container. `error` is why it did not start, `proof` what it proved if it did."""
    name = name_of(gpu)
    why = "A task that gets this GPU would fail the same way."
    if answer is None:
        wrong = "the node did not come to this GPU in time"
        return Check(name, "failed", "no answer", wrong, "", why)
    if isinstance(error, Refused) and not isinstance(error, NodeBroken):
        return skipped(name, str(error))
    if error is not None:
        return Check(name, "failed", "no container starts", str(error), "", why, words=str(error))
    if answer.is_late:
        return Check(name, "failed", "the container hangs", "the container did not end in time", "", why)
    if proof is None:
        return ok(name, f"a container of {image} runs")
    if proof.verdict == "ok":
        return ok(name, proof.words)
    return Check(name, proof.verdict, proof.words, proof.words, "", why)


def start(took: Sequence[float]) -> Iterator[Check]:
    """How long the engine needs to start a container."""
    if not took:
        return
    longest = max(took)
    seen = f"{longest:.2f} s at most" if len(took) > 1 else f"{longest:.2f} s"
    if longest < _SLOW:
        yield ok("start", seen)
        return
    why = "Every task waits for it. Turn persistence mode on, and look at the load of the disk."
    yield Check("start", "warning", seen, f"a container takes {longest:.1f} s to start", "", why)
