"""A node as it is drawn: the frame of its panel, its heading, or its strip in a heat map."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len

from agentless.client.words import cause_of, cores_in_use, gpu_model, in_use, memory, node_state, rate
from agentless.model.text import printable
from agentless.model.units import counted
from agentless.tui.data.cluster import ClusterState, Row, count, is_bad
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece, fitted

METER = 8
"""The width of a bar of a machine."""
_FREE = 6
"""The width of how many GPUs are free."""
_OWNERS = 30
"""The width of the owners before the load."""
_LEAST = 5
"""The least width for any of that: less says nothing."""
_UNKNOWN: Row = {"name": "", "state": "unknown", "reason": "", "gpus": 0, "gpus_free": 0, "tasks": None}


class NodePainter:
    """Draws the nodes of a cluster."""

    def __init__(self, cluster: ClusterState) -> None:
        self._cluster = cluster

    def top(self, name: str, gpus: Sequence[Row], width: int) -> list[Piece]:
        """The upper edge of a panel, with the name and state of the node, and what is free of it."""
        node, style = self._node(name)
        style = "sick" if is_bad(node) else style
        state = printable(node_state(node))
        free = self._free(node, gpus) if node["gpus"] else []
        rights = [f" {' · '.join(free[:some])} " for some in range(len(free), 0, -1)]
        rights += [f" {look.free_words(node, self._cluster)} "] if node["gpus"] else []
        left = fitted(printable(name), min(cell_len(name), max(0, width - 6)))
        room = width - 5 - cell_len(left)
        words = fitted(state, min(cell_len(state), max(0, room - 1)))
        right = next((each for each in rights if cell_len(words) + cell_len(each) + 2 <= room), "")
        line = max(0, width - 5 - cell_len(left) - cell_len(words) - cell_len(right))
        return [
            ("┌ ", "dim"), (left, look.style_of_name(node)), (" ", ""), (words, style), (" ", ""),
            ("─" * line, "dim"), (right, self._style_of_free(node)), ("┐", "dim"),
        ]  # fmt: skip

    def bottom(self, width: int, about: str) -> list[Piece]:
        """The lower edge of a panel, with what its curves are about."""
        words = f" {about} ─" if about and len(about) + 6 <= width else ""
        return [("└" + "─" * max(0, width - 2 - len(words)) + words + "┘", "dim")]

    def machine(self, name: str, width: int) -> list[Piece]:
        """How busy the machine is, in as many words as fit."""
        node, _ = self._node(name)
        pieces: list[Piece] = []
        room = width
        for words, share in self._loads(node) if not self._cluster.is_silent(name) else ():
            meter = share is not None and width > 50
            wide = cell_len(words[0]) + cell_len(words[1]) + 1 + (METER + 1) * meter
            if wide + 2 > room:
                continue
            room -= wide + 2
            alarm = words[0] == "mem" and look.is_full(share)
            bar = look.bar(share, METER * meter, "held", thin=True, alarm=alarm)
            pieces += [(f"{words[0]} ", "dim"), *bar, (" " * meter, "")]
            pieces += [(f"{words[1]}  ", "")]
        return [*pieces, (" " * room, "")]

    def heading(self, name: str, gpus: Sequence[Row], width: int) -> list[Piece]:
        """A line with as much of what is known of the node as fits."""
        node, style = self._node(name)
        words = self._free(node, gpus) if node["gpus"] else []
        words += [counted(node["tasks"], "task")] if node["tasks"] else []
        if not (node["reason"] or self._cluster.is_silent(name)):
            words += [" ".join(each) for each, _ in self._loads(node)]
        title = printable(name)
        room = width - cell_len(title) - len(node["state"]) - 1
        about = ""
        for each in words:
            if cell_len(about) + cell_len(each) + 3 > room:
                break
            about += (" · " if about else "  ") + each
        reason = f"  {printable(cause_of(node['name'], node['reason']))}" if node["reason"] else ""
        return [
            (title, look.style_of_name(node)),
            (" ", ""),
            (node["state"], "sick" if is_bad(node) else style),
            (about, "dim"),
            (fitted(reason, max(0, room - cell_len(about))), style),
        ]

    def strip(self, name: str, gpus: Sequence[Row], width: int, *, alone: bool) -> list[Piece]:
        """What is beside the GPUs of a node in a heat map: how many are free, and who has the others.

        `alone`: no line below says how busy the machine is.
        """
        node, style = self._node(name)
        if width < _FREE:
            return [(" " * width, "")]
        free = look.free_words(node, self._cluster) if node["gpus"] else "no GPU"
        owners = Counter(self._cluster.who(task["owner"]) for gpu in gpus for task in self._cluster.holders(gpu))
        words = ", ".join(f"{owner} {count}" for owner, count in owners.most_common())
        is_well = node["state"] == "online"
        if not is_well:
            words = node_state(node)
        rest = width - _FREE
        room = min(rest, _OWNERS) if alone and is_well else rest
        words = printable(words) if room >= _LEAST else ""
        said = fitted(words, max(0, min(room - 1, cell_len(words))))
        return [
            (f"{free:>5} ", self._style_of_free(node)),
            (" ", ""),
            (said, "sick" if is_bad(node) else "" if is_well else style),
            (" " * (room - 1 - cell_len(said)), ""),
            *(self.machine(name, rest - room) if rest > room else []),
        ]

    def name(self, name: str, width: int) -> Piece:
        """The name before a strip."""
        return (fitted(printable(name), width) + " ", look.style_of_name(self._node(name)[0]))

    # ------------------------------------------------------------------ inside

    def _node(self, name: str) -> tuple[Row, str]:
        node = self._cluster.nodes.get(name, _UNKNOWN)
        return node, look.style_of(node["state"])

    def _style_of_free(self, node: Row) -> str:
        return "good" if node["gpus_free"] > self._cluster.reserved[node["name"]] else "dim"

    def _free(self, node: Row, gpus: Sequence[Row]) -> list[str]:
        """`4 of 8 free`, `8 × A100`; slices are counted apart."""
        models = Counter(map(gpu_model, gpus))
        free, reserved = look.free_words(node, self._cluster).replace("/", " of "), self._cluster.reserved[node["name"]]
        words = [f"{free} free", *([f"{reserved} reserved"] if reserved else [])]
        if slices := [gpu for gpu in gpus if gpu.get("parent")]:
            whole = [gpu for gpu in gpus if not gpu.get("parent")]
            words[0] = f"{count(whole, 'free')} of {len(whole)} free"
            words += [f"{count(slices, 'free')} of {counted(len(slices), slices[0]['kind'])} free"]
        return [*words, *(f"{count} × {printable(model)}" for model, count in models.items())]

    def _loads(self, node: Row) -> list[tuple[tuple[str, str], float | None]]:
        """What is known of the load, the most important first: a label, a number, and a share from 0 to 1."""
        found: list[tuple[tuple[str, str], float | None]] = []
        if node.get("cores_busy") is not None:
            found.append((("cpu", cores_in_use(node)), node["cores_busy"] / (node["cores"] or 1)))
        if node.get("memory_used_mib") is not None:
            share = node["memory_used_mib"] / (node["memory_mib"] or 1)
            found.append((("mem", in_use(node["memory_used_mib"], node["memory_mib"])), share))
        aside = [f"{node['cores_set_aside']:g} cores"] if node.get("cores_set_aside") else []
        aside += [memory(node["memory_set_aside_mib"])] if node.get("memory_set_aside_mib") else []
        found += [(("set aside", " ".join(aside)), None)] if aside else []
        if node.get("load_1m") is not None:
            found.append((("load", f"{node['load_1m']:.1f}"), None))
        received, sent = node.get("network_in_bytes_per_second"), node.get("network_out_bytes_per_second")
        if received is not None and sent is not None:
            found.append((("net", f"↓{rate(received)} ↑{rate(sent)}"), None))
        if node.get("disk_used_mib") is not None and node["disk_total_mib"]:
            found.append((("disk", f"{100 * node['disk_used_mib'] / node['disk_total_mib']:.0f}%"), None))
        if node.get("temperature_c") is not None:
            found.append((("temp", f"{node['temperature_c']}C"), None))
        return found
