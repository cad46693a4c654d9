"""Names of AMD's cards by their PCI device ids, for drivers that know only the id.

Cards for data centres mostly say their name themselves. The source is amdgpu.ids of libdrm.
"""

from __future__ import annotations

import re

_ID = re.compile(r"0x([0-9a-f]{4})")
_REVISION = re.compile(r"0x([0-9a-f]{2})")
_NAMES = {
    "6860": "AMD Radeon Instinct MI25",
    "6861": "AMD Radeon Pro WX 9100",
    "66a0": "AMD Radeon Instinct MI60",
    "66a1": "AMD Radeon Instinct MI50",
    "66af": "AMD Radeon VII",
    "738c": "AMD Instinct MI100",
    "738e": "AMD Instinct MI100",
    "7408": "AMD Instinct MI250X",
    "740c": "AMD Instinct MI250X/MI250",
    "740f": "AMD Instinct MI210",
    "74a0": "AMD Instinct MI300A",
    "74a1": "AMD Instinct MI300X",
    "74a2": "AMD Instinct MI308X",
    "74a5": "AMD Instinct MI325X",
    "74a9": "AMD Instinct MI300X HF",
    "74b5": "AMD Instinct MI300X VF",
    "75a0": "AMD Instinct MI350X",
    "75a3": "AMD Instinct MI355X",
    "687f": "AMD Radeon RX Vega",
    "73a3": "AMD Radeon Pro W6800",
    "73a5": "AMD Radeon RX 6950 XT",
    "73bf": "AMD Radeon RX 6800/6900",
    "73df": "AMD Radeon RX 6700",
    "73ff": "AMD Radeon RX 6600",
    "7448": "AMD Radeon PRO W7900",
    "744c": "AMD Radeon RX 7900",
    "745e": "AMD Radeon PRO W7800",
    "7470": "AMD Radeon PRO W7700",
    "747e": "AMD Radeon RX 7700/7800",
    "7480": "AMD Radeon RX 7600",
    "7550": "AMD Radeon RX 9070",
    "7551": "AMD Radeon AI PRO R9700",
    "7590": "AMD Radeon RX 9060 XT",
}
_BY_REVISION = {
    ("73bf", "c0"): "AMD Radeon RX 6900 XT",
    ("73bf", "c1"): "AMD Radeon RX 6800 XT",
    ("73bf", "c3"): "AMD Radeon RX 6800",
    ("73df", "c1"): "AMD Radeon RX 6700 XT",
    ("744c", "c8"): "AMD Radeon RX 7900 XTX",
    ("744c", "cc"): "AMD Radeon RX 7900 XT",
    ("7550", "c0"): "AMD Radeon RX 9070 XT",
}


def name(device: str, revision: str) -> str | None:
    """What people call a card. One that is not known is called by its id; None if it has none."""
    found, revised = _ID.fullmatch(device), _REVISION.fullmatch(revision)
    if not found:
        return None
    known = _BY_REVISION.get((found[1], revised[1])) if revised else None
    return known or _NAMES.get(found[1], f"AMD GPU {device}")
