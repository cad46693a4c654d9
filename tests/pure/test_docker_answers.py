"""What Docker says of itself and of our containers; the answers were read off docker 20.10.24 and 28.2.2."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentless.engines.docker.engine import DockerEngine
from agentless.model.command import Result, Section, join_sections, split_sections
from agentless.model.containers.container import Container
from agentless.model.nodes.node import NodeConfig
from agentless.paths import template_dir
from agentless.render import Renderer
from tests.engines import docker_engine
from tests.pure.build import NOW, SIGNER, container, task

DATA = Path(__file__).parent / "data" / "docker"


def docker(program: str = "docker") -> DockerEngine:
    return docker_engine(NodeConfig("node1", "h", user="ann", docker=(program,)), Renderer([template_dir()]), SIGNER)


# --------------------------------------------------------------------------------------------------------- containers


def listed(version: str) -> dict[str, Container]:
    result = Result(0, (DATA / "containers" / f"{version}.txt").read_bytes())
    return {
        container.name.removeprefix("agentless-"): container for container in docker().parse_containers(result, 0.0)
    }


@pytest.mark.parametrize("version", ["20.10", "28"])
def test_every_state_of_a_container_is_read(version: str) -> None:
    found = listed(version)
    read = {name: (c.state, c.exit_code, c.oom_killed, c.live) for name, c in found.items()}
    assert (
        read.items()
        >= {
            "run": ("running", None, False, True),
            "pau": ("paused", None, False, True),
            "cre": ("created", None, False, True),
            "ex0": ("exited", 0, False, False),
            "ex3": ("exited", 3, False, False),
            "oom": ("exited", 137, True, False),
            "oomchild": ("exited", 0, True, False),
        }.items()
    )
    assert found["run"].labels == {"a": "b", "agentless.task": "t1"}
    assert len(found["run"].id) == 64


def test_times_are_read_to_the_nanosecond_and_year_1_is_never() -> None:
    found = listed("20.10")
    assert found["ex3"].started_at == pytest.approx(1795250714.254233832, abs=1e-6)
    assert found["ex3"].finished_at == pytest.approx(1795250714.259207365, abs=1e-6)
    assert (found["run"].finished_at, found["cre"].started_at, found["cre"].finished_at) == (None, None, None)
    assert found["cre"].created_at == pytest.approx(1795250713.606689129, abs=1e-6)


def test_times_are_by_the_nodes_clock_and_it_is_known_by_how_much_that_is_ahead() -> None:
    result = Result(0, (DATA / "containers" / "20.10.txt").read_bytes())
    off = docker().parse_containers(result, 3600.0)
    assert [(c.started_at, c.here(c.finished_at)) for c in off] == [
        (c.started_at, None if c.finished_at is None else c.finished_at - 3600) for c in listed("20.10").values()
    ]


def test_times_of_any_zone_and_precision_are_read() -> None:
    found = listed("28")
    assert (found["healthy"].created_at, found["healthy"].started_at) == (1795250713.5, 1795250714.0)
    assert found["dead"].finished_at == 1795250733.25


def test_a_container_that_could_not_start_says_why_and_has_no_exit_code() -> None:
    failed = listed("28")["failed"]
    assert (failed.state, failed.exit_code, failed.labels) == ("created", None, {})
    assert failed.error == "cannot set both Count and DeviceIDs on device request"


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Error: No such object: deadbeef",
        "{",
        "[]",
        "null",
        '{"id":"x"}',
        '{"id":"x","name":"y","state":null}',
        "\xff",
    ],
)
def test_lines_that_are_no_container_are_left_out(line: str) -> None:
    good = (DATA / "containers" / "20.10.txt").read_bytes()
    assert len(docker().parse_containers(Result(1, line.encode("latin-1") + b"\n" + good), 0.0)) == 7


def test_the_container_of_one_task_is_asked_for_by_its_label() -> None:
    assert "--filter label=agentless.task=t1)" in docker().containers("t1").script


def test_a_container_that_is_removed_while_we_look_does_not_hide_the_others(tmp_path: Path) -> None:
    """`docker inspect` fails as a whole when one of its containers is gone."""
    program = tmp_path / "docker"
    program.write_text(
        "#!/bin/sh\n"
        f"cd {tmp_path}\n"
        "case $1 in\n"
        'ps) if [ -e looked ]; then echo id1; else echo "id1 id2"; fi ;;\n'
        "inspect) if [ -e looked ]; then cat answer; else touch looked; echo '{\"stale\":1}'; "
        "echo 'Error: No such object: id2' >&2; exit 1; fi ;;\n"
        "esac\n"
    )
    program.chmod(0o755)
    (tmp_path / "answer").write_bytes((DATA / "containers" / "20.10.txt").read_bytes())
    result = run_section(docker(str(program)).containers("t1").script)
    assert result.exit_code == 0
    assert len(docker().parse_containers(result, 0.0)) == 7
    assert b"stale" not in result.stdout


@pytest.mark.parametrize(
    ("state", "exit_code", "status", "known"),
    [
        ("exited", 3, "Exited (3) 2 hours ago", True),
        ("exited", 3, "Exited (31) 2 hours ago", False),
        ("exited", 3, "Up 3 seconds", False),
        ("exited", 3, "", False),
        ("running", 0, "Up 3 seconds", False),
        ("dead", 3, "Exited (3) 2 hours ago", False),
    ],
)
def test_what_has_ended_as_we_know_it_is_not_asked_for_again(
    state: Any, exit_code: int, status: str, known: bool
) -> None:
    assert docker().has_ended_so(container(task(), state, exit_code=exit_code), status) == known


@pytest.mark.parametrize("words", ["Error: No such object: c1", "error: no such object: c1\nError: No such object: c2"])
def test_a_container_is_gone_only_when_the_engine_says_so(words: str) -> None:
    assert docker().says_gone(Result(1, b"", words.encode()), ["c1"])
    assert not docker().says_gone(Result(1, b"", words.encode()), ["c1", "c3"])
    assert not docker().says_gone(Result(1, b"", b"Cannot connect to the Docker daemon"), ["c1"])


def run_section(script: str) -> Result:
    joined = join_sections([Section("it", script)])
    return split_sections(subprocess.run(["sh"], input=joined.encode(), capture_output=True, check=True).stdout)["it"]


def test_an_engine_that_cannot_list_is_an_error_and_not_an_empty_list(tmp_path: Path) -> None:
    assert run_section(docker("false").containers("t1").script).exit_code != 0


# -------------------------------------------------------------------------------------------------------------- facts


@pytest.mark.parametrize("file", sorted((DATA / "facts").glob("*.json")), ids=lambda file: file.stem)
def test_the_engine_is_described_from_its_answer(file: Path) -> None:
    case = json.loads(file.read_text())
    sections = {name: Result(case[name][0], case[name][1].encode()) for name in ("docker.info", "docker.containers")}
    facts = docker().parse_facts(sections, NOW, NOW + 1)
    containers = None if facts.listed is None else len(facts.listed)
    nvidia = facts.toolkits["nvidia"].ready if facts.toolkits else None
    found = {"version": facts.version, "nvidia": nvidia, "error": facts.error, "containers": containers}
    more = {
        "store": facts.store,
        "cgroup_version": facts.cgroup_version,
        "rootless": facts.rootless,
        "note": facts.note,
    }
    more |= {"cdi": sorted(facts.cdi), "way": facts.toolkits["nvidia"].way if facts.toolkits else None}
    expected = {"lacks": [], **case["expected"]}
    found |= {"lacks": sorted(facts.lacks), **{key: more[key] for key in expected if key in more}}
    assert found == expected


@pytest.mark.parametrize("missing", ["docker.info", "docker.containers"])
def test_an_answer_that_was_cut_off_is_an_error(missing: str) -> None:
    case = json.loads((DATA / "facts" / "healthy-20.10.json").read_text())
    sections = {n: Result(0, case[n][1].encode()) for n in ("docker.info", "docker.containers") if n != missing}
    assert docker().parse_facts(sections, NOW, NOW + 1).error == "its answer about Docker was cut off"


@pytest.mark.parametrize(
    ("clock", "ahead"),
    [
        ("2027-01-15T08:00:00.4Z", 0.0),  # between the question and the answer
        ("2027-01-15T08:00:01.9Z", 0.0),  # it may be right, as far as can be told
        ("2027-01-15T07:59:59.1Z", 0.0),
        ("2027-01-15T11:00:00.5Z", 10800.0),
        ("2027-01-15T09:00:00.5+02:00", -3600.0),
        (None, 0.0),
    ],
)
def test_a_clock_that_is_surely_wrong_is_known_by_how_much(clock: str | None, ahead: float) -> None:
    case = json.loads((DATA / "facts" / "healthy-20.10.json").read_text())
    info = json.loads(case["docker.info"][1]) | {"SystemTime": clock}
    listed = Result(0, case["docker.containers"][1].encode())
    sections = {"docker.info": Result(0, json.dumps(info).encode()), "docker.containers": listed}
    facts = docker().parse_facts(sections, NOW, NOW + 1)
    assert facts.clock == pytest.approx(ahead)


def test_volumes_are_told_with_their_owners_and_tasks():
    answer = Result(0, b"volume|data|ann@box\nt2\nt1\nvolume|base|\n")
    assert docker().volumes.parse(answer) == [("base", "unknown", ()), ("data", "ann@box", ("t1", "t2"))]


def test_the_name_of_a_version_is_cut_where_no_version_is_so_long() -> None:
    info = {"ServerVersion": "2" * 200, "Runtimes": {}, "SystemTime": "2026-01-01T00:00:00Z"}
    sections = {"docker.info": Result(0, json.dumps(info).encode()), "docker.containers": Result(0, b"")}
    assert docker().parse_facts(sections, NOW, NOW + 1).version == "2" * 63 + "…"


@pytest.mark.parametrize(
    ("answer", "root"),
    [("/data/docker root", "/data/docker root"), ("", None), (None, None), (7, None), ("var/lib", None),
     ("/a\nb", None), ("/" + "x" * 5000, None)],
)  # fmt: skip
def test_the_root_of_the_engine_is_a_folder_or_unknown(answer: object, root: str | None) -> None:
    info = {"ServerVersion": "28", "Runtimes": {}, "SystemTime": "2026-01-01T00:00:00Z", "DockerRootDir": answer}
    sections = {"docker.info": Result(0, json.dumps(info).encode()), "docker.containers": Result(0, b"")}
    assert docker().parse_facts(sections, NOW, NOW + 1).root == root


CONTAINERD = [["driver-type", "io.containerd.snapshotter.v1"]]


@pytest.mark.parametrize(
    "change", [{"DriverStatus": CONTAINERD}, {"Driver": "vfs"}, {"DockerRootDir": "/data/docker"}], ids=str
)
def test_an_engine_keeps_containers_elsewhere_with_another_store_driver_or_folder(change: dict[str, object]) -> None:
    info = {"ServerVersion": "28", "SystemTime": "2026-01-01T00:00:00Z", "Driver": "overlay2"}
    info |= {"DockerRootDir": "/var/lib/docker"}

    def keeps(**changes: object) -> str | None:
        sections = {"docker.info": Result(0, json.dumps({**info, **changes}).encode())}
        return docker().parse_facts({**sections, "docker.containers": Result(0, b"")}, NOW, NOW + 1).keeps

    assert keeps() not in (None, keeps(**change))


def test_sizes_of_volumes_are_read_as_the_engine_writes_them():
    answer = Result(0, b"data|1.5GB\nempty|0B\nkilo|300kB\nunknown|N/A\n\n")
    assert docker().volumes.parse_sizes(answer) == {"data": 1_500_000_000, "empty": 0, "kilo": 300_000}
