"""Groups of bars as an SVG, by hand: one row of panels for each workload, readable on light and on dark pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

Bars = Mapping[tuple[str, str], Mapping[str, Sequence[float]]]
"""By (row, title of the panel), for each group its bars."""

COLOURS = ("#8b949e", "#d29922", "#2f81f7")
WIDE, HIGH, GAP, TOP = 270, 170, 30, 44
_STYLE = (
    "text{font:12px system-ui,sans-serif;fill:#24292f}.small{font-size:10px}.head{font-weight:600}"
    "line{stroke:#8b949e}@media (prefers-color-scheme:dark){text{fill:#e6edf3}}"
)


def draw(bars: Bars, names: Sequence[str]) -> str:
    """The whole picture; each panel has its own scale."""
    rows = list(dict.fromkeys(row for row, _ in bars))
    titles = list(dict.fromkeys(title for _, title in bars))
    width = len(titles) * (WIDE + GAP) + GAP
    height = TOP + len(rows) * (HIGH + 56) + 8
    about = f'role="img" aria-label="{escape(", ".join(titles))}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {about}>',
        f"<style>{_STYLE}</style>",
    ]
    left = GAP
    for name, colour in zip(names, COLOURS, strict=True):
        parts.append(f'<rect x="{left}" y="12" width="12" height="12" rx="2" fill="{colour}"/>')
        parts.append(f'<text x="{left + 18}" y="22">{escape(name)}</text>')
        left += 50 + 7 * len(name)
    for (row, title), groups in bars.items():
        x = GAP + titles.index(title) * (WIDE + GAP)
        y = TOP + rows.index(row) * (HIGH + 56)
        parts += _panel(x, y, f"{row}: {title}", groups)
    return "\n".join([*parts, "</svg>\n"])


def _panel(x: float, y: float, title: str, groups: Mapping[str, Sequence[float]]) -> list[str]:
    most = max(max(values) for values in groups.values()) or 1.0
    base, scale = y + 24 + HIGH, (HIGH - 14) / most
    parts = [f'<text class="head" x="{x}" y="{y + 12}">{escape(title)}</text>']
    step = WIDE / len(groups)
    for number, (label, values) in enumerate(groups.items()):
        bar = (step - 12) / len(values)
        for place, (value, colour) in enumerate(zip(values, COLOURS, strict=True)):
            left, tall = x + number * step + 6 + place * bar, max(1.0, value * scale)
            parts.append(
                f'<rect x="{left:.1f}" y="{base - tall:.1f}" width="{bar - 2:.1f}" height="{tall:.1f}" rx="2" '
                f'fill="{colour}"/>'
            )
            parts.append(
                f'<text class="small" text-anchor="middle" x="{left + bar / 2 - 1:.1f}" y="{base - tall - 3:.1f}">'
                f"{_short(value)}</text>"
            )
        middle = x + (number + 0.5) * step
        parts.append(
            f'<text class="small" text-anchor="middle" x="{middle:.1f}" y="{base + 14}">{escape(label)}</text>'
        )
    return [*parts, f'<line x1="{x}" y1="{base}" x2="{x + WIDE}" y2="{base}"/>']


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 0.1 else f"{value:.2f}"
