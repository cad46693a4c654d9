"""What was typed and cannot be meant is answered with what was probably meant, or where to read on."""

from __future__ import annotations

import pytest

from agentless.cli.app import run
from agentless.errors import UsageError
from agentless.model.moment import parse_past
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.rules.views.nearest import nearest


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("squeue", "unknown command 'squeue' (did you mean ps or queue?); see agentless --help"),
        ("-i lab.yaml lgos", "unknown command 'lgos' (did you mean 'logs'?); see agentless --help"),
        ("frobnicate", "unknown command 'frobnicate'; see agentless --help"),
        ("help lgos", "unknown command 'lgos' (did you mean 'logs'?); see agentless --help"),
        ("nodes drian n1", "unknown command 'drian' (did you mean 'drain'?); see agentless nodes --help"),
        ("ps --al", "unknown option '--al' (did you mean '--all'?); see agentless ps --help"),
        ("ps --frobnicate", "unknown option '--frobnicate'; see agentless ps --help"),
        ("submit --gpsu 1 -- true", "unknown option '--gpsu' (did you mean '--gpus'?); see agentless submit --help"),
        (
            "submit n1 python --warmup 3",
            "unknown option '--warmup'; write the command after '--'; see agentless submit --help",
        ),
        ("--verison", "unknown option '--verison' (did you mean '--version'?); see agentless --help"),
        ("exec train", "no command; write it after the task: agentless exec train nvidia-smi"),
        ("stop --all train", "--all stops all tasks; leave out the task ids and --batch"),
        ("stop --yes train", "--yes needs --all: agentless stop --all --yes"),
        ("ps -q --json", "--quiet, --watch and -o cannot be combined; use one of them"),
        ("submit 1x --gpus", "Option '--gpus' requires an argument; see agentless submit --help"),
        ("nodes drain", "Missing argument 'NODE...'; see agentless nodes drain --help"),
    ],
)
def test_what_is_no_command_line_is_told_what_would_be(
    typed: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (run(typed.split()), capsys.readouterr().err) == (2, f"agentless: {said}\n")


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
