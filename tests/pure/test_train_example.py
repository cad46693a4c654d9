"""The example that trains: it saves at SIGTERM and goes on, and its results become a table. Without PyTorch, here."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "train"


def python(folder, *words):
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


def epochs(text):
    return [int(number) for number in re.findall(r"^epoch (\d+): loss [\d.]+$", text, re.MULTILINE)]


def test_a_training_that_is_stopped_goes_on_where_it_was(tmp_path):
    words = [sys.executable, EXAMPLE / "train.py", "--width", "2", "--epochs", "40"]
    with subprocess.Popen([*words, "--pause", "0.05"], cwd=tmp_path, stdout=-1, text=True) as training:
        until_the_second = [training.stdout.readline() for _ in range(3)]
        training.send_signal(signal.SIGTERM)
        first = "".join([*until_the_second, *training.stdout])
        assert training.wait() == 128 + signal.SIGTERM
    saved = int(re.search(r"SIGTERM: saved after epoch (\d+)$", first).group(1))
    assert epochs(first) == [*range(1, saved + 1)]
    assert not (tmp_path / "results").exists()
    second = python(tmp_path, *words[1:])
    assert f"going on after epoch {saved}\n" in second
    assert epochs(second) == [*range(saved + 1, 41)]
    (result,) = (tmp_path / "results").glob("*.json")
    whole = tmp_path / "whole"
    whole.mkdir()
    assert second.splitlines()[-1] == python(whole, *words[1:]).splitlines()[-1], "as one that was not stopped"
    assert json.loads(result.read_text())["epochs"] == 40


def test_the_results_of_a_sweep_are_a_table_with_the_best_first(tmp_path):
    for lr in ("0.1", "0.001"):
        python(tmp_path, EXAMPLE / "train.py", "--lr", lr, "--width", "4", "--epochs", "3")
    diverged = {"lr": 9, "width": 4, "seed": 1, "loss": None, "epochs": 3, "seconds": 0.1, "device": "cpu"}
    (tmp_path / "results" / "task").mkdir()
    (tmp_path / "results" / "task" / "lr=9.json").write_text(json.dumps(diverged))
    head, *rows = python(tmp_path, EXAMPLE / "collect.py", "results").splitlines()
    assert head.split() == [*diverged]
    assert [row.split()[0] for row in rows] == ["0.1", "0.001", "9"]
