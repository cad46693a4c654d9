"""The documentation and the program say the same."""

import dataclasses
import re
from pathlib import Path

import pytest

from agentless import errors
from agentless.cli.app import COMMANDS
from agentless.model import view
from agentless.model.usage import figures

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = (DOCS / "reference.md").read_text()
PUBLISHED = [
    (cls.__name__, field.name)
    for cls in (
        view.TaskView,
        view.GpuView,
        view.NodeView,
        view.CheckView,
        view.ControllerView,
        view.ReservationView,
        view.EnvView,
        view.EnvVersionView,
        figures.UsageView,
        figures.UsageRowView,
        figures.UsagePeriodView,
        figures.HistoryView,
        figures.GpuHistoryView,
    )
    for field in dataclasses.fields(cls)
]


@pytest.mark.parametrize(("value", "field"), PUBLISHED)
def test_every_published_field_is_in_the_reference(value, field):
    section = re.search(rf"\*\*{value.removesuffix('View')}\*\*.*", REFERENCE, re.IGNORECASE)[0]
    assert f"`{field}`" in section


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_is_in_the_reference(verb):
    assert f"`{verb}" in REFERENCE


@pytest.mark.parametrize("kind", [errors.AgentlessError, errors.UsageError, errors.Refused, errors.NoAnswer])
def test_every_exit_code_is_in_the_reference(kind):
    assert f"| {kind.exit_code} | " in REFERENCE


@pytest.mark.parametrize("page", sorted([*DOCS.glob("*.md"), DOCS.parent / "README.md"]), ids=lambda page: page.name)
def test_every_link_leads_somewhere(page):
    links = re.findall(r"\]\(([^)#:]+)\)", page.read_text())
    assert [link for link in links if not (page.parent / link).exists()] == []
