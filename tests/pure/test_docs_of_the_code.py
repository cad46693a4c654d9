"""The pages about the code name files that exist and all modules, and stay short enough to be read."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE, DOCS, TEMPLATES = ROOT / "agentless", ROOT / "docs", ROOT / "templates"
INTERNALS = sorted((DOCS / "internals").glob("*.md"))
SPLIT = [*DOCS.rglob("how-to*/**/*.md"), *DOCS.rglob("reference/*.md")]
PAGES = [ROOT / "CONTRIBUTING.md", DOCS / "architecture.md", *INTERNALS]

COLUMNS = 120
WORDS = 1500
TOP_FOLDERS = {path.name for place in (ROOT, CODE) for path in place.iterdir() if path.is_dir()}
FILES = (".py", ".j2", ".toml", ".md")
PATH = re.compile(r"[\w.-]+(?:/[\w.-]+)*/?")


def paths_in(text):
    """What stands in backticks and is a path of the repository: a known folder first, or the name of a file at last."""
    for word in re.findall(r"`([^`\n]+)`", text):
        if PATH.fullmatch(word) and (word.endswith(FILES) or ("/" in word and word.split("/")[0] in TOP_FOLDERS)):
            yield word


def exists(path):
    if any((place / path).exists() for place in (ROOT, CODE)):
        return True
    return "/" not in path and any(True for place in (CODE, TEMPLATES) for _ in place.rglob(path))


def modules():
    """The modules, without packages that have nothing but a docstring."""
    for path in sorted(CODE.rglob("*.py")):
        if path.name != "__init__.py" or len(ast.parse(path.read_text()).body) > 1:
            yield path.relative_to(CODE).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_on_a_page_exists(page):
    assert [path for path in paths_in(page.read_text()) if not exists(path)] == []


def test_a_path_that_is_gone_is_noticed():
    assert [path for path in paths_in("`rules/gone.py` `gone.sh.j2` `tui/` `a/b`") if not exists(path)] == [
        "rules/gone.py",
        "gone.sh.j2",
    ]


def test_every_module_has_one_row():
    tables = [page.read_text().partition("\n## Modules\n")[2] for page in INTERNALS]
    rows = [row for table in tables for row in re.findall(r"^\| `([^`]+)` \| \S", table, re.MULTILINE)]
    assert sorted(rows) == sorted(modules())


@pytest.mark.parametrize("page", [*PAGES, *SPLIT], ids=lambda page: page.name)
def test_every_line_fits_a_screen(page):
    text = re.sub(r"^```console\n.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    lines = [line for line in text.splitlines() if page not in SPLIT or not line.startswith("|")]
    assert [line for line in lines if len(line) > COLUMNS] == []


def test_the_architecture_is_read_in_ten_minutes():
    assert len((DOCS / "architecture.md").read_text().split()) <= WORDS


def test_the_first_example_of_the_workflow_page_is_the_file_that_it_names():
    file = (DOCS / "examples" / "workflow.yaml").read_text().partition("\n")[2]
    assert (
        f"`docs/examples/workflow.yaml`:\n\n```yaml\n{file}```\n"
        in (DOCS / "how-to" / "run" / "workflow.md").read_text()
    )
