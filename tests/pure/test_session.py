"""What is decided on the way to a node without reaching it: when to try again, which way, which keys, whom to trust."""

from __future__ import annotations

import asyncio
import base64
import hmac
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import HostKeyRejected, Refused, Unreachable
from agentless.model.command import Command
from agentless.model.nodes.node import NodeConfig
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from agentless.remote.transports._link import SshTransport
from agentless.remote.transports._pool import NotStarted, Pool
from agentless.remote.transports._ssh import known_hosts
from agentless.remote.transports._ssh.keys import Encrypted, offer
from agentless.remote.transports._ssh.route import routes
from agentless.rules.nodes.backoff import backoff

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIHMW0JpAHlA1g1cQeKwyCtlb0C3uQjv8mPZ0pJQ0bX1a"
OTHER = "ssh-rsa AAAAB3NzaC1yc2EAAAADAQABAAAAgQC7"


# ---------------------------------------------------------------------- when to try again


@given(st.integers(0, 10_000), st.floats(0, 1, exclude_max=True))
def test_backoff_is_never_nothing_and_never_long(attempt, random):
    assert 0.25 <= backoff(attempt, random) <= 30.0


def test_backoff_doubles_up_to_half_a_minute():
    assert [backoff(attempt, 0.0) for attempt in (0, 1, 2, 5, 6, 1000)] == [0.5, 1, 2, 16, 30, 30]


def test_backoff_spreads():
    assert backoff(6, 0.9) == pytest.approx(16.5)


# ---------------------------------------------------------------------- what answers


class Liar:
    """A node on which something else than a shell answers: it knows the mark, since that was sent to it."""

    def __init__(self, number: bytes) -> None:
        self._number, self._mark, self.alive = number, b"", True

    async def connect(self) -> None: ...

    async def close(self) -> None: ...

    async def shell(self, **_: bool) -> Liar:
        return self

    async def write(self, data: bytes) -> None:
        self._mark = self._mark or next(word for word in data.split() if word.endswith(b"=") and len(word) > 9)

    async def read(self) -> tuple[int, bytes]:
        return 1, self._mark + self._number + b";"


@pytest.mark.parametrize("number", [b"junk", b"", b"-1", b"1" * 5000, "١".encode()])
async def test_what_answers_with_no_number_is_no_shell(number):
    session = Session(Liar(number))
    await session.connect()
    with pytest.raises(Unreachable, match="unexpected answer from the shell"):
        await session.run(Command("true"))


def test_a_node_that_sends_too_much_is_told_with_the_programs_that_are_run_there():
    session = Session(Liar(b"1"), "n1", ("docker", "nvidia-smi"))
    words = "n1 sends too many error messages; check the output of docker, nvidia-smi and the shell there"
    assert str(session.flooded("sends too many error messages")) == words


# ---------------------------------------------------------------------- which way


@pytest.fixture
def way(tmp_path, monkeypatch):
    """The way to a node, by the configuration that is given."""
    monkeypatch.setattr("getpass.getuser", lambda: "me")
    monkeypatch.setattr("agentless.remote.transports._ssh.config.SYSTEM_CONFIG", tmp_path / "system")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    (tmp_path / ".ssh").mkdir()

    def way(config: str = "", host: str = "gpu1", **node):
        (tmp_path / ".ssh/config").write_text(config)
        return routes(NodeConfig("node1", host, **node), SshFiles(tmp_path, tmp_path / "ours"))[0]

    return way


def logins(hops):
    return [f"{hop.user}@{hop.host}:{hop.port}" for hop in hops]


def test_without_a_configuration_it_is_as_ssh_would(way, tmp_path):
    (hop,) = way()
    assert logins([hop]) == ["me@gpu1:22"]
    assert hop.defaults[0] == tmp_path / ".ssh/id_ed25519"
    assert hop.known_hosts[0] == tmp_path / ".ssh/known_hosts"
    assert hop.known_hosts[-1] == tmp_path / "ours"
    assert (hop.identities, hop.agent, hop.proxy_command) == ((), None, None)


