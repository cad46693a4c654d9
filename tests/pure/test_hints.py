"""What was typed and cannot be meant is answered with what was probably meant, or where to read on."""

from __future__ import annotations

import pytest

from agentless.cli.app import VERBS, run
from agentless.errors import UsageError
from agentless.model.moment import parse_past
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.rules.views.nearest import nearest


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("ls", "there is no verb 'ls' (did you mean ps?); agentless --help lists them"),
        ("cancel 2mz3", "there is no verb 'cancel' (did you mean stop?); agentless --help lists them"),
        ("-i lab.yaml lgos", "there is no verb 'lgos' (did you mean 'logs'?); agentless --help lists them"),
        ("frobnicate", "there is no verb 'frobnicate'; agentless --help lists them"),
        ("submit 1x --gpus", "Option '--gpus' requires an argument; see agentless submit --help"),
        ("nodes drain", "Missing argument 'NODE...'; see agentless nodes drain --help"),
    ],
)
def test_what_is_no_command_line_is_told_what_would_be(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (run(typed.split()), capsys.readouterr().err) == (2, f"agentless: {said}\n")


def test_the_help_has_the_verbs_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    run(["--help"])
    firsts = [line.strip("│ ").split(" ")[0] for line in capsys.readouterr().out.splitlines()]
    assert [word for word in firsts if word in VERBS] == VERBS


def test_the_case_of_a_word_hides_nothing() -> None:
    assert nearest("NODE1", ["node1", "gpu-a"]) == " (did you mean 'node1'?)"
    assert nearest("elsewhere", ["node1", "gpu-a"]) == ""
    assert nearest("gpu-A", ["Node1", "GPU-a"]) == " (did you mean 'GPU-a'?)"


def test_a_count_may_have_a_large_x() -> None:
    assert parse_target("2XA100") == parse_target("2xA100")


def test_what_is_no_time_is_told_that_dates_are_fine() -> None:
    with pytest.raises(UsageError, match="'yesterday': use 10min, 2h or a date like 2026-05-01T12:00"):
        parse_past("yesterday", 0.0)


@pytest.mark.parametrize(
    ("needs", "words"),
    [
        (Needs(1, 8 * 10**9, gpu_share=3), "1x:8G 1/3"),
        (Needs(1, 8 * 10**9, nodes=("node2",), indices=(0,), gpu_share=3), "node2::0:8G 1/3"),
        (Needs(1, 8 * 10**9, nodes=("node2",), indices=(0,)), "node2::0:8G"),
    ],
)
def test_what_a_task_that_shares_its_gpu_wants_is_short(needs: Needs, words: str) -> None:
    assert str(needs) == words
