"""Signs for the Linux console: its font has shades and half blocks, but no braille dots and no thin blocks."""

from __future__ import annotations

from collections.abc import Mapping

_UPPER, _LOWER = 0x1B, 0xE4
"""The dots of a braille pattern in its upper and in its lower half."""
_LOWEST = 0xC0
"""The lowest dots: those of an idle GPU."""
_SPARSE = 0x6A
"""The dots of a shaded cell of a plot."""
_SHADED = 3
"""The least of these that make a shade; fewer may be a curve."""


def in_font(environ: Mapping[str, str]) -> Mapping[int, str]:
    """What to show in place of signs, by their code points, for `str.translate`; nothing for other terminals."""
    return _SIGNS if environ.get("TERM") == "linux" and "TEXTUAL_DRIVER" not in environ else {}


def _block(dots: int) -> str:
    if dots and not dots & ~_LOWEST:
        return "_"
    if not dots & ~_SPARSE and dots.bit_count() >= _SHADED:
        return "░"
    return " ▄▀█"[bool(dots & _LOWER) + 2 * bool(dots & _UPPER)]


_SIGNS = {
    **{0x2800 + dots: _block(dots) for dots in range(256)},
    ord("🔎"): "/ ",
    **{ord(lacks): has for lacks, has in zip("▁▂▃▅▆▇▏▎▍▋▊▉━╸", "_▄▄▄██││▌███══", strict=True)},
}
