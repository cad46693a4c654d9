"""The program that an rsync here takes for ssh: it reaches the rsync of a node by the controller's connection.

`copier` starts that rsync with `-e` and this program, and says in a variable of the environment which place
is meant. How it ended is written into a pipe that is open for it, as JSON.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
from pathlib import Path

from agentless.client.client import Client
from agentless.client.stream import ProgramStream
from agentless.errors import AgentlessError
from agentless.model.files.location import encoded

VARIABLE = "AGENTLESS_COPY"
CHUNK = 256 * 1024


def main() -> int:
    """Carry both directions; the exit code is that of the rsync at the other end.

    An rsync that fails ends what it takes for ssh with SIGUSR1, and by that would keep the node from saying why.
    """
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for fd in (0, 1):
        os.set_blocking(fd, True)  # rsync makes both ends of what is between them the other way
    setting = json.loads(os.environ[VARIABLE])
    inventory = setting["inventory"] and Path(setting["inventory"])
    client = Client(Path(setting["state"]), inventory, setting["owner"])
    arguments = [encoded(word) for word in sys.argv[2:]]  # the first one is the name of a host
    report: dict[str, object] = {"sent": 0, "received": 0}
    try:
        with client.transfer(setting["place"], way="rsync", argument=arguments, **setting["what"]) as program:
            threading.Thread(target=_send, args=(program, report), daemon=True).start()
            return _receive(program, report)
    except AgentlessError as error:
        report |= {"message": str(error), "exit_code": error.exit_code}
        return 255
    except KeyboardInterrupt:
        return 130
    finally:
        os.write(setting["report"], json.dumps(report).encode())


def _send(program: ProgramStream, report: dict[str, object]) -> None:
    sent = 0
    with contextlib.suppress(OSError):  # what it has ended with, its other end hears
        while data := os.read(0, CHUNK):
            program.write(data)
            sent += len(data)
            report["sent"] = sent
    program.write_eof()


def _receive(program: ProgramStream, report: dict[str, object]) -> int:
    received = 0
    while chunk := program.read_stream():
        fd, data = chunk
        received += len(data)
        report["received"] = received
        try:
            while data:
                data = data[os.write(fd, data) :]
        except OSError:  # the rsync here has ended, and says why
            return 255
    return program.exit_code if program.exit_code is not None else 255


if __name__ == "__main__":
    sys.exit(main())
