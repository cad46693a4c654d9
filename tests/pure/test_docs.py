"""The documentation and the program say the same."""

import dataclasses
import re

import pytest

from agentless import errors
from agentless.cli.app import COMMANDS
from agentless.model import view
from agentless.model.usage import figures
from tests.pages import DOCS, generated, written

REFERENCE = {page: text for page, text in {**written(), **generated()}.items() if page.parent == DOCS / "reference"}
FLAGS = re.IGNORECASE | re.DOTALL | re.MULTILINE
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
        view.LogView,
        view.LogLinesView,
        view.LogLineView,
        view.LogFoundView,
        view.LogMatchesView,
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
    title = {"Explain": "Explanation"}.get(value.removesuffix("View"), value.removesuffix("View"))
    section = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", REFERENCE[DOCS / "reference/json.md"], FLAGS)[1]
    assert f"`{field}`" in section


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_is_in_the_reference(verb):
    assert f"`{verb}" in REFERENCE[DOCS / "reference/commands.md"]


@pytest.mark.parametrize("kind", [errors.AgentlessError, errors.UsageError, errors.Refused, errors.NoAnswer])
def test_every_exit_code_is_in_the_reference(kind):
    assert f"| {kind.exit_code} | " in REFERENCE[DOCS / "reference/exit-codes.md"]
