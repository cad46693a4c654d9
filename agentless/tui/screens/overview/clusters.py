"""The clusters below the nodes: how many of their GPUs are allocated, our jobs there, and which nodes are out."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len
from textual import events
from textual.message import Message

from agentless.client.words import cluster_reason, free_in_words, nodes_out
from agentless.model.text import printable
from agentless.model.units import counted
from agentless.tui.data.cluster import ClusterState, Row
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import GivenLines, Piece, fitted

FRAMED = 36
"""The least lines of the screen for frames around them."""
METER = 10
"""The width of the bar of the GPUs of a type."""


class ClusterPanels(GivenLines):
    """A panel for each cluster, or a line where there is little space; they leave most of it. A click opens one."""

    class Opened(Message):
        """A cluster was opened."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self._cluster = cluster
        self._names: list[str] = []

    def take(self, width: int, height: int) -> int:
        """Make the lines for a screen of this size; returns how many these are."""
        self.lines, self._names = [], []
        clusters = self._cluster.ordered_clusters()
        is_framed = height >= FRAMED and len(clusters) * 3 <= height // 4
        most = max(2, height // 8)
        shown = clusters if len(clusters) <= most else clusters[: most - 1]
        for cluster in shown:
            lines = list(self._framed(cluster, width)) if is_framed else [self._short(cluster, width)]
            self.lines += lines
            self._names += [cluster["name"]] * len(lines)
        if more := len(clusters) - len(shown):
            self.lines.append(_cut([(f"and {counted(more, 'more cluster')}", "dim")], width))
        self.display = bool(self.lines)
        self.styles.height = len(self.lines)
        self.redraw()
        return len(self.lines)

    def on_click(self, event: events.Click) -> None:
        """Open the clicked cluster."""
        if event.y < len(self._names):
            self.post_message(self.Opened(self._names[event.y]))

    # ------------------------------------------------------------------ inside

    def _framed(self, cluster: Row, width: int) -> Iterator[list[Piece]]:
        name, free = printable(cluster["name"]), f" {_free(cluster)} "
        line = max(0, width - 5 - cell_len(name) - len(cluster["state"]) - len(free))
        yield [
            ("┌ ", "dim"), (name, look.style_of_name(cluster)), (" ", ""),
            (cluster["state"], look.style_of(cluster["state"])), (" ", ""), ("─" * line, "dim"),
            (free, "good" if cluster["gpus_free"] else "dim"), ("┐", "dim"),
        ]  # fmt: skip
        yield [("│", "dim"), *_cut([*self._meters(cluster), *self._words(cluster)], width - 2), ("│", "dim")]
        yield [("└" + "─" * max(0, width - 2) + "┘", "dim")]

    def _short(self, cluster: Row, width: int) -> list[Piece]:
        pieces = [
            (printable(cluster["name"]), look.style_of_name(cluster)),
            (f" {cluster['state']}", look.style_of(cluster["state"])),
            (f"  {_free(cluster)}", "good" if cluster["gpus_free"] else "dim"),
            *self._words(cluster),
        ]
        return _cut(pieces, width)

    def _meters(self, cluster: Row) -> Iterator[Piece]:
        """The GPUs of each type: how many are allocated, of how many."""
        for kind, total in cluster["gpus"].items():
            used = cluster["gpus_used"].get(kind, 0)
            yield f" {printable(kind) or 'GPUs'} ", "dim"
            yield from look.bar(used / total if total else None, METER, "held")
            yield f" {used}/{total} ", ""

    def _words(self, cluster: Row) -> Iterator[Piece]:
        if cluster["reason"]:
            yield f"  {printable(cluster_reason(cluster))}", "bad"
            return
        runs, waits = self._cluster.jobs(cluster["name"])
        yield "  tasks ", "dim"
        yield f"{runs} running", "good" if runs else "dim"
        yield f" {waits} pending", "warn" if waits else "dim"
        if out := nodes_out(cluster):
            yield f"  {printable(out)}", "warn"


def _free(cluster: Row) -> str:
    """`6 of 8 GPUs free`; only the engine while that is not known."""
    if cluster["reason"] or not cluster["asked_at"]:
        return "Slurm"
    return free_in_words(cluster)


def _cut(pieces: list[Piece], width: int) -> list[Piece]:
    """The pieces in exactly this width."""
    found: list[Piece] = []
    for text, style in pieces:
        room = width - sum(cell_len(each) for each, _ in found)
        if room <= 0:
            break
        found.append((fitted(text, min(room, cell_len(text))), style))
    return [*found, (" " * max(0, width - sum(cell_len(each) for each, _ in found)), "")]
