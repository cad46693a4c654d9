"""All nodes and GPUs; the arrow keys choose a GPU."""

from __future__ import annotations

from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from agentless.tui.data.cluster import TREND_WORDS, ClusterState, Row
from agentless.tui.screens.overview.form import LEGEND, TILE_LINES, Cell, Form, Group, Panel, arranged, height_of_rows
from agentless.tui.screens.overview.gpu import METRICS, GpuPainter, grouped
from agentless.tui.screens.overview.node import NodePainter
from agentless.tui.widgets.lines import Lines, Piece, fitted

NAMES = 20
"""The most columns of the names of nodes in a heat map."""


class ClusterMap(Lines):
    """The nodes, each with its GPUs."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", show=False),
        Binding("right", "step(1)", "Right", show=False),
        Binding("up,k", "row(-1)", "Up", show=False),
        Binding("down,j", "row(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home,g", "row(-100000)", "First", show=False),
        Binding("end,G", "row(100000)", "Last", show=False),
        Binding("enter", "open", "Details", tooltip="show details of the selected GPU"),
        Binding("M", "metric", "Metric", show=False, tooltip="show another number in the heat map"),
        Binding("L", "group", "Group", show=False, tooltip="group the nodes by another label"),
    ]

    class Chosen(Message):
        """Another GPU has the cursor, or the heat map shows something else."""

    class Grouped(Message):
        """The nodes are to be grouped by another label."""

    class Opened(Message):
        """A GPU was opened."""

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self._cluster = cluster
        self._machines, self._painter = NodePainter(cluster), GpuPainter(cluster)
        self._gpus: dict[str, list[Row]] = {}
        self._form = Form("tiles", (), ())
        self._cursor: tuple[str, int] | None = None  # the node, and the GPU's number there
        self.metric = METRICS[0]
        self.label = ""

    @property
    def chosen(self) -> Row | None:
        """The GPU with the cursor."""
        if self._cursor is None:
            return None
        node, number = self._cursor
        return next(iter(self._gpus.get(node, [])[number : number + 1]), None)  # what was there may be gone

    @property
    def cell(self) -> int:
        """The width of a GPU in a heat map; 0 if it is none."""
        return self._form.cell

    @property
    def legend(self) -> int:
        """The lines that explain it: none but below a heat map."""
        return LEGEND if self.cell else 0

    def take(self, width: int, height: int) -> int:
        """Arrange everything in this space; returns how many lines of it are used, those of a legend included."""
        before = self.chosen
        groups = self._groups()
        names = min(max(map(cell_len, self._gpus), default=8), NAMES)
        self._form = arranged(groups, width, height, names)
        self._find(before)
        self.redraw()
        return min(height, len(self._form.lines) + self.legend)

    def height_of_rows(self, width: int) -> int:
        """The lines that it takes with a line for each GPU."""
        return height_of_rows(self._groups(), width)

    def length(self) -> int:
        return len(self._form.lines)

    def draw(self, y: int) -> list[Piece]:
        pieces: list[Piece] = []
        x = 0
        for panel in self._form.lines[y] if y < len(self._form.lines) else ():
            drawn = self._panel(panel, y - panel.y)
            pieces += [(" " * (panel.x - x), ""), *drawn]
            x = panel.x + sum(cell_len(text) for text, _ in drawn)
        return pieces

    # ------------------------------------------------------------------ drawing

    def _panel(self, panel: Panel, y: int) -> list[Piece]:
        name, width = panel.node, panel.width
        gpus = self._gpus.get(name, [])
        if not name:
            return [(fitted(panel.heading, width), "strong")]
        if self._form.kind == "tiles":
            if y in (0, panel.height - 1):
                has_curves = any(cell.height > TILE_LINES for cell in panel.cells)
                about = f"utilization, {TREND_WORDS}" if has_curves else ""
                return self._machines.top(name, gpus, width) if not y else self._machines.bottom(width, about)
            inner = self._machines.machine(name, width - 2) if y == 1 else self._cells(panel, y)
            rest = width - 2 - sum(cell_len(text) for text, _ in inner)
            return [("│", "dim"), *inner, (" " * rest, ""), ("│", "dim")]
        if self._form.kind == "rows":
            return self._machines.heading(name, gpus, width) if not y else self._cells(panel, y)
        names = panel.cells[0].x - panel.x - 1 if panel.cells else min(NAMES, width)
        if y:
            return [(" " * (names + 1), ""), *self._machines.machine(name, width - names - 1)] if y == 1 else []
        cells = self._cells(panel, y)
        rest = width - names - 1 - sum(cell_len(text) for text, _ in cells)
        return [
            self._machines.name(name, names),
            *cells,
            *self._machines.strip(name, gpus, max(0, rest), alone=panel.height == 1),
        ]

    def _cells(self, panel: Panel, y: int) -> list[Piece]:
        pieces: list[Piece] = []
        for cell in panel.cells:
            if not cell.y <= panel.y + y < cell.y + cell.height:
                continue
            gpu = self._gpus[panel.node][cell.gpu]
            chosen = " chosen" if (panel.node, cell.gpu) == self._cursor else ""
            if self._form.kind == "tiles":
                pieces += self._painter.tile(gpu, panel.y + y - cell.y, cell.width, cell.height, chosen)
            elif self._form.kind == "rows":
                pieces += self._painter.row(gpu, cell.width, chosen)
            else:
                pieces += self._painter.cell(gpu, self.metric, cell.width, chosen)
        return pieces

    def _groups(self) -> list[Group]:
        """All nodes in the order in which they are shown."""
        self._gpus = {node["name"]: [] for node in self._cluster.ordered_nodes()}
        for gpu in self._cluster.ordered_gpus():
            self._gpus.setdefault(gpu["node"], []).append(gpu)
        if not self.label:
            return [Group(name, len(gpus)) for name, gpus in self._gpus.items()]
        found = grouped(self._cluster.ordered_nodes(), self.label)
        headings = {value: f"{self.label} {value}" if value else f"without {self.label}" for value in found}
        return [
            Group(node["name"], len(self._gpus[node["name"]]), headings[value])
            for value, nodes in found.items()
            for node in nodes
        ]

    def _find(self, before: Row | None) -> None:
        """Keep the cursor on its GPU; on another one if that is gone."""
        every = {(name, gpu["uuid"]): (name, at) for name, gpus in self._gpus.items() for at, gpu in enumerate(gpus)}
        same = every.get((before["node"], before["uuid"])) if before else None
        self._cursor = same or next(iter(every.values()), None)

    # -------------------------------------------------------------------- keys

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only a heat map has another number, and headings."""
        del parameters
        return action not in ("metric", "group") or bool(self.cell)

    def action_step(self, by: int) -> None:
        """Choose the previous or next GPU."""
        places = [(panel.node, cell.gpu) for panel in self._form.panels for cell in panel.cells]
        if places and self._cursor:
            self._choose(places[max(0, min(places.index(self._cursor) + by, len(places) - 1))])

    def action_row(self, by: int) -> None:
        """Choose the GPU above or below on the screen."""
        rows = self._rows()
        here = self._cell()
        if here is None:
            return
        ys = sorted(rows)
        y = ys[max(0, min(ys.index(here.y) + by, len(ys) - 1))]
        middle = here.x + here.width / 2
        nearest = min(rows[y], key=lambda each: abs(each[1].x + each[1].width / 2 - middle))
        self._choose((nearest[0], nearest[1].gpu))

    def action_page(self, by: int) -> None:
        """Move by a page."""
        here = self._cell()
        self.action_row(by * max(1, self.size.height // (here.height if here else 1)))

    def action_open(self) -> None:
        if self.chosen:
            self.post_message(self.Opened())

    def action_metric(self) -> None:
        """Show the next number in the heat map."""
        self.metric = METRICS[(METRICS.index(self.metric) + 1) % len(METRICS)]
        self.redraw()
        self.post_message(self.Chosen())

    def action_group(self) -> None:
        """Group the nodes by the next label; after the last one, not at all."""
        labels = ["", *sorted({key for node in self._cluster.nodes.values() for key in node["labels"]})]
        self.label = labels[(labels.index(self.label) + 1) % len(labels)] if self.label in labels else ""
        self.post_message(self.Grouped())

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked GPU; a double click opens it."""
        x, y = event.x + self.scroll_offset.x, event.y + self.scroll_offset.y
        for panel in self._form.lines[y] if y < len(self._form.lines) else ():
            for cell in panel.cells:
                if cell.x <= x < cell.x + cell.width and cell.y <= y < cell.y + cell.height:
                    self._choose((panel.node, cell.gpu))
                    if event.chain == 2:
                        self.action_open()

    def _rows(self) -> dict[int, list[tuple[str, Cell]]]:
        """The GPUs by their first line."""
        rows: dict[int, list[tuple[str, Cell]]] = {}
        for panel in self._form.panels:
            for cell in panel.cells:
                rows.setdefault(cell.y, []).append((panel.node, cell))
        return rows

    def _cell(self) -> Cell | None:
        """Where the GPU with the cursor is."""
        return next(
            (cell for panel in self._form.panels for cell in panel.cells if (panel.node, cell.gpu) == self._cursor),
            None,
        )

    def _choose(self, wanted: tuple[str, int]) -> None:
        self._cursor = wanted
        if (cell := self._cell()) is None:
            return
        above = 2 if self._form.kind == "tiles" else 1  # the heading of the node
        if cell.y - above < self.scroll_offset.y:
            self.scroll_to(y=max(0, cell.y - above), animate=False, force=True)
        elif cell.y + cell.height > self.scroll_offset.y + self.size.height:
            self.scroll_to(y=cell.y + cell.height - self.size.height, animate=False, force=True)
        self.redraw()
        self.post_message(self.Chosen())
