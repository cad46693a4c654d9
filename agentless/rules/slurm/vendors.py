"""How Slurm gives the GPUs of each vendor."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SlurmVendor:
    """`library` is the one with which Slurm finds GPUs by itself, and `flag` has it set the variables of the vendor.

    A device file begins with `device`; `numbered`: it usually ends with the number that the driver's tools print.
    """

    library: str
    flag: str
    device: str
    numbered: bool


VENDORS = {
    "nvidia": SlurmVendor("nvml", "nvidia_gpu_env", "/dev/nvidia", numbered=True),
    "amd": SlurmVendor("rsmi", "amd_gpu_env", "/dev/dri/renderD", numbered=False),
}
"""By `GpuReading.vendor`; Slurm does not get the GPUs of others."""
