"""Commands, and sections: several questions in one script, told apart in the answer."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.model.command import SECTION, Command, Result, Section, join_sections, split_sections


def test_secrets_are_exported_in_front_of_the_script_and_masked_for_people() -> None:
    command = Command("echo hi\n", secrets={"TOKEN": "it's"})
    done = subprocess.run(
        ["sh"], input=command.text() + 'printf %s "$TOKEN"', capture_output=True, text=True, check=True
    )
    assert done.stdout == "hi\nit's"
    assert command.text(masked=True) == "export TOKEN=***\necho hi\n"
    assert "it's" not in repr(command)


def test_output_that_is_no_text_is_replaced_not_an_error() -> None:
    result = Result(0, b"\xffa", b"b\xfe")
    assert (result.ok, result.out, result.err) == (True, "\ufffda", "b\ufffd")


def run(*sections: Section, shell: tuple[str, ...] = ("sh",)) -> bytes:
    return subprocess.run(shell, input=join_sections(sections).encode(), capture_output=True, check=True).stdout


@pytest.mark.parametrize("shell", [("dash",), ("bash",), ("busybox", "sh")], ids=" ".join)
def test_each_section_comes_back_with_its_output_and_exit_code(shell: tuple[str, ...]) -> None:
    output = run(
        Section("one", "echo out; echo err >&2"),
        Section("two", "printf 'no newline'; exit 3"),
        Section("three", "cat <<X\na document\nX"),
        Section("four", "cd /nowhere/at/all 2>/dev/null || false # a comment"),
        Section("five", ":"),
        shell=shell,
    )
    assert split_sections(output) == {
        "one": Result(0, b"out\nerr\n"),
        "two": Result(3, b"no newline"),
        "three": Result(0, b"a document\n"),
        "four": Result(1, b""),
        "five": Result(0, b""),
    }


@given(st.lists(st.binary(max_size=60).filter(lambda data: b"@@agentless" not in data), min_size=1, max_size=4))
def test_any_bytes_of_a_section_come_back_unchanged(outputs: list[bytes]) -> None:
    sections = [
        Section(f"s{n}", "printf '" + "".join(f"\\{b:03o}" for b in data) + "'") for n, data in enumerate(outputs)
    ]
    found = split_sections(run(*sections))
    assert [found[f"s{n}"].stdout for n in range(len(outputs))] == outputs


def test_an_answer_that_was_cut_off_has_only_the_whole_sections() -> None:
    output = run(Section("one", "echo 1"), Section("two", "echo 2; exit 125"))
    whole = split_sections(output)
    for end in range(len(output)):
        part = split_sections(output[:end])
        assert part == {name: whole[name] for name in part}
        assert "two" not in part


@pytest.mark.parametrize("line", [b"@@agentless = x", b"@@agentless =", b"@@agentless = 12345", b"@@agentless"])
def test_a_line_that_only_looks_like_a_mark_is_no_error(line: bytes) -> None:
    assert split_sections(b"@@agentless one\n" + line + b"\n\n@@agentless = 0\n") is not None


@pytest.mark.parametrize("shell", [("dash",), ("bash",), ("busybox", "sh")], ids=" ".join)
def test_a_section_without_end_is_cut_on_the_node_and_the_others_come(shell: tuple[str, ...]) -> None:
    output = run(
        Section("endless", "yes"),
        Section("no newline", "cat /dev/zero"),
        Section("last", "echo 1; exit 3"),
        shell=shell,
    )
    found = split_sections(output)
    assert [len(found[name].stdout) for name in ("endless", "no newline")] == [SECTION, SECTION]
    assert [found[name].ok for name in ("endless", "no newline")] == [False, False]
    assert found["last"] == Result(3, b"1\n")


def test_a_command_may_say_as_much_as_all_sections_of_a_full_look() -> None:
    assert Command(join_sections(Section(f"s{n}", "yes") for n in range(8))).most > 8 * SECTION
