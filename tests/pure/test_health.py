"""Which GPU is kept out, why, and what must not keep one out."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentless.model.nodes.gpu import GpuFault, GpuSample
from agentless.rules.nodes.gpu_findings import Finding, Kind, find_faults
from tests.engines import xid as an_xid
from tests.pure.build import reading, uuid

GPUS = tuple(reading("node1", index, pci_bus_id=f"0000:{index + 1:02x}:00.0", temperature_c=40) for index in range(3))
FIRST = uuid("node1", 0)


def xid(code: int, message: str = "", *, gpu: int = 0, at: float | None = 100.0, age: float | None = 50.0) -> GpuFault:
    return an_xid(f"0000:{gpu + 1:02x}:00.0", code, message, at, age)


def first(**changes: Any) -> GpuSample:
    """The GPUs of a healthy node, the first with these readings."""
    return GpuSample((replace(GPUS[0], **changes), *GPUS[1:]))


def reasons(sample: GpuSample = first(), xids: tuple[GpuFault, ...] | None = (), **limits: Any) -> dict[str, str]:  # noqa: B008
    """What speaks against each GPU, by UUID."""
    return {finding.gpu: finding.reason for finding in find_faults(sample, GPUS, xids, **limits)}


# ---------------------------------------------------------------------- readings


def test_nothing_speaks_against_healthy_gpus() -> None:
    """Readings in range, all there, an empty log."""
    assert find_faults(GpuSample(GPUS), GPUS, (), temperature_limit=85) == ()


@pytest.mark.parametrize(("errors", "words"), [(1, "1 uncorrected ECC error"), (2, "2 uncorrected ECC errors")])
def test_uncorrected_memory_errors_keep_a_gpu_out(errors: int, words: str) -> None:
    """Its memory has lost data since the driver was loaded."""
    assert reasons(first(ecc_uncorrected=errors)) == {FIRST: words}


def test_further_memory_errors_are_a_new_trouble() -> None:
    """Whoever let the GPU in after three did not say that a fourth is well."""
    three, again, four = (find_faults(first(ecc_uncorrected=errors), GPUS, ()) for errors in (3, 3, 4))
    assert (three[0].key == again[0].key, three[0].key == four[0].key) == (True, False)


@pytest.mark.parametrize(("celsius", "out"), [(84, False), (85, True), (86, True), (None, False)])
def test_a_gpu_is_too_hot_from_the_limit_on(celsius: int | None, out: bool) -> None:
    """At the limit, above it; a temperature that cannot be read is no heat."""
    assert bool(reasons(first(temperature_c=celsius), temperature_limit=85)) is out


def test_without_a_limit_no_gpu_is_too_hot() -> None:
    """The limit is the admin's."""
    assert reasons(first(temperature_c=120)) == {}


def test_heat_is_one_trouble_however_hot() -> None:
    """It changes with every sample."""
    findings = [find_faults(first(temperature_c=hot), GPUS, (), temperature_limit=85) for hot in (90, 95)]
    assert len({finding.key for (finding,) in findings}) == 1


def test_a_gpu_that_needs_a_reset_is_kept_out() -> None:
    """The driver says so itself, in words that the probe knows."""
    assert reasons(first(needs_reset=True)) == {FIRST: "needs a reset"}


# ---------------------------------------------------------------------- gone


def test_a_gpu_that_is_gone_is_named() -> None:
    """It was there at an earlier look; the others are not touched by it."""
    assert reasons(GpuSample(GPUS[1:])) == {FIRST: "disappeared"}


def test_a_gpu_that_the_driver_cannot_reach_is_named() -> None:
    """The driver's complaint makes the answer one that is not whole, and says which GPU it is about."""
    sample = GpuSample(GPUS[1:], None, "GPU 0000:01:00.0 does not answer", lost=("0000:01:00.0",))
    assert reasons(sample) == {FIRST: "the driver cannot reach it; it may have fallen off the bus"}


def test_the_only_gpu_is_missed_too_when_the_driver_cannot_reach_it() -> None:
    """Then no row is left."""
    found = find_faults(
        GpuSample((), None, "GPU 0: 0000:01:00.0 does not answer", lost=("0000:01:00.0",)), GPUS[:1], ()
    )
    assert [finding.gpu for finding in found] == [FIRST]


@pytest.mark.parametrize(
    "sample",
    [
        GpuSample(GPUS[1:], None, "the GPU sample was cut off; agentless retries with the next sample"),
        GpuSample((), None, "nvidia-smi did not answer within 10 s", hung=True),
        GpuSample(),
    ],
    ids=["cut off", "hung", "no driver while it is replaced"],
)
def test_an_answer_that_is_not_whole_makes_no_gpu_gone(sample: GpuSample) -> None:
    """A GPU that stays out until a person says otherwise is not one that a bad line has hidden."""
    assert reasons(sample) == {}


def test_a_gpu_that_falls_off_further_is_still_the_same_trouble() -> None:
    """First the driver complains of it, and after a reboot it is not there any more."""
    lost = GpuSample(GPUS[1:], None, "…", lost=("0000:01:00.0",))
    assert (
        len({finding.key for sample in (lost, GpuSample(GPUS[1:])) for finding in find_faults(sample, GPUS, ())}) == 1
    )


