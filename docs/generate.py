"""Pages of the site that are made from the program: commands, inventory keys, HTTP API, Python API, examples.

MkDocs calls `on_files` at each build, so these pages are never out of date. They are not committed: each reworded
option would be a second change in the repository. `python docs/generate.py FOLDER` writes them, for you to read.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import typer

import agentless
from agentless import errors
from agentless.api.batch import Batch
from agentless.api.cluster import Cluster
from agentless.api.task import Task
from agentless.api.vps import AllVps, Vps
from agentless.api.workflow import Workflow, WorkflowJob
from agentless.cli.app import make
from agentless.client.ssh.forwarded_port import ForwardedPort
from agentless.controller.http import api
from agentless.inventory.schema import schema
from agentless.model import view
from agentless.model.usage import figures
from agentless.rules.submit.options import OPTIONS, options_of
from agentless.rules.workflows.keys import JOB, JOB_OPTIONS, WORKFLOW

ROOT = Path(__file__).parents[1]
SOURCE = "https://github.com/agentless/agentless/blob/main"


def pages() -> dict[str, str]:
    """The Markdown of each generated page, by its path in `docs/`."""
    return {
        "reference/commands.md": "\n".join(commands()),
        "reference/inventory-keys.md": "\n".join(inventory_keys()),
        "reference/workflow-keys.md": "\n".join(workflow_keys()),
        "reference/http-api.md": "\n".join(http_api()),
        "reference/python-api.md": "\n".join(python_api()),
        "examples.md": "\n".join(examples()),
        "changelog.md": at_the_top(ROOT / "CHANGELOG.md"),
        "contributing.md": at_the_top(ROOT / "CONTRIBUTING.md"),
    }


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to a build of MkDocs."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - only a build of the site has MkDocs

    for path, content in pages().items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let a link to a file outside `docs/` lead to the repository, or to the page that is made of it."""
    up = "../" * page.file.src_uri.count("/")
    for name in ("CHANGELOG.md", "CONTRIBUTING.md"):
        markdown = markdown.replace(f"]({up}../{name}", f"]({up}{name.lower()}")
    return markdown.replace(f"]({up}../", f"]({SOURCE}/")


def prose(text: object) -> str:
    """A text of the program as Markdown on one line. Words in backticks are code; nothing else is markup."""
    words = " ".join(str(text).split())
    return re.sub(r"`[^`]+`|[|<*_\[\]`\\]", lambda found: _cell(found[0]), words)


def _cell(found: str) -> str:
    return found.replace("|", r"\|") if len(found) > 1 else f"\\{found}"


