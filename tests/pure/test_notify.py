"""Which events become messages, in which words and shapes, and when."""

from __future__ import annotations

import email
from dataclasses import replace
from email import policy

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import UsageError
from agentless.model.notify import Digest, Notice, NotifyTarget, parse_events
from agentless.model.tasks.gang import Gang
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Assigning, Ended, Lost, Paused, Pending, Placement, Running, Scheduled, Task
from agentless.model.tasks.task_event import Exited, GaveUp, StopAsked
from agentless.rules.notify import shapes
from agentless.rules.notify.events import events_of, notice_of, speaker
from agentless.rules.notify.pace import GAP, LONGEST_GAP, LONGEST_RETRY, LONGEST_WAIT, RETRY, Pace
from agentless.rules.notify.words import text, title
from agentless.rules.tasks.lifecycle import apply

NOW = 1_800_000_000.0
PLACE = Placement("node1", (0, 1), ("GPU-a", "GPU-b"))
ASSIGNED = Assigning(PLACE, NOW)
RUNS = Running(PLACE, "c1", NOW)
PAUSED = Paused(PLACE, "c1", NOW)
LOST = Lost(PLACE, NOW, "node1 does not answer", "c1", NOW)
NOT_STARTED = Lost(PLACE, NOW, "node1 does not answer")
SPEC = TaskSpec(("python", "--key", "s3cret"), name="train", env={"A": "s3cret"}, labels={"b": "s3cret"})


def task(status=RUNS, **changes) -> Task:
    return Task("2mxf", SPEC, "2mxf", "ann@laptop", NOW, status, **changes)


def ended(state="completed", code=0, **changes) -> Ended:
    return Ended(state, NOW + 11520, code, placement=PLACE, container="c1", started_at=NOW, **changes)


def events(before, after, goes_on=False, **changes) -> set[str]:
    return set(events_of(task(before), task(after, **changes), goes_on=goes_on))


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        (ASSIGNED, RUNS, {"start"}),
        (NOT_STARTED, RUNS, {"start"}),
        (ended(), RUNS, {"start"}),
        (LOST, RUNS, set()),
        (PAUSED, RUNS, set()),
        (RUNS, replace(RUNS, run=1.0), set()),
        (RUNS, PAUSED, set()),
        (RUNS, LOST, {"lost"}),
        (ASSIGNED, NOT_STARTED, {"lost"}),
        (LOST, replace(LOST, reason="it is still silent"), set()),
        (Scheduled(NOW), Pending(), set()),
        (Pending(), ASSIGNED, set()),
        (RUNS, ended(), {"end"}),
        (RUNS, ended("failed", 1), {"end", "fail"}),
        (RUNS, ended("killed_oom", 137), {"end", "fail"}),
        (RUNS, ended("timeout", 143), {"end", "fail"}),
        (RUNS, ended("stopped", 143), {"end"}),
        (RUNS, ended("preempted", 143), {"end", "preempt"}),
    ],
)
def test_a_change_is_these_events(before, after, found) -> None:
    assert events(before, after) == found


def test_the_start_of_a_gang_is_one_event() -> None:
    starts = [replace(task(), spec=replace(SPEC, gang=Gang(2, rank))) for rank in (0, 1)]
    assert [set(events_of(task(ASSIGNED), each, goes_on=False)) for each in starts] == [{"start"}, set()]


def pair(*states):
    """A gang of two on two nodes, in these states."""
    found = []
    for rank, state in enumerate(states):
        spec = replace(SPEC, gang=Gang(2, rank, ("2mxf", "2mxg")), name="pair")
        place = replace(PLACE, node=f"node{rank + 1}")
        found.append(replace(task(replace(state, placement=place)), id=("2mxf", "2mxg")[rank], spec=spec))
    return found


def test_the_end_of_a_gang_is_one_event_by_its_name_when_its_last_member_has_ended() -> None:
    waits = pair(ended(), RUNS)
    assert speaker(waits[0], waits) is None
    over = pair(ended(), ended())
    assert speaker(over[1], over) is over[0]
    notice = notice_of(over[0], frozenset({"end"}), NOW, over)
    assert (notice.task, notice.nodes) == ("2mxf", ("node1", "node2"))
    assert title(Digest("1", (notice,), {"completed": 1})).startswith("2mxf (pair) completed on 2 nodes (node1, node2)")


def test_the_failure_of_a_gang_names_the_member_that_failed() -> None:
    over = pair(ended("stopped", 143), ended("failed", 7))
    spoken = speaker(over[0], over)
    assert spoken is over[1]
    notice = notice_of(spoken, frozenset({"fail"}), NOW, over)
    assert (notice.task, notice.state, notice.reason) == ("2mxf", "failed", "rank 1 on node2 failed with exit code 7")


