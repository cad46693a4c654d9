"""The names of a node's images, which anybody may have chosen, and the one that becomes the default."""

from __future__ import annotations

import pytest

from agentless.engines.docker.commands import Commands
from agentless.engines.docker.dialect import DOCKER
from agentless.engines.docker.images import MAX_LISTED, DockerImages
from agentless.errors import RuntimeFailed
from agentless.model.command import Result
from agentless.model.nodes.node import NodeConfig
from agentless.model.view import ImageView
from agentless.paths import template_dir
from agentless.render import Renderer
from agentless.rules.images.default_image import default_image

IMAGES = DockerImages(Commands(NodeConfig("n1", "h"), Renderer([template_dir()]), DOCKER), str)
MB = 1_000_000


def image(name: str, size: int = 80 * MB, entrypoint: str = "") -> ImageView:
    return ImageView(name, size, entrypoint)


def said(*lines: str) -> tuple[ImageView, ...]:
    return IMAGES.parse_names(Result(0, "\n".join(lines).encode(), b""))


def test_every_name_of_an_image_is_listed_once_in_the_order_of_the_engine() -> None:
    found = said(
        '{"names":["b:1","a:2"],"size":5,"entrypoint":["/x.sh","-v"]}',
        '{"names":["b:1","a:2"],"size":5,"entrypoint":["/x.sh","-v"]}',
        '{"names":null,"size":5,"entrypoint":null}',
        '{"names":["c:1"],"size":5,"entrypoint":null}',
    )
    assert found == (ImageView("b:1", 5, "/x.sh -v"), ImageView("a:2", 5, "/x.sh -v"), ImageView("c:1", 5, ""))


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: something",
        "[]",
        "3",
        '{"names":["a:1"],"size":"x","entrypoint":null}',
        '{"names":["<none>:<none>","a b","a\\u001b[2J","-x","a\\n","agentless/torch:3"],"size":5,"entrypoint":null}',
        '{"names":["%s"],"size":5,"entrypoint":null}' % ("a" * 256),
    ],
)
def test_what_is_no_name_of_an_image_is_left_out(line: str) -> None:
    assert said(line) == ()


def test_an_entrypoint_is_cut_and_printable() -> None:
    (found,) = said('{"names":["a:1"],"size":5,"entrypoint":["\\u001b[2J%s"]}' % ("x" * 999))
    assert found.entrypoint.isprintable()
    assert len(found.entrypoint) == 200


def test_the_list_is_bounded() -> None:
    assert len(said(*(f'{{"names":["a:{n}"],"size":5,"entrypoint":null}}' for n in range(2000)))) == MAX_LISTED


def test_an_engine_that_refuses_is_an_error() -> None:
    with pytest.raises(RuntimeFailed, match="n1: denied"):
        IMAGES.parse_names(Result(1, b"", b"denied"))


def test_the_image_of_most_nodes_comes_first() -> None:
    assert default_image({"n1": [image("mine:1"), image("pytorch/pytorch:2")], "n2": [image("mine:1")]}) == "mine:1"


def test_of_those_the_most_familiar_then_the_newest() -> None:
    found = [image("mine:1"), image("ubuntu:24.04"), image("python:3.13"), image("python:3.12")]
    assert default_image({"n1": found}) == "python:3.13"


@pytest.mark.parametrize(
    "unfit", [image("hello-world:latest", 13_256), image("vllm:1", entrypoint="python3 -m vllm"), image("x:1", 0)]
)
def test_an_image_that_runs_no_command_is_no_default(unfit: ImageView) -> None:
    assert default_image({"n1": [unfit]}) is None


def test_a_script_named_entrypoint_runs_the_command() -> None:
    nvidia = image("nvcr.io/nvidia/pytorch:24.05", entrypoint="/opt/nvidia/nvidia_entrypoint.sh")
    assert default_image({"n1": [nvidia]}) == nvidia.name


def test_without_images_there_is_no_default() -> None:
    assert default_image({}) is default_image({"n1": []}) is None
