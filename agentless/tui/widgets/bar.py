"""The two lines on top: the views, and the numbers of the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from textual.content import Content
from textual.widgets import Static

from agentless.client.words import WAITING, free_gpus, in_use
from agentless.model.units import counted
from agentless.tui.data.cluster import ClusterState, Row, count
from agentless.tui.widgets import look
from agentless.tui.widgets.lines import Piece, content

Words = list[str | Piece]
_NAME = "agentless  "
_SHORT = 4
"""Letters of a view's name where not all names fit."""
_WORDY = 100
"""The least width for words where a number is enough."""


class Bar(Static):
    """The names of the views; a click shows one."""

    DEFAULT_CSS = "Bar { height: 1; background: $panel; link-style: none; link-color: $text; link-background: $panel; }"

    def __init__(self, views: Mapping[str, str]) -> None:
        super().__init__()
        self._views = views
        self._shown = next(iter(views))

    def on_mount(self) -> None:
        self.show(self._shown)

    def on_resize(self) -> None:
        """Leave out the name and the gaps on a narrow screen."""
        self.show(self._shown)

    def show(self, name: str) -> None:
        """Mark a view as the current one."""
        self._shown = name
        width = self.size.width
        titles = next((titles for titles in self._titles() if sum(map(len, titles)) + len(titles) <= width), [""])
        pad = " " if sum(map(len, titles)) + 2 * len(titles) <= width else ""
        parts = [f"[b]{_NAME}[/b]"] if width >= sum(map(len, titles)) + 2 * len(titles) + len(_NAME) else []
        for each, title in zip(self._views, titles, strict=False):
            style = "reverse" if each == name else ""
            parts.append(f"[{style} @click=app.view('{each}')]{pad}{title}{pad}[/]")
        self.update(Content.from_markup(("" if pad else " ").join(parts)))

    def _titles(self) -> Iterator[list[str]]:
        """The titles of the views, the longest first: all, shortened, and only that of the current one."""
        for length in (None, _SHORT, 0):
            yield [
                f"{at} {title if each == self._shown else title[:length]}".strip()
                for at, (each, title) in enumerate(self._views.items(), 1)
            ]


class Summary(Static):
    """The problems, the numbers of tasks and of free GPUs: first what must not be cut."""

    DEFAULT_CSS = "Summary { height: 1; }"

    def __init__(self, cluster: ClusterState) -> None:
        super().__init__(markup=False)
        self._cluster = cluster

    def update(self, *_: object) -> None:  # type: ignore[override]
        """Show as many of the numbers as fit, the most important first."""
        shown: list[str | Piece] = []
        for forms in self._parts():
            for form in forms:
                longer = [*shown, " │ " if shown else " ", *form]
                if not shown or content(*longer).cell_length <= self.size.width:
                    shown = longer
                    break
        super().update(content(*shown))

    def _parts(self) -> Iterator[list[Words]]:
        """Groups of words, the most important first, each in forms of which the longest that fits is shown."""
        if gone := self._cluster.gone:
            more = "; press S to start it" if self._cluster.stopped else ""
            yield [[(f" {gone}{more} ", "$text-error reverse")]]
            return
        if self.app.read_only:  # type: ignore[attr-defined]
            yield [[("read only", "dim")]]
        if problems := len(self._cluster.problems()):
            how_many = counted(problems, "problem") if self.size.width >= _WORDY else str(problems)
            yield [[(f"! {how_many}", "$text-error bold reverse")]]
        tasks, gpus = self._cluster.tasks.values(), self._cluster.whole_gpus()
        runs, waits, paused = count(tasks, "running", "assigning"), count(tasks, *WAITING), count(tasks, "paused")
        rest: Words = [(f"{paused} paused", "$text-warning"), " "] if paused else []
        rest.append((f"{waits} pending", "$text-warning" if waits else ""))
        yield [[(f"{runs} running", "$text-success"), " ", *rest]]
        yield self._of_gpus(gpus)
        if slices := self._cluster.slices():
            share = f"{count(slices, 'free')}/{counted(len(slices), slices[0]['kind'])}"
            yield [[(f"{share} free", "$text-success")]]
        if clusters := [each for each in self._cluster.ordered_clusters() if each["asked_at"] and not each["reason"]]:
            yield self._of_clusters(clusters)
        load = self._cluster.load()
        if load.utilization is not None:
            yield [[("utilization ", "dim"), look.of(load.utilization, "%")]]
        drawn = [(gpu["power_w"], gpu["power_limit_w"]) for gpu in self._cluster.answering_gpus()]
        if known := [(watts, most) for watts, most in drawn if watts is not None and most]:
            yield [[("power ", "dim"), look.kilowatts(sum(each for each, _ in known), sum(most for _, most in known))]]
        if load.total_mib:
            yield [[("GPU memory ", "dim"), in_use(round(load.used_mib), round(load.total_mib))]]

    def _of_clusters(self, clusters: Sequence[Row]) -> list[Words]:
        """The GPUs of clusters, which are not ours: `hpc 6/8 free`."""
        each_one = ", ".join(f"{each['name']} {free_gpus(each)}" for each in clusters)
        free, total = sum(each["gpus_free"] for each in clusters), sum(sum(each["gpus"].values()) for each in clusters)
        together = f"{counted(len(clusters), 'cluster')} {free}/{total}"
        return [[(f"{words} free", "$text-success")] for words in (each_one, together)]

    def _of_gpus(self, gpus: Sequence[Row]) -> list[Words]:
        free, used, foreign = count(gpus, "free"), count(gpus, "allocated"), count(gpus, "foreign")
        divided, reserved = count(gpus, "partitioned"), count(gpus, "reserved")
        out = len(gpus) - free - foreign - used - divided - reserved
        rest: Words = [" ", (f"{reserved} reserved", "dim")] if reserved else []
        rest += [" ", (f"{foreign} foreign", "$text-accent")] if foreign else []
        rest += [" ", (f"{divided} partitioned", "dim")] if divided else []
        rest += [" ", (f"{out} out", "$text-warning")] if out else []
        share = (f"{free}/{len(gpus)}", "$text-success")
        whole: Words = [share, (" GPUs free", "$text-success"), " ", (f"{used} in use", "$text-primary"), *rest]
        short: Words = [share, (" free", "$text-success")]
        return [whole, [*short, " ", (f"{used} in use", "$text-primary"), *rest], [*short, *rest], short]
