"""The loads of simulated GPUs move as those of a training do: bounded, correlated, and the same for the same moment."""

from __future__ import annotations

import csv
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentless.controller.usage.samples import _series
from agentless.demo.gpus import Gpus
from agentless.demo.life import past
from agentless.demo.life.host import Host, busy, size_for
from agentless.demo.life.loads import Loads
from agentless.demo.life.work import KINDS, Job, Shift, job_of, memory_share, reading, utilization
from agentless.remote import host_facts, host_load
from agentless.rules.usage.series import GPU, NODE, Grid, curves, level_for
from agentless.stores.records.samples import SampleStore
from agentless.tui.widgets.curves import POINTS

MIB, WATTS = 81920, 400
BEGAN = 1_800_000_000.0
SEEDS = st.integers(0, (1 << 32) - 1)
JOBS = st.builds(Job, st.sampled_from([*KINDS.values()]), SEEDS)


@given(JOBS, st.floats(-1e4, 1e7), st.floats(1, 1e5))
def test_a_reading_is_within_what_a_gpu_can_say(job, since, lasts):
    now = reading([Shift(job, BEGAN, BEGAN + lasts)], BEGAN + since, MIB, WATTS)
    assert 0 <= now.utilization_pct <= 100
    assert 0 < now.memory_used_mib < MIB
    assert 25 <= now.temperature_c <= 80
    assert 0 < now.power_w < WATTS
    assert now == reading([Shift(job, BEGAN, BEGAN + lasts)], BEGAN + since, MIB, WATTS)


@given(JOBS)
def test_it_warms_up_steps_and_dips_to_validate(job):
    kind = job.kind
    steady = [utilization(job, kind.warm_up + second) for second in range(int(3 * kind.between))]
    assert utilization(job, 0.3 * kind.warm_up) < 5
    assert max(steady) > kind.steps - kind.swing
    dips = sum(value <= kind.validating for value in steady)
    assert dips / len(steady) == pytest.approx(kind.validation / kind.between, abs=0.25)


@given(JOBS)
def test_memory_fills_while_a_job_warms_up_and_then_stays(job):
    warm_up = job.kind.warm_up
    filling = [memory_share(job, warm_up * part / 10) for part in range(11)]
    assert all(earlier <= later for earlier, later in pairwise(filling))
    after = [memory_share(job, warm_up + second) for second in range(0, 3000, 7)]
    assert max(after) - min(after) < 0.04 < min(after)


def test_power_follows_at_once_and_temperature_slowly():
    shifts = [Shift(Job(KINDS["pretrain"], 7), BEGAN, BEGAN + 200)]
    idle, early, late, after, cold = (reading(shifts, BEGAN + at, MIB, WATTS) for at in (-1, 26, 190, 201, 800))
    assert idle.power_w == after.power_w == cold.power_w < early.power_w
    assert idle.temperature_c == cold.temperature_c < early.temperature_c < late.temperature_c
    assert cold.temperature_c < after.temperature_c <= late.temperature_c


def test_gpus_of_one_training_move_together_and_others_do_not():
    one, other = Job(KINDS["train"], 1), Job(KINDS["train"], 2)
    curve = [utilization(one, second) for second in range(60, 400)]
    assert curve == [utilization(Job(KINDS["train"], 1), second) for second in range(60, 400)]
    assert curve != [utilization(other, second) for second in range(60, 400)]


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        (("train", "pretrain", "llama"), "pretrain"),
        (("python", "train.py"), "train"),
        (("python", "evaluate.py"), "eval"),
        (("sleep", "60"), "train"),
        ((), "train"),
    ],
)
def test_what_a_task_does_is_read_from_its_command(command, kind):
    assert job_of(command, "id").kind is KINDS[kind]


def test_a_gpu_works_from_when_it_is_held_until_it_is_let_go():
    at = BEGAN
    loads = Loads(lambda: at)
    job = Job(KINDS["pretrain"], 3)
    used = []
    for passed, held in ((100, {}), (110, {"a": job}), (200, {"a": job}), (201, {})):
        at = BEGAN + passed
        loads.hold(held)
        used.append([loads.reading(gpu, MIB, WATTS).utilization_pct > 50 for gpu in ("a", "b")])
    assert used == [[False, False], [False, False], [True, False], [False, False]]


