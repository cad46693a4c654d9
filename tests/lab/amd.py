"""AMD cards of a node: trees like `/sys/class/kfd` and `/sys/class/drm` have them, device files, and stand-in tools.

The trees are what Linux 6.8 shows for an MI100 and an MI300X; a test says what differs. They are mounted over the real
`/sys/class` and `/dev` in the mounts of one node, and no other sees them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .node import Node

MI100 = {
    "vendor": "0x1002",
    "device": "0x738c",
    "revision": "0x01",
    "mem_info_vram_total": "34342961152",
    "mem_info_vram_used": "6750208",
    "gpu_busy_percent": "0",
    "mem_busy_percent": "0",
    "numa_node": "1",
    "hwmon/hwmon3/temp1_label": "edge",
    "hwmon/hwmon3/temp1_input": "53000",
    "hwmon/hwmon3/temp2_label": "junction",
    "hwmon/hwmon3/temp2_input": "55000",
    "hwmon/hwmon3/power1_average": "36000000",
    "hwmon/hwmon3/power1_cap": "290000000",
    "hwmon/hwmon3/freq1_input": "300000000",
    "hwmon/hwmon3/freq2_input": "1200000000",
    "ras/umc_err_count": "ue: 0\nce: 0",
    "ras/sdma_err_count": "ue: 0\nce: 3",
}


@dataclass
class AmdCard:
    """A card: its PCI address, its unique id, the number of its render node, and the files that it has or lacks (None).

    `parts` are the render nodes of its further partitions. `kfd`: the compute driver knows it.
    """

    bus: str
    unique: str | None
    render: int
    files: Mapping[str, str | None] = field(default_factory=dict)
    parts: Sequence[int] = ()
    kfd: bool = True


_MOUNT = r"""
set -e
folder=$1
mkdir -p "$folder/sys/class/kfd" "$folder/sys/class/drm" "$folder/dev" "$folder/changes" "$folder/work"
for class in /sys/class/*; do
  mkdir "$folder/sys/class/${class##*/}"
  mount --bind "$class" "$folder/sys/class/${class##*/}"
done
mount --rbind "$folder/sys/class" /sys/class
mount -t tmpfs tmpfs "$folder/changes"
mkdir "$folder/changes/up" "$folder/changes/work"
mount -t overlay -o "lowerdir=/dev,upperdir=$folder/changes/up,workdir=$folder/changes/work" overlay "$folder/dev"
for mounted in pts shm mqueue; do
  [ ! -d "/dev/$mounted" ] || mount --rbind "/dev/$mounted" "$folder/dev/$mounted"
done
mount --rbind "$folder/dev" /dev
# journalctl finds its files by the machine's id.
[ ! -d /run/systemd/journal ] || exit 0
echo "$2" > "$folder/machine-id"
mount --bind "$folder/machine-id" /etc/machine-id
"""


class AmdCards:
    """The AMD cards of one node, which has none at first."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.root = node.dir / "amd/sys"
        node.stop_docker()  # it has a copy of the node's mounts
        done = node.sh(f"set -- {node.dir}/amd {node.name}\n{_MOUNT}")
        assert done.returncode == 0, done.stderr
        node.start_docker()

    def close(self) -> None:
        """The node's own devices are there again."""
        self._node.stop_docker()
        done = self._node.sh("umount -R -l /dev && umount -R -l /sys/class && { umount -l /etc/machine-id || :; }")
        assert done.returncode == 0, done.stderr
        self._node.start_docker()

    def set(self, *cards: AmdCard, links: Mapping[tuple[int, int], tuple[int, int]] | None = None) -> None:
        """These cards, idle, and no others. Their device files belong to a group 109."""
        write(self.root, cards, links or {})
        minors = [minor for card in cards for minor in (card.render, *card.parts)]
        nodes = "".join(f"mknod -m 660 /dev/dri/renderD{minor} c 226 {minor}\n" for minor in minors)
        kfd = "[ -e /dev/kfd ] || mknod -m 660 /dev/kfd c 240 0\n" if cards else "rm -f /dev/kfd\n"
        script = f"rm -rf /dev/dri\nmkdir /dev/dri\n{kfd}{nodes}chgrp -R 109 /dev/dri /dev/kfd || :"
        done = self._node.sh(script)
        assert done.returncode == 0, done.stderr

    def lose(self, card: AmdCard, number: int) -> None:
        """Take a card away, which has this node of the topology. The others stay as they are at every moment."""
        for place in (f"class/kfd/kfd/topology/nodes/{number}", f"class/drm/renderD{card.render}"):
            (self.root / place).rename(self.root / f"lost-{number}")
            shutil.rmtree(self.root / f"lost-{number}")
        self._node.sh(f"rm /dev/dri/renderD{card.render}")

    def start(self, argv: Sequence[str], memory: Mapping[int, int]) -> subprocess.Popen[bytes]:
        """Start a process on the node, outside any container, that has memory on GPUs."""
        process = self._node.start(argv)
        self.use(self._node.pid(process), memory)
        return process

    def use(self, pid: int, memory: Mapping[int, int], queues: Sequence[int] = ()) -> None:
        """Let a process of the node have memory, in bytes by node of the topology, and queues."""
        use(self.root, pid, memory, queues)


