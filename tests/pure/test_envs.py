"""What envs are called, which version is meant, and what a prune may take away."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import NotFound, Refused, UsageError
from agentless.model.images.env import (
    MAX_MESSAGE,
    BuildContainer,
    EnvImage,
    EnvRecord,
    EnvRef,
    FileChanges,
    Sight,
    Version,
    check_message,
    is_ours,
    parse_ref,
    ref_of,
)
from agentless.model.tasks.spec import TaskSpec, check_spec
from agentless.rules.images import envs
from agentless.rules.images.envs import env_named, next_number, prunable, version_named
from agentless.stores.state.envs import EnvStore
from agentless.stores.state.tinydb import TaskStore

NOW = 1_800_000_000.0


def image(name: str = "torch", number: int = 1, image_id: str = "", **more: Any) -> EnvImage:
    return EnvImage(EnvRef(name, number), image_id or f"id-{name}-{number}", 100, at=float(number), **more)


def sight(*numbers: int, name: str = "torch", **more: Any) -> Sight:
    return Sight(tuple(image(name, number) for number in numbers), **more)


def learned(records: Any, seen: Any) -> dict[str, EnvRecord]:
    return envs.with_seen_versions(records, seen, NOW)


def record(*numbers: int, **more: Any) -> EnvRecord:
    return replace(learned({}, {"node1": sight(*numbers)})["torch"], **{"unsettled": False, **more})


# ----------------------------------------------------------------- image stores


def test_one_image_with_other_ids_in_other_stores_is_one_version():
    old, new = image(image_id="config", content="c"), image(image_id="manifest", content="c")
    [version] = learned({}, {"old": Sight((old,)), "new": Sight((new,))})["torch"].versions.values()
    assert version.nodes == ("new", "old")
    assert (version.id_on("old"), version.id_on("new")) == ("config", "manifest")
    assert version.all_ids == {"config", "manifest"}


def test_a_version_keeps_its_id_when_it_is_seen_in_another_store():
    before = learned({}, {"old": Sight((image(image_id="z", content="c"),))})
    after = learned(before, {"new": Sight((image(image_id="a", content="c"),))})["torch"].versions[1]
    assert (after.id, after.nodes, after.ids) == ("z", ("new", "old"), {"new": "a"})


def test_a_node_that_lost_a_version_has_no_id_for_it():
    before = learned({}, {n: Sight((image(image_id=n, content="c"),)) for n in ("a", "b")})
    after = learned(before, {"b": Sight()})["torch"].versions[1]
    assert (after.nodes, after.ids) == (("a",), {})


def test_a_record_of_an_early_version_learns_what_its_image_is_like():
    early = {"torch": replace(record(1), versions={1: Version("id-torch-1", 100, nodes=("old",))})}
    seen = {"old": Sight((image(content="c"),)), "new": Sight((image(image_id="m", content="c"),))}
    again = learned(learned(early, seen), seen)["torch"].versions[1]
    assert (again.content, again.nodes, again.ids) == ("c", ("new", "old"), {"new": "m"})


def test_content_that_nodes_disagree_on_is_not_learned():
    before = learned({}, {"old": Sight((image(),))})
    seen = {"old": Sight((image(content="c"),)), "liar": Sight((image(content="hostile"),))}
    assert learned(before, seen)["torch"].versions[1].content == ""


@pytest.mark.parametrize(("others", "learned_content"), [(("b",), ""), (("b", "c"), ""), ((), "c")])
def test_a_minority_of_the_nodes_that_have_a_version_does_not_decide_on_its_content(others, learned_content):
    early = {"torch": replace(record(1), versions={1: Version("id-torch-1", 100, nodes=("a", *others))})}
    assert learned(early, {"a": Sight((image(content="c"),))})["torch"].versions[1].content == learned_content


def test_an_id_that_belongs_to_other_content_is_not_the_version():
    """Only the id that it was recorded with is proof: those of other nodes were learned from what they said."""
    known = learned(
        {}, {"a": Sight((image(image_id="a", content="c"),)), "b": Sight((image(image_id="b", content="c"),))}
    )
    version = known["torch"].versions[1]
    assert [version.is_image("b", each) for each in ("c", "hostile", "")] == [True, False, True]
    assert version.is_image("a", "")
    after = learned(known, {"new": Sight((image(image_id="b", content="hostile"),))})
    assert after["torch"].versions[1].nodes == ("a", "b")


@pytest.mark.parametrize("content", ["", "other"])
def test_another_image_with_the_same_number_is_none_of_the_version(content):
    first, second = image(image_id="a", content=content and "c"), image(image_id="b", content=content)
    [version] = learned({}, {"x": Sight((first,)), "y": Sight((second,))})["torch"].versions.values()
    assert version.nodes == ("x",)


def test_what_holds_layers_of_an_image_on_its_way_is_kept_whatever_a_node_calls_that():
    known = learned({}, {n: Sight((image(image_id=n, content="c"),)) for n in ("a", "b")})
    there = Sight(partial={"held": "b", "left": "other"})
    assert prunable(known, there, NOW, busy=["torch"]) == ("left",)


# ------------------------------------------------------------------------ names


@pytest.mark.parametrize("text", ["torch", "a", "torch-2.5_cu12", "0", "a--b", "a__b", "x" * 63])
def test_a_name_that_docker_takes_is_a_name(text):
    assert parse_ref(f"{text}:12") == EnvRef(text, 12)
    assert parse_ref(text) == EnvRef(text)
    assert ref_of(EnvRef(text, 12).image) == EnvRef(text, 12)


@pytest.mark.parametrize(
    "text", ["", "Torch", "-a", "a-", "a..b", "a/b", "a b", "é", "x" * 64, "a:", "a:0", "a:01", "a:x", "a:1:2", "a:-1"]
)
def test_what_is_no_name_is_refused_in_a_sentence(text):
    with pytest.raises(UsageError, match=r"env |version"):
        parse_ref(text)


def test_null_is_no_env():
    with pytest.raises(UsageError, match="NULL is not an env"):
        parse_ref("NULL")


def test_null_in_other_letters_is_told_how_it_is_written():
    with pytest.raises(UsageError, match="--container NULL in capitals"):
        parse_ref("null")


@pytest.mark.parametrize(
    "name", ["agentless/a:1", "agentless/a", "docker.io/agentless/a", "index.docker.io/Agentless/a"]
)
def test_a_name_of_ours_is_known_however_a_registry_would_spell_it(name):
    assert is_ours(name)


@pytest.mark.parametrize(
    "name", ["busybox", "lab/agentless", "ghcr.io/agentless/a:1", "agentlessx/a", "my/agentless/a"]
)
def test_the_names_of_others_are_not_ours(name):
    assert not is_ours(name)


@pytest.mark.parametrize("name", ["busybox", "agentless/torch", "agentless/Torch:1", "lab/agentless/torch:1"])
def test_what_is_not_called_like_a_version_is_none(name):
    assert ref_of(name) is None


def test_a_message_may_be_as_long_as_is_said():
    assert len(check_message("x" * MAX_MESSAGE)) == MAX_MESSAGE
    with pytest.raises(UsageError, match=f"{MAX_MESSAGE + 1} characters; the limit is {MAX_MESSAGE}"):
        check_message("x" * (MAX_MESSAGE + 1))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (FileChanges(), "nothing"),
        (FileChanges(added=1), "1 added"),
        (FileChanges(changed=2), "2 changed"),
        (FileChanges(deleted=3), "3 deleted"),
        (FileChanges(1, 2, 3), "1 added, 2 changed, 3 deleted"),
    ],
)
def test_changes_are_counted_in_words(changes, words):
    assert str(changes) == words
    assert bool(changes) == (words != "nothing")


@given(st.text(max_size=200))
def test_a_message_is_one_printable_line(text):
    line = check_message(text)
    assert line.isprintable()
    assert line == line.strip()


# ----------------------------------------------------------- what is known of them


def test_the_nodes_tell_everything_when_nothing_is_remembered():
    found = learned({}, {"node1": sight(1, 2), "node2": sight(2)})["torch"]
    assert (found.current, found.highest) == (2, 2)
    assert {number: version.nodes for number, version in found.versions.items()} == {
        1: ("node1",),
        2: ("node1", "node2"),
    }


def test_the_versions_of_one_env_are_none_of_another():
    found = learned({}, {"node1": Sight((image("torch", 1), image("jax", 2)))})
    assert {name: list(each.versions) for name, each in found.items()} == {"torch": [1], "jax": [2]}


def test_the_highest_version_is_current_until_somebody_goes_back():
    assert record(1, 2, 3).current == 3
    assert record(1, 2, 3, back=(1, 3)).current == 1


def test_a_version_that_somebody_went_back_to_is_not_current_once_it_is_gone():
    assert record(1, 3, back=(2, 3)).current == 3


def test_a_version_saved_after_a_rollback_is_current_whoever_saved_it():
    found = learned({"torch": record(1, 2, 3, back=(1, 3))}, {"node2": sight(4)})["torch"]
    assert found.current == 4


def test_which_of_several_versions_is_current_is_only_assumed_after_the_state_was_lost():
    found = learned({}, {"node1": sight(1, 2, 3)})["torch"]
    assert (found.current, found.assumed) == (3, True)


def test_the_only_version_is_the_current_one():
    assert not learned({}, {"node1": sight(2)})["torch"].assumed


def test_a_newer_version_of_a_node_that_was_away_is_current_by_assumption_only():
    before = learned({}, {"node1": sight(1)})
    assert learned(before, {"node2": sight(2)})["torch"].assumed


@pytest.mark.parametrize("later", [0, 1])
def test_a_version_that_is_saved_after_the_first_look_is_the_current_one(later):
    before = learned({}, {"node1": sight(1, 2)})
    saved = Sight((*sight(1, 2).images, replace(image(number=3), at=NOW + later)))
    found = learned(before, {"node1": saved})["torch"]
    assert (found.current, found.assumed) == (3, False)


def test_what_a_state_of_before_has_kept_is_no_assumption():
    found = learned({"torch": replace(record(1, 2), since=0.0)}, {"node1": sight(1, 2, 3)})["torch"]
    assert not found.assumed


def test_a_version_that_is_gone_is_not_current_and_its_number_is_not_given_again():
    found = learned({"torch": record(1, 2)}, {"node1": sight(1)})
    assert found["torch"].current == 1
    assert next_number(found["torch"], {"node1": sight(1)}, "torch") == 3


def test_what_a_silent_node_has_is_still_believed():
    before = learned({}, {"node1": sight(1), "node2": sight(1)})
    found = learned(before, {"node1": Sight()})["torch"]
    assert found.versions[1].nodes == ("node2",)


def test_a_removed_env_leaves_its_numbers_behind_and_is_not_there():
    found = learned({"torch": record(1, 2)}, {"node1": Sight()})["torch"]
    assert not found.there
    assert next_number(found, {}, "torch") == 3


def test_an_env_of_which_there_is_only_a_build_container_is_there():
    assert EnvRecord(home="node1").there
    assert not EnvRecord(highest=3).there


def test_the_build_container_of_an_env_is_its_own():
    boxes = tuple(BuildContainer(name, f"c-{name}", "running", "i") for name in ("a", "b"))
    assert Sight(containers=boxes).container("b") == boxes[1]
    assert Sight(containers=boxes).container("c") is None


def test_a_strangers_image_with_a_number_of_ours_keeps_it():
    foreign = {"node1": Sight(foreign=frozenset({"agentless/torch:7", "agentless/torch:x", "agentless/other:9"}))}
    assert next_number(record(1), foreign, "torch") == 8


def test_a_number_that_nobody_could_have_given_is_not_counted_on():
    foreign = {"node1": Sight(foreign=frozenset({"agentless/torch:999999999", "agentless/torch:1000000000"}))}
    assert next_number(record(1), foreign, "torch") == 1_000_000_000


def test_of_two_new_images_with_one_number_the_older_one_has_it():
    older, newer = (replace(image(image_id=name), at=at) for name, at in (("older", 5.0), ("newer", 6.0)))
    found = learned({}, {"node1": Sight((newer,)), "node2": Sight((older,))})["torch"]
    assert (found.versions[1].id, found.versions[1].nodes) == ("older", ("node2",))


def test_of_two_images_with_one_number_the_one_that_was_known_stays():
    other = Sight((image(image_id="another"),))
    found = learned({"torch": record(1)}, {"node1": sight(1), "node2": other})["torch"]
    assert (found.versions[1].id, found.versions[1].nodes) == ("id-torch-1", ("node1",))


def test_the_build_container_is_found_where_it_is_and_missed_when_it_is_gone():
    container = BuildContainer("torch", "c1", "running", "id-torch-1")
    found = learned({}, {"node1": Sight(containers=(container,))})
    assert (found["torch"].home, next_number(found["torch"], {}, "torch")) == ("node1", 1)
    assert learned(found, {"node2": Sight()})["torch"].home == "node1"
    assert learned(found, {"node1": Sight()})["torch"].home is None


def test_what_is_not_there_is_refused_with_the_nearest_name():
    records = {"torch": record(1, 2), "empty": EnvRecord(home="node1")}
    with pytest.raises(NotFound, match="did you mean 'torch'"):
        env_named(records, "troch")
    with pytest.raises(NotFound, match="env torch has no version 9; versions: 1, 2"):
        version_named(records, EnvRef("torch", 9))
    with pytest.raises(Refused, match="no version yet"):
        version_named(records, EnvRef("empty"))
    assert version_named(records, EnvRef("torch"))[0] == EnvRef("torch", 2)


def test_what_is_remembered_is_there_after_a_restart(tmp_path):
    known = {"torch": record(1, 2, back=(1, 2), home="node1"), "gone": EnvRecord(highest=4)}
    EnvStore(TaskStore(tmp_path / "state.json").storage).save(known)
    assert EnvStore(TaskStore(tmp_path / "state.json").storage).load() == known
    assert EnvStore(TaskStore(tmp_path / "other.json").storage).load() == {}


# -------------------------------------------------------------------------- prune


def test_versions_before_the_current_one_are_old():
    assert prunable({"torch": record(1, 2, 3)}, sight(1, 2, 3), NOW) == (
        "agentless/torch:1",
        "agentless/torch:2",
    )


def test_a_version_that_is_needed_is_not_pruned():
    container = BuildContainer("torch", "c1", "exited", "id-torch-2")
    seen = sight(1, 2, 3, 4, containers=(container,))
    assert prunable({"torch": record(1, 2, 3, 4)}, seen, NOW, used={EnvRef("torch", 1)}) == ("agentless/torch:3",)


def test_after_a_rollback_the_versions_after_the_current_one_stay():
    assert prunable({"torch": record(1, 2, 3, back=(2, 3))}, sight(1, 2, 3), NOW) == ("agentless/torch:1",)


def test_nothing_is_old_where_the_current_version_is_only_assumed():
    assert prunable({"torch": record(1, 2, 3, unsettled=True)}, sight(1, 2, 3), NOW) == ()


def test_an_env_that_is_worked_on_is_left_alone():
    assert prunable({"torch": record(1, 2)}, sight(1, 2), NOW, busy={"torch"}) == ()


def test_a_leftover_is_pruned_once_it_is_old_enough_to_be_one():
    seen = Sight(leftovers={"agentless/a:fresh-0123456789abcdef": NOW - 301, "agentless-env-a-IMPORT": NOW - 300})
    assert prunable({}, seen, NOW) == ("agentless/a:fresh-0123456789abcdef",)


def test_layers_of_an_image_that_did_not_arrive_are_pruned_unless_it_is_on_its_way():
    seen = Sight(partial={"p1": "id-torch-1", "p2": "id-a-1", "p3": "id-b-1"})
    assert prunable({"torch": record(1)}, seen, NOW, busy={"torch"}, coming={"id-a-1"}) == ("p3",)


@given(st.sets(st.integers(1, 6)), st.sets(st.sampled_from(["agentless/torch:9", "busybox"])), st.integers(1, 6))
def test_no_prune_takes_what_is_not_ours_or_the_current_version(numbers, foreign, back):
    known = {"torch": record(*numbers, back=(back, 6))} if numbers else {}
    found = prunable(known, sight(*numbers, foreign=frozenset(foreign)), NOW)
    assert not foreign.intersection(found)
    assert not numbers or EnvRef("torch", known["torch"].current).image not in found


# ----------------------------------------------------------------- what a task asks


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"container": "torch", "image": "busybox"}, "--container and --image cannot be combined"),
        ({"container": "Torch"}, "env 'Torch'"),
        ({"container": "torch", "pull": "always"}, "--pull applies to --image"),
        ({"pull": "sometimes"}, "--pull 'sometimes': use missing, always or never"),
        ({"image_id": "sha256:1"}, "image_id needs an env"),
    ],
)
def test_what_contradicts_itself_is_refused(asked, words):
    with pytest.raises(UsageError, match=words):
        check_spec(TaskSpec(("true",), **asked))


def test_the_spec_of_a_task_in_an_env_may_be_submitted_again():
    check_spec(TaskSpec(("true",), container="torch:3", image="agentless/torch:3", image_id="sha256:1"))
    check_spec(TaskSpec(("true",), container="NULL"))


def test_a_version_is_the_node_s_own_word(tmp_path):
    assert record(1).versions[1] == Version("id-torch-1", 100, at=1.0, nodes=("node1",))
