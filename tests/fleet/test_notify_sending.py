"""Messages to real servers and programs of this machine, also to those that do everything but take a message."""

from __future__ import annotations

import asyncio
import datetime as dt
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import time

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from agentless.controller.notify import program, web
from agentless.controller.notify.sending import send
from agentless.errors import NotSent
from agentless.model.notify import Digest, Notice, NotifyTarget
from tests.fleet.client import gone
from tests.hooks import hook, server_of

NOTICE = Notice("fail", 1_800_000_000.0, "2mxf", "2mxf", "ann", "failed", name="train", exit_code=1)
DIGEST = Digest("m1", (NOTICE,), {"failed": 1}, name="train")


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture
def server():
    with hook() as server:
        yield server


@pytest.fixture
def secret(tmp_path):
    """Writes a secret into a file, and gives its path."""

    def write(text, mode=0o600):
        path = tmp_path / f"secret-{len(list(tmp_path.iterdir()))}"
        path.write_text(text)
        path.chmod(mode)
        return str(path)

    return write


def target(kind, **more) -> NotifyTarget:
    return NotifyTarget("t", kind, **more)


async def fails(kind, **more) -> NotSent:
    with pytest.raises(NotSent) as caught:
        await send(target(kind, **more), DIGEST)
    assert "s3cret" not in str(caught.value)
    return caught.value


# ---------------------------------------------------------------------- shapes on the wire


async def test_a_webhook_gets_json_with_the_token(server, secret):
    await send(target("webhook", url=f"{server.url}/hook?x=1", token_file=secret("tk_1\n")), DIGEST)
    (request,) = server.requests
    assert request.path == "/hook?x=1"
    assert request.headers["Authorization"] == "Bearer tk_1"
    assert request.headers["Content-Type"] == "application/json"
    assert request.headers["X-Agentless-Id"] == request.body["id"] == "m1"
    assert request.body["title"] == "2mxf (train) failed with exit code 1"


async def test_slack_and_discord_are_sent_to_the_address_in_the_file(server, secret):
    await send(target("slack", url_file=secret(f"{server.url}/services/T0/B0/XXX\n")), DIGEST)
    await send(target("discord", url_file=secret(f"{server.url}/api/webhooks/1/x?thread_id=2\n")), DIGEST)
    slack, discord = server.requests
    assert (slack.path, slack.body["text"]) == ("/services/T0/B0/XXX", "2mxf (train) failed with exit code 1")
    assert discord.path == "/api/webhooks/1/x?thread_id=2&wait=true"
    assert discord.body["content"] == "2mxf (train) failed with exit code 1"


async def test_ntfy_gets_json_at_its_own_address(server, secret):
    await send(target("ntfy", url=f"{server.url}/my-topic", token_file=secret("tk_1")), DIGEST)
    (request,) = server.requests
    assert (request.path, request.body["topic"], request.body["priority"]) == ("/", "my-topic", 4)
    assert request.headers["Authorization"] == "Bearer tk_1"
    assert "must end with a topic" in str(await fails("ntfy", url=server.url))


# ---------------------------------------------------------------------- secrets


@pytest.mark.parametrize(
    ("text", "mode", "why"),
    [
        ("s3cret", 0o644, "other users can read"),
        ("", 0o600, "must contain one line"),
        ("s3cret\ns3cret", 0o600, "must contain one line"),
        ("s3crét", 0o600, "must contain one line"),
        ("s3cret" * 2000, 0o600, "must contain one line"),
        ("s3cret", 0o600, "must begin with https:// or http://"),
    ],
)
async def test_a_file_that_has_no_address_is_an_error_without_its_content(secret, text, mode, why):
    assert why in str(await fails("slack", url_file=secret(text, mode)))


async def test_a_file_that_is_none_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert "not a regular file" in str(await fails("slack", url_file=str(tmp_path / "fifo")))
    assert "No such file" in str(await fails("slack", url_file=str(tmp_path / "missing")))


# ---------------------------------------------------------------------- answers