def test_what_begins_with_the_simulation_has_warmed_up_already():
    loads = Loads(lambda: BEGAN)
    loads.hold({"a": Job(KINDS["pretrain"], 3)})
    now = loads.reading("a", MIB, WATTS)
    assert (now.utilization_pct > 50, now.temperature_c > 60, now.memory_used_mib > MIB / 2) == (True, True, True)


def test_a_gpu_in_slices_uses_what_its_slices_use(tmp_path):
    at = BEGAN
    gpus = Gpus(1, "A100", tmp_path, Loads(lambda: at))
    gpus.divide(0, ["3g.40gb", "2g.20gb", "2g.20gb"])
    slices = table(tmp_path / "mig.csv")
    gpus.busy({each["uuid"]: Job(KINDS["train"], 3) for each in slices[:2]})
    gpus.move()
    used = [int(each["memory.used"]) for each in table(tmp_path / "mig.csv")]
    assert used[0] > used[1] > 1000 > used[2]
    (whole,) = table(tmp_path / "gpus.csv")
    assert int(whole["memory.used"]) == sum(used)
    assert whole["utilization.gpu"] == "[N/A]"


def table(file):
    with file.open() as lines:
        return [*csv.DictReader(lines)]


def test_a_host_says_in_its_files_how_busy_it_is(tmp_path):
    at = BEGAN
    size = size_for(8)
    host = Host(size, tmp_path, lambda: at)
    before = answer_of(tmp_path, host_load, "host-load", host_load.SECTION)
    at += 10
    host.move(0.5)
    now = answer_of(tmp_path, host_load, "host-load", host_load.SECTION)
    load = host_load.load_of(now, before, "/", size.cores, None)
    facts = answer_of(tmp_path, host_facts, "host-facts", "host")
    assert (facts.cores, facts.memory_mib) == (size.cores, size.memory << 10)
    assert load.cores_busy == pytest.approx(busy(size, 0.5).cores, rel=0.01)
    assert load.memory_used_mib == pytest.approx(busy(size, 0.5).memory_mib, rel=0.01)
    assert load.network_in_bytes_per_second == pytest.approx(busy(size, 0.5).received, rel=0.01)


def answer_of(folder, parser, file, section):
    from agentless.model.command import Result

    return parser.parse({section: Result(0, folder.joinpath(file).read_bytes(), b"")})


@given(st.text(max_size=5))
def test_in_the_hour_before_one_job_follows_another(seed):
    shifts = past.shifts_before(seed, BEGAN)
    assert shifts[0].began <= BEGAN - past.SPAN
    assert max(shift.ended for shift in shifts) <= BEGAN
    assert all(20 <= later.began - earlier.ended <= 400 for earlier, later in pairwise(shifts))
    assert BEGAN - shifts[-1].ended <= 400


@pytest.mark.parametrize("few", [200, 0])
def test_the_hour_before_is_a_curve_without_gaps_for_each_gpu_and_node_at_every_range(tmp_path, monkeypatch, few):
    monkeypatch.setattr(past, "_FEW", few)
    now = BEGAN + 1234.5
    gpus = Gpus(2, "A100", tmp_path, Loads(lambda: now))
    past.begin([("n1", gpus)], now)
    past.record([("n1", gpus)], now, tmp_path / "samples.sqlite")
    store = SampleStore(tmp_path / "samples.sqlite")
    for span, points in ((past.SPAN, 60), (past.SPAN, POINTS), (600, POINTS)):
        grid = Grid(now, span, points)
        level = level_for(grid.span, grid.points)
        for key, kind in ((gpus.uuids[0], GPU), (gpus.uuids[1], GPU), (_series("n1"), NODE)):
            found = curves(store.pieces([key], level, grid.begin, kind)[key], grid, level.width, kind)
            for metric in ("memory_used_mib", "temperature_c"):
                assert None not in found[metric][points // 10 : -5], (key, metric, span)  # the oldest minute is dropped
    store.close()