# ---------------------------------------------------------------------- Xids


@pytest.mark.parametrize("code", [46, 48, 54, 61, 62, 64, 74, 79, 95, 110, 119, 120, 136, 140, 143, 151, 156, 158])
def test_an_error_of_the_hardware_keeps_its_gpu_out(code: int) -> None:
    """NVIDIA says of these that the GPU is to be reset, or the machine restarted or looked at."""
    assert list(reasons(xids=(xid(code),))) == [FIRST]


@pytest.mark.parametrize(
    "code", [8, 11, 13, 31, 32, 37, 38, 43, 44, 45, 63, 68, 69, 92, 94, 109, 121, 137, 144, 155, 999]
)
def test_an_error_of_an_application_does_not(code: int) -> None:
    """A task of bob's that reads out of bounds costs nobody a GPU; nor does what NVIDIA says to ignore."""
    assert reasons(xids=(xid(code),)) == {}


def test_the_reason_has_the_number_that_people_look_up() -> None:
    """And NVIDIA's words, not the process that happened to run."""
    assert reasons(xids=(xid(79, "pid=4711, name=python, …"),)) == {FIRST: "Xid 79: the GPU has fallen off the bus"}


def test_an_error_is_its_own_gpus_only() -> None:
    """By the PCI address in the line."""
    assert list(reasons(xids=(xid(79, gpu=2),))) == [uuid("node1", 2)]


def test_an_error_of_a_gpu_that_is_gone_is_still_told() -> None:
    """It is why it is gone."""
    found = find_faults(GpuSample(GPUS[1:]), GPUS, (xid(79),))
    assert [(finding.gpu, finding.key) for finding in found] == [(FIRST, "gone"), (FIRST, "xid 79 100.0")]


def test_an_error_at_an_address_without_a_gpu_is_nobodys() -> None:
    """A card that was moved, or never came up."""
    assert reasons(xids=(xid(79, gpu=7),)) == {}


def test_a_log_that_cannot_be_read_speaks_against_none() -> None:
    """It is unknown on most nodes."""
    assert reasons(xids=None) == {}


def test_a_storm_of_one_error_is_one_finding() -> None:
    """The last one: the reason is the same, and the key moves on only when the GPU goes on failing."""
    storm = tuple(xid(119, at=float(second)) for second in range(50))
    assert [finding.key for finding in find_faults(first(), GPUS, storm)] == ["xid 119 49.0"]


def test_an_error_that_happens_again_has_another_key() -> None:
    """What a person forgave was the first one."""
    once, again = (find_faults(first(), GPUS, log)[-1].key for log in ((xid(79),), (xid(79), xid(79, at=200.0))))
    assert once != again


def test_a_line_in_the_log_has_one_key_however_long_ago_it_was() -> None:
    """It is read again at each look, and is no new trouble."""
    now, later = (find_faults(first(), GPUS, (xid(79, age=age),)) for age in (50.0, 110.0))
    assert now == later


@pytest.mark.parametrize(("age", "out"), [(3600.0, True), (3601.0, False), (None, True)])
def test_old_errors_do_not_count_where_there_is_a_limit(age: float | None, out: bool) -> None:
    """A machine may be up for a year; an error of which nobody knows when it was counts."""
    assert bool(reasons(xids=(xid(79, age=age),), faults_within=3600.0)) is out


ASKS = "GPU recovery action changed from 0x0 (None) to "


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (f"{ASKS}0x1 (GPU Reset Required)", "the driver requires an action: GPU Reset Required"),
        (f"{ASKS}0x2 (Node Reboot Required)", "the driver requires an action: Node Reboot Required"),
        (f"{ASKS}0x4 (Drain and Reset)", "the driver requires an action: Drain and Reset"),
        ("something new", "the recovery action changed"),
    ],
)
def test_a_gpu_for_which_the_driver_asks_for_something_is_kept_out(message: str, words: str) -> None:
    """Newer drivers say it themselves, whatever the error was."""
    assert reasons(xids=(xid(154, message),)) == {FIRST: f"Xid 154: {words}"}


def test_a_gpu_for_which_the_driver_asks_for_nothing_any_more_is_not() -> None:
    """The last word counts."""
    log = (xid(154, f"{ASKS}0x1 (GPU Reset Required)"), xid(154, "GPU … changed from 0x1 (…) to 0x0 (None)", at=200.0))
    assert reasons(xids=log) == {}


def test_everything_against_a_gpu_is_told() -> None:
    """One trouble may be over before the other."""
    found = find_faults(first(ecc_uncorrected=1, temperature_c=90), GPUS, (xid(48),), temperature_limit=85)
    assert [finding.key for finding in found] == ["ecc 1", "hot", "xid 48 100.0"]
    assert {finding.gpu for finding in found} == {FIRST}


def test_a_finding_is_what_a_memory_needs() -> None:
    """Which GPU, which trouble, in words."""
    assert find_faults(first(needs_reset=True), GPUS, ()) == (Finding(FIRST, Kind.RESET, "needs a reset"),)