def write(root: Path, cards: Sequence[AmdCard], links: Mapping[tuple[int, int], tuple[int, int]] = {}) -> None:
    """Write `class/kfd`, `class/drm`, `module/amdgpu` and the devices below `root`, in place of /sys.

    `links` has the type and the weight of a link between two cards, by their places in `cards`.
    """
    for each in ("class/kfd", "class/drm"):
        _empty(root / each)
    shutil.rmtree(root / "devices", ignore_errors=True)
    kfd = root / "class/kfd/kfd"
    _put(kfd / "topology/nodes/0/gpu_id", "0")
    _put(kfd / "topology/nodes/0/properties", "cpu_cores_count 64\nsimd_count 0\ndrm_render_minor 0")
    (kfd / "proc").mkdir(parents=True)
    (root / "class/drm").mkdir(parents=True, exist_ok=True)
    _put(root / "module/amdgpu/version", "6.8.5")
    node, first = 1, {}
    for place, card in enumerate(cards):
        first[place] = node
        folder = root / "devices/pci0000:00" / card.bus
        own = {**MI100, **({"unique_id": card.unique} if card.unique else {}), **card.files}
        for name, text in own.items():
            if text is not None:
                _put(folder / name, text)
        _render(root, card.render, folder)
        for part, minor in enumerate(card.parts, 1):
            device = root / f"devices/platform/amdgpu_xcp_{place * 8 + part}"
            device.mkdir(parents=True)
            _render(root, minor, device)
        for part, minor in enumerate((card.render, *card.parts) if card.kfd else ()):
            _kfd_node(kfd / f"topology/nodes/{node}", card, part, minor, node)
            node += 1
    for (one, other), (kind, weight) in links.items():
        for here, there in ((one, other), (other, one)):
            link = kfd / f"topology/nodes/{first[here]}/io_links/{there}/properties"
            _put(
                link, f"type {kind}\nversion_major 0\nnode_from {first[here]}\nnode_to {first[there]}\nweight {weight}"
            )


def gpu_id(node: int) -> int:
    """What the compute driver calls the GPU of this node of its topology."""
    return 50000 + node


def use(root: Path, pid: int, memory: Mapping[int, int], queues: Sequence[int] = ()) -> None:
    """Let a process have memory, in bytes by node, and queues on nodes."""
    folder = root / f"class/kfd/kfd/proc/{pid}"
    for node, size in memory.items():
        _put(folder / f"vram_{gpu_id(node)}", str(size))
    for number, node in enumerate(queues):
        _put(folder / f"queues/{number}/gpuid", str(gpu_id(node)))


def _kfd_node(folder: Path, card: AmdCard, part: int, minor: int, node: int) -> None:
    domain, bus, slot = card.bus.split(":")
    device, function = slot.split(".")
    location = part << 28 | int(bus, 16) << 8 | int(device, 16) << 3 | int(function)
    size = int(card.files.get("mem_info_vram_total") or MI100["mem_info_vram_total"]) // (len(card.parts) + 1)
    _put(folder / "gpu_id", str(gpu_id(node)))
    lines = ["cpu_cores_count 0", "simd_count 480", "vendor_id 4098", f"location_id {location}"]
    lines += [f"domain {int(domain, 16)}", f"drm_render_minor {minor}", "hive_id 0"]
    _put(folder / "properties", "\n".join(lines))
    _put(folder / "mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {size}\nflags 0\nwidth 4096\nmem_clk_max 1200")


def _render(root: Path, minor: int, device: Path) -> None:
    entry = root / f"class/drm/renderD{minor}"
    _put(entry / "dev", f"226:{minor}")
    (entry / "device").symlink_to(device)


def _empty(folder: Path) -> None:
    """Empty a folder that is mounted somewhere."""
    for each in folder.iterdir() if folder.exists() else ():
        shutil.rmtree(each)


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
