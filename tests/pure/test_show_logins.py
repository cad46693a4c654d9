"""`agentless show` and a task that many have logged in to."""

from __future__ import annotations

from agentless.cli.tasks.show import without_old_logins


def history(*events: str) -> list[dict[str, str]]:
    return [{"event": event} for event in events]


def test_the_last_logins_are_shown_and_the_others_counted() -> None:
    many = ["ssh-opened", "ssh-closed"] * 100
    shown, hidden = without_old_logins(history("launched", *many, "exited"))
    assert shown == history("launched", *many[:6], "exited")
    assert hidden == 97


def test_few_logins_are_all_shown() -> None:
    few = history("launched", "ssh-opened", "ssh-closed", "ssh-opened")
    assert without_old_logins(few) == (few, 0)
