"""What `doctor` prints: the same thing is said once."""

from __future__ import annotations

from typing import Any

import pytest

from agentless.cli.nodes import doctor_report

LONG = "Docker cannot reach docker.io: its name registry-1.docker.io cannot be looked up (no such host)"


def check(name: str, verdict: str, text: str = "", node: str = "node1", **more: Any) -> dict[str, Any]:
    ok = {"ok": True, "warning": True, "failed": False}.get(verdict)
    words = {"seen": text, "wrong": text if verdict in ("failed", "warning") else "", "detail": text}
    return (
        {"node": node, "check": name, "verdict": verdict, "ok": ok, "fix": "", "why": "", "here": False} | words | more
    )


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Any:
    def show(*checks: dict[str, Any], in_full: bool = True) -> list[str]:
        doctor_report.show(checks, in_full=in_full)
        return capsys.readouterr().out.splitlines()

    return show


def test_what_was_not_looked_at_is_one_line(printed: Any) -> None:
    skipped = [check(name, "skipped", "skipped; fix the failed check above first") for name in ("ssh", "login", "disk")]
    assert printed(check("tcp", "failed", "refused"), *skipped) == [
        "node1  FAIL  1 failed, 3 skipped",
        "  tcp     FAIL  refused",
        "  others  -     ssh, login, disk: skipped; fix the failed check above first",
    ]


def test_gpus_that_prove_the_same_are_one_line_and_others_are_not(printed: Any) -> None:
    runs = [check(f"run {at}", "ok", "sees this GPU and no other") for at in (0, 1, 2)]
    lines = printed(*runs, check("run 3", "failed", "sees two"), check("run 4", "ok", "sees this GPU and no other"))
    assert lines[1:] == [
        "  run 0-2  ok    sees this GPU and no other",
        "  run 3    FAIL  sees two",
        "  run 4    ok    sees this GPU and no other",
    ]


def test_slices_that_prove_the_same_are_one_line_too(printed: Any) -> None:
    runs = [check(f"run {at}", "ok", "sees it alone") for at in ("0/0", "0/1", "0/2", 1)]
    assert printed(check("run 0", "skipped", "in MIG mode"), *runs)[1:] == [
        "  run 0        -     in MIG mode",
        "  run 0/0-2,1  ok    sees it alone",
    ]


def test_a_long_warning_is_printed_for_the_first_node_only(printed: Any) -> None:
    nodes = [check("registry", "warning", LONG, node, fix="curl") for node in ("node1", "node2")]
    lines = printed(*nodes, in_full=False)
    assert (lines[1], lines[3]) == (f"  registry  warn  {LONG}", "  registry  warn  as on node1")
    lines = printed(*nodes)
    assert lines[-1] == "  registry  warn  as on node1"
    assert lines.count("                    curl") == 1


def test_a_warning_with_another_fix_is_printed(printed: Any) -> None:
    nodes = [check("registry", "warning", LONG, node, fix=node) for node in ("node1", "node2")]
    assert not any("as on" in line for line in printed(*nodes))