def test_the_first_value_counts(way):
    assert logins(way("Host gpu*\n User a\nHost *\n User b\n Port 2200\n")) == ["a@gpu1:2200"]


def test_the_inventory_comes_before_the_configuration(way, tmp_path):
    config = "Host gpu1\n User a\n Port 1\n IdentityFile ~/a\n ProxyJump away\n HostName real\n"
    hops = way(config, user="b", port=2, identity_file="~/b", jump="c@bastion:3")
    assert logins(hops) == ["c@bastion:3", "b@real:2"]
    assert hops[-1].identities == (tmp_path / "b", tmp_path / "a")


@pytest.fixture
def names(monkeypatch):
    """The names that have an address."""
    known = {"gpu1.lab.example", "gpu2.old.example", "10.0.0.11.lab.example"}

    def look_up(name, _):
        if name.removesuffix(".") not in known:
            raise OSError
        return [name]

    monkeypatch.setattr("socket.getaddrinfo", look_up)


DOMAINS = "CanonicalDomains lab.example old.example\nHost *.lab.example\n User ann\nMatch canonical\n Port 2200\n"


@pytest.mark.parametrize(
    ("config", "host", "login"),
    [
        ("CanonicalizeHostname yes\n", "gpu1", "ann@gpu1.lab.example:2200"),
        ("CanonicalizeHostname yes\n", "gpu2", "me@gpu2.old.example:2200"),
        ("CanonicalizeHostname yes\n", "gpu3", "me@gpu3:22"),
        ("CanonicalizeHostname yes\n", "a.b.gpu1", "me@a.b.gpu1:22"),
        ("CanonicalizeHostname yes\nCanonicalizeMaxDots 3\n", "10.0.0.11", "me@10.0.0.11:22"),
        ("CanonicalizeHostname no\n", "gpu1", "me@gpu1:22"),
        ("", "gpu1", "me@gpu1:22"),
        ("Host gpu1\n User bob\nHost *\nCanonicalizeHostname yes\n", "gpu1", "bob@gpu1.lab.example:2200"),
        ("Host x\n HostName gpu1\nHost *\nCanonicalizeHostname yes\n", "x", "ann@gpu1.lab.example:2200"),
        ("CanonicalizeHostname yes\nProxyCommand nc %h\n", "gpu1", "me@gpu1:22"),
        ("CanonicalizeHostname always\nProxyCommand nc %h\n", "gpu1", "ann@gpu1.lab.example:2200"),
    ],
)
def test_a_short_name_becomes_the_full_one_where_the_configuration_wants_it(way, names, config, host, login):
    assert logins(way(config + DOMAINS, host)) == [login]


def test_a_key_that_both_names_have_is_tried_once(way, names, tmp_path):
    (hop,) = way(f"CanonicalizeHostname yes\nIdentityFile ~/a\n{DOMAINS}IdentityFile ~/b\n")
    assert hop.identities == (tmp_path / "a", tmp_path / "b")


def test_negated_and_single_character_patterns(way):
    config = "Host gpu? !gpu2\n User a\nHost *\n User b\n"
    assert [logins(way(config, host)) for host in ("gpu1", "gpu2", "gpu10")] == [
        ["a@gpu1:22"],
        ["b@gpu2:22"],
        ["b@gpu10:22"],
    ]


@pytest.mark.parametrize(
    ("criteria", "applies"),
    [
        ("all", True),
        ("host real", True),
        ("host gpu1", False),
        ("originalhost gpu1", True),
        ("originalhost gpu1 user x", False),
        ("!host other localuser me", True),
        ("exec true", True),
        ('exec "test %n = gpu1"', True),
        ('exec "test %n = gpu2"', False),
        ("canonical", False),
        ("tagged x", False),
    ],
)
def test_match(way, criteria, applies):
    assert logins(way(f"HostName real\nMatch {criteria}\n Port 2\n")) == [f"me@real:{2 if applies else 22}"]