async def test_an_error_is_named_and_retry_after_is_obeyed(server):
    server.at["/"] = (429, {"Retry-After": "120"})
    error = await fails("webhook", url=server.url)
    assert (str(error), error.put_off) == ("the server answered 429 Too Many Requests", 120)
    server.at["/"] = (599, {"Retry-After": "9" * 50})
    error = await fails("webhook", url=server.url)
    assert (str(error), error.put_off) == ("the server answered 599", 0)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_a_redirect_of_the_same_server_is_followed_with_the_message(server, status, secret):
    server.at["/"] = (status, {"Location": "/new"})
    await send(target("webhook", url=server.url, token_file=secret("tk_1")), DIGEST)
    assert [(each.path, each.headers["Authorization"], each.body["id"]) for each in server.requests] == [
        ("/", "Bearer tk_1", "m1"),
        ("/new", "Bearer tk_1", "m1"),
    ]


async def test_a_redirect_to_another_server_gets_nothing(server, secret):
    with hook() as other:
        server.at["/"] = (307, {"Location": f"{other.url}/x"})
        assert "redirects to another server" in str(await fails("webhook", url=server.url))
        assert other.requests == []
    same_port = server.url.replace("http://127.0.0.1", "//localhost")
    for location in ("", "http://[", "file:///etc/passwd", "//other.example/x", same_port):
        server.at["/"] = (307, {"Location": location})
        assert "redirects to" in str(await fails("webhook", url=server.url))


async def test_a_loop_of_redirects_ends(server):
    server.at["/"] = (307, {"Location": "/"})
    assert str(await fails("webhook", url=server.url)) == "the server redirects more than 5 times"
    assert len(server.requests) == 6


