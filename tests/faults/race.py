"""Two people who know nothing of each other want one GPU at one moment."""

from __future__ import annotations

from tests.faults.scene import Scene


def races(scene: Scene) -> None:
    """Two controllers are asked for one GPU at one moment by two commands"""
    people = [scene.person(), scene.person("bob")]
    for _ in scene.times(3, 500):
        scene.chance.shuffle(people)
        begun = [scene.begin(who, "node1::0", "--", "sleep", "300") for who in people]
        won, lost = sorted((scene.end(each) for each in begun), key=lambda done: done.code)
        scene.expect(won.code == 0, f"nobody won: {won}")
        refused = lost.code == 3 and "held by task" in lost.err and len(lost.err.splitlines()) == 1
        scene.expect(refused, f"the loser was told {lost}")
        scene.check()
