"""Stand-in for somebody's `train.py` in simulated containers: prints an epoch a second, and saves when it is stopped.

It computes nothing. It needs no part of agentless, since the interpreter of a simulated container has none.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from pathlib import Path
from types import FrameType

EPOCHS = 20


def main() -> None:
    """Take any options, and go on for some epochs."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    options, others = parser.parse_known_args()
    print(" ".join([Path(sys.argv[0]).name, *others]), flush=True)
    done = 0

    def stop(_number: int, _frame: FrameType | None) -> None:
        print(f"SIGTERM: saved after epoch {done}", flush=True)
        sys.exit(128 + signal.SIGTERM)

    signal.signal(signal.SIGTERM, stop)
    loss = 0.0
    while done < options.epochs:
        time.sleep(1)
        done += 1
        loss = 0.3 + 2.1 / (done + 2) + done * 37 % 41 / 4100
        print(f"epoch {done}: loss {loss:.4f}", flush=True)
    print(f"loss {loss:.4f}")


if __name__ == "__main__":
    main()
