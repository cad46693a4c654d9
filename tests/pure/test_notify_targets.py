"""The targets of notifications in an inventory: what each means, and what is refused without showing a secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentless.errors import InventoryError
from agentless.inventory.inventory import load
from agentless.model.notify import NotifyTarget


def targets(folder: Path, text: str) -> dict[str, NotifyTarget]:
    path = folder / "inventory.yaml"
    path.write_text(f"version: 1\nnodes: {{a: {{host: h}}}}\nnotify:\n  t: {text}\n")
    return dict(load(path).notify)


def message(folder: Path, text: str) -> str:
    with pytest.raises(InventoryError) as caught:
        targets(folder, text)
    return str(caught.value)


def test_each_kind_of_target(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HOME", "/home/ann")
    of = {
        "{command: ~/bin/tell --all, events: [start, fail], owners: [ann, bob@desk]}": NotifyTarget(
            "t",
            "command",
            frozenset({"start", "fail"}),
            ("ann", "bob@desk"),
            ("/home/ann/bin/tell", "--all"),
        ),
        "{webhook: 'https://h.example/x?y', token_file: token}": NotifyTarget(
            "t", "webhook", url="https://h.example/x?y", token_file=f"{tmp_path}/token"
        ),
        "{slack: ~/slack}": NotifyTarget("t", "slack", url_file="/home/ann/slack"),
        "{discord: /etc/discord, events: []}": NotifyTarget("t", "discord", frozenset(), url_file="/etc/discord"),
        "{ntfy: 'http://127.0.0.1:80/gpu'}": NotifyTarget("t", "ntfy", url="http://127.0.0.1:80/gpu"),
        "{mail: [ann@example.com, root], sender: gpu@example.com, sendmail: msmtp -a work}": NotifyTarget(
            "t",
            "mail",
            command=("msmtp", "-a", "work"),
            to=("ann@example.com", "root"),
            sender="gpu@example.com",
        ),
    }
    for text, target in of.items():
        assert targets(tmp_path, text) == {"t": target}


def test_owners_are_named_with_or_without_their_machine() -> None:
    target = NotifyTarget("t", "mail", owners=("ann", "bob@desk"))
    heard = [owner for owner in ("ann", "ann@laptop", "bob", "bob@desk", "bob@x", "anna") if target.hears_of(owner)]
    assert heard == ["ann", "ann@laptop", "bob@desk"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("{}", "4:6: notify.t: needs exactly one of command, webhook, slack, discord, ntfy and mail"),
        ("{slack: a, ntfy: b}", "4:6: notify.t: needs exactly one of command, webhook, slack, discord, ntfy and mail"),
        ("{slak: a}", "4:7: notify.t.slak: unknown key 'slak'; did you mean 'slack'?"),
        ("5", "4:6: notify.t: must be a mapping, like {ntfy: https://ntfy.sh/my-topic, events: [fail]}"),
        ("{mail: ann}", "4:13: notify.t.mail: is 'ann'; must be a list, like [ann@example.com] or [end, fail]"),
        ("{mail: []}", "4:13: notify.t.mail: must have 1 to 32 recipients"),
        (
            "{mail: ['-oQ/x']}",
            "4:14: notify.t.mail[0]: must be an address like ann@example.com, or a user of this machine",
        ),
        ("{mail: [a], token_file: x}", "4:6: notify.t: mail takes no token_file; remove it"),
        ("{ntfy: x, sender: a}", "4:6: notify.t: only mail has a sender or sendmail; remove them"),
        ("{command: ''}", "4:16: notify.t.command: must be a program with its arguments, like 'notify-send agentless'"),
        (
            "{ntfy: x, owners: ['-']}",
            "4:25: notify.t.owners[0]: must be an owner as in agentless ps, like ann or ann@laptop",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(tmp_path, text, wrong) -> None:
    assert message(tmp_path, text) == f"{tmp_path}/inventory.yaml:{wrong}"


def test_an_unknown_event_is_refused_with_the_nearest_one(tmp_path) -> None:
    assert message(tmp_path, "{ntfy: x, events: [fial]}").endswith(
        "notify.t.events[0]: is 'fial'; must be 'start', 'end', 'fail', 'preempt' or 'lost'; did you mean 'fail'?"
    )


@pytest.mark.parametrize("kind", ["slack", "discord", "webhook", "ntfy"])
@pytest.mark.parametrize(
    "secret", ["https://ann:s3cret@h.example/x", "https:///s3cret", "https://h:x/s3cret", "ftp://h/s3cret"]
)
def test_a_refused_address_is_not_shown(tmp_path, kind, secret) -> None:
    assert "s3cret" not in message(tmp_path, f"{{{kind}: '{secret}'}}")


def test_an_address_in_place_of_a_target_is_not_shown(tmp_path) -> None:
    assert "s3cret" not in message(tmp_path, "https://hooks.slack.com/services/s3cret")


def test_the_address_of_a_chat_is_never_in_the_inventory(tmp_path) -> None:
    wrong = message(tmp_path, "{slack: 'https://hooks.slack.com/services/s3cret'}")
    assert wrong.endswith("notify.t.slack: must be the path of a file with the address, since the address is a secret")


def test_a_target_does_not_show_its_address() -> None:
    assert "s3cret" not in repr(NotifyTarget("t", "ntfy", url="https://ntfy.sh/s3cret"))


def test_there_is_a_limit_of_targets(tmp_path) -> None:
    path = tmp_path / "inventory.yaml"
    many = "".join(f"  t{number}: {{ntfy: x}}\n" for number in range(33))
    path.write_text(f"version: 1\nnodes: {{a: {{host: h}}}}\nnotify:\n{many}")
    with pytest.raises(InventoryError, match="notify: has 33 targets; the limit is 32"):
        load(path)
