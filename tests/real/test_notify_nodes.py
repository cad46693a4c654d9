"""Messages about tasks of real nodes: they come, a crash loses none, and the addresses are nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.hooks import hook
from tests.proc import process_files
from tests.real.cli import Cli, inventory_of, until

SECRETS = (b"T000s3cret", b"tk_s3cret")


@pytest.fixture
def server():
    with hook() as server:
        yield server


@pytest.fixture
def notified(lab, server):
    """Somebody with a webhook whose address and token are in files, and with mail."""
    cli = Cli(lab, "notified", None)
    files = {"address": f"{server.url}/T000s3cret", "token": "tk_s3cret", "sendmail": "#!/bin/sh\nexec cat >>~/mail\n"}
    cli.config.mkdir(parents=True)
    for name, text in files.items():
        (cli.config / name).write_text(text)
        (cli.config / name).chmod(0o700)
    cli.write_inventory(
        inventory_of(lab) + "notify:\n"
        "  hook: {webhook: address, token_file: token, events: [fail]}\n"
        f"  post: {{mail: [ann@example.com], sendmail: {cli.config}/sendmail, events: []}}\n"
    )
    yield cli
    cli.close()
    (lab.home / "mail").unlink(missing_ok=True)


def found(folder: Path) -> list[str]:
    """The files of a folder that have a secret."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in SECRETS)]


def shown_in_processes() -> list[str]:
    """Processes whose arguments have a secret."""
    shown = []
    for path in process_files("cmdline"):
        try:
            words = path.read_bytes()
        except OSError:  # it has ended
            continue
        if any(secret in words for secret in SECRETS):
            shown.append(str(path))
    return shown


def test_a_message_survives_a_crash_and_its_address_is_nowhere(notified, server):
    server.open.clear()
    task = notified.submit("node1::0", "--name", "train", "--", "sh", "-c", "exit 3")
    until(lambda: server.requests)
    assert shown_in_processes() == []
    notified.kill_controller()
    server.open.set()
    notified("ps")
    until(lambda: len(server.requests) > 1)
    first, second = server.requests
    assert first.body == second.body
    assert first.body["title"].startswith(f"{task} (train) failed with exit code 3 on node1::0 after ")
    assert (second.path, second.headers["Authorization"]) == ("/T000s3cret", "Bearer tk_s3cret")
    until(lambda: notified.json("notify", "list")[0]["waiting"] == 0)
    said = [
        notified(*words, "--json").out
        for words in (("events",), ("show", task), ("notify", "list"), ("controller", "status"), ("ps", "--all"))
    ]
    assert not any(secret.decode() in text for secret in SECRETS for text in said)
    assert found(notified.state) == []


@pytest.mark.slow
def test_doctor_and_mail(notified, server, lab):
    server.status = 410
    notified("submit", "node1::0", "--", "sh", "-c", "exit 3")
    until(lambda: notified.json("notify", "list")[0]["problem"])
    notified("submit", "node1::0", "--wait", "--notify", "end", "--name", "mailed", "--", "true")
    until(lambda: (lab.home / "mail").exists() and "mailed" in (lab.home / "mail").read_text())
    warnings = [check for check in notified.json("doctor", code=None) if check["node"] == "controller"]
    assert [(each["check"], each["verdict"]) for each in warnings] == [("notify hook", "warning")]
    assert warnings[0]["wrong"].startswith("the server answered 410 Gone; ")
    assert "agentless notify test hook" in notified("doctor", "--all", code=None).out
    assert found(notified.state) == []
