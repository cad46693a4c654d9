"""Public keys of a VPS: what is one, what is none, and whom they let in."""

from __future__ import annotations

import base64
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless import errors
from agentless.model.containers.claim import DAMAGED, labels_of, task_of
from agentless.model.containers.container import Container
from agentless.model.scheduling.needs import Needs
from agentless.model.tasks.public_key import MAX_KEY_BYTES, parse_public_key, parse_public_keys
from agentless.model.tasks.spec import TaskSpec, check_spec
from agentless.model.tasks.task import Placement, Task
from agentless.rules.submit.options import Options
from agentless.rules.submit.task_request import Outside, task_request
from agentless.rules.tasks.entry import gate_of


def string(*parts):
    return b"".join(len(part).to_bytes(4, "big") + part for part in parts)


def written(kind, *parts, comment=""):
    """A line of a .pub file."""
    return f"{kind} {base64.b64encode(string(kind.encode(), *parts)).decode()} {comment}".strip()


ED25519 = written("ssh-ed25519", bytes(range(32)), comment="anna@desk")
OTHER = written("ssh-ed25519", bytes(32))
WEAK = written("ssh-rsa", b"\1\0\1", b"\0" + b"\xff" * 128)
PRIVATE = ["-----BEGIN OPENSSH PRIVATE KEY-----", "b3BlbnNzaC1rZXktdjE=", "-----END OPENSSH PRIVATE KEY-----", ""]
VPS = TaskSpec((), name="dev", workload="vps", needs=Needs(nodes=("node1",)))


@pytest.mark.parametrize(
    "words", [("ed25519",), ("ecdsa", "-b", "384"), ("rsa", "-b", "2048")], ids=lambda words: words[0]
)
def test_a_key_is_shown_as_ssh_keygen_shows_it(words, tmp_path):
    file = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-C", "a b", "-f", file, "-t", *words], check=True)
    listed = subprocess.run(["ssh-keygen", "-lf", f"{file}.pub"], capture_output=True, text=True, check=True).stdout
    assert f"{parse_public_key(file.with_suffix('.pub').read_text())}\n" == listed


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (PRIVATE[0], "this is a private key; give the public one"),
        (written("ssh-dss", b"1", b"2", b"3", b"4"), "DSA keys are too weak"),
        (WEAK, "an RSA key of 1024 bits is too weak"),
        (f'command="reboot" {ED25519}', "options in front of a key"),
        (f"restrict,pty {ED25519}", "options in front of a key"),
        (written("ssh-ed25519-cert-v01@openssh.com", b"1"), "certificates are not supported"),
        (ED25519[:60], "this ssh-ed25519 key is damaged"),
        (ED25519.replace("AAAA", "AA!A"), "this ssh-ed25519 key is damaged"),
        ("ssh-ed25519", "this ssh-ed25519 key is damaged"),
        (ED25519.replace("ssh-ed25519 ", "ecdsa-sha2-nistp256 "), "this ecdsa-sha2-nistp256 key is damaged"),
        (written("ssh-ed25519", bytes(32), b"more"), "this ssh-ed25519 key is damaged"),
        ("", "this is not a public key"),
        ("hello", "this is not a public key"),
    ],
)
def test_what_is_no_key_is_a_sentence(text, words):
    with pytest.raises(errors.UsageError) as refused:
        parse_public_key(text)
    assert words in str(refused.value)


@given(st.one_of(st.text(), st.binary().map(lambda data: f"ssh-rsa {base64.b64encode(data).decode()}")))
def test_any_text_is_a_key_or_a_sentence(text):
    try:
        shown = str(parse_public_key(text))
    except errors.UsageError as error:
        shown = str(error)
    assert shown.isprintable()


def test_a_list_of_keys_has_limits():
    assert len(parse_public_keys([ED25519] * 32)) == 32
    with pytest.raises(errors.UsageError, match="33 public keys; the limit is 32"):
        parse_public_keys([ED25519] * 33)
    with pytest.raises(errors.UsageError, match="the limit is 16,384"):
        parse_public_keys([f"{OTHER} {'x' * MAX_KEY_BYTES}"])