def test_the_loss_of_a_gang_is_one_event() -> None:
    both = pair(LOST, LOST)
    assert speaker(both[1], both) is None
    one = pair(RUNS, LOST)
    assert speaker(one[1], one) is one[1]


def test_a_try_that_is_followed_by_another_has_not_ended() -> None:
    assert events(RUNS, ended("failed", 1), goes_on=True) == set()
    assert events(RUNS, ended("preempted", 143), goes_on=True) == {"preempt"}


def test_a_task_that_never_started_has_failed_unless_somebody_stopped_it() -> None:
    pending = task(Pending())
    gave_up, stopped = (apply(pending, event, NOW) for event in (GaveUp("waited 1h"), StopAsked("stop")))
    assert events_of(pending, gave_up, goes_on=False) == {"end", "fail"}
    assert events_of(pending, stopped, goes_on=False) == {"end"}


def test_what_a_user_stopped_is_an_end_and_no_failure() -> None:
    asked = task(stop="stop")
    assert events_of(asked, apply(asked, Exited(143), NOW), goes_on=False) == {"end"}


def test_a_notice_has_nothing_of_what_the_task_runs() -> None:
    notice = notice_of(task(ended("failed", 1, reason="line 1\nline\u202e 2 " + "x" * 9999)), frozenset({"fail"}), NOW)
    assert "s3cret" not in repr(notice)
    assert (notice.event, notice.state, notice.exit_code, notice.gpus) == ("fail", "failed", 1, (0, 1))
    assert notice.reason
    assert notice.reason.startswith("line 1 line� 2 x")
    assert len(notice.reason) == 500


def test_a_notice_can_be_sent_whatever_the_names_in_labels_are() -> None:
    bad = "evil\nBcc: x\udc80" + "x" * 9999
    forged = replace(task(ended("failed", 1, reason=bad)), batch=bad, spec=replace(SPEC, name=bad))
    notice = notice_of(forged, frozenset({"fail"}), NOW)
    digest = Digest("m1", (notice,) * 2, {"failed": 2}, notice.batch, notice.name)
    assert b"\nBcc: x" not in shapes.mail(digest, NotifyTarget("m", "mail", to=("ann",)))
    orjson.dumps([shapes.document(digest, "t"), shapes.ntfy(digest, "t"), shapes.slack(digest)])


def test_events_are_typed_as_a_list() -> None:
    assert parse_events("fail, END,start,fail") == ("start", "end", "fail")
    assert parse_events("none") == ()
    for wrong in ("", "failed", "none,end", "end,,fail"):
        with pytest.raises(UsageError, match="use start, end, fail, preempt, lost, or none"):
            parse_events(wrong)


# ---------------------------------------------------------------------- words


def one(status, event="end") -> Digest:
    notice = notice_of(task(status), frozenset({event}), NOW)
    return Digest("m1", (notice,), {notice.state: 1}, name="train")


@pytest.mark.parametrize(
    ("digest", "words"),
    [
        (one(RUNS, "start"), "2mxf (train) started on node1::0,1"),
        (one(ended()), "2mxf (train) completed on node1::0,1 after 3h 12m"),
        (one(ended("failed", 3)), "2mxf (train) failed with exit code 3 on node1::0,1 after 3h 12m"),
        (one(ended("killed_oom", 137)), "2mxf (train) ran out of memory on node1::0,1 after 3h 12m"),
        (one(ended("timeout", 143)), "2mxf (train) reached the time limit on node1::0,1 after 3h 12m"),
        (one(ended("preempted", 143), "preempt"), "2mxf (train) was preempted on node1::0,1 after 3h 12m"),
        (one(Ended("cancelled", NOW, reason="waited 1h")), "2mxf (train) was cancelled"),
        (one(LOST, "lost"), "2mxf (train) is lost on node1::0,1"),
    ],
)
def test_one_task_is_one_sentence(digest, words) -> None:
    assert title(digest) == words


def many(failed: int = 3, completed: int = 997) -> Digest:
    bad = notice_of(task(ended("failed", 1, reason="a < b & c")), frozenset({"fail"}), NOW)
    good = notice_of(task(ended()), frozenset({"end"}), NOW)
    states = {"completed": completed, "failed": failed}
    return Digest("m1", (*[bad] * failed, *[good] * min(97, completed)), states, "2mxf", "train")


def test_many_tasks_are_counted_and_the_first_listed() -> None:
    assert title(many()) == "Batch 2mxf (train): 997 completed, 3 failed"
    lines = text(many()).splitlines()
    assert lines[0] == "2mxf (train) failed with exit code 1 on node1::0,1 after 3h 12m: a < b & c"
    assert [len(lines), lines[-1]] == [11, "and 990 more"]
    assert title(replace(many(), batch=None, name=None)) == "Tasks: 997 completed, 3 failed"


