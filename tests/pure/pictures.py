"""Pictures of a screen: small SVG files, a line for each line of the screen, and how two of them differ.

A picture opens in any browser. It is compared by what it shows: each text with its place, its colours and its style.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from html import escape, unescape
from itertools import chain, groupby, zip_longest
from string import ascii_lowercase

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from textual.app import App

WIDTH, HEIGHT = 10, 20
"""A cell, in the units of a picture."""
MOST = 8
"""Differences that are told."""
_SHAPES = {
    "bold": "font-weight:bold", "italic": "font-style:italic", "underline": "text-decoration:underline",
    "dim": "opacity:.6",
}  # fmt: skip
_RULE = re.compile(r"\.(\w+)\{([^}]*)\}")
_TEXT = re.compile(r'<text class="(\w+)" x="(\d+)" y="(\d+)"[^>]*>([^<]*)</text>')
_DOTS = re.compile("[\u2800-\u28ff]")
_BEHIND = re.compile(r'<rect width="100%" height="100%" (fill="[^"]*")/>')
_WORDS = re.compile(r"\S+(?: \S+)*")
"""Texts with a place of their own: a gap of spaces ends one, whatever font a browser takes."""
_BACK = re.compile(r'<rect class="(\w+)" x="(\d+)" y="(\d+)" width="(\d+)"')

Run = tuple[int, str, str, str]
"""Texts of one look: the column, the text, the background, and the rules of the look."""
Rows = list[list[Run]]


def shown(app: App[None]) -> Rows:
    """What is on the screen of an app."""
    return [list(_runs(strip)) for strip in app.screen._compositor.render_strips()]


def drawn(rows: Rows, width: int) -> str:
    """The picture. What lies behind most of it is painted once."""
    areas: Counter[str] = Counter()
    for _, text, back, _ in chain(*rows):
        areas[back] += cell_len(text)
    behind = areas.most_common(1)[0][0]
    names: dict[str, str] = {}
    lines = [_line(y, row, behind, names) for y, row in enumerate(rows)]
    rules = "".join(f".{name}{{{rules}}}" for rules, name in names.items())
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH * width} {HEIGHT * len(rows)}">\n'
        f"<style>text{{font:16.6px DejaVu Sans Mono,monospace;white-space:pre}}{rules}</style>\n"
        f'<rect width="100%" height="100%" fill="{behind}"/>\n' + "\n".join(lines) + "\n</svg>\n"
    )


def read(picture: str) -> list[list[str]]:
    """What a picture shows: for each line, its texts and backgrounds in words, from the left."""
    rules = dict(_RULE.findall(picture))
    lines: dict[int, list[tuple[int, str]]] = {}
    for kind, x, y, text in _TEXT.findall(picture):
        words = f"column {int(x) // WIDTH} {unescape(text)!r} {rules[kind]}"
        lines.setdefault(int(y) // HEIGHT, []).append((int(x), words))
    for kind, x, y, width in _BACK.findall(picture):
        words = f"column {int(x) // WIDTH} {int(width) // WIDTH} wide on {rules[kind]}"
        lines.setdefault(int(y) // HEIGHT, []).append((int(x), words))
    (behind,) = _BEHIND.findall(picture)
    return [[behind, *(words for _, words in sorted(lines.get(y, [])))] for y in range(max(lines, default=-1) + 1)]


def plain(picture: str) -> list[str]:
    """The lines of the screen, without colours."""
    lines: dict[int, str] = {}
    for _, x, y, text in _TEXT.findall(picture):
        line = lines.get(int(y) // HEIGHT, "")
        lines[int(y) // HEIGHT] = line + " " * (int(x) // WIDTH - cell_len(line)) + unescape(text)
    return [lines.get(y, "") for y in range(max(lines, default=-1) + 1)]


def difference(kept: str, seen: str) -> str:
    """How the picture that is seen differs from the one that is kept, line by line; empty if it does not."""
    lines = zip_longest(plain(kept), plain(seen), read(kept), read(seen), fillvalue="")
    found = []
    for y, (text_kept, text_seen, looks_kept, looks_seen) in enumerate(lines):
        if text_kept != text_seen:
            found.append(f"line {y + 1}\n  kept: {text_kept}\n  seen: {text_seen}")
        elif looks_kept != looks_seen:
            before, after = (
                "; ".join(each for each in one if each not in other)
                for one, other in ((looks_kept, looks_seen), (looks_seen, looks_kept))
            )
            found.append(f"line {y + 1}, only its looks: {text_seen.strip()}\n  kept: {before}\n  seen: {after}")
    more = [f"and {len(found) - MOST} more lines"] if len(found) > MOST else []
    return "\n".join([*found[:MOST], *more])


def _line(y: int, row: Sequence[Run], behind: str, names: dict[str, str]) -> str:
    """A line of a picture; `names` gets a class for each look."""

    def name(rules: str) -> str:
        return names.setdefault(rules, f"{ascii_lowercase[len(names) % 26]}{len(names) // 26 or ''}")

    backs = [
        f'<rect class="{name(f"fill:{back}")}" x="{WIDTH * x}" y="{HEIGHT * y}" width="{WIDTH * cell_len(text)}"'
        f' height="{HEIGHT}"/>'
        for x, text, back, _ in row
        if back != behind
    ]
    texts = [
        f'<text class="{name(look)}" x="{WIDTH * (x + cell_len(text[: found.start()]))}" y="{HEIGHT * y + 15}"'
        f"{_stretched(found[0])}>{escape(found[0], quote=False)}</text>"
        for x, text, _, look in row
        for found in _WORDS.finditer(text)
    ]
    return "".join([*backs, *texts])


def _stretched(text: str) -> str:
    """Keep signs that most fonts lack, which another font draws, in their cells."""
    return f' textLength="{WIDTH * cell_len(text)}" lengthAdjust="spacingAndGlyphs"' if _DOTS.search(text) else ""


def _runs(strip: Sequence[Segment]) -> Iterator[Run]:
    x = 0
    for (back, look), segments in groupby(strip, key=lambda segment: _look(segment.style)):
        text = "".join(segment.text for segment in segments)
        yield x, text, back, look
        x += cell_len(text)


def _look(style: Style | None) -> tuple[str, str]:
    """The background, and the rules of the look of a text."""
    style = style or Style()
    theme = SVG_EXPORT_THEME
    fore = style.color.get_truecolor(theme).hex if style.color else theme.foreground_color.hex
    back = style.bgcolor.get_truecolor(theme, foreground=False).hex if style.bgcolor else theme.background_color.hex
    if style.reverse:
        fore, back = back, fore
    shapes = [rule for name, rule in _SHAPES.items() if getattr(style, name)]
    return back, ";".join([f"fill:{fore}", *shapes])
