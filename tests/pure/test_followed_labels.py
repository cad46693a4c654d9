"""What stands in front of each line when several logs are shown at once."""

from __future__ import annotations

from agentless.cli.tasks.logs import _marks


def test_a_pipe_gets_labels_as_they_are():
    assert _marks({"a": "one", "b": "long-name"}, coloured=False) == {"a": b"one | ", "b": b"long-name | "}


def test_a_terminal_gets_columns_and_a_colour_for_each_label():
    found = _marks({"a": "工作", "b": "train", "c": "train", **{str(at): str(at) for at in range(30)}}, coloured=True)
    assert found["a"] == "\033[36m工作  |\033[0m ".encode()
    assert found["b"] == found["c"] == b"\033[33mtrain |\033[0m "
    assert len({*found.values()}) == 32
