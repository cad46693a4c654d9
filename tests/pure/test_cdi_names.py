"""Which devices CDI files on a node name: by the script in common shells, on files as people and tools write them."""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

from agentless.engines.dialect import EngineAnswer
from agentless.gpus.nvidia.vendor import Nvidia
from agentless.model.nodes.node import NodeConfig
from tests.engines import RENDERER
from tests.pure.build import NOW
from tests.pure.shells import SHELLS

KIT = Nvidia.toolkit
assert KIT
PREFIX = f"{KIT.cdi}="
SCRIPT = RENDERER.script("cdi-names.sh.j2", prefix=PREFIX, most=1000)
HEAD = f"cdiVersion: 0.5.0\nkind: {KIT.cdi}\ndevices:\n"
JSON = '{"kind": "%s", "devices": [{"name": "GPU-1", "containerEdits": {}}, {"name"%s: "GPU-2"}]}'


def names(shell: list[str], folder: Path, *texts: str) -> set[str]:
    """What an engine knows of a node with these files."""
    files = [folder / f"{number}.yaml" for number, _ in enumerate(texts)]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text)
    script = f"for file in {shlex.join(map(str, files))}; do\n{SCRIPT}\ndone"
    done = subprocess.run([*shell, "-c", script], capture_output=True, text=True, check=True)
    answer = EngineAnswer(NodeConfig("node1", "h"), {}, done.stdout.splitlines(), {}, "docker", [KIT], NOW, NOW)
    return {each.removeprefix(PREFIX) for each in answer.cdi}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "text",
    [
        HEAD + "- name: GPU-1\n- name: GPU-2\n",
        HEAD + '- name: \'GPU-1\'\n- "name": "GPU-2"  # the new one\n',
        HEAD + "- {name: GPU-1, containerEdits: {}}\n- {'name': 'GPU-2'}",
        HEAD + "- containerEdits:\n    env: [A=1]\n  name:\tGPU-1\r\n- name : GPU-2 \r\n",
        HEAD + "- name: GPU-1\n- name: GPU-2\n#- name: GPU-3\n  # name: GPU-4\n",
        JSON % (KIT.cdi, ""),
    ],
    ids=["plain", "quoted", "in braces", "spaces", "commented out", "JSON"],
)
def test_names_are_read_in_each_notation(shell: list[str], text: str, tmp_path: Path) -> None:
    assert names(shell, tmp_path, text) == {"GPU-1", "GPU-2"}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(
    "text",
    [
        HEAD + "- name: GPU-1\n- name:\n    GPU-2\n",
        HEAD + "- name: GPU-1\n- name: !!str GPU-2\n",
        HEAD + "- name: GPU-1\n- name: &second GPU-2\n",
        HEAD + "- name: GPU-1\n- name: >-\n    GPU-2\n",
        HEAD + '- name: GPU-1\n- name: "GPU\\x2d2"\n',
        JSON % (KIT.cdi, "\n"),
    ],
    ids=["next line", "tag", "anchor", "block", "escape", "JSON"],
)
def test_with_a_name_that_cannot_be_read_no_name_is_known(shell: list[str], text: str, tmp_path: Path) -> None:
    assert names(shell, tmp_path, text) == set()


@pytest.mark.parametrize("shell", SHELLS)
def test_a_file_may_end_without_a_newline(shell: list[str], tmp_path: Path) -> None:
    assert names(shell, tmp_path, HEAD + "- name: GPU-1", HEAD + "- name: GPU-2") == {"GPU-1", "GPU-2"}
