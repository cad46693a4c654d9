"""Links, anchors and pictures of the documentation lead somewhere, and every page is in the site's navigation."""

import re

import pytest

from tests.pages import DOCS, ROOT, anchors, generated, links, written

REPOSITORY = re.compile(
    r"https://(?:github\.com/agentless/agentless/blob|raw\.githubusercontent\.com/agentless/agentless)/main/"
)
PAGES = {**written(), **generated()}


def dead(page, text):
    """The links of a page that lead nowhere."""
    for link in links(text):
        path, _, anchor = link.partition("#")
        if REPOSITORY.match(path):
            target = ROOT / REPOSITORY.sub("", path)
        elif re.match(r"[a-z]+:", path):
            continue
        else:
            target = (page.parent / path).resolve() if path else page
        there = text if target == page else PAGES.get(target, "")
        if not (target in PAGES or target.exists()) or (anchor and anchor not in anchors(there)):
            yield link


@pytest.mark.parametrize("page", sorted(PAGES), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_to_a_page_a_heading_or_a_picture(page):
    assert list(dead(page, PAGES[page])) == []


def test_a_link_that_leads_nowhere_is_noticed():
    text = "# Here\n[a](#here) [b](#gone) [c](gone.md) ![d](gone.png) [e](tutorial.md#gone)\n[f]: gone\n`[g](code)`\n"
    assert list(dead(DOCS / "index.md", text)) == ["#gone", "gone.md", "gone.png", "tutorial.md#gone", "gone"]


def test_the_navigation_has_every_page_once():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    listed = re.findall(r"^\s+- (?:[^:\n]+: )?(\S+\.md)$", navigation, re.MULTILINE)
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in PAGES if page.is_relative_to(DOCS))


def test_the_contents_list_has_every_how_to():
    listed = [link for link in links(PAGES[DOCS / "how-to.md"]) if link.startswith("how-to/")]
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in (DOCS / "how-to").rglob("*.md"))


@pytest.mark.parametrize("page", sorted(written()), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_picture_has_a_description(page):
    assert re.findall(r"!\[\s*\]\(.*?\)", PAGES[page]) == []
