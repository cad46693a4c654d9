"""The recorded demo of `docs/pictures/` is in asciinema's format, and shows the tour and the dashboard."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

PICTURES = Path(__file__).parents[2] / "docs" / "pictures"


def test_the_cast_is_one_of_version_2_with_the_whole_demo():
    header, *events = [json.loads(line) for line in (PICTURES / "demo.cast").read_text().splitlines()]
    assert (header["version"], header["width"], header["height"]) == (2, 104, 32)
    assert {kind for _, kind, _ in events} == {"o"}
    assert all(earlier <= later for (earlier, *_), (later, *_) in pairwise(events))
    shown = "".join(text for *_, text in events)
    told = (
        "$ agentless gpus",
        "$ agentless explain patient",
        "Those are the basics",
        "Press Enter",
        "\033[?1049h",
        "Overview",
    )
    places = [shown.index(each) for each in told]
    assert places == sorted(places)
    assert "Traceback" not in shown


def test_the_animation_has_the_tour_and_takes_nothing_from_the_network():
    text = (PICTURES / "demo.svg").read_text()
    assert "agentless\u00a0explain\u00a0patient" in text.replace("&#160;", "\u00a0").replace(" ", "\u00a0")
    assert "@import" not in text
    assert "url(http" not in text
