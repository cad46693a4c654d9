"""All GPUs by node: as tiles, as rows, or as signs, depending on how many fit."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from agentless.client.words import cores_in_use, gpu_model, gpu_number
from agentless.tui.data.cluster import ClusterState, Row, is_bad
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Lines, Piece, fitted

TILE = 23
"""The least width of a tile, with the gap."""
ROW = 72
"""The least width of the row of a GPU, with the gap."""
STRIP = 74
"""The least width of the strip of a node."""


@dataclass(frozen=True, slots=True)
class _Line:
    """A line: the heading of a `node`, part of a row of its `tiles`, some of its GPUs as `rows`, or `strips`."""

    kind: str
    nodes: tuple[str, ...] = ()
    gpus: tuple[int, ...] = ()
    part: int = 0


def _load(node: Row) -> list[str]:
    """How busy a machine is, in words; what is unknown is left out."""
    hot = node["temperature_c"]
    return [
        *([f"{cores_in_use(node)} cores"] if node["cores_busy"] is not None else []),
        *([look.in_gib(node["memory_used_mib"], node["memory_mib"])] if node["memory_used_mib"] is not None else []),
        *([f"{hot}C"] if hot is not None else []),
    ]


class Tiles(Lines):
    """The GPUs; the arrow keys choose one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "step(-1)", "Left", show=False),
        Binding("right", "step(1)", "Right", show=False),
        Binding("up,k", "row(-1)", "Up", show=False),
        Binding("down,j", "row(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown,space", "page(1)", "Page down", show=False),
        Binding("home,g", "row(-100000)", "First", show=False),
        Binding("end,G", "row(100000)", "Last", show=False),
        Binding("enter", "open", "Details", tooltip="show details of the selected GPU"),
    ]

    class Chosen(Message):
        """Another GPU has the cursor."""

    class Opened(Message):
        """A GPU was opened."""

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__()
        self._cluster = cluster
        self._gpus: list[Row] = []
        self._by_node: dict[str, list[int]] = {}  # the indices of its GPUs
        self._lines: list[_Line] = []
        self._cursor = 0
        self._across = 1

    @property
    def chosen(self) -> Row | None:
        """The GPU with the cursor."""
        return self._gpus[self._cursor] if self._cursor < len(self._gpus) else None

    def update(self) -> None:
        """Show what is known now; a hidden widget has no size to lay out for."""
        if not self.size:
            return
        before = self.chosen
        self._gpus = self._cluster.ordered_gpus()
        name = before and (before["node"], before["uuid"])
        names = [(gpu["node"], gpu["uuid"]) for gpu in self._gpus]
        self._cursor = names.index(name) if name in names else max(0, min(self._cursor, len(names) - 1))
        self._by_node = {node["name"]: [] for node in self._cluster.ordered_nodes()}
        for at, gpu in enumerate(self._gpus):
            self._by_node.setdefault(gpu["node"], []).append(at)
        self._lines = self._layout()
        self.redraw()

    def on_resize(self) -> None:
        self.update()

    def length(self) -> int:
        return len(self._lines)

    def draw(self, y: int) -> list[Piece]:
        if y >= len(self._lines):
            return []
        line = self._lines[y]
        if line.kind == "node":
            return self._heading(line.nodes[0])
        if line.kind == "tiles":
            return [piece for at in line.gpus for piece in self._tile(at, line.part)]
        if line.kind == "rows":
            return [piece for at in line.gpus for piece in self._row(at)]
        pieces: list[Piece] = []
        for name in line.nodes:
            pieces += self._strip(name, self._width() // self._across)
        return pieces

    # ------------------------------------------------------------------ layout

    def _layout(self) -> list[_Line]:
        width, height = self._width(), max(1, self.size.height)
        most = max(map(len, self._by_node.values()), default=1) or 1
        self._across = max(1, min(width // TILE, most))
        if len(tiles := self._blocks("tiles", 4)) <= height:
            return tiles
        self._across = max(1, min(width // ROW, most))
        if len(rows := self._blocks("rows", 1)) <= height:
            return rows
        self._across = max(1, width // max(STRIP, 3 * most + 40))
        names = list(self._by_node)
        count = -(-len(names) // self._across)
        return [_Line("strips", tuple(names[row::count])) for row in range(count)]

    def _blocks(self, kind: str, parts: int) -> list[_Line]:
        """A block of lines for each node."""
        lines: list[_Line] = []
        for name, gpus in self._by_node.items():
            lines.append(_Line("node", (name,)))
            for first in range(0, len(gpus), self._across):
                row = tuple(gpus[first : first + self._across])
                lines += [_Line(kind, (name,), row, part) for part in range(parts)]
        return lines

    def _width(self) -> int:
        return max(1, self.scrollable_content_region.width)

    def _name_width(self) -> int:
        """The columns of the names before the strips."""
        return min(max(map(cell_len, self._cluster.nodes), default=8), 20)

    # ------------------------------------------------------------------ pieces

    def _heading(self, name: str) -> list[Piece]:
        node = self._cluster.nodes.get(name)
        models = Counter(gpu_model(self._gpus[at]) for at in self._by_node[name])
        words = [f"{count} × {model}" for model, count in models.items()]
        if node is None:
            return [(name, "strong")]
        if node["gpus"]:
            words.insert(0, f"{node['gpus_free']} of {node['gpus']} free")
        words += [f"{node['tasks']} task{'s' * (node['tasks'] != 1)}"] if node["tasks"] else []
        words += [] if node["reason"] or self._cluster.is_silent(name) else _load(node)
        style = look.style_of(node["state"])
        return [
            (name, "strong"),
            (" ", ""),
            (node["state"], style),
            ("  " + " · ".join(words), "dim"),
            (f"  {node['reason']}" if node["reason"] else "", style),
        ]

    def _tile(self, at: int, part: int) -> list[Piece]:
        gpu, width = self._gpus[at], self._width() // self._across - 1
        state, style = look.state_of(gpu, self._cluster)
        chosen = " chosen" if at == self._cursor else ""
        if part == 0:
            hot = (gpu["temperature_c"] or 0) >= look.HOT
            numbers = f"{look.of(gpu['temperature_c'], 'C')} {look.of(gpu['power_w'], 'W')}"
            left = fitted(f"{gpu_number(gpu)} {state}", max(0, width - len(numbers)))
            return [(left, style + chosen), (numbers, ("bad" if hot else "") + chosen), (" ", "")]
        if part == 1:
            value = gpu["utilization_pct"]
            return self._bar(None if value is None else value / 100, look.of(value, "%"), width, style)
        if part == 2:
            return self._bar(look.memory_share(gpu), look.memory(gpu), width, style)
        return [(fitted(look.who(gpu, self._cluster.holders(gpu)), width), ""), (" ", "")]

    def _row(self, at: int) -> list[Piece]:
        gpu, width = self._gpus[at], self._width() // self._across - 1
        state, style = look.state_of(gpu, self._cluster)
        chosen = "chosen" if at == self._cursor else ""
        used, memory = gpu["utilization_pct"], look.memory_share(gpu)
        hot = (gpu["temperature_c"] or 0) >= look.HOT
        pieces: list[Piece] = [
            (f"{gpu_number(gpu):>3} ", f"{style} {chosen}"),
            *look.bar(None if used is None else used / 100, 8, style),
            (f"{look.of(used, '%'):>5}  ", ""),
            *look.bar(memory, 8, style),
            (f"{look.memory(gpu):>10}", ""),
            (f"{look.of(gpu['temperature_c'], 'C'):>5}  ", "bad" if hot else ""),
        ]
        words = look.who(gpu, self._cluster.holders(gpu)) or state
        words = f"{state}: {words}" if state not in ("allocated", "free", "foreign") else words
        rest = max(0, width - sum(cell_len(text) for text, _ in pieces))
        return [*pieces, (fitted(words, rest) + " ", style if state != "allocated" else "")]

    @staticmethod
    def _bar(share: float | None, words: str, width: int, style: str) -> list[Piece]:
        rest = max(0, width - 10)
        return [*look.bar(share, rest, style), (fitted(words, width - rest, right=True), ""), (" ", "")]

    def _strip(self, name: str, width: int) -> list[Piece]:
        node = self._cluster.nodes.get(name, {"state": "unknown", "reason": "", "gpus": 0, "gpus_free": 0})
        pieces: list[Piece] = [(fitted(name, self._name_width()) + " ", "strong" if not is_bad(node) else "bad")]
        gpus = [(at, self._gpus[at]) for at in self._by_node[name]]
        silent = self._cluster.is_silent(name)
        for at, gpu in gpus:
            chosen = " chosen" if at == self._cursor else ""
            hot = "^" if (gpu["temperature_c"] or 0) >= look.HOT else " "
            memory = look.memory_share(gpu)
            pieces.append((look.sign(gpu, silent=silent), look.state_of(gpu, self._cluster)[1] + chosen))
            pieces.append((look.height(None if memory is None else memory * 100), "dim" + chosen))
            pieces.append((hot, "bad"))
        owners = Counter(task["owner"] for _, gpu in gpus for task in self._cluster.holders(gpu))
        words = ", ".join(f"{owner} {count}" for owner, count in owners.most_common())
        if node["state"] != "online":
            words = f"{node['state']}: {node['reason']}" if node["reason"] else node["state"]
        free = f" {node['gpus_free']}/{node['gpus']} free  " if node["gpus"] else " no GPU  "
        used = sum(cell_len(text) for text, _ in pieces)
        pieces.append((free.rjust(11), "good" if node["gpus_free"] else "dim"))
        pieces.append(
            (fitted(words, max(0, width - used - 12)) + " ", look.style_of(node["state"]) if is_bad(node) else "")
        )
        return pieces

    # -------------------------------------------------------------------- keys

    def action_step(self, by: int) -> None:
        """Choose the previous or next GPU."""
        self._choose(self._cursor + by)

    def action_row(self, by: int) -> None:
        """Choose the GPU above or below on the screen."""
        rows = self._rows()
        here = next((at for at, (_, row) in enumerate(rows) if self._cursor in row), 0)
        column = rows[here][1].index(self._cursor) if rows and self._cursor in rows[here][1] else 0
        if rows:
            row = rows[max(0, min(here + by, len(rows) - 1))][1]
            self._choose(row[min(column, len(row) - 1)])

    def action_page(self, by: int) -> None:
        """Move by a page."""
        rows = self._rows()
        self.action_row(by * max(1, min(self.size.height // self._tall, len(rows) - 1)))

    def action_open(self) -> None:
        if self.chosen:
            self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked GPU; a double click opens it."""
        y = event.y + self.scroll_offset.y
        if y < len(self._lines) and (at := self._at(self._lines[y], event.x)) is not None:
            self._choose(at)
            if event.chain == 2:
                self.action_open()

    def _at(self, line: _Line, x: int) -> int | None:
        """The GPU at a column of a line."""
        width = self._width() // self._across
        if line.kind in ("tiles", "rows"):
            return line.gpus[x // width] if x // width < len(line.gpus) else None
        if line.kind != "strips" or x // width >= len(line.nodes):
            return None
        name, x = line.nodes[x // width], x % width
        first = self._name_width() + 1
        gpus = self._by_node[name]
        return gpus[(x - first) // 3] if 0 <= (x - first) // 3 < len(gpus) else None

    def _rows(self) -> list[tuple[int, tuple[int, ...]]]:
        """The rows of GPUs, each with its first line."""
        if any(line.kind == "strips" for line in self._lines):
            rows = [tuple(at for name in line.nodes for at in self._by_node[name]) for line in self._lines]
            return [(y, row) for y, row in enumerate(rows) if row]
        return [(y, line.gpus) for y, line in enumerate(self._lines) if line.gpus and line.part == 0]

    @property
    def _tall(self) -> int:
        """The lines of a row of GPUs."""
        return 4 if any(line.kind == "tiles" for line in self._lines) else 1

    def _choose(self, wanted: int) -> None:
        self._cursor = max(0, min(wanted, len(self._gpus) - 1))
        y = next((y for y, row in self._rows() if self._cursor in row), 0)
        tall = self._tall
        if y < self.scroll_offset.y + (tall > 1):
            self.scroll_to(y=max(0, y - (tall > 1)), animate=False, force=True)
        elif y + tall > self.scroll_offset.y + self.size.height:
            self.scroll_to(y=y + tall - self.size.height, animate=False, force=True)
        self.redraw()
        self.post_message(self.Chosen())
