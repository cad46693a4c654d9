"""GPUs in MIG mode as real drivers showed them: `pure/data/nvidia-mig` has an H100 and an H200, idle and under load."""

from __future__ import annotations

import re
from pathlib import Path

FOLDER = Path(__file__).parent / "pure" / "data" / "nvidia-mig"
FIELDS = ("gpu_uuid", "pid", "process_name", "used_gpu_memory")
"""What the probe asks of processes."""


class Capture:
    """What nvidia-smi printed. `mark` replaces the last digits of each UUID, so that no two tests have the same GPU."""

    def __init__(self, name: str, mark: str = "000000000000") -> None:
        text = (FOLDER / f"{name}.txt").read_text()
        text = re.sub(r"((?:GPU|MIG)-[0-9a-f]{8}(?:-0000){3}-)0000000000([0-9a-f]{2})", rf"\g<1>{mark[:10]}\2", text)
        text = re.sub(r"((?:GPU|MIG)-)0000([0-9a-f]{4})", rf"\g<1>{mark[:4]}\2", text)
        self.sections = {
            title: body.split("\n")[1:] for title, body in re.findall(r"@@ (.*)\n((?:[^@].*\n|\n)*)(?=@@)", text)
        }

    def list(self) -> str:
        return self._text("capabilities list (-L)")

    def topology(self) -> str:
        return self._text("capabilities topo -m")

    def table(self, load: str) -> str:
        return self._text(f"{load} nvidia-smi (default table)")

    def gpus(self, load: str) -> list[dict[str, str]]:
        """The rows of GPUs by field, without units."""
        return self._rows(f"{load} query-gpu")

    def processes(self, load: str) -> list[dict[str, str]]:
        return [{field: row[field] for field in FIELDS} for row in self._rows(f"{load} query-compute-apps")]

    def output(self, load: str) -> str:
        """What the probe prints on such a node."""
        rows = [", ".join(row.values()) for row in self.gpus(load)]
        apps = [f">{', '.join(row.values())}" for row in self.processes(load)]
        listed = [self.list(), "@slices 0", self.table(load), "@table 0", ""]
        return "\n".join([*rows, "", "@gpus 0", *apps, "@end 0", *listed])

    def _text(self, title: str) -> str:
        return "\n".join(self.sections[title])

    def _rows(self, title: str) -> list[dict[str, str]]:
        header, *rows = (line.split(", ") for line in self.sections[title] if line)
        names = [name.partition(" [")[0] for name in header]
        plain = [[re.sub(r"^([0-9.]+) (?:MiB|W|MHz|%)$", r"\1", cell) for cell in row] for row in rows]
        return [dict(zip(names, row, strict=True)) for row in plain]
