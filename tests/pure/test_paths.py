"""Where files are: the XDG variables decide, and the inventory is found in a fixed order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agentless import paths
from agentless.errors import InventoryError, UsageError
from agentless.paths import config_dir, find_inventory, new_inventory, ssh_config, state_dir, template_dir


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder, and a config folder beside it."""
    folder = tmp_path / "here"
    folder.mkdir()
    (tmp_path / "agentless").mkdir()
    monkeypatch.chdir(folder)
    return folder


def environ(here: Path, **more: str) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(here.parent), **more}


def test_the_xdg_variables_decide() -> None:
    variables = {"XDG_CONFIG_HOME": "/c", "XDG_STATE_HOME": "/s", "HOME": "/h"}
    assert (config_dir(variables), state_dir(variables)) == (Path("/c/agentless"), Path("/s/agentless"))


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_without_them_the_home_does(value: str) -> None:
    variables = {"XDG_CONFIG_HOME": value, "XDG_STATE_HOME": value, "HOME": "/h"}
    assert (config_dir(variables), state_dir(variables)) == (
        Path("/h/.config/agentless"),
        Path("/h/.local/state/agentless"),
    )


def test_without_a_home_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    with pytest.raises(UsageError, match="set HOME to an absolute path"):
        state_dir({})


def test_ssh_config_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/h")
    assert ssh_config() == Path("/h/.ssh/config")


def test_the_templates_are_there() -> None:
    assert template_dir().is_dir()


def test_the_packaged_templates_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package" / "templates").mkdir(parents=True)
    (tmp_path / "templates").mkdir()
    monkeypatch.setattr(paths, "_PACKAGE", tmp_path / "package")
    assert template_dir() == tmp_path / "package" / "templates"


def test_the_inventory_is_looked_for_in_order(here: Path) -> None:
    for path in (
        here / "a.yaml",
        here / "b.yaml",
        here / "inventory.yaml",
        here.parent / "agentless" / "inventory.yaml",
    ):
        path.touch()
    variables = environ(here, AGENTLESS_INVENTORY="b.yaml")
    found = [find_inventory(Path("a.yaml"), variables), find_inventory(None, variables)]
    found.append(find_inventory(None, environ(here, AGENTLESS_INVENTORY="")))
    (here / "inventory.yaml").unlink()
    found.append(find_inventory(None, environ(here)))
    assert found == [
        here / "a.yaml",
        here / "b.yaml",
        here / "inventory.yaml",
        here.parent / "agentless" / "inventory.yaml",
    ]


def test_one_inventory_has_one_path_from_wherever_it_is_named(here: Path) -> None:
    (here / "a.yaml").touch()
    assert find_inventory(Path("../here/./a.yaml"), environ(here)) == here / "a.yaml"


def test_no_inventory_says_where_it_was_looked_for(here: Path) -> None:
    with pytest.raises(InventoryError) as caught:
        find_inventory(None, environ(here))
    assert str(caught.value) == (
        f"no inventory: neither {here}/inventory.yaml nor {here.parent}/agentless/inventory.yaml exists; "
        "create one with: agentless init"
    )


@pytest.mark.parametrize(
    ("explicit", "by"),
    [(Path("none.yaml"), "--inventory"), (None, r"\$AGENTLESS_INVENTORY")],
    ids=["option", "variable"],
)
def test_a_named_inventory_that_is_missing_is_not_replaced_by_another(
    here: Path, explicit: Path | None, by: str
) -> None:
    (here / "inventory.yaml").touch()
    with pytest.raises(InventoryError, match=rf"none.yaml \(from {by}\) does not exist"):
        find_inventory(explicit, environ(here, AGENTLESS_INVENTORY="none.yaml"))


def test_a_current_folder_that_was_deleted_is_a_sentence(here: Path) -> None:
    here.rmdir()
    with pytest.raises(UsageError, match="cd to another folder"):
        find_inventory(None, environ(here))


def test_a_first_inventory_goes_where_every_command_finds_it(here: Path) -> None:
    (here / "inventory.yaml").touch()
    assert new_inventory(None, environ(here)) == here.parent / "agentless" / "inventory.yaml"


def test_a_first_inventory_goes_where_it_is_named(here: Path) -> None:
    variables = environ(here, AGENTLESS_INVENTORY="b.yaml")
    assert (new_inventory(Path("a.yaml"), variables), new_inventory(None, variables)) == (
        here / "a.yaml",
        here / "b.yaml",
    )


def test_finding_files_imports_nothing_heavy() -> None:
    code = "import sys, agentless.paths; print(*{'yaml', 'pydantic', 'platformdirs', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "\n"
