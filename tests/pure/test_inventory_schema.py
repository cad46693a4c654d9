"""The inventory's JSON Schema: an editor objects to what the loader refuses, and has words for the rest."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from agentless.inventory.schema import schema

EXAMPLE = Path(__file__).parents[2] / "inventory.example.yaml"


def test_the_schema_accepts_the_example() -> None:
    assert list(objections(yaml.safe_load(EXAMPLE.read_text()), schema())) == []


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{nodes: {a: {host: h}}}", "version"),
        ("{version: 2, nodes: {a: {host: h}}}", "version"),
        ("{version: 1, nodes: {}}", "nodes"),
        ("{version: 1, nodes: {a b: {host: h}}}", "nodes.a b"),
        ("{version: 1, nodes: {a: {host: h}}, keep: {log: 0}}", "keep.log"),
        ("{version: 1, nodes: {a: {host: h}}, keep: {logs: 0GiB}}", "keep.logs"),
        ("{version: 1, nodes: {a: {host: h}}, keep: {containers: -1h}}", "keep.containers"),
        ("{version: 1, nodes: {a: {host: h}}, metrics: 65536}", "metrics"),
        ("{version: 1, nodes: {a: {host: h}}, metrics: some.host:9400}", "metrics"),
        ("{version: 1, nodes: {a: {hots: h}}}", "nodes.a.hots"),
        ("{version: 1, nodes: {a: {port: 0}}}", "nodes.a.port"),
        ("{version: 1, nodes: {a: {port: 65536}}}", "nodes.a.port"),
        ("{version: 1, nodes: {a: {connection: telnet}}}", "nodes.a.connection"),
        ("{version: 1, nodes: {a: {exclude_gpus: [-1]}}}", "nodes.a.exclude_gpus.0"),
        ("{version: 1, nodes: {a: {accept_engines: alice}}}", "nodes.a.accept_engines"),
        ("{version: 1, nodes: {a: {labels: {x: []}}}}", "nodes.a.labels.x"),
    ],
)
def test_the_schema_objects_where_the_loader_does(text: str, place: str) -> None:
    assert list(objections(yaml.safe_load(text), schema())) == [place]


def test_the_schema_has_words_for_every_key() -> None:
    whole = schema()
    models = [whole, *whole["$defs"].values()]
    assert [key for model in models for key, has in model["properties"].items() if not has.get("description")] == []


_TYPES: dict[str, Any] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}
_WORDS = {"$schema", "$defs", "title", "description", "default"}
_CHECKS = {
    "$ref",
    "anyOf",
    "type",
    "const",
    "enum",
    "minimum",
    "maximum",
    "minProperties",
    "required",
    "properties",
}
_CHECKS |= {"additionalProperties", "propertyNames", "items", "pattern"}


def objections(value: Any, rule: dict[str, Any], at: tuple[str, ...] = ()) -> list[str]:
    """The places where `value` breaks the JSON Schema `rule`, for the keywords that ours uses."""
    assert set(rule) - _WORDS - _CHECKS == set(), "a keyword that JSON Schema does not know"
    if "$ref" in rule:
        return objections(value, schema()["$defs"][rule["$ref"].rpartition("/")[2]], at)
    if "anyOf" in rule:
        return min(
            (objections(value, one, at) for one in rule["anyOf"]),
            key=lambda found: (len(found), found == [".".join(at)]),
        )
    types = rule.get("type", list(_TYPES))
    fits = any(isinstance(value, _TYPES[name]) for name in ([types] if isinstance(types, str) else types))
    fits = fits and value in rule.get("enum", [value]) and value == rule.get("const", value)
    if isinstance(value, int):
        fits = fits and rule.get("minimum", value) <= value <= rule.get("maximum", value)
    if isinstance(value, str):
        fits = fits and bool(re.search(rule.get("pattern", ""), value))
    if isinstance(value, dict):
        fits = fits and len(value) >= rule.get("minProperties", 0)
    found = [] if fits else [".".join(at)]
    if fits and isinstance(value, list):
        found += [p for i, item in enumerate(value) for p in objections(item, rule.get("items", {}), (*at, str(i)))]
    if fits and isinstance(value, dict):
        found += [".".join((*at, name)) for name in rule.get("required", []) if name not in value]
        for key, item in value.items():
            below, others = (*at, key), rule.get("additionalProperties", {})
            inner = rule.get("properties", {}).get(key, others)
            named = objections(key, rule.get("propertyNames", {}), below)
            found += named or ([".".join(below)] if inner is False else objections(item, inner, below))
    return found
