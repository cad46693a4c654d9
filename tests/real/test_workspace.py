"""Files go along with a task as they were at the submit, and what it makes comes back, whatever happens meanwhile."""

from __future__ import annotations

import subprocess

import pytest

from tests.real.cli import Cli, Done


class Person(Cli):
    """Somebody with a folder to work in."""

    def __init__(self, lab, folder, name: str = "workspace") -> None:
        super().__init__(lab, name)
        self.folder = folder

    def here(self, *words: str, code: int | None = 0) -> Done:
        """Run a command in the folder."""
        ran = subprocess.run(
            ["agentless", *words],
            env=self.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
        )
        assert "Traceback" not in ran.stderr, ran.stderr
        assert code in (None, ran.returncode), (words, ran.returncode, ran.stdout, ran.stderr)
        return Done(ran.returncode, ran.stdout, ran.stderr)

    def submit_here(self, *words: str) -> str:
        return self.here("submit", *words).out.strip()

    def said(self, task: str, event: str) -> list[str]:
        """The causes of these events of a task."""
        return [each["cause"] for each in self.get(f"/v1/tasks/{task}/events") if each["event"] == event]

    def uploaded(self, task: str) -> list[str]:
        """What was sent to the node for it."""
        events = self.get(f"/v1/tasks/{task}/events")
        return [e["task"]["reason"] for e in events if (e["task"]["reason"] or "").startswith("uploaded")]


@pytest.fixture
def ann(lab, tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    cli = Person(lab, folder)
    yield cli
    cli.close()


def test_a_folder_runs_as_if_the_gpu_were_here(ann):
    """No flag beyond the command: log, exit code, and what it has made; a repeat sends what has changed."""
    (ann.folder / "train.sh").write_text("echo training; cat data/in; echo made > out; mkdir m; echo x > m/x; exit 7\n")
    (ann.folder / "data").mkdir()
    (ann.folder / "data" / "in").write_text("input\n" * 10_000)
    (ann.folder / "junk").write_text("junk")
    (ann.folder / ".gitignore").write_text("junk\n")
    ran = ann.here("run", "--", "sh", "train.sh", code=7)
    print(ran.err)
    assert ran.out.startswith("training\ninput\n")
    assert (ann.folder / "out").read_text() == "made\n"
    assert (ann.folder / "m" / "x").read_text() == "x\n"
    assert "2 files" in ran.err
    (first,) = ann.json("ps", "--all")
    assert len(first["gpus"]) == 1
    print(ann("show", first["id"]).out)
    (ann.folder / "train.sh").write_text("ls; exit 0\n")
    ran = ann.here("run", "--", "sh", "train.sh")
    print(ran.err)
    assert ran.out.split() == ["data", "m", "out", "train.sh"]
    last = ann.json("ps", "--all")[-1]["id"]
    print(ann.uploaded(last), ann.uploaded(first["id"]))
    assert ann.uploaded(last)
