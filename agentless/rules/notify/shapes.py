"""The forms that messages have for each kind of target."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import UTC, datetime
from email.message import EmailMessage
from email.utils import format_datetime
from typing import Any

from agentless.model.notify import Digest, Notice, NotifyTarget
from agentless.model.text import cut
from agentless.rules.notify.words import text, title
from agentless.rules.views.publish import timestamp

VERSION = 1
"""The version of the JSON document. Names are only added to it."""
SLACK = 3000
"""Characters of a text for Slack, which shows 4,000."""
DISCORD = 1800
"""Characters of a text for Discord, which accepts 2,000."""
NTFY = 3000
"""Bytes of a text for ntfy, which makes an attachment of more than 4,096."""
_MARKDOWN = re.compile(r"([\\`*_~|>#\[\]<])")
_SUPPRESS_EMBEDS = 4
_URGENT = frozenset({"fail", "lost", "preempt"})


def document(digest: Digest, target: str) -> dict[str, Any]:
    """The JSON for a command and a webhook. `events` are some of `count`."""
    return {
        "version": VERSION,
        "id": digest.id,
        "target": target,
        "title": title(digest),
        "text": text(digest),
        "count": digest.count,
        "states": dict(digest.states),
        "batch": digest.batch,
        "events": [_event(notice) for notice in digest.notices],
    }


def _event(notice: Notice) -> dict[str, Any]:
    known = asdict(notice)
    event, at = known.pop("event"), known.pop("at")
    known["id"] = known.pop("task")
    for key in ("started_at", "ended_at"):
        known[key] = timestamp(known[key])
    return {"event": event, "at": timestamp(at), "task": known}


def variables(digest: Digest, target: str) -> dict[str, str]:
    """The variables of a command. Those of a task are of the only one, or of the first that `events` has."""
    first = digest.notices[0]
    found = {
        "AGENTLESS_TARGET": target,
        "AGENTLESS_ID": digest.id,
        "AGENTLESS_TITLE": title(digest),
        "AGENTLESS_TEXT": text(digest),
        "AGENTLESS_COUNT": digest.count,
        "AGENTLESS_EVENT": first.event,
        "AGENTLESS_TASK": first.task,
        "AGENTLESS_TASK_NAME": first.name,
        "AGENTLESS_TASK_OWNER": first.owner,
        "AGENTLESS_TASK_STATE": first.state,
        "AGENTLESS_TASK_NODE": first.node,
        "AGENTLESS_TASK_EXIT_CODE": first.exit_code,
        "AGENTLESS_BATCH": digest.batch,
    }
    return {name: "" if value is None else str(value) for name, value in found.items()}


def slack(digest: Digest) -> dict[str, Any]:
    """For an incoming webhook of Slack, or of a program that takes the same, like Mattermost."""
    plain = cut(_whole(digest), SLACK)
    for sign, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
        plain = plain.replace(sign, escaped)
    return {"text": plain, "mrkdwn": False, "unfurl_links": False, "unfurl_media": False}


def discord(digest: Digest) -> dict[str, Any]:
    """For a webhook of Discord. Nobody is mentioned, whatever a task is called."""
    escaped = "\n".join(_MARKDOWN.sub(r"\\\1", line) for line in _whole(digest).split("\n"))
    return {"content": cut(escaped, DISCORD), "allowed_mentions": {"parse": []}, "flags": _SUPPRESS_EMBEDS}


def ntfy(digest: Digest, topic: str) -> dict[str, Any]:
    """For ntfy, which takes JSON at the address of the server itself."""
    urgent = any(notice.event in _URGENT for notice in digest.notices)
    return {
        "topic": topic,
        "title": cut(title(digest), 250),
        "message": _first_bytes(text(digest), NTFY) or title(digest),
        "priority": 4 if urgent else 3,
        "tags": ["warning" if urgent else "white_check_mark"],
    }


def mail(digest: Digest, target: NotifyTarget) -> bytes:
    """For sendmail, which reads the recipients from it. The id is that of the message, so that it is known again."""
    message = EmailMessage()
    message["To"] = ", ".join(target.to)
    if target.sender:
        message["From"] = target.sender
    message["Subject"] = f"[agentless] {cut(title(digest), 200)}"
    message["Date"] = format_datetime(datetime.fromtimestamp(digest.notices[-1].at, UTC))
    message["Message-ID"] = f"<{digest.id}@agentless>"
    message["Auto-Submitted"] = "auto-generated"  # no answer of a vacation program
    message.set_content(_whole(digest) + "\n")
    return message.as_bytes()


def _whole(digest: Digest) -> str:
    return f"{title(digest)}\n{text(digest)}".rstrip()


def _first_bytes(whole: str, size: int) -> str:
    return whole.encode()[:size].decode(errors="ignore")