def endless_body(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")


async def test_the_body_of_an_answer_is_not_read():
    with server_of(endless_body) as address:
        await send(target("webhook", url=address), DIGEST)


def large_header(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Large: ")
    while True:
        connection.sendall(b"x" * 65536)


def many_headers(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X: y\r\n" * 10000)


def nonsense(connection):
    connection.sendall(b"220 mail.example.com ESMTP s3cret\r\n")


def nothing(connection):
    pass


def bomb(connection):
    connection.sendall(
        b"HTTP/1.1 500 Oh\x1b[31m s3cret\r\nContent-Encoding: gzip\r\nContent-Length: 9\r\n\r\nnot gzip!"
    )


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (large_header, "not HTTP, or has headers that are too large"),
        (many_headers, "not HTTP, or has headers that are too large"),
        (nonsense, "not HTTP, or has headers that are too large"),
        (nothing, "closed the connection without an answer"),
        (bomb, "the server answered 500 Internal Server Error"),
    ],
)
async def test_a_hostile_answer_is_an_error_in_our_words(answer, why):
    with server_of(answer) as address:
        assert why in str(await fails("webhook", url=address))


def one_byte_at_a_time(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\n")
    while True:
        connection.sendall(b"X")
        time.sleep(0.01)


def endless_informational(connection):
    while True:
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")


@pytest.mark.parametrize("answer", [one_byte_at_a_time, pytest.param(endless_informational, marks=pytest.mark.slow)])
async def test_a_slow_server_has_a_time_limit(answer, monkeypatch):
    monkeypatch.setattr(web, "WITHIN", 0.5)
    with server_of(answer) as address:
        assert str(await fails("webhook", url=address)) == "the server did not answer within 0.5 s"


@pytest.mark.slow
async def test_a_resolver_that_hangs_holds_up_no_thread_of_others(monkeypatch):
    monkeypatch.setattr(web, "WITHIN", 0.3)
    go = threading.Event()
    monkeypatch.setattr(web.socket, "getaddrinfo", lambda *_: go.wait(30) and [])
    sent = await asyncio.gather(*(fails("webhook", url="http://hooks.example/s3cret") for _ in range(20)))
    assert {str(error) for error in sent} <= {
        "the server did not answer within 0.3 s",
        "cannot resolve the name of the server",
    }
    assert await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 20) == "free"
    go.set()


async def test_nobody_listens():
    error = await fails("webhook", url="http://127.0.0.1:1/s3cret")
    assert str(error) == "cannot connect to the server: Connection refused"


# ---------------------------------------------------------------------- TLS and proxies


def certificate(folder):
    """A key and a certificate of 127.0.0.1 that signs itself, as one PEM file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.write_bytes(private + made.public_bytes(serialization.Encoding.PEM))
    return path


@pytest.mark.slow
async def test_a_certificate_is_checked_against_those_of_the_machine(tmp_path):
    path = certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    with hook(context) as server:
        error = await fails("webhook", url=f"{server.url}/s3cret")
        assert str(error) == "the certificate of the server cannot be verified"
        assert server.requests == []
        script = (
            "import asyncio; from agentless.controller.notify import web; "
            f"asyncio.run(web.post({server.url!r}, b'{{}}', {{}}))"
        )
        env = {**os.environ, "SSL_CERT_FILE": str(path)}
        await asyncio.to_thread(subprocess.run, [sys.executable, "-c", script], env=env, check=True, timeout=60)
        assert len(server.requests) == 1


async def test_a_proxy_of_the_environment_is_used_unless_no_proxy_says_otherwise(server, monkeypatch):
    monkeypatch.setenv("http_proxy", server.url)
    await send(target("webhook", url="http://hooks.example/x"), DIGEST)
    assert server.requests[0].headers["Host"] == "hooks.example"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    assert str(await fails("webhook", url="http://hooks.example/x")) == "cannot connect to the proxy"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    await send(target("webhook", url=server.url), DIGEST)
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1")
    assert "not supported" in str(await fails("webhook", url="http://hooks.example/x"))


# ---------------------------------------------------------------------- programs


def script(folder, text):
    path = folder / "program"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


async def test_a_command_gets_json_and_variables(tmp_path):
    path = script(tmp_path, f'cat >{tmp_path}/in; echo "$1 $AGENTLESS_TASK $AGENTLESS_TASK_STATE" >{tmp_path}/out')
    await send(target("command", command=(path, "--all")), DIGEST)
    assert json.loads((tmp_path / "in").read_text())["events"][0]["task"]["exit_code"] == 1
    assert (tmp_path / "out").read_text() == "--all 2mxf failed\n"


async def test_a_command_need_not_read(tmp_path):
    await send(target("command", command=("true",)), DIGEST)


async def test_a_command_that_fails_is_an_error_with_its_last_words(tmp_path):
    path = script(tmp_path, "yes | head -c 1000000; echo no such room >&2; exit 3")
    error = str(await fails("command", command=(path,)))
    assert error.startswith(f"{path} ended with exit code 3: …")
    assert error.endswith("no such room")
    assert len(error) < 400
    assert str(await fails("command", command=("/missing",))) == "cannot run /missing: No such file or directory"
    assert "was ended by signal 9" in str(await fails("command", command=(script(tmp_path, "kill -9 $$"),)))


@pytest.mark.slow
async def test_a_command_has_a_time_limit_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(program, "GRACE", 0.2)
    path = script(tmp_path, f"trap '' TERM; sleep 600 & echo $! >{tmp_path}/child; wait; sleep 600")
    with pytest.raises(NotSent, match=r"did not end within 0.5 s and was stopped"):
        await program.run_program((path,), b"{}", {}, within=0.5)
    child = int((tmp_path / "child").read_text())
    assert await gone(child)


async def test_a_command_that_leaves_somebody_behind_is_done_when_it_ends(tmp_path):
    path = script(tmp_path, f"(echo begun; sleep 600) & echo $! >{tmp_path}/child")
    try:
        await asyncio.wait_for(send(target("command", command=(path,)), DIGEST), 30)
    finally:
        os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


async def test_sendmail_gets_a_mail_and_no_recipient_in_its_arguments(tmp_path):
    path = script(tmp_path, f'echo "$@" >{tmp_path}/args; cat >{tmp_path}/mail')
    await send(target("mail", command=(path,), to=("ann@example.com",)), DIGEST)
    assert (tmp_path / "args").read_text() == "-oi -t\n"
    mail = (tmp_path / "mail").read_text()
    assert "To: ann@example.com\nSubject: [agentless] 2mxf (train) failed with exit code 1\n" in mail


async def test_sendmail_is_found_where_it_usually_is(tmp_path, monkeypatch):
    monkeypatch.setattr("agentless.controller.notify.sending._SENDMAIL", str(tmp_path))
    monkeypatch.setenv("PATH", "/nowhere")
    assert "no sendmail on this machine" in str(await fails("mail", to=("ann",)))
    (tmp_path / "sendmail").symlink_to("/bin/true")
    await send(target("mail", to=("ann",)), DIGEST)
