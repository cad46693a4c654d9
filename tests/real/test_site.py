"""The site is built without a warning, and searched as files, without a network."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

from tests.browser import ALONE, CHROMIUM

pytest.importorskip("mkdocs", reason="MkDocs is not installed; `make docs` installs it")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", place)
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return place


def test_it_has_no_scripts_of_the_repository(site):
    assert [path.name for path in site.rglob("*") if path.suffix in (".py", ".1")] == []


@pytest.mark.skipif(not shutil.which("chromium"), reason="there is no chromium")
def test_its_search_explains_that_a_gpu_is_foreign(site):
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ALONE.split())
        page = browser.new_context(offline=True).new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto((site / "index.html").as_uri())
        page.get_by_placeholder("Search").fill("GPU is foreign")
        page.locator(".md-search-result__item a").first.click()
        page.wait_for_url("**/how-to/nodes/foreign.html*")
        assert "used by a process outside" in page.content() or "process outside agentless" in page.content()
        assert [url for url in asked if not url.startswith("file:")] == []
        browser.close()