def table(*titles: str, rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    """A table, or nothing when it has no rows; the cells are Markdown."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield from (f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *lines, "")


def code(text: object) -> str:
    """Code in a cell of a table."""
    return f"`{text}`".replace("|", r"\|")


# Commands


def commands() -> Iterator[str]:
    """Every command with its arguments and options."""
    top: Any = typer.main.get_command(make([]))
    shown = [(name, each) for name in top.list_commands(None) if not (each := top.commands[name]).hidden]
    yield "# Commands and options\n"
    yield "`agentless COMMAND --help` prints the same, and `man agentless` is a summary. Options before the name:\n"
    yield from options(top)
    for panel in dict.fromkeys(_panel(each) for _, each in shown):
        if panel:
            yield f"**{panel}**\n"
        rows = [
            (f"[`{name}`](#{name})", prose(each.get_short_help_str(200)))
            for name, each in shown
            if _panel(each) == panel
        ]
        yield from table("command", "", rows=rows)
    for name, each in shown:
        yield from command(each, name, 2)


def command(found: Any, name: str, depth: int) -> Iterator[str]:
    """One command, and those below it."""
    yield f"{'#' * depth} {name}\n"
    usage = " ".join((f"agentless {name}", *found.collect_usage_pieces(typer.Context(found))))
    yield f"```\n{usage}\n```\n"
    for paragraph in inspect.cleandoc(found.help or "").split("\n\n"):
        yield f"```sh\n{paragraph}\n```\n" if paragraph.startswith("agentless ") else f"{prose(paragraph)}\n"
    yield from options(found)
    for below in getattr(found, "list_commands", lambda _: ())(None):
        if not found.commands[below].hidden:
            yield from command(found.commands[below], f"{name} {below}", depth + 1)


def options(found: Any) -> Iterator[str]:
    """The arguments and options of a command, a table for each panel of its help."""
    context = typer.Context(found)
    params = [each for each in found.params if not getattr(each, "hidden", False)]
    for panel in dict.fromkeys(_panel(each) for each in params):
        inside = [each for each in params if _panel(each) == panel]
        arguments = all(each.param_type_name == "argument" for each in inside)
        yield from table(
            panel or ("argument" if arguments else "option"),
            "",
            rows=((" ".join(code(opt) for opt in _spelled(each, context)), prose(_described(each))) for each in inside),
        )


def _panel(found: Any) -> str:
    return panel if isinstance(panel := getattr(found, "rich_help_panel", None), str) else ""


def _spelled(param: Any, context: Any) -> list[str]:
    if param.param_type_name == "argument":
        return [param.make_metavar(context)]
    value = "" if param.is_flag else f" {param.make_metavar(context)}"
    return [f"{opt}{value}" if opt == param.opts[0] else opt for opt in (*param.opts, *param.secondary_opts)]


def _described(param: Any) -> str:
    shown = param.default not in (None, False, "", 0, ()) and not callable(param.default)
    return f"{getattr(param, 'help', None) or ''}{f' [default: {param.default}]' if shown else ''}"


# Inventory keys


def inventory_keys() -> Iterator[str]:
    """Every key of an inventory file."""
    found = schema()
    defs, top = found["$defs"], found["properties"]
    defaults, node = defs["Defaults"]["properties"], defs["Node"]["properties"]
    yield "# Inventory keys\n"
    yield "Each key of the [inventory](../inventory.md). `agentless inventory schema` prints the same for editors.\n"
    yield "## The file\n"
    yield from _keys(top)
    yield "## `defaults:` and each node\n"
    yield "A node's own value wins over the default. `null` on a node takes a default back.\n"
    yield from _keys({name: each for name, each in node.items() if name in defaults})
    yield "## Only on a node\n"
    yield from _keys({name: each for name, each in node.items() if name not in defaults})
    yield "## Only under `defaults:`\n"
    yield from _keys({name: each for name, each in defaults.items() if name not in node})
    for name, each in {**top, **node}.items():
        if (section := _referred(each)) not in (None, "Defaults", "Node"):
            yield f"## `{name}:`\n"
            yield from _keys(defs[section]["properties"])


def workflow_keys() -> Iterator[str]:
    """Every key of the file of a workflow."""
    yield "# Workflow keys\n"
    yield (
        "Each key of the file of a [workflow](../how-to/run/workflow.md). `agentless workflow schema` prints the same "
        "for editors. Any value of a job may have `{{ params.NAME }}` or `{{ matrix.NAME }}` in it.\n"
    )
    yield "## The file\n"
    yield from table("key", "meaning", rows=((code(name), prose(words)) for name, words in WORKFLOW.items()))
    yield "## A job, and `defaults:`\n"
    yield from table("key", "meaning", rows=((code(name), prose(words)) for name, words in JOB.items()))
    yield "## Options of submit\n"
    yield "With the same values as on the [command line](commands.md#submit); those given several times are lists.\n"
    rows = ((code(name), code(each.flag), prose(each.help)) for name, each in JOB_OPTIONS.items())
    yield from table("key", "option", "meaning", rows=rows)


def _keys(properties: dict[str, Any]) -> Iterator[str]:
    return table(
        "key",
        "value",
        "meaning",
        rows=((code(name), _kind(each), prose(each.get("description", ""))) for name, each in properties.items()),
    )


def _referred(found: dict[str, Any]) -> str | None:
    """The definition that a value is of, be it optional."""
    for each in (found, *found.get("anyOf", ())):
        value = each.get("additionalProperties") or each
        if "$ref" in value:
            return str(value["$ref"].rsplit("/", 1)[-1])
    return None


def _kind(found: dict[str, Any]) -> str:
    """What a value of the inventory looks like."""
    if any("$ref" in each for each in (found, *found.get("anyOf", ()))):
        return "a section"
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(_kind(each) for each in found["anyOf"] if each != {"type": "null"}))
    if "enum" in found:
        return ", ".join(code(each) for each in found["enum"])
    if "const" in found:
        return code(found["const"])
    if found.get("type") == "array":
        return f"list of {_kind(found['items'])}"
    if found.get("type") == ["string", "integer"]:
        return "port, or address:port" if "maximum" in found else "number with a unit"
    if found.get("type") == "integer":
        return f"{found['minimum']} to {found['maximum']}" if "maximum" in found else "number"
    return {"object": "names and values", "boolean": "`true` or `false`"}.get(found.get("type", ""), "text")


# HTTP API


class _Anything:
    """Services, as far as a description of the requests needs them."""

    def __getattr__(self, _: str) -> _Anything:
        return self

    def __call__(self, *_: Any, **__: Any) -> _Anything:
        return self


def http_api() -> Iterator[str]:
    """Every request with its parameters, body and answer, and every value."""
    described = api.make(_Anything()).openapi()  # type: ignore[arg-type]
    yield "# HTTP requests\n"
    yield "[HTTP API](http.md) explains streams and errors. `GET /openapi.json` describes the requests for programs.\n"
    for path, operations in described["paths"].items():
        for method, each in operations.items():
            yield from _request(f"{method.upper()} {path}", each)
    yield "## Values\n"
    seen: set[str] = set()
    for name, each in described["components"]["schemas"].items():
        if (plain := _plain(name)) not in seen and "properties" in each:
            seen.add(plain)
            yield f"### {plain}\n"
            if "\n" not in each.get("description", "\n"):
                yield f"{prose(each['description'])}\n"
            required = each.get("required", ())
            yield from table(
                "field",
                "type",
                rows=(
                    (code(field), f"{_type(kind)}{'' if field in required else ', optional'}")
                    for field, kind in each["properties"].items()
                ),
            )


def _request(title: str, found: dict[str, Any]) -> Iterator[str]:
    yield f"## {title}\n"
    if "description" in found:
        yield f"{prose(found['description'])}\n"
    yield from table(
        "parameter",
        "in",
        "type",
        rows=(
            (code(each["name"]), each["in"], _type(each["schema"]))
            for each in found.get("parameters", ())
            if each["in"] != "header"
        ),
    )
    for each in found.get("requestBody", {}).get("content", {}).values():
        yield f"Body: {_type(each['schema'])}\n"
    answer = found["responses"]["200"].get("content", {}).get("application/json", {}).get("schema")
    yield f"Answer: {_type(answer) if answer else 'a stream'}\n"


def _plain(name: str) -> str:
    return name.rsplit("/", 1)[-1].removesuffix("-Input").removesuffix("-Output")


def _type(found: dict[str, Any]) -> str:
    """A type of the OpenAPI document, with a link to the value that it names."""
    if "$ref" in found:
        name = _plain(found["$ref"])
        return f"[{name}](#{name.lower()})"
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(_type(each) for each in found["anyOf"]))
    if "enum" in found:
        return ", ".join(code(each) for each in found["enum"])
    match found.get("type"):
        case "array":
            return f"list of {_type(found['items'])}" if found.get("items") else "list"
        case "object":
            inner = found.get("additionalProperties")
            return f"object of {_type(inner)}" if isinstance(inner, dict) and inner else "object"
        case None:
            return "any"
        case kind:
            return str(kind)


# Python API


def python_api() -> Iterator[str]:
    """Every class, method, option, value and error of `import agentless`."""
    yield "# Python API\n"
    yield "`from agentless import Cluster`. [Python](../python.md) explains it with examples.\n"
    yield "Each method has an awaitable form with the same arguments: `await cluster.gpus.aio()`.\n"
    for cls in (Cluster, Task, Batch, Workflow, WorkflowJob, AllVps, Vps, ForwardedPort):
        yield f"## {cls.__name__}\n"
        yield from _paragraphs(cls)
        for name, member in vars(cls).items():
            if hasattr(member, "__wrapped__") and not name.startswith("_"):
                yield f"### {cls.__name__}.{name}\n"
                yield f"```python\n{_signature(name, member.__wrapped__)}\n```\n"
                yield from _paragraphs(member)
    yield "## Options of a submit\n"
    yield "`submit`, `run`, `submit_batch`, `dry_run` and `explain` take them as keywords.\n"
    yield from table(
        "keyword",
        "command line",
        "",
        rows=((code(each.name), code(each.flag), prose(each.help)) for each in options_of("task")),
    )
    yield "A VPS has these, too:\n"
    yield from table(
        "keyword",
        "command line",
        "",
        rows=((code(each.name), code(each.flag), prose(each.help)) for each in OPTIONS.values() if each.only == "vps"),
    )
    yield "## Values\n"
    yield "Frozen dataclasses. The [JSON reference](json.md) says what each field means.\n"
    for value in (*_values(view), *_values(figures)):
        yield f"### {value.__name__}\n"
        yield from _paragraphs(value)
        yield from table(
            "field", "type", rows=((code(each.name), code(each.type)) for each in dataclasses.fields(value))
        )
    yield "## Errors\n"
    kinds = [getattr(errors, name) for name in agentless.__all__ if hasattr(errors, name)]
    yield from table(
        "class",
        "of",
        "exit code",
        "",
        rows=(
            (code(each.__name__), code(each.__mro__[1].__name__), str(each.exit_code), prose(each.__doc__ or ""))
            for each in sorted(kinds, key=lambda each: (each.exit_code, len(each.__mro__)))
        ),
    )


def _values(module: Any) -> Iterator[Any]:
    for name, each in vars(module).items():
        if name.endswith("View") and dataclasses.is_dataclass(each) and each.__module__ == module.__name__:
            yield each


def _paragraphs(found: Any) -> Iterator[str]:
    """A docstring."""
    return (f"{prose(each)}\n" for each in inspect.cleandoc(found.__doc__ or "").split("\n\n"))


def _signature(name: str, function: Any) -> str:
    """A signature as its source has it, without the object itself, a line for each parameter where it is long."""
    own = inspect.signature(function)
    kept = own.replace(parameters=list(own.parameters.values())[1:])
    line = f"{name}{kept}".replace("'", "").replace("Python", "").replace("**options: Unpack[Options]", "**options")
    if len(line) <= 100:
        return line
    inside, _, answer = line.partition("(")[2].rpartition(")")
    return f"{name}(\n" + "".join(f"    {each},\n" for each in inside.split(", ")) + f"){answer}"


# Examples and pages from outside


_LANGUAGES = {".py": "python", ".sh": "sh", ".yaml": "yaml", ".j2": "jinja", ".service": "ini"}


def examples() -> Iterator[str]:
    """The files of `docs/examples/`, each below its name; a test runs them."""
    yield "# Examples\n"
    yield f"The files of [`docs/examples/`]({SOURCE}/docs/examples). Tests run all of them on simulated nodes.\n"
    for path in sorted(each for each in (ROOT / "docs" / "examples").rglob("*") if each.is_file()):
        language = _LANGUAGES.get(path.suffix, "")
        yield f"## {path.relative_to(ROOT / 'docs' / 'examples')}\n"
        yield f"```{language}\n{path.read_text()}```\n"


def at_the_top(path: Path) -> str:
    """A page of the repository's top folder, as one of the site."""
    text = re.sub(r"\]\(docs/", "](", path.read_text())
    return re.sub(r"\]\((?![\w./-]+\.md|#|https?:)", f"]({SOURCE}/", text)


if __name__ == "__main__":
    for path, content in pages().items():
        target = Path(sys.argv[1]) / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