# ---------------------------------------------------------------------- shapes


def test_slack_and_discord_get_text_that_mentions_nobody() -> None:
    digest = replace(many(1, 0), name="<!channel>")
    assert shapes.slack(digest)["text"].startswith("2mxf (train) failed with exit code 1")
    assert "a &lt; b &amp; c" in shapes.slack(digest)["text"]
    assert "a \\< b & c" in shapes.discord(digest)["content"]
    assert shapes.discord(digest)["allowed_mentions"] == {"parse": []}


def test_ntfy_gets_a_topic_and_a_priority() -> None:
    assert shapes.ntfy(one(ended()), "my-topic") == {
        "topic": "my-topic",
        "title": "2mxf (train) completed on node1::0,1 after 3h 12m",
        "message": "2mxf (train) completed on node1::0,1 after 3h 12m",
        "priority": 3,
        "tags": ["white_check_mark"],
    }
    assert shapes.ntfy(many(), "my-topic")["priority"] == 4


@given(st.text(max_size=6000), st.text(max_size=6000), st.integers(1, 10**6))
def test_no_text_is_longer_than_its_receiver_takes(name, reason, count) -> None:
    notice = Notice("fail", NOW, "2mxf", "2mxf", "ann", "failed", name=name, reason=reason)
    digest = Digest("m1", (notice,) * min(count, 100), {"failed": count}, name=name)
    assert len(shapes.discord(digest)["content"]) <= 2000
    assert len(shapes.slack(digest)["text"]) <= 5 * 3000
    assert len(shapes.ntfy(digest, "t")["message"].encode()) <= 4096 or count == 1
    assert len(shapes.ntfy(digest, "t")["title"]) <= 250


def test_a_mail_is_known_again_and_nobody_answers_it() -> None:
    target = NotifyTarget("m", "mail", to=("ann@example.com", "bob"), sender="gpu@example.com")
    mail = email.message_from_bytes(shapes.mail(many(), target), policy=policy.default)
    assert mail["To"] == "ann@example.com, bob"
    assert mail["Subject"] == "[agentless] Batch 2mxf (train): 997 completed, 3 failed"
    assert [mail["From"], mail["Message-ID"], mail["Auto-Submitted"]] == [
        "gpu@example.com",
        "<m1@agentless>",
        "auto-generated",
    ]
    assert mail.get_content().splitlines()[-1] == "and 990 more"


def test_the_document_counts_all_and_lists_some() -> None:
    found = shapes.document(many(), "hook")
    assert [found["version"], found["id"], found["count"], len(found["events"])] == [1, "m1", 1000, 100]
    assert found["events"][0]["task"]["id"] == "2mxf"
    assert found["events"][0]["task"]["started_at"] == "2027-01-15T08:00:00.000Z"


def test_a_command_gets_variables_of_the_first_task() -> None:
    found = shapes.variables(many(), "hook")
    assert found["AGENTLESS_TASK_STATE"] == "failed"
    assert found["AGENTLESS_TASK_EXIT_CODE"] == "1"
    assert found["AGENTLESS_COUNT"] == "1000"


# ---------------------------------------------------------------------- pace


def test_messages_that_keep_coming_get_rarer() -> None:
    pace, now, gaps = Pace(), NOW, []
    for _ in range(12):
        assert pace.is_due(now)
        pace = pace.sent(now)
        assert not pace.is_due(now)
        gaps.append(pace.gap)
        now = pace.not_before
    assert gaps[0] == GAP
    assert gaps[-1] == LONGEST_GAP
    assert pace.sent(now + 2 * LONGEST_GAP + 1).gap == GAP


def test_what_fails_is_tried_again_less_and_less_often() -> None:
    pace, now, pauses = Pace(), NOW, []
    for _ in range(12):
        pace = pace.failed(now, "no")
        pauses.append(pace.not_before - now)
        now = pace.not_before
    assert pauses[:3] == [RETRY, 2 * RETRY, 4 * RETRY]
    assert pauses[-1] == LONGEST_RETRY
    assert [pace.failing_since, pace.problem] == [NOW, "no"]
    assert pace.sent(now).failures == 0


def test_a_server_can_put_a_message_off_for_some_time() -> None:
    assert Pace().failed(NOW, "no", 120).not_before == NOW + 120
    assert Pace().failed(NOW, "no", 1e9).not_before == NOW + LONGEST_WAIT


def test_a_clock_that_is_put_back_stops_nothing() -> None:
    assert Pace().sent(NOW).is_due(NOW - 86400)
