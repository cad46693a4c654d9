"""Events that wait to be sent: which go in a message, and what is left of them."""

from __future__ import annotations

import stat

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.errors import StateError
from agentless.model.notify import Notice
from agentless.stores.records import notices
from agentless.stores.records.notices import NoticeStore

NOW = 1_800_000_000.0


@pytest.fixture
def path(tmp_path):
    return tmp_path / "notify.sqlite"


@pytest.fixture
def store(path):
    store = NoticeStore(path)
    yield store
    store.close()


def notice(task, batch="b1", event="end", at=NOW, state=None, name=None) -> Notice:
    return Notice(event, at, task, batch, "ann", state or ("failed" if event == "fail" else "completed"), name=name)


def send(store, over=("b1",), target="t", held_since=0.0):
    """The message that goes next, as if it had been sent; None if there is none."""
    message = store.next_message(target, over, held_since)
    if message is None:
        return None
    digest = store.digest(message)
    store.sent(message, over)
    return digest


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from("abc"), st.sampled_from(["start", "end", "fail"])),
        st.tuples(st.just("over"), st.sampled_from("abc"), st.just("")),
        st.tuples(st.sampled_from(["send", "fail", "crash"]), st.just(""), st.just("")),
    ),
    max_size=25,
)


@pytest.mark.slow
@given(STEPS)
def test_every_event_is_sent_once_whatever_fails_between(tmp_path_factory, steps):
    """And again only as part of the message about its batch. After a crash, the message that was begun is the same."""
    path = tmp_path_factory.mktemp("notices") / "notify.sqlite"
    store, over = NoticeStore(path), set[str]()
    kept, told, begun = list[str](), list[tuple[str, bool]](), None

    def send_next(arrives=True):
        nonlocal begun
        message = store.next_message("t", over, 0)
        assert begun in (None, message)
        begun = message
        if message and arrives:
            notices = store.digest(message).notices
            told.extend(
                (each.task, any(n.event == "end" and n.batch == each.batch for n in notices)) for each in notices
            )
            store.sent(message, over)
            begun = None
        return message

    for what, batch, event in [*steps, *(("over", batch, "") for batch in "abc")]:
        if what == "event" and batch not in over:
            kept.append(f"{batch}{len(kept)}")
            store.add(["t"], notice(kept[-1], batch, event))
        elif what == "over":
            over.add(batch)
        elif what in ("send", "fail"):
            send_next(arrives=what == "send")
        elif what == "crash":
            store.close()
            store = NoticeStore(path)
    while send_next():
        pass
    assert "t" not in store
    assert {task for task, _ in told} == set(kept)
    for task in kept:
        again = [with_batch for each, with_batch in told if each == task]
        assert len(again) == 1 or (len(again) == 2 and again[1])
    store.close()


def test_nothing_is_made_before_there_is_an_event(path, store):
    assert not path.exists()
    store.add(["t"], notice("a"))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_all_of_a_batch_is_one_message_when_it_has_ended(store):
    for number in range(250):
        store.add(["t"], notice(f"a{number}"))
    assert send(store, over=()) is None
    digest = send(store)
    assert [digest.states, digest.batch, len(digest.notices)] == [{"completed": 250}, "b1", notices.LISTED]
    assert "t" not in store


def test_a_failure_is_sent_at_once_and_counted_again_at_the_end(store):
    store.add(["t"], notice("a"))
    store.add(["t"], notice("b", event="fail"))
    early = send(store, over=())
    assert [early.states, [each.task for each in early.notices]] == [{"failed": 1}, ["b"]]
    assert store.waiting["t"] == 1
    store.add(["t"], notice("c"))
    digest = send(store)
    assert [digest.states, digest.notices[0].task] == [{"completed": 2, "failed": 1}, "b"]
    assert send(store) is None
    assert "t" not in store


def test_what_was_sent_of_a_batch_goes_with_it(store):
    store.add(["t"], notice("b", event="fail"))
    assert send(store, over=()).count == 1
    assert "t" in store
    assert send(store) is None
    assert "t" not in store


def test_starts_do_not_wait_for_the_batch(store):
    store.add(["t"], notice("a", event="start", state="running"))
    assert send(store, over=()).states == {"running": 1}
    assert "t" not in store


def test_a_batch_that_takes_days_is_told_of_each_day(store):
    store.add(["t"], notice("a"))
    store.add(["t"], notice("b", at=NOW + 10))
    assert send(store, over=(), held_since=NOW) is None
    assert send(store, over=(), held_since=NOW + 1).count == 2
    store.add(["t"], notice("c", at=NOW + 20))
    assert send(store).states == {"completed": 3}


def test_a_message_stays_the_same_until_it_is_sent(path, store):
    store.add(["t"], notice("a", name="x"))
    message = store.next_message("t", ["b1"], 0)
    before = store.digest(message)
    store.add(["t"], notice("b"))
    store.close()
    again = NoticeStore(path)
    assert again.waiting["t"] == 2
    assert again.next_message("t", ["b1"], 0) == message
    assert again.digest(message) == before
    again.sent(message, ["b1"])
    assert [each.task for each in send(again).notices] == ["b"]
    again.close()


def test_each_target_has_its_own(store):
    store.add(["t", "u"], notice("a"))
    assert send(store, target="t").count == 1
    assert send(store, target="t") is None
    assert send(store, target="u").count == 1


def test_old_events_and_those_of_removed_targets_are_dropped(store):
    store.add(["t", "gone"], notice("a"))
    store.add(["t"], notice("b", at=NOW + 100))
    assert store.prune(["t"], NOW + 1) == 1
    assert dict(store.waiting) == {"t": 1}


def test_there_is_a_limit_for_each_target(store, monkeypatch):
    monkeypatch.setattr(notices, "MOST", 10)
    for number in range(15):
        store.add(["t"], notice(f"a{number}"))
    assert store.prune(["t"], 0) == 5
    assert send(store).notices[0].task == "a5"


def test_a_damaged_file_is_set_aside(path):
    path.write_bytes(b"nothing of SQLite" * 1000)
    store = NoticeStore(path)
    store.add(["t"], notice("a"))
    assert send(store).count == 1
    assert path.with_name("notify.sqlite.damaged").exists()
    store.close()


def test_what_cannot_be_kept_is_an_error(tmp_path):
    store = NoticeStore(tmp_path / "missing" / "notify.sqlite")
    with pytest.raises(StateError, match=r"cannot keep notifications in .*missing"):
        store.add(["t"], notice("a"))
    assert store.waiting["t"] == 0