def ask(files=None, workload="vps", **options):
    outside = Outside(0.0, {}, (files or {}).__getitem__)
    return task_request((), ["node1"], Options(name="dev", **options), outside, workload).spec


def test_keys_come_from_files_and_strings_without_comments_and_none_twice():
    files = {"a.pub": ["# those of the lab", "", f"  {ED25519}"], "b.pub": [ED25519, ""]}
    spec = ask(files, public_key_file=["a.pub", "b.pub"], public_key_string=f"{OTHER}\n")
    assert spec.public_keys == (ED25519, OTHER)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"public_key_file": "id"}, "--public-key-file id: this is a private key; give the public one"),
        ({"public_key_file": "empty"}, "--public-key-file empty: no public key in it"),
        ({"public_key_file": "comments"}, "--public-key-file comments: no public key in it"),
        ({"public_key_string": ""}, "--public-key-string: no public key in it"),
        ({"public_key_string": ED25519, "no_ssh": True}, "--no-ssh admits nobody"),
        ({"public_key_string": 7}, "--public-key-string must be a string, not 7"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence_without_the_secret(options, words):
    files = {"id": PRIVATE, "empty": [""], "comments": ["# nothing"]}
    with pytest.raises(errors.UsageError) as refused:
        ask(files, **options)
    assert words in str(refused.value)
    assert PRIVATE[1] not in str(refused.value)


def test_only_a_vps_has_them():
    for changes in ({"no_ssh": True}, {"public_keys": (ED25519,)}):
        with pytest.raises(errors.UsageError, match="only a VPS has public keys"):
            check_spec(replace(VPS, workload=None, command=("true",), **changes))


def as_others_see_it(spec):
    """The task that another controller reads from the labels."""
    labels = labels_of(Task("0" * 12, spec, "0" * 12, "anna@desk", 0.0), Placement("node1"), "hers")
    found = task_of(Container("a" * 64, "agentless-0", "running", labels), "n1", 1.0)
    assert found
    return found


def test_another_controller_asks_for_one_of_the_keys_and_its_own_for_none():
    task = as_others_see_it(replace(VPS, public_keys=(ED25519,)))
    assert gate_of(task, ours=True) is None
    gate = gate_of(task, ours=False)
    assert gate
    assert gate.keys == {parse_public_key(ED25519).blob}
    assert "VPS dev of anna@desk admits only listed keys" in gate.unlisted


def test_a_plain_task_asks_for_nothing():
    assert gate_of(as_others_see_it(replace(VPS, workload=None, command=("true",))), ours=False) is None


@pytest.mark.parametrize("keys", [(), (ED25519, "ssh-ed25519 AAAA"), (ED25519,) * 33, (f"\n{WEAK}",)])
def test_a_list_that_nobody_could_have_made_lets_nobody_in(keys):
    with pytest.raises(errors.Refused, match="VPS dev of anna@desk admits nobody else by ssh"):
        gate_of(as_others_see_it(replace(VPS, public_keys=keys)), ours=False)


@pytest.mark.parametrize("ours", [True, False])
def test_with_no_ssh_nobody_enters(ours):
    with pytest.raises(errors.Refused, match="for a shell, run: agentless shell 0"):
        gate_of(as_others_see_it(replace(VPS, no_ssh=True)), ours=ours)


def test_names_of_others_cannot_write_on_a_terminal():
    with pytest.raises(errors.Refused) as refused:
        gate_of(as_others_see_it(replace(VPS, name="\x1b[2J\n" * 100)), ours=False)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 400


def test_who_may_enter_is_unknown_if_the_labels_cannot_be_read():
    with pytest.raises(errors.Refused, match="not known who may enter"):
        gate_of(as_others_see_it(replace(VPS, workload=None, command=(DAMAGED,))), ours=False)
