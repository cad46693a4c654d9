"""The generated pages of the reference are complete."""

import pytest

from agentless.api.cluster import Cluster
from agentless.api.task import Task
from agentless.api.vps import AllVps, Vps
from agentless.inventory.schema import schema
from agentless.rules.submit.options import OPTIONS
from tests.pages import DOCS, ROOT, commands, generated


def page(name):
    return generated()[DOCS / name]


def keys(found):
    """All keys of a JSON Schema."""
    for value in found.get("$defs", {}).values():
        yield from value["properties"]
    yield from found["properties"]


@pytest.mark.parametrize("verb", commands())
def test_every_command_has_a_section(verb):
    assert f"\n## {verb}\n" in page("reference/commands.md")


@pytest.mark.parametrize("option", OPTIONS.values(), ids=lambda option: option.name)
def test_every_option_of_a_submit_is_described_for_both_ways(option):
    verb = "vps create" if option.only == "vps" else "submit"
    section = page("reference/commands.md").partition(f"# {verb}\n")[2].partition("\n## ")[0]
    assert f"`{option.flag}" in section
    assert f"| `{option.name}` | `{option.flag}` |" in page("reference/python-api.md")


@pytest.mark.parametrize("key", sorted(set(keys(schema()))))
def test_every_inventory_key_has_a_row(key):
    assert f"\n| `{key}` |" in page("reference/inventory-keys.md")


@pytest.mark.parametrize("request_", ["GET /v1/tasks", "POST /v1/tasks/{task}/stop", "GET /v1/watch", "GET /metrics"])
def test_requests_have_a_section(request_):
    assert f"\n## {request_}\n" in page("reference/http-api.md")


def test_every_request_says_what_it_does():
    sections = page("reference/http-api.md").partition("\n## Values\n")[0].split("\n## ")[1:]
    assert [
        title
        for title, _, text in (each.partition("\n") for each in sections)
        if text.strip().startswith(("|", "Body: ", "Answer: "))
    ] == []


@pytest.mark.parametrize(
    "method", [f"{cls.__name__}.{name}" for cls in (Cluster, Task, AllVps, Vps) for name in vars(cls) if name[0] != "_"]
)
def test_every_method_has_a_signature(method):
    section = page("reference/python-api.md").partition(f"\n### {method}\n")[2]
    assert section.startswith(f"\n```python\n{method.partition('.')[2]}(")


def test_every_example_is_shown():
    files = [path for path in (ROOT / "docs" / "examples").rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if path.read_text() not in page("examples.md")] == []
