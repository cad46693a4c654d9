"""What a node has after a transfer is compared with the version that was meant."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from agentless.controller.envs.moves import Moves
from agentless.errors import RuntimeFailed
from agentless.model.images.env import EnvImage, EnvRecord, EnvRef, Sight, Version

REF = EnvRef("torch", 3)


class Link:
    """A node that removes what it is told to."""

    def __init__(self, name: str) -> None:
        self.node, self.removed = SimpleNamespace(name=name), list[str]()
        self.runtime = SimpleNamespace(envs=SimpleNamespace(remove_image=lambda image: image))

    async def run(self, image: str) -> None:
        self.removed.append(image)


async def arrived(sight: Sight, content: str = "c") -> Link:
    """A transfer to a node, of which the controller then sees this."""
    version = Version("config", 1, nodes=("source", "other"), content=content, ids={"source": "manifest"})

    async def look_at(*_: Any) -> None:
        pass

    envs = SimpleNamespace(records={"torch": EnvRecord(versions={3: version})}, sights={"new": sight}, look_at=look_at)
    link = Link("new")
    try:
        await Moves(envs, None)._check_arrived(link, REF, "config", Link("source"))  # type: ignore[arg-type]
    except RuntimeFailed:
        assert link.removed == ["agentless/torch:3"]
        raise
    return link


@pytest.mark.parametrize(("id_", "content"), [("config", "c"), ("config", ""), ("manifest", "c"), ("any", "c")])
async def test_the_version_stays(id_: str, content: str) -> None:
    assert (await arrived(Sight((EnvImage(REF, id_, 1, content=content),)))).removed == []
    assert (await arrived(Sight())).removed == []


@pytest.mark.parametrize(
    "sight",
    [
        Sight((EnvImage(REF, "manifest", 1, content="other"),)),
        Sight((EnvImage(REF, "any", 1, content="other"),)),
        Sight((EnvImage(REF, "any", 1),)),
        Sight(foreign=frozenset({"agentless/torch:3"})),
    ],
    ids=["an id that the source said", "another image", "an image that is not whole", "labels of others"],
)
async def test_another_image_loses_the_name(sight: Sight) -> None:
    with pytest.raises(RuntimeFailed, match="source sent new a different image than torch:3"):
        await arrived(sight)


async def test_what_cannot_be_compared_loses_the_name_with_the_nodes_that_have_to_agree() -> None:
    with pytest.raises(RuntimeFailed, match=r"cannot check that new received torch:3.*\(source, other\)"):
        await arrived(Sight((EnvImage(REF, "any", 1, content="c"),)), content="")
