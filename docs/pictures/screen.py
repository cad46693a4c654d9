"""Draws the README's picture, `screen.svg`, from what commands print on simulated nodes: run this file."""

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.console import Console
from rich.text import Text

COMMANDS = (
    "agentless submit 2xRTX:20G --time-limit 2h --name train -- sh -c 'echo epoch 1; sleep 600'",
    "agentless gpus node2",
    "agentless submit node2::0 --name eval -- python eval.py",
    "agentless explain eval",
)
WIDTH = 100


def on_terminal(command: str, environment: dict[str, str]) -> str:
    """What a command prints on a terminal, colors included."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(command, shell=True, env=environment, stdout=theirs, stderr=theirs, stdin=theirs)
    os.close(theirs)
    output = b""
    try:
        while chunk := os.read(ours, 65536):
            output += chunk
    except OSError:
        pass  # the other end is closed: the command has ended
    process.wait()
    return output.decode().replace("\r\n", "\n")


def main() -> None:
    """Run the commands against `agentless demo --keep` and draw."""
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "agentless", "demo", "--keep"], stdin=-1, stdout=-1, text=True
    ) as demo:
        line = next(line for line in demo.stdout if "export" in line)
        bin_folder = Path(sys.executable).parent
        environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": str(WIDTH)}
        environment |= dict(re.findall(r"(\w+)=(\S+)", line))
        console = Console(record=True, width=WIDTH, file=io.StringIO())
        for command in COMMANDS:
            console.print(Text(f"$ {command}", style="bold"))
            console.print(Text.from_ansi(on_terminal(command, environment)))
        demo.stdin.close()
    svg = console.export_svg(title="agentless (simulated nodes)")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    Path(__file__).with_name("screen.svg").write_text(svg)


if __name__ == "__main__":
    main()
