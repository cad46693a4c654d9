"""What is installed is whole, and what a package index shows of it leads somewhere."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from tests.pages import links

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/agentless/agentless"
RAW = "https://raw.githubusercontent.com/agentless/agentless"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    place = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(place)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    with zipfile.ZipFile(next(place.glob("*.whl"))) as wheel:
        yield wheel


@pytest.fixture(scope="module")
def metadata(wheel):
    name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_has_every_template_and_the_stand_ins(wheel):
    names = set(wheel.namelist())
    wanted = {f"agentless/{path.relative_to(ROOT)}" for path in (ROOT / "templates").rglob("*.j2")}
    wanted |= {f"agentless/demo/bin/{path.name}" for path in (ROOT / "agentless/demo/bin").iterdir()}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "agentless/demo/config").rglob("*.j2")}
    wanted |= {f"agentless/web/page/{path.name}" for path in (ROOT / "agentless/web/page").iterdir()}
    assert wanted - names == set()


@pytest.mark.parametrize("name", ["share/man/man1/agentless.1", "share/systemd/user/agentless.service"])
def test_the_wheel_installs_the_manual_page_and_the_unit(wheel, name):
    assert [each for each in wheel.namelist() if each.endswith(f".data/data/{name}")]


def test_links_and_pictures_of_the_readme_work_on_a_package_index(metadata):
    found = links(metadata.get_payload())
    assert len(found) == len(links((ROOT / "README.md").read_text())) > 10
    pictures = re.findall(r"!\[[^\]]+\]\((\S+)\)", metadata.get_payload())
    assert pictures
    for link in found:
        place = RAW if link in pictures else f"{REPOSITORY}/blob"
        assert link.startswith(f"{place}/main/"), link
        assert (ROOT / link.removeprefix(f"{place}/main/").partition("#")[0]).exists(), link


def test_the_metadata_leads_to_everything_else(metadata):
    urls = dict(each.split(", ") for each in metadata.get_all("Project-URL"))
    assert set(urls) == {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
    assert all(url.startswith(REPOSITORY) for url in urls.values())
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Author"]
    assert "Programming Language :: Python :: 3.11" in metadata.get_all("Classifier")