def test_an_included_file_holds_where_it_is_included(way, tmp_path):
    (tmp_path / ".ssh/more").write_text("User a\nHost other\n User b\n")
    assert logins(way("Host gpu1\n Include more\n Port 2\n")) == ["a@gpu1:2"]
    assert logins(way("Host gpu2\n Include more\n", "other")) == ["me@other:22"]


def test_a_file_that_includes_itself_ends(way, tmp_path):
    assert logins(way("Include config\nPort 2\n")) == ["me@gpu1:2"]


def test_tokens_and_variables_in_paths(way, tmp_path, monkeypatch):
    monkeypatch.setenv("WHERE", "here")
    config = 'HostName %h.lab\nUser u\nIdentityFile "~/a b/%r@%h"\nIdentityFile ${WHERE}/%n\nIdentityAgent %d/agent\n'
    (hop,) = way(config)
    assert hop.identities == (tmp_path / "a b/u@gpu1.lab", Path("here/gpu1"))
    assert hop.agent == str(tmp_path / "agent")


@pytest.mark.parametrize(("value", "agent"), [("none", None), ("SSH_AUTH_SOCK", "/a"), ("$OTHER", "/b"), ("/c", "/c")])
def test_which_agent(way, monkeypatch, value, agent):
    monkeypatch.setenv("SSH_AUTH_SOCK", "/a")
    monkeypatch.setenv("OTHER", "/b")
    assert way(f"IdentityAgent {value}\n")[0].agent == agent
    assert way()[0].agent == "/a"


def test_a_proxy_command_keeps_its_quotes(way):
    (hop,) = way('ProxyCommand sh -c "nc %h %p # %%"\n', port=5)
    assert hop.proxy_command == 'sh -c "nc gpu1 5 # %"'


def test_a_jump_host_has_a_configuration_and_a_jump_host_of_its_own(way):
    config = "Host gpu1\n ProxyJump b\nHost b\n HostName bastion\n User x\n ProxyJump outer:5\n"
    assert logins(way(config)) == ["me@outer:5", "x@bastion:22", "me@gpu1:22"]


def test_a_chain_of_jump_hosts(way):
    assert logins(way(jump="a,x@b:3")) == ["me@a:22", "x@b:3", "me@gpu1:22"]


def test_none_takes_the_way_back_that_the_configuration_gives(way):
    assert logins(way("Host gpu1\n ProxyJump bastion\n", jump="none")) == ["me@gpu1:22"]
    assert logins(way("Host gpu1\n ProxyJump none\nHost *\n ProxyJump bastion\n")) == ["me@gpu1:22"]


def test_jump_hosts_in_a_circle(way):
    with pytest.raises(Unreachable, match="gpu1:22 → b:22 → gpu1:22"):
        way("Host gpu1\n ProxyJump b\nHost b\n ProxyJump gpu1\n")


@pytest.mark.parametrize("jump", ["a b", "host:port", "-oProxyCommand=x"])
def test_a_jump_host_that_cannot_be_meant(way, jump):
    with pytest.raises(Unreachable, match="invalid jump host"):
        way(jump=jump)


def test_a_port_that_cannot_be_meant(way):
    with pytest.raises(Unreachable, match="invalid Port 'ssh'"):
        way("Port ssh\n")


@pytest.mark.parametrize("config", ["ProxyCommand ssh -W %h:%p bastion\n", "Host !b *\n ProxyJump b\n", ""])
async def test_ten_start_at_once_through_the_same_machine(way, monkeypatch, config):
    hosts = [f"gpu{n}" for n in range(30)]
    files = SshFiles(way(config)[0].known_hosts[-1].parent, Path("/nonexistent"))
    started, may_end = [], asyncio.Event()

    async def at_once(function, *args):
        return function(*args)

    class Login:
        alive = True
        single = False

        async def close(self):
            pass

    async def dial(hop, through):
        if hop.host in hosts:
            started.append(hop.host)
            await may_end.wait()
        return Login()

    monkeypatch.setattr(asyncio, "to_thread", at_once)
    transports = [SshTransport(NodeConfig(host, host), files, dial) for host in hosts]
    connecting = asyncio.gather(*(transport.connect() for transport in transports))
    for _ in range(1000):
        await asyncio.sleep(0)
    assert len(started) == (10 if config else 30)
    may_end.set()
    await connecting
    assert sorted(started) == sorted(hosts)
    for transport in transports:
        await transport.close()


