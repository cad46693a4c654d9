"""`python -m agentless.controller STATE INVENTORY FD`: what the client starts when no controller runs.

It says `ready`, or what is wrong as the API would, on the file descriptor FD, and closes it.
"""

from __future__ import annotations

import contextlib
import gc
import json
import logging
import os
import sys
from pathlib import Path

# A tenth of a start was Python looking for garbage in what it imports, and each look later would go through that again.
gc.disable()

from agentless.controller.log import LogFile  # noqa: E402
from agentless.controller.process import run  # noqa: E402
from agentless.errors import AgentlessError  # noqa: E402

gc.freeze()
gc.enable()


def main() -> int:
    """Be the controller that a client waits for."""
    state, inventory, writer = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])

    def say(text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # who has started it was killed; it serves all others
            os.write(writer, text.encode())
        os.close(writer)

    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        logging.basicConfig(handlers=[LogFile(state / "controller.log")], level=logging.INFO)
        for name in ("asyncssh", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.WARNING)
        run(state, inventory, ready=lambda: say("ready"), for_ever=False)
    except AgentlessError as error:
        say(json.dumps(error.published()))
        return error.exit_code
    except OSError as error:
        say(json.dumps({"error": "StateError", "message": f"cannot use {state}: {error.strerror}", "exit_code": 1}))
        return 1
    except Exception:
        logging.getLogger(__name__).exception("the controller ended unexpectedly; please report this")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