@pytest.mark.parametrize("failures", [2, 3])
async def test_a_session_in_which_nothing_was_started_is_asked_for_again(failures):
    asked = []

    class Login:
        alive = True
        single = False

        async def open(self):
            return self

        async def close(self):
            pass

        async def start(self):
            asked.append(self)
            if len(asked) <= failures:
                raise NotStarted("gpu1 cannot run commands")
            return "started"

    pool = Pool("gpu1", Login)
    starting = pool.session(lambda login, _: login.start())
    if failures == 2:
        assert await starting == "started"
    else:
        with pytest.raises(Refused, match="gpu1 cannot run commands"):
            await starting
    assert len(asked) == 3


async def test_a_server_of_one_session_on_a_connection_has_one_for_each_and_ends_it_with_it():
    open_now = set()

    class Login:
        single = True
        alive = False

        async def open(self):
            self.alive = True
            open_now.add(self)
            return self

        async def close(self):
            self.alive = False
            open_now.discard(self)

    pool = Pool("gpu1", Login)
    await pool.open()
    ends = []

    async def start(login, closed):
        ends.append(closed)
        return login

    sessions = [await pool.session(start) for _ in range(4)]
    assert len(set(sessions)) == len(open_now) == 4
    for end in ends:
        end()
    await asyncio.sleep(0)
    assert open_now == set()
    assert pool.alive
    assert await pool.session(start) not in sessions
    await pool.close()


# ---------------------------------------------------------------------- which keys


@pytest.fixture
def offered(way, tmp_path):
    """What is offered; the agent's keys are their public parts, those on file their names."""

    class Library:
        def load(self, path: Path) -> bytes:
            if path.name.startswith("locked"):
                raise Encrypted
            return path.read_bytes() and path.name.encode()

        def blob(self, key: bytes) -> bytes:
            return key

        def certify(self, key: bytes, _: Path) -> bytes:
            return key

    for name, public in {"a": b"A", "b": b"B", "locked": b"L"}.items():
        (tmp_path / name).write_text("private")
        (tmp_path / f"{name}.pub").write_text(f"ssh-ed25519 {base64.b64encode(public).decode()}")

    def offered(config: str, *held: bytes):
        return offer(way(config)[0], held, Library())

    return offered


def test_a_named_key_comes_before_those_of_the_agent(offered):
    assert offered("IdentityFile ~/a\n", b"X", b"Y")[0] == [b"a", b"X", b"Y"]


def test_a_named_key_that_the_agent_holds_comes_from_it_and_first(offered):
    keys, tried = offered("IdentityFile ~/locked\n", b"X", b"L")
    assert keys == [b"L", b"X"]
    assert tried.locked == {}


def test_with_identities_only_the_agent_offers_named_keys(offered):
    assert offered("IdentitiesOnly yes\nIdentityFile ~/locked\nIdentityFile ~/a\n", b"X", b"L")[0] == [b"L", b"a"]


def test_what_could_not_be_offered_is_remembered(offered, tmp_path):
    keys, tried = offered("IdentityFile ~/locked\nIdentityFile ~/gone\n")
    assert keys == []
    assert tried.locked == {tmp_path / "locked": "encrypted"}
    assert tried.unusable == [f"{tmp_path}/gone does not exist"]


def test_a_default_key_that_is_not_there_is_not_mentioned(offered):
    assert offered("")[1].unusable == []


def test_a_key_that_is_named_twice_is_offered_once(way):
    (hop,) = way("IdentityFile ~/a\nIdentityFile %d/a\n")
    assert [path.name for path in hop.identities] == ["a"]


# ---------------------------------------------------------------------- whom to trust


def hashed(name: str) -> str:
    """As `ssh-keygen -H` and HashKnownHosts write it."""
    salt = b"0123456789abcdefghij"
    parts = (salt, hmac.new(salt, name.encode(), "sha1").digest())
    return "|1|" + "|".join(base64.b64encode(part).decode() for part in parts)


def on_record(tmp_path, text: str, host: str = "gpu1", port: int = 22, alias: str | None = None):
    (tmp_path / "known").write_text(text)
    return known_hosts.read([tmp_path / "gone", tmp_path / "known"], host, port, alias)


@pytest.mark.parametrize(
    ("line", "host", "port", "alias"),
    [
        (f"gpu1 {KEY}", "gpu1", 22, None),
        (f"GPU1,10.0.0.1 {KEY} a comment", "Gpu1", 22, None),
        (f"*.lab,!x.lab {KEY}", "y.lab", 22, None),
        (f"[gpu1]:2222 {KEY}", "gpu1", 2222, None),
        (f"{hashed('gpu1')} {KEY}", "gpu1", 22, None),
        (f"{hashed('[gpu1]:2222')} {KEY}", "gpu1", 2222, None),
        (f"[*]:22?? {KEY}", "gpu1", 2222, None),
        (f"gpu1 {KEY}", "gpu1", 2222, None),
        (f"the-name {KEY}", "gpu1", 2222, "the-name"),
        (f"# a comment\n\nnonsense\nx y not*base64\ngpu1 {KEY}", "gpu1", 22, None),
    ],
)
def test_a_recorded_key_is_trusted(tmp_path, line, host, port, alias):
    on_record(tmp_path, line, host, port, alias).check(KEY, "node1")


def test_a_key_in_two_files_is_told_once(tmp_path):
    old, new = ("ssh-ed25519 " + base64.b64encode(word).decode() for word in (b"old", b"new"))
    keys = known_hosts.KnownHosts("host", ((old, tmp_path / "a"), (old, tmp_path / "b")))
    with pytest.raises(HostKeyRejected) as caught:
        keys.check(new, "node1")
    assert len(caught.value.recorded) == 1


@pytest.mark.parametrize(
    ("line", "host", "port", "alias"),
    [
        ("", "gpu1", 22, None),
        (f"gpu10 {KEY}", "gpu1", 22, None),
        (f"*.lab,!x.lab {KEY}", "x.lab", 22, None),
        (f"[gpu1]:2222 {KEY}", "gpu1", 22, None),
        (f"gpu1 {KEY}", "gpu1", 22, "the-name"),
        (f"gpu1 {OTHER}", "gpu1", 2222, None),
        (f"@cert-authority gpu1 {KEY}", "gpu1", 22, None),
    ],
)
def test_a_key_that_is_not_recorded_is_unknown(tmp_path, line, host, port, alias):
    with pytest.raises(HostKeyRejected, match="unknown host key") as caught:
        on_record(tmp_path, line, host, port, alias).check(KEY, "node1")
    assert caught.value.recorded == ()


def test_another_key_than_recorded_has_changed(tmp_path):
    with pytest.raises(HostKeyRejected, match="has changed") as caught:
        on_record(tmp_path, f"gpu1 {OTHER}").check(KEY, "node1")
    assert caught.value.recorded == (known_hosts.fingerprint(OTHER),)


def test_a_key_that_is_recorded_beside_another_one_is_trusted(tmp_path):
    on_record(tmp_path, f"gpu1 {OTHER}\ngpu1 {KEY}").check(KEY, "node1")


def test_a_revoked_key_is_refused_even_where_it_is_recorded(tmp_path):
    with pytest.raises(HostKeyRejected, match="revoked"):
        on_record(tmp_path, f"gpu1 {KEY}\n@revoked * {KEY}").check(KEY, "node1")


def test_the_kind_of_key_that_is_recorded_is_asked_for_first(tmp_path):
    assert on_record(tmp_path, f"gpu1 {OTHER}").algorithms()[:2] == ["rsa-sha2-512", "rsa-sha2-256"]
    assert on_record(tmp_path, "").algorithms()[0] == "ssh-ed25519"
    assert "ssh-rsa" not in on_record(tmp_path, f"gpu1 {OTHER}").algorithms()
